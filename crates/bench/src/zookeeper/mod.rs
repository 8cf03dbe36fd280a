//! One ZooKeeper server: a cycle beside a bare creation and deletion, and hand-offs beside one bare
//! write.
//!
//! The server is Debian's, started for this run, and does not flush. Client and server share the
//! machine's cores, so only ratios within a round mean anything. The floor is the crate
//! `zookeeper-client` over one connection, with nothing around it. Clients of one
//! process share what they know of a queue, so hand-offs between such clients and between others
//! are two figures.

mod costs;

use holdline::Client;
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use zookeeper_client::{Acls, CreateMode};

use crate::rounds::{Failure, in_turn, report};
use crate::waiters::beside_writes;

pub(crate) use costs::section as costs;

const CYCLES: usize = 500;

pub(crate) fn section() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = ZooKeeper::try_start(&ZooKeeperConfig::default())?;
    runtime.block_on(cycles(&server))?;
    runtime.block_on(async {
        let raw = raw(&server).await?;
        let write = async || {
            raw.set_data("/floor", b"value", None).await?;
            Ok(())
        };
        beside_writes("zookeeper, one process", "write", |_| server.url(), write).await?;
        let url = |client| url_of_process(&server, client);
        beside_writes("zookeeper, processes", "write", url, write).await
    })
}

/// Returns a URL for the client with this number, which shares no memory with the others, like that
/// of another process: it names the member another number of times, by two names, since a URL has
/// 32 members at most.
fn url_of_process(server: &ZooKeeper, number: usize) -> String {
    let address = server.hosts();
    let by_name = address.replace("127.0.0.1", "localhost");
    let mut members = vec![address.as_str(); number % 16 + 1];
    members.extend(vec![by_name.as_str(); number / 16]);
    format!("zk://{}", members.join(","))
}

async fn raw(server: &ZooKeeper) -> Result<zookeeper_client::Client, Failure> {
    let raw = zookeeper_client::Client::connect(&server.hosts()).await?;
    raw.mkdir("/floor", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
    Ok(raw)
}

async fn cycles(server: &ZooKeeper) -> Result<(), Failure> {
    let client = Client::connect(&server.url()).await?;
    let mutex = client.mutex("bench")?;
    let raw = raw(server).await?;
    let contender = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let floor = async || {
        let (_, number) = raw.create("/floor/lock-", b"value", &contender).await?;
        Ok(raw.delete(&format!("/floor/lock-{number}"), None).await?)
    };
    let subject = async || {
        let _ = mutex.lock().await?.release().await;
        Ok(())
    };
    let rounds = in_turn(CYCLES, floor, subject).await?;
    report("zookeeper: lock + release, one task, p50", &rounds, "at most 1.5");
    Ok(())
}
