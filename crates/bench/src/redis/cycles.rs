//! Uncontended cycles.

use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::LocalSet;

use super::raw::Raw;
use super::{Side, World};
use crate::rounds::{Failure, ROUNDS, Round, each, median, report};

const CYCLES: usize = 2_000;
const NAMES: usize = 16;
const TIME: Duration = Duration::from_millis(1_000);

/// One task: the median of single cycles.
pub(crate) fn one_task(world: &World, side: &Side) -> Result<(), Failure> {
    let rounds = world.runtime.block_on(async {
        let mut raw = Raw::connect(world.server.address()).await?;
        let client = world.client(side).await?;
        let locks: Result<Vec<_>, _> =
            (0..NAMES).map(|name| client.mutex(format!("cycle/{name}"))).collect();
        let locks = locks?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let mut floor = Vec::with_capacity(CYCLES);
            for cycle in 0..CYCLES {
                let key = format!("floor:{}", cycle % NAMES);
                let start = Instant::now();
                raw.cycle(&key).await?;
                floor.push(each(start.elapsed(), 1));
            }
            let mut ours = Vec::with_capacity(CYCLES);
            for cycle in 0..CYCLES {
                let start = Instant::now();
                let guard = locks[cycle % NAMES].lock().await?;
                black_box(guard.release().await);
                ours.push(each(start.elapsed(), 1));
            }
            rounds.push(Round {
                floor: median(floor.into_iter()),
                subject: median(ours.into_iter()),
            });
        }
        Ok::<_, Failure>(rounds)
    })?;
    let title = format!("{}: lock + release, one task, p50", side.title);
    report(&title, &rounds, side.budgets[0]);
    Ok(())
}

/// Many tasks with names of their own, on one connection.
pub(crate) fn many_tasks(world: &World, side: &Side, tasks: usize) -> Result<(), Failure> {
    let rounds = world.runtime.block_on(async {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let mut raw = Raw::connect(world.server.address()).await?;
            let floor = raw.cycles(tasks, TIME).await?;
            let ours = ours(world, side, tasks).await?;
            rounds.push(Round { floor: each(TIME, floor), subject: each(TIME, ours) });
        }
        Ok::<_, Failure>(rounds)
    })?;
    let title = format!("{}: a cycle of {tasks} tasks", side.title);
    report(&title, &rounds, side.budgets[if tasks < 100 { 1 } else { 2 }]);
    Ok(())
}

async fn ours(world: &World, side: &Side, tasks: usize) -> Result<usize, Failure> {
    let client = Rc::new(world.client(side).await?);
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
                    black_box(guard.release().await);
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
