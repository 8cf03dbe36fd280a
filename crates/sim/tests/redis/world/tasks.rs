//! Tasks on one thread, in groups that stand still or vanish together, as processes do.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use super::dice::Dice;

pub(crate) type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Which process a task belongs to. Each start of a client is another one.
pub(crate) type Process = u64;

#[derive(Default)]
struct Inbox {
    next: u64,
    spawned: Vec<(u64, Process, Boxed)>,
    woken: BTreeSet<u64>,
}

struct Waking(Arc<Mutex<Inbox>>, u64);

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.0.lock().woken.insert(self.1);
    }
}

/// Adds tasks.
#[derive(Clone)]
pub(crate) struct Spawner(Arc<Mutex<Inbox>>);

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
        inbox.woken.insert(number);
    }
}

/// All tasks of a world.
#[derive(Default)]
pub(crate) struct Tasks {
    inbox: Arc<Mutex<Inbox>>,
    tasks: BTreeMap<u64, (Process, Boxed)>,
    ready: BTreeSet<u64>,
    paused: BTreeSet<Process>,
    killed: BTreeSet<Process>,
}

impl Tasks {
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner(self.inbox.clone())
    }

    pub(crate) fn pause(&mut self, process: Process) {
        self.paused.insert(process);
    }

    pub(crate) fn resume(&mut self, process: Process) {
        self.paused.remove(&process);
    }

    /// Makes a process vanish with all its tasks.
    pub(crate) fn kill(&mut self, process: Process) {
        self.paused.remove(&process);
        self.killed.insert(process);
        self.collect();
        let gone: Vec<u64> = self
            .tasks
            .iter()
            .filter(|(_, (owner, _))| *owner == process)
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            self.tasks.remove(&number);
        }
        self.collect();
    }

    /// Runs one task that can run, drawn from the dice; false when there is none.
    pub(crate) fn run_one(&mut self, dice: &mut Dice) -> bool {
        self.collect();
        let can = |number: &&u64| {
            self.tasks.get(number).is_some_and(|(owner, _)| !self.paused.contains(owner))
        };
        let ready: Vec<u64> = self.ready.iter().filter(can).copied().collect();
        if ready.is_empty() {
            return false;
        }
        let number = dice.one_of(&ready);
        self.ready.remove(&number);
        let Some((_, task)) = self.tasks.get_mut(&number) else { return true };
        let waker = Waker::from(Arc::new(Waking(self.inbox.clone(), number)));
        if let Poll::Ready(()) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.tasks.remove(&number);
        }
        true
    }

    fn collect(&mut self) {
        let (spawned, woken) = {
            let mut inbox = self.inbox.lock();
            (std::mem::take(&mut inbox.spawned), std::mem::take(&mut inbox.woken))
        };
        for (number, process, task) in spawned {
            if !self.killed.contains(&process) {
                self.tasks.insert(number, (process, task));
            }
        }
        self.ready.extend(woken);
        let tasks = &self.tasks;
        self.ready.retain(|number| tasks.contains_key(number));
    }
}
