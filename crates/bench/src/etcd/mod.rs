//! One etcd server: a cycle beside a bare put and delete, and hand-offs beside one bare put.
//!
//! The server is Debian's, started for this run, and does not flush. Client and server share the
//! machine's cores, so only ratios within a round mean anything.

mod costs;
mod raw;

use holdline::Client;
use holdline_services::{EtcdConfig, EtcdServer};

use crate::rounds::{Failure, in_turn, report};
use crate::waiters::beside_writes;
pub(crate) use costs::section as costs;
use raw::Raw;

const CYCLES: usize = 500;

pub(crate) fn section() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = EtcdServer::try_start(EtcdConfig::default())?;
    runtime.block_on(cycles(&server))?;
    runtime.block_on(async {
        let mut raw = Raw::connect(server.address()).await?;
        let url = |_| server.url();
        beside_writes("etcd", "put", url, async || raw.put("floor").await).await
    })
}

async fn cycles(server: &EtcdServer) -> Result<(), Failure> {
    let client = Client::connect(&server.url()).await?;
    let mutex = client.mutex("bench")?;
    let mut raw = Raw::connect(server.address()).await?;
    let floor = async || {
        raw.put("floor").await?;
        raw.delete("floor").await
    };
    let subject = async || {
        let _ = mutex.lock().await?.release().await;
        Ok(())
    };
    let rounds = in_turn(CYCLES, floor, subject).await?;
    report("etcd: lock + release, one task, p50", &rounds, "at most 1.4");
    Ok(())
}
