//! Uncontended cycles: the floor, the peers, and both dialects of ours in turn.

use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdline::Client;
use tokio::task::LocalSet;

use super::leases::cpu_time;
use super::raw::{Raw, keys};
use super::{Side, World};
use crate::contend::{NAMES, cycle};
use crate::rounds::{Failure, Peer, Round, each, median, middle, report_beside, time};

const ROUNDS: usize = 5;
pub(crate) const CYCLES: usize = 2_000;
pub(crate) const TIME: Duration = Duration::from_millis(1_000);
const PEERS: [&str; 2] = ["rslock", "redis-lock"];

/// How many tasks a section has, and its place among the budgets of a side.
pub(crate) const TASKS: [usize; 3] = [1, 64, 1_024];

/// Runs all rounds with this many tasks, and prints a line for each side.
pub(crate) fn section(world: &World, sides: &[&Side], tasks: usize) -> Result<(), Failure> {
    let mut ours: Vec<(Vec<Round>, Vec<f64>)> = vec![Default::default(); sides.len()];
    let mut peers: Vec<Peer> = PEERS.iter().map(|name| (*name, Vec::new())).collect();
    for _ in 0..ROUNDS {
        let floor = world.runtime.block_on(floor(world, tasks))?;
        for (name, figures) in &mut peers {
            figures.extend(world.peers.cycle(name, &world.server.url(), tasks, TIME)?);
        }
        for (side, (rounds, processor)) in sides.iter().zip(&mut ours) {
            let (subject, taken) = world.runtime.block_on(subject(world, side, tasks))?;
            rounds.push(Round { floor, subject });
            processor.push(taken);
        }
    }
    for (side, (rounds, processor)) in sides.iter().zip(&ours) {
        let title = match tasks {
            1 => format!("{}: lock + release, one task, p50", side.title),
            _ => format!("{}: a cycle of {tasks} tasks", side.title),
        };
        let place = TASKS.iter().position(|known| *known == tasks).unwrap_or(0);
        report_beside(&title, rounds, &peers, side.budgets[place]);
        let processor = median(processor.iter().copied());
        println!("    of our own processor time a cycle takes {}", time(processor));
    }
    Ok(())
}

async fn floor(world: &World, tasks: usize) -> Result<f64, Failure> {
    let mut raw = Raw::connect(world.server.address()).await?;
    if tasks > 1 {
        return Ok(each(TIME, raw.cycles(&keys(tasks), TIME).await?));
    }
    middle(CYCLES, async |done| raw.cycle(&format!("floor:{}", done % NAMES)).await).await
}

/// Returns how long a cycle takes, and how much of it our own process works.
async fn subject(world: &World, side: &Side, tasks: usize) -> Result<(f64, f64), Failure> {
    let client = world.client(side).await?;
    let before = cpu_time();
    let (cycle, ended) = match tasks {
        1 => (cycle(&client, CYCLES).await?, CYCLES),
        _ => {
            let ended = many_tasks(client, tasks).await?;
            (each(TIME, ended), ended)
        }
    };
    Ok((cycle, each(cpu_time() - before, ended)))
}

/// Many tasks with names of their own, on one connection; returns how many cycles ended.
pub(crate) async fn many_tasks(client: Client, tasks: usize) -> Result<usize, Failure> {
    let client = Rc::new(client);
    let set = LocalSet::new();
    let deadline = Instant::now() + TIME;
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let client = client.clone();
            set.spawn_local(async move {
                let lock = client.mutex(format!("many/{task}"))?;
                let mut ended = 0_usize;
                while Instant::now() < deadline {
                    let guard = lock.lock().await?;
                    let _ = black_box(guard.release().await);
                    ended += 1;
                }
                Ok::<_, Failure>(ended)
            })
        })
        .collect();
    set.await;
    let mut ended = 0;
    for task in running {
        ended += task.await??;
    }
    Ok(ended)
}
