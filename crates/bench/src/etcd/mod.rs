//! One etcd server: a cycle beside a bare put and delete, and hand-offs beside one bare put.
//!
//! The server is Debian's, started for this run, and does not flush. Client and server share the
//! machine's cores, so only ratios within a round mean anything.

mod raw;

use std::time::Instant;

use holdline::Client;
use holdline_services::{EtcdConfig, EtcdServer};

use crate::rounds::{Failure, ROUNDS, Round, each, flat, in_turn, median, report};
use crate::waiters::go_round;
use raw::Raw;

const CYCLES: usize = 500;

pub(crate) fn section() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = EtcdServer::try_start(EtcdConfig::default())?;
    runtime.block_on(cycles(&server))?;
    let mut ratios = Vec::new();
    for waiters in [2, 16, 64] {
        ratios.push(runtime.block_on(hand_offs(&server, waiters))?);
    }
    flat(&ratios);
    Ok(())
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

/// From the call of a release to the next grant, while this many wait.
async fn hand_offs(server: &EtcdServer, waiters: usize) -> Result<f64, Failure> {
    let mut raw = Raw::connect(server.address()).await?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let mut floors = Vec::new();
        for _ in 0..CYCLES {
            let start = Instant::now();
            raw.put("floor").await?;
            floors.push(each(start.elapsed(), 1));
        }
        let name = format!("bench/{waiters}/{round}");
        let taken = go_round(&server.url(), &name, waiters).await?;
        let floor = median(floors.into_iter());
        let subject = median(taken.into_iter());
        rounds.push(Round { floor, subject });
    }
    let title = format!("etcd: hand-off among {waiters}, p50, beside one put");
    report(&title, &rounds, "at most 3");
    Ok(median(rounds.iter().map(|round| round.subject / round.floor)))
}
