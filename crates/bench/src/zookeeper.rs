//! One ZooKeeper server: a cycle beside a bare creation and deletion, and hand-offs beside one bare
//! write.
//!
//! The server is Debian's, started for this run, and does not flush. Client and server share the
//! machine's cores, so only ratios within a round mean anything. The floor is the crate
//! `zookeeper-client` over one connection, with nothing around it.

use std::time::Instant;

use holdline::Client;
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use zookeeper_client::{Acls, CreateMode};

use crate::rounds::{Failure, ROUNDS, Round, each, flat, in_turn, median, report};
use crate::waiters::go_round;

const CYCLES: usize = 500;

pub(crate) fn section() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = ZooKeeper::try_start(&ZooKeeperConfig::default())?;
    runtime.block_on(cycles(&server))?;
    let mut ratios = Vec::new();
    for waiters in [2, 16, 64] {
        ratios.push(runtime.block_on(hand_offs(&server, waiters))?);
    }
    flat(&ratios);
    Ok(())
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

/// From the call of a release to the next grant, while this many wait.
async fn hand_offs(server: &ZooKeeper, waiters: usize) -> Result<f64, Failure> {
    let raw = raw(server).await?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let mut floors = Vec::new();
        for _ in 0..CYCLES {
            let start = Instant::now();
            raw.set_data("/floor", b"value", None).await?;
            floors.push(each(start.elapsed(), 1));
        }
        let name = format!("bench/{waiters}/{round}");
        let taken = go_round(&server.url(), &name, waiters).await?;
        let floor = median(floors.into_iter());
        let subject = median(taken.into_iter());
        rounds.push(Round { floor, subject });
    }
    let title = format!("zookeeper: hand-off among {waiters}, p50, beside one write");
    report(&title, &rounds, "at most 3");
    Ok(median(rounds.iter().map(|round| round.subject / round.floor)))
}
