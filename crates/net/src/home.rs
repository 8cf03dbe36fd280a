//! Where an engine's tasks run.
//!
//! In the runtime in which the engine was made: there an answer costs no switch between threads.
//! Made outside of any, they run on one thread of the process, which has a small runtime and
//! serves all engines; a blocking caller then only waits for its answer. When the runtime of an
//! engine is shut down under it, or has no I/O, its tasks are dropped; their drop moves the engine
//! to that thread, and it dials anew. A runtime of one thread that nobody drives stands still, and
//! so do the connections in it: requests then fail at their deadlines.

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};

/// The thread's runtime, and the process that it runs in: a fork has no threads but its own.
static THREAD: Mutex<Option<(u32, Handle)>> = Mutex::new(None);

/// A future on the heap.
pub type Task<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// A place for tasks that is not of the machine: a simulator's.
pub trait Elsewhere: Debug + Send + Sync + 'static {
    /// Runs a task until it ends. Dropping it before its end is understood as the end of its
    /// world.
    fn spawn(&self, task: Task<()>);
}

#[derive(Debug)]
enum Place {
    Runtime(Handle),
    Thread(Handle),
    Elsewhere(Arc<dyn Elsewhere>),
}

/// Where tasks go.
#[derive(Debug)]
pub struct Home(Mutex<Place>);

impl Home {
    /// Finds the place: what was passed in, the current runtime, or the thread.
    ///
    /// # Errors
    /// The process gets no thread.
    pub fn find(elsewhere: Option<Arc<dyn Elsewhere>>) -> io::Result<Home> {
        let place = match (elsewhere, Handle::try_current()) {
            (Some(elsewhere), _) => Place::Elsewhere(elsewhere),
            (None, Ok(handle)) => Place::Runtime(handle),
            (None, Err(_)) => Place::Thread(thread()?),
        };
        Ok(Home(Mutex::new(place)))
    }

    /// The thread, also inside a runtime: for what must outlive it.
    ///
    /// # Errors
    /// The process gets no thread.
    pub fn of_process() -> io::Result<Home> {
        Ok(Home(Mutex::new(Place::Thread(thread()?))))
    }

    /// Runs a task there.
    pub fn spawn(&self, task: Task<()>) {
        let place = self.0.lock();
        let handle = match &*place {
            Place::Runtime(handle) | Place::Thread(handle) => handle.clone(),
            Place::Elsewhere(elsewhere) => {
                let elsewhere = elsewhere.clone();
                drop(place);
                return elsewhere.spawn(task);
            }
        };
        // A task for a runtime that is gone is dropped here, and its drop may come back to us.
        drop(place);
        handle.spawn(task);
    }

    /// Moves to the thread, if there is another place to leave; tells whether it did.
    pub fn leave(&self) -> bool {
        let mut place = self.0.lock();
        let left = matches!(*place, Place::Runtime(_));
        match thread() {
            Ok(handle) if left => *place = Place::Thread(handle),
            Err(error) => tracing::error!(%error, "no thread for the connections of an engine"),
            Ok(_) => {}
        }
        left && matches!(*place, Place::Thread(_))
    }
}

/// The thread's runtime; started at its first use.
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

    /// The parent's thread is not there: what is left of it is a handle that nobody drives.
    #[test]
    fn a_copy_of_the_process_starts_a_thread_of_its_own() {
        thread().expect("a thread");
        if let Some((process, _)) = &mut *THREAD.lock() {
            *process = 0;
        }
        let handle = thread().expect("a thread");
        let started_in = THREAD.lock().as_ref().map(|(process, _)| *process);
        assert_eq!(started_in, Some(std::process::id()));
        let (told, heard) = std::sync::mpsc::channel();
        handle.spawn(async move { told.send(()) });
        heard.recv().expect("it runs there");
    }
}
