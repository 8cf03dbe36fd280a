//! The runtime in which an engine's tasks run.
//!
//! Tasks run in the runtime in which the engine was made, so an answer costs no switch between
//! threads. Outside of any runtime, they run on one thread of the process, which has a small
//! runtime and serves all engines. If the engine's runtime is shut down, or has no I/O, its tasks
//! are dropped. Their drop moves the engine to that thread, and it connects again. A
//! single-threaded runtime that nobody drives stops the connections in it: requests then fail at
//! their deadlines.

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};

/// The thread's runtime, and the id of its process: a forked process does not have the thread.
static THREAD: Mutex<Option<(u32, Handle)>> = Mutex::new(None);

/// A future on the heap.
pub type Task<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Runs tasks outside of tokio, as a simulator does.
pub trait TaskSpawner: Debug + Send + Sync + 'static {
    /// Runs a task until it ends. Dropping it earlier ends the engine's work.
    fn spawn(&self, task: Task<()>);
}

#[derive(Debug)]
enum Target {
    Runtime(Handle),
    Thread(Handle),
    TaskSpawner(Arc<dyn TaskSpawner>),
}

/// The runtime of an engine's tasks.
#[derive(Debug)]
pub struct RuntimeHandle(Mutex<Target>);

impl RuntimeHandle {
    /// Chooses the spawner if there is one, else the current runtime, else the thread of the
    /// process.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn find(spawner: Option<Arc<dyn TaskSpawner>>) -> io::Result<RuntimeHandle> {
        let target = match (spawner, Handle::try_current()) {
            (Some(spawner), _) => Target::TaskSpawner(spawner),
            (None, Ok(handle)) => Target::Runtime(handle),
            (None, Err(_)) => Target::Thread(thread()?),
        };
        Ok(RuntimeHandle(Mutex::new(target)))
    }

    /// Chooses the thread of the process, also inside a runtime: for tasks that must outlive it.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn process_wide() -> io::Result<RuntimeHandle> {
        Ok(RuntimeHandle(Mutex::new(Target::Thread(thread()?))))
    }

    /// Spawns a task.
    pub fn spawn(&self, task: Task<()>) {
        let target = self.0.lock();
        let handle = match &*target {
            Target::Runtime(handle) | Target::Thread(handle) => handle.clone(),
            Target::TaskSpawner(spawner) => {
                let spawner = spawner.clone();
                drop(target);
                return spawner.spawn(task);
            }
        };
        // If the runtime has ended, the task is dropped here, and its drop may call this again.
        drop(target);
        handle.spawn(task);
    }

    /// Spawns a task, and calls `dropped` if it is dropped before its end: then its runtime has
    /// ended, or it has panicked.
    pub fn spawn_watched(&self, task: Task<()>, dropped: impl FnOnce() + Send + 'static) {
        self.spawn(Box::pin(Watched { task: Some(task), dropped: Some(dropped) }));
    }

    /// Moves from a runtime to the thread of the process; returns whether it did.
    pub fn move_to_thread(&self) -> bool {
        let mut target = self.0.lock();
        let moved = matches!(*target, Target::Runtime(_));
        match thread() {
            Ok(handle) if moved => *target = Target::Thread(handle),
            Err(error) => tracing::error!(%error, "no thread for the connections of an engine"),
            Ok(_) => {}
        }
        moved && matches!(*target, Target::Thread(_))
    }
}

/// The task of [`RuntimeHandle::spawn_watched`].
struct Watched<F: FnOnce()> {
    task: Option<Task<()>>,
    dropped: Option<F>,
}

// The closure is never polled, and the task is pinned in its box.
impl<F: FnOnce()> Unpin for Watched<F> {}

impl<F: FnOnce()> Future for Watched<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(task) = &mut self.task else { return Poll::Ready(()) };
        let polled = task.as_mut().poll(context);
        if polled.is_ready() {
            self.task = None;
        }
        polled
    }
}

impl<F: FnOnce()> Drop for Watched<F> {
    fn drop(&mut self) {
        // What the task has is dropped before its successor begins.
        if let (Some(_), Some(dropped)) = (self.task.take(), self.dropped.take()) {
            dropped();
        }
    }
}

/// Returns the thread's runtime, which is started at its first use.
fn thread() -> io::Result<Handle> {
    let mut thread = THREAD.lock();
    let process = std::process::id();
    if let Some((_, handle)) = thread.as_ref().filter(|(started_in, _)| *started_in == process) {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("holdline-net".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    *thread = Some((process, handle.clone()));
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_task_reports_only_an_early_end() {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let (sender, receiver) = std::sync::mpsc::channel();
        runtime.block_on(async {
            let handle = RuntimeHandle::find(None).expect("found");
            for (name, task) in [
                ("ends", Box::pin(async {}) as Task<()>),
                ("stays", Box::pin(std::future::pending())),
                ("panics", Box::pin(async { panic!("as planned") })),
            ] {
                let sender = sender.clone();
                handle.spawn_watched(task, move || sender.send(name).expect("received"));
            }
            tokio::task::yield_now().await;
            assert_eq!(receiver.try_recv(), Ok("panics"));
            assert!(receiver.try_recv().is_err());
        });
        drop(runtime);
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), ["stays"]);
    }

    /// The parent's thread does not exist: only a handle that nobody drives remains.
    #[test]
    fn a_forked_process_starts_a_thread_of_its_own() {
        thread().expect("a thread");
        if let Some((process, _)) = &mut *THREAD.lock() {
            *process = 0;
        }
        let handle = thread().expect("a thread");
        let started_in = THREAD.lock().as_ref().map(|(process, _)| *process);
        assert_eq!(started_in, Some(std::process::id()));
        let (sender, receiver) = std::sync::mpsc::channel();
        handle.spawn(async move { sender.send(()) });
        receiver.recv().expect("it runs there");
    }
}
