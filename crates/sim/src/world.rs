//! Tasks in virtual time: one thread, one seed, one order of events.
//!
//! Time does not pass while a task can run. When none can, it jumps to the next timer. The seed
//! decides which of several ready tasks runs next.
//!
//! Invariant W1: the same tasks under the same seed run in the same order.
//! Invariant W2: tasks sleep on the world's clock, never on a timer of a runtime.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use holdline::clock::ManualClock;
use holdline_core::{Clock, Moment};
use parking_lot::Mutex;

use crate::number::SeededRng;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why a world stopped before its tasks ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stuck {
    /// No task can run and none sleeps: a deadlock.
    Deadlock {
        /// The number of waiting tasks.
        waiting: usize,
    },
    /// The time limit was reached.
    OutOfTime {
        /// The number of unfinished tasks.
        waiting: usize,
    },
    /// Tasks ran without end while no time passed.
    Spinning,
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stuck::Deadlock { waiting } => write!(f, "{waiting} tasks wait for ever"),
            Stuck::OutOfTime { waiting } => write!(f, "{waiting} tasks ran out of time"),
            Stuck::Spinning => f.write_str("tasks run without time moving on"),
        }
    }
}

impl std::error::Error for Stuck {}

/// The largest number of steps while no time passes.
const STEPS: u64 = 10_000_000;

/// Spawned and woken tasks, for the world to collect.
#[derive(Default)]
struct WakeQueue {
    next: u64,
    spawned: Vec<(u64, Task)>,
    woken: Vec<u64>,
}

struct TaskWaker {
    inbox: Arc<Mutex<WakeQueue>>,
    task: u64,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.inbox.lock().woken.push(self.task);
    }
}

/// Spawns tasks in a world, from inside or outside.
#[derive(Clone)]
pub struct Spawner(Arc<Mutex<WakeQueue>>);

impl std::fmt::Debug for Spawner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Spawner {
    /// Spawns a task. It runs when the world schedules it.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut inbox = self.0.lock();
        let number = inbox.next;
        inbox.next += 1;
        inbox.spawned.push((number, Box::pin(task)));
        inbox.woken.push(number);
    }
}

/// A seeded world: tasks and their time.
pub struct World {
    clock: ManualClock,
    rng: SeededRng,
    inbox: Arc<Mutex<WakeQueue>>,
    tasks: BTreeMap<u64, Task>,
    ready: Vec<u64>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

impl World {
    /// Makes an empty world, ordered by `seed`.
    pub fn new(seed: u64) -> World {
        World {
            clock: ManualClock::new(),
            rng: SeededRng::new(seed),
            inbox: Arc::default(),
            tasks: BTreeMap::new(),
            ready: Vec::new(),
        }
    }

    /// Returns the world's clock.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }

    /// Returns a spawner.
    pub fn spawner(&self) -> Spawner {
        Spawner(self.inbox.clone())
    }

    /// Spawns a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawner().spawn(task);
    }

    /// Draws a number below `limit` from the world's seed.
    pub fn draw(&mut self, limit: u64) -> u64 {
        self.rng.below(limit)
    }

    /// Runs until `task` ends, and returns its result. Other tasks remain.
    ///
    /// # Errors
    /// [`Stuck`] if the tasks do not end within `limit` of the world's time.
    pub fn run<T: Send + 'static>(
        &mut self,
        limit: Duration,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stuck> {
        let place = Arc::new(Mutex::new(None));
        let own = place.clone();
        self.spawn(async move {
            let value = task.await;
            *own.lock() = Some(value);
        });
        let end = self.clock.now().after(limit);
        loop {
            self.run_ready(|| place.lock().is_some())?;
            if let Some(value) = place.lock().take() {
                return Ok(value);
            }
            self.jump(end)?;
        }
    }

    /// Runs until every task has ended.
    ///
    /// # Errors
    /// [`Stuck`] if the tasks do not end within `limit` of the world's time.
    pub fn run_all(&mut self, limit: Duration) -> Result<(), Stuck> {
        let end = self.clock.now().after(limit);
        loop {
            self.run_ready(|| false)?;
            if self.tasks.is_empty() {
                return Ok(());
            }
            self.jump(end)?;
        }
    }

    /// Runs all tasks that can run at this moment.
    fn run_ready(&mut self, done: impl Fn() -> bool) -> Result<(), Stuck> {
        for _ in 0..STEPS {
            self.collect();
            if self.ready.is_empty() || done() {
                return Ok(());
            }
            let at = self.rng.below(self.ready.len() as u64);
            let number = self.ready.swap_remove(usize::try_from(at).unwrap_or(0));
            let Some(task) = self.tasks.get_mut(&number) else { continue };
            let waker_of_task = TaskWaker { inbox: self.inbox.clone(), task: number };
            let waker = Waker::from(Arc::new(waker_of_task));
            if let Poll::Ready(()) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.tasks.remove(&number);
            }
        }
        Err(Stuck::Spinning)
    }

    fn collect(&mut self) {
        let mut inbox = self.inbox.lock();
        self.tasks.extend(inbox.spawned.drain(..));
        for number in inbox.woken.drain(..) {
            if !self.ready.contains(&number) {
                self.ready.push(number);
            }
        }
    }

    /// Advances the time to the next timer.
    fn jump(&mut self, end: Moment) -> Result<(), Stuck> {
        let waiting = self.tasks.len();
        let next = self.clock.next_wake().ok_or(Stuck::Deadlock { waiting })?;
        if next > end {
            return Err(Stuck::OutOfTime { waiting });
        }
        self.clock.advance(next.since(self.clock.now()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(seed: u64) -> (Vec<u32>, Moment) {
        let mut world = World::new(seed);
        let order = Arc::new(Mutex::new(Vec::new()));
        let clock = world.clock();
        for number in 0..20 {
            let order = order.clone();
            let clock = clock.clone();
            world.spawn(async move {
                let at = Moment::ORIGIN.after(Duration::from_secs(u64::from(number % 3)));
                clock.sleep_until(at).await;
                order.lock().push(number);
            });
        }
        world.run_all(Duration::from_secs(10)).expect("all sleeps end");
        let order = order.lock().clone();
        (order, clock.now())
    }

    #[test]
    fn only_the_seed_decides_the_order() {
        assert_eq!(trace(1), trace(1));
        assert_ne!(trace(1).0, trace(2).0);
        assert_eq!(trace(1).1, Moment::ORIGIN.after(Duration::from_secs(2)));
    }

    #[test]
    fn a_stuck_world_is_reported() {
        let mut world = World::new(0);
        let clock = world.clock();
        let limit = Duration::from_secs(5);
        let forever = world.run(limit, std::future::pending::<()>());
        assert_eq!(forever, Err(Stuck::Deadlock { waiting: 1 }));
        let delayed_replies =
            world.run(limit, async move { clock.sleep_until(Moment::NEVER).await });
        assert_eq!(delayed_replies, Err(Stuck::OutOfTime { waiting: 2 }));
    }
}
