//! Where the work of an engine is done: each piece as a task that outlives whoever asked for it.
//!
//! - W1: a request is sent, and its answer read, by a task that outlives the future which asked.
//! - W2: a runtime that ends takes its tasks and connections with it. What was under way is then
//!   told to be unknown; what comes next is done on the thread of the process.
//! - W3: a copy of the process by fork does nothing: what it has of connections is its parent's.

use std::future::Future;
use std::io;
use std::sync::Arc;

use holdline_core::{Certainty, ErrorKind, LockError};
use tokio::sync::oneshot;

use crate::home::Home;

/// A place that the parts of an engine share. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Workplace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: &'static str,
    home: Home,
    process: u32,
}

impl Workplace {
    /// The current runtime; outside of any, the thread of the process.
    ///
    /// # Errors
    /// `Refused`: the process gets no thread.
    pub fn here(engine: &'static str) -> Result<Workplace, LockError> {
        Workplace::at(engine, Home::find(None))
    }

    /// The thread of the process, for what must outlive any runtime.
    ///
    /// # Errors
    /// `Refused`: the process gets no thread.
    pub fn of_process(engine: &'static str) -> Result<Workplace, LockError> {
        Workplace::at(engine, Home::of_process())
    }

    fn at(engine: &'static str, home: io::Result<Home>) -> Result<Workplace, LockError> {
        let home = home.map_err(|error| {
            let kind = ErrorKind::Refused { message: format!("no thread to work on: {error}") };
            LockError::new(engine, kind, Certainty::NotApplied)
        })?;
        Ok(Workplace(Arc::new(Inner { engine, home, process: std::process::id() })))
    }

    /// Moves to the thread, if that is not where we are; tells whether it did.
    pub fn leave(&self) -> bool {
        self.0.home.leave()
    }

    /// Runs a task there until it ends.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.home.spawn(Box::pin(task));
    }

    /// Runs work there and waits for its answer. Dropping the wait does not end the work.
    ///
    /// # Errors
    /// `Unavailable`: the runtime ended under the work, or this process is a copy by fork.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, LockError> {
        if std::process::id() != self.0.process {
            let message = "this process was copied by fork: it needs a client of its own";
            return Err(self.unavailable(message, Certainty::NotApplied));
        }
        let (answer, answered) = oneshot::channel();
        self.spawn(async move {
            // Whoever asked may be gone.
            let _ = answer.send(work.await);
        });
        answered.await.map_err(|_| {
            self.leave();
            self.unavailable("the runtime of the engine ended meanwhile", Certainty::Unknown)
        })
    }

    fn unavailable(&self, message: &str, certainty: Certainty) -> LockError {
        let kind = ErrorKind::Unavailable { message: message.to_owned() };
        LockError::new(self.0.engine, kind, certainty)
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().expect("made")
    }

    #[test]
    fn work_goes_on_when_the_runtime_has_ended() {
        let runtime_of_its_own = runtime();
        let place = runtime_of_its_own.block_on(async { Workplace::here("test") }).expect("found");
        assert_eq!(runtime_of_its_own.block_on(place.run(async { 1 })).expect("ran"), 1);
        drop(runtime_of_its_own);
        // What was for the runtime that is gone is lost, and told; the next one is on the thread.
        let other = runtime();
        let lost = other.block_on(place.run(async { 2 })).expect_err("lost");
        assert_eq!(lost.certainty(), Certainty::Unknown);
        let thread = other.block_on(place.run(async { std::thread::current().id() }));
        assert_ne!(thread.expect("ran"), std::thread::current().id());
        assert!(!place.leave());
    }

    #[test]
    fn work_of_the_process_outlives_the_runtime_that_asked_for_it() {
        let runtime_of_its_own = runtime();
        let place =
            runtime_of_its_own.block_on(async { Workplace::of_process("test") }).expect("found");
        let there = runtime_of_its_own.block_on(place.run(async { std::thread::current().id() }));
        drop(runtime_of_its_own);
        let again = runtime().block_on(place.run(async { std::thread::current().id() }));
        assert_eq!(again.expect("ran"), there.expect("ran"));
    }

    #[test]
    fn a_copy_of_the_process_is_told_to_make_its_own() {
        let place = Workplace::of_process("test").expect("found");
        let inner = Inner { engine: "test", home: Home::of_process().expect("found"), process: 0 };
        let copied = Workplace(Arc::new(inner));
        assert_eq!(runtime().block_on(place.run(async { 1 })).expect("ran"), 1);
        let told = runtime().block_on(copied.run(async { 1 })).expect_err("a copy");
        assert_eq!(told.certainty(), Certainty::NotApplied);
        assert!(told.to_string().contains("fork"), "{told}");
    }
}
