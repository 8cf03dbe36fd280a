//! Tasks on one thread, in groups that are paused or killed together, like processes.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use super::rng::SeededRng;

pub(crate) type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The process of a task. Each start of a client is another process.
pub(crate) type Process = u64;

#[derive(Default)]
struct WakeQueue {
    next: u64,
    spawned: Vec<(u64, Process, Boxed)>,
    woken: Vec<u64>,
}

struct TaskWaker(Arc<Mutex<WakeQueue>>, u64);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.lock().woken.push(self.1);
    }
}

/// Spawns tasks.
#[derive(Clone)]
pub(crate) struct Spawner(Arc<Mutex<WakeQueue>>);

impl std::fmt::Debug for Spawner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spawner")
    }
}

impl Spawner {
    pub(crate) fn spawn(&self, process: Process, task: Boxed) {
        let mut inbox = self.0.lock();
        let number = inbox.next;
        inbox.next += 1;
        inbox.spawned.push((number, process, task));
        inbox.woken.push(number);
    }
}

struct WorldTask {
    process: Process,
    work: Boxed,
    waker: Waker,
}

/// All tasks of a world.
#[derive(Default)]
pub(crate) struct Tasks {
    inbox: Arc<Mutex<WakeQueue>>,
    tasks: BTreeMap<u64, WorldTask>,
    ready: BTreeSet<u64>,
    /// Ready tasks of paused processes.
    held: BTreeMap<Process, BTreeSet<u64>>,
    killed: BTreeSet<Process>,
}

impl Tasks {
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner(self.inbox.clone())
    }

    pub(crate) fn pause(&mut self, process: Process) {
        let tasks = &self.tasks;
        let of = |number: &u64| tasks.get(number).is_some_and(|one| one.process == process);
        let held: BTreeSet<u64> = self.ready.iter().copied().filter(of).collect();
        self.ready.retain(|number| !held.contains(number));
        self.held.entry(process).or_default().extend(held);
    }

    pub(crate) fn resume(&mut self, process: Process) {
        self.ready.extend(self.held.remove(&process).into_iter().flatten());
    }

    /// Kills a process with all its tasks.
    pub(crate) fn kill(&mut self, process: Process) {
        self.collect();
        self.held.remove(&process);
        self.killed.insert(process);
        let gone: Vec<u64> = self
            .tasks
            .iter()
            .filter(|(_, one)| one.process == process)
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            self.ready.remove(&number);
            self.tasks.remove(&number);
        }
        self.collect();
    }

    /// Runs one ready task, chosen at random; false if there is none.
    pub(crate) fn run_one(&mut self, rng: &mut SeededRng) -> bool {
        self.collect();
        let chosen = match self.ready.len() {
            0 => return false,
            count => rng.below(count as u64) as usize,
        };
        let Some(number) = self.ready.iter().nth(chosen).copied() else { return false };
        self.ready.remove(&number);
        let Some(one) = self.tasks.get_mut(&number) else { return true };
        if let Poll::Ready(()) = one.work.as_mut().poll(&mut Context::from_waker(&one.waker)) {
            self.tasks.remove(&number);
        }
        true
    }

    fn collect(&mut self) {
        let (spawned, woken) = {
            let mut inbox = self.inbox.lock();
            (std::mem::take(&mut inbox.spawned), std::mem::take(&mut inbox.woken))
        };
        for (number, process, work) in spawned {
            if !self.killed.contains(&process) {
                let waker = Waker::from(Arc::new(TaskWaker(self.inbox.clone(), number)));
                self.tasks.insert(number, WorldTask { process, work, waker });
            }
        }
        for number in woken {
            let Some(one) = self.tasks.get(&number) else { continue };
            self.held.get_mut(&one.process).unwrap_or(&mut self.ready).insert(number);
        }
    }
}
