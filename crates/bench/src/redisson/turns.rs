//! What contenders did, by the machine's monotonic clock, which both processes read.

use std::rc::Rc;
use std::time::{Duration, Instant};

use holdline::Client;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::LocalSet;

use crate::rounds::{Failure, median};

/// One lock and release, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) ours: bool,
    pub(super) contender: usize,
    pub(super) asked: u64,
    pub(super) start: u64,
    pub(super) done: u64,
}

impl Turn {
    pub(super) fn wait(&self) -> f64 {
        nanos(self.start - self.asked)
    }

    pub(super) fn cycle(&self) -> f64 {
        nanos(self.done - self.asked)
    }
}

#[allow(clippy::cast_precision_loss)]
pub(super) fn nanos(count: u64) -> f64 {
    count as f64
}

#[allow(clippy::cast_precision_loss)]
pub(super) fn per_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

fn now() -> Result<u64, Failure> {
    let now = clock_gettime(ClockId::Monotonic);
    Ok(u64::try_from(now.tv_sec)? * 1_000_000_000 + u64::try_from(now.tv_nsec)?)
}

/// Who takes and releases at the same time.
#[derive(Clone, Copy)]
pub(super) struct Crowd {
    pub(super) size: usize,
    /// Each has a name of its own; otherwise all have one.
    pub(super) own: bool,
}

/// Lets a crowd of our tasks take and release.
pub(super) async fn run(
    client: Client,
    crowd: Crowd,
    time: Duration,
) -> Result<Vec<Turn>, Failure> {
    let client = Rc::new(client);
    let set = LocalSet::new();
    let deadline = Instant::now() + time;
    let Crowd { size, own } = crowd;
    let running: Vec<_> = (0..size)
        .map(|contender| {
            let client = client.clone();
            set.spawn_local(async move {
                let name =
                    if own { format!("hand-off:{contender}") } else { "hand-off".to_owned() };
                let lock = client.mutex(name)?;
                let mut turns = Vec::new();
                while Instant::now() < deadline {
                    let asked = now()?;
                    let left = deadline.saturating_duration_since(Instant::now());
                    let Ok(guard) = tokio::time::timeout(left, lock.lock()).await else { break };
                    let guard = guard?;
                    let start = now()?;
                    let _ = guard.release().await;
                    turns.push(Turn { ours: true, contender, asked, start, done: now()? });
                }
                Ok::<_, Failure>(turns)
            })
        })
        .collect();
    set.await;
    let mut turns = Vec::new();
    for task in running {
        turns.extend(task.await??);
    }
    Ok(turns)
}

/// How many grants went to another contender than the one before.
pub(super) fn hand_offs(turns: &mut [Turn]) -> usize {
    turns.sort_unstable_by_key(|turn| turn.start);
    let other =
        |pair: &&[Turn]| (pair[0].ours, pair[0].contender) != (pair[1].ours, pair[1].contender);
    turns.windows(2).filter(other).count()
}

/// The value below which this share of all lies, in percent.
pub(super) fn percentile(values: impl Iterator<Item = f64>, percent: usize) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() * percent / 100).copied().unwrap_or(f64::NAN)
}

pub(super) fn middle(turns: &[Turn], value: impl Fn(&Turn) -> f64) -> f64 {
    median(turns.iter().map(value))
}
