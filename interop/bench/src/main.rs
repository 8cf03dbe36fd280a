//! Runs one lock crate for a while, and prints one figure.
//!
//! Usage: `holdline-bench-peers PEER URL TASKS MILLIS`, where PEER is `rslock` or `redis-lock`, and
//! URL one server or several with commas between.
//! Each task takes and gives back a lock of its own, over one connection of the process, as the
//! crates' own pages show it. With one task the figure is the median of its cycles in nanoseconds,
//! with more it is how many cycles ended.

use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::LocalSet;

type Failure = Box<dyn std::error::Error>;

const LEASE: Duration = Duration::from_secs(30);

/// One of the peers, ready to lock.
enum Peer {
    Rslock(rslock::LockManager),
    RedisLock(Vec<redis::aio::MultiplexedConnection>),
}

impl Peer {
    async fn open(name: &str, url: &str) -> Result<Peer, Failure> {
        Ok(match name {
            "rslock" => Peer::Rslock(rslock::LockManager::new(url.split(',').collect())),
            "redis-lock" => {
                let mut connections = Vec::new();
                for url in url.split(',') {
                    let client = redis::Client::open(url)?;
                    connections.push(client.get_multiplexed_async_connection().await?);
                }
                Peer::RedisLock(connections)
            }
            _ => return Err(format!("no peer is called `{name}`").into()),
        })
    }

    /// Runs cycles until the time is over; returns how long each took.
    async fn run(&self, task: usize, end: Instant) -> Result<Vec<Duration>, Failure> {
        let name = format!("peer:{task}");
        let mut taken = Vec::new();
        match self {
            Peer::Rslock(manager) => {
                let manager = manager.clone();
                while Instant::now() < end {
                    let start = Instant::now();
                    let lock = manager.lock(name.as_bytes(), LEASE).await?;
                    manager.unlock(&lock).await;
                    taken.push(start.elapsed());
                }
            }
            Peer::RedisLock(connections) => {
                // Its locks are behind a mutex: one for each task, so that none waits there.
                let own = |one: &redis::aio::MultiplexedConnection| {
                    Arc::new(tokio::sync::Mutex::new(one.clone()))
                };
                let connection: Vec<_> = connections.iter().map(own).collect();
                while Instant::now() < end {
                    let options = redis_lock::LockAcrossOptions {
                        ttl: LEASE,
                        ..redis_lock::LockAcrossOptions::default()
                    };
                    let start = Instant::now();
                    let nothing = async {};
                    redis_lock::lock_across(&connection, &name, nothing, options).await?;
                    taken.push(start.elapsed());
                }
            }
        }
        Ok(taken)
    }
}

fn run() -> Result<u128, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [peer, url, tasks, millis] = arguments.as_slice() else {
        return Err("usage: holdline-bench-peers PEER URL TASKS MILLIS".into());
    };
    let (tasks, time) = (tasks.parse::<usize>()?, Duration::from_millis(millis.parse()?));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let set = LocalSet::new();
    let taken = set.block_on(&runtime, async {
        let peer = Rc::new(Peer::open(peer, url).await?);
        // The first cycle connects and brings the scripts.
        peer.run(tasks, Instant::now() + Duration::from_millis(20)).await?;
        let end = Instant::now() + time;
        let start = |task| {
            let peer = peer.clone();
            tokio::task::spawn_local(async move { peer.run(task, end).await })
        };
        let running: Vec<_> = (0..tasks).map(start).collect();
        let mut taken = Vec::new();
        for task in running {
            taken.extend(task.await??);
        }
        Ok::<_, Failure>(taken)
    })?;
    if tasks > 1 {
        return Ok(taken.len() as u128);
    }
    let mut taken = taken;
    taken.sort_unstable();
    Ok(taken.get(taken.len() / 2).ok_or("no cycle ended")?.as_nanos())
}

fn main() -> ExitCode {
    match run() {
        Ok(figure) => {
            println!("{figure}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("holdline-bench-peers: {error}");
            ExitCode::FAILURE
        }
    }
}
