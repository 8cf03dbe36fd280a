//! One etcd server: a cycle beside a bare put and delete, and hand-offs beside one bare put.
//!
//! The server is Debian's, started for this run, and does not flush. Client and server share the
//! machine's cores, so only ratios within a round mean anything.

mod raw;

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline::{Client, LockOptions};
use holdline_services::{EtcdConfig, EtcdServer};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::rounds::{Failure, ROUNDS, Round, each, flat, median, report};
use raw::Raw;

const CYCLES: usize = 500;
/// How often the name goes round among the waiters.
const HAND_OFFS: usize = 256;
/// How many clients, each with a connection of its own, the waiters share.
const CLIENTS: usize = 4;

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
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let (mut floors, mut subjects) = (Vec::new(), Vec::new());
        for _ in 0..CYCLES {
            let start = Instant::now();
            raw.put("floor").await?;
            raw.delete("floor").await?;
            floors.push(each(start.elapsed(), 1));
            let start = Instant::now();
            mutex.lock().await?.release().await;
            subjects.push(each(start.elapsed(), 1));
        }
        let (floor, subject) = (median(floors.into_iter()), median(subjects.into_iter()));
        rounds.push(Round { floor, subject });
    }
    report("etcd: lock + release, one task, p50", &rounds, "at most 1.4");
    Ok(())
}

/// From the call of a release to the next grant, while so many wait.
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
        let taken = go_round(server, &name, waiters).await?;
        let (floor, subject) = (median(floors.into_iter()), median(taken.into_iter()));
        rounds.push(Round { floor, subject });
    }
    let title = format!("etcd: hand-off among {waiters}, p50, beside one put");
    report(&title, &rounds, "at most 3");
    Ok(median(rounds.iter().map(|round| round.subject / round.floor)))
}

async fn go_round(server: &EtcdServer, name: &str, waiters: usize) -> Result<Vec<f64>, Failure> {
    let mut clients = Vec::with_capacity(CLIENTS);
    for _ in 0..CLIENTS {
        clients.push(Client::connect(&server.url()).await?);
    }
    let released: Arc<Mutex<Option<Instant>>> = Arc::default();
    let mut tasks = JoinSet::new();
    for waiter in 0..waiters {
        let wait = LockOptions::default().with_wait(Duration::from_secs(60));
        let mutex = clients[waiter % CLIENTS].mutex_with(name, &wait)?;
        let released = released.clone();
        tasks.spawn(async move {
            let mut taken = Vec::new();
            for _ in 0..HAND_OFFS / waiters {
                let guard = mutex.lock().await?;
                let granted = Instant::now();
                let mut released = released.lock().await;
                taken.extend(released.map(|at| each(granted.duration_since(at), 1)));
                *released = Some(Instant::now());
                drop(released);
                guard.release().await;
            }
            Ok::<_, holdline::LockError>(taken)
        });
    }
    let mut all = Vec::with_capacity(HAND_OFFS);
    while let Some(taken) = tasks.join_next().await {
        all.extend(taken??);
    }
    Ok(all)
}
