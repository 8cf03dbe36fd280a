//! Runs one lock crate for a while, and prints one figure.
//!
//! Usage: `holdline-bench-peers PEER URL TASKS MILLIS [contended]`, where PEER is `rslock` or
//! `redis-lock`, and URL one server or several with commas between.
//! Each task takes and gives back a lock of its own, over one connection of the process, as the
//! crates' own pages show it. With one task the figure is the median of its cycles in nanoseconds,
//! with more it is how many cycles ended. With `contended` all want one lock of `rslock`, and what
//! is printed is acquisitions, the p99 wait in nanoseconds, the most and the fewest of one task.

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

    /// Takes the lock that all tasks want until the time is over; returns how long each wait took.
    async fn wait(&self, end: Instant) -> Result<Vec<Duration>, Failure> {
        let mut waits = Vec::new();
        match self {
            Peer::Rslock(manager) => {
                while Instant::now() < end {
                    let start = Instant::now();
                    let lock = manager.acquire_no_guard("peer:contended".as_bytes(), LEASE).await?;
                    waits.push(start.elapsed());
                    manager.unlock(&lock).await;
                }
            }
            Peer::RedisLock(_) => return Err("redis-lock does not wait for a lock".into()),
        }
        Ok(waits)
    }
}

/// All tasks want one lock; returns how long each of their waits took, by task.
async fn contend(
    peer: Rc<Peer>,
    tasks: usize,
    end: Instant,
) -> Result<Vec<Vec<Duration>>, Failure> {
    let start = |_| {
        let peer = peer.clone();
        tokio::task::spawn_local(async move { peer.wait(end).await })
    };
    let running: Vec<_> = (0..tasks).map(start).collect();
    let mut all = Vec::new();
    for task in running {
        all.push(task.await??);
    }
    Ok(all)
}

fn contended(waits: &[Vec<Duration>]) -> Result<String, Failure> {
    let mut all: Vec<Duration> = waits.iter().flatten().copied().collect();
    all.sort_unstable();
    let p99 = all.get(all.len() * 99 / 100).ok_or("nobody got the lock")?.as_nanos();
    let counts = waits.iter().map(Vec::len);
    let (most, least) = (counts.clone().max().unwrap_or(0), counts.min().unwrap_or(0));
    Ok(format!("{} {p99} {most} {least}", all.len()))
}

fn run() -> Result<String, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (peer, url, tasks, millis, alone) = match words.as_slice() {
        [peer, url, tasks, millis] => (peer, url, tasks, millis, true),
        [peer, url, tasks, millis, "contended"] => (peer, url, tasks, millis, false),
        _ => return Err("usage: holdline-bench-peers PEER URL TASKS MILLIS [contended]".into()),
    };
    let (tasks, time) = (tasks.parse::<usize>()?, Duration::from_millis(millis.parse()?));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let set = LocalSet::new();
    if !alone {
        let waits = set.block_on(&runtime, async {
            let peer = Rc::new(Peer::open(peer, url).await?);
            peer.run(tasks, Instant::now() + Duration::from_millis(20)).await?;
            contend(peer, tasks, Instant::now() + time).await
        })?;
        return contended(&waits);
    }
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
        return Ok(taken.len().to_string());
    }
    let mut taken = taken;
    taken.sort_unstable();
    Ok(taken.get(taken.len() / 2).ok_or("no cycle ended")?.as_nanos().to_string())
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
