//! Runs the requests of an engine as tasks, which outlive the future of the caller.
//!
//! - W1: a task sends a request and reads its answer; it outlives the caller's future.
//! - W2: a runtime that ends drops its tasks and connections. The outcome of requests in flight is
//!   then unknown; later requests run on the thread of the process.
//! - W3: a forked process does nothing: its connections belong to the parent.

use std::future::Future;
use std::io;
use std::sync::Arc;

use holdline_core::{Certainty, ErrorKind, LockError};
use tokio::sync::oneshot;

use crate::runtime::RuntimeHandle;

/// The executor that the parts of an engine share. Clones are the same executor.
#[derive(Clone, Debug)]
pub struct Executor(Arc<ExecutorParts>);

#[derive(Debug)]
struct ExecutorParts {
    engine: &'static str,
    runtime: RuntimeHandle,
    process: u32,
}

impl Executor {
    /// Uses the current runtime; outside of any, the thread of the process.
    ///
    /// # Errors
    /// `Refused`: the thread cannot be started.
    pub fn current(engine: &'static str) -> Result<Executor, LockError> {
        Executor::new(engine, RuntimeHandle::find(None))
    }

    /// Uses the thread of the process, for tasks that must outlive any runtime.
    ///
    /// # Errors
    /// `Refused`: the thread cannot be started.
    pub fn process_wide(engine: &'static str) -> Result<Executor, LockError> {
        Executor::new(engine, RuntimeHandle::process_wide())
    }

    fn new(
        engine: &'static str,
        runtime: io::Result<RuntimeHandle>,
    ) -> Result<Executor, LockError> {
        let runtime = runtime.map_err(|error| {
            let kind = ErrorKind::Refused { message: format!("no thread to work on: {error}") };
            LockError::new(engine, kind, Certainty::NotApplied)
        })?;
        Ok(Executor(Arc::new(ExecutorParts { engine, runtime, process: std::process::id() })))
    }

    /// Moves from a runtime to the thread of the process; returns whether it did.
    pub fn move_to_thread(&self) -> bool {
        self.0.runtime.move_to_thread()
    }

    /// Spawns a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.runtime.spawn(Box::pin(task));
    }

    /// Spawns work and waits for its result. Dropping the future does not end the work.
    ///
    /// # Errors
    /// `Unavailable`: the runtime ended during the work, or this process was forked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, LockError> {
        if std::process::id() != self.0.process {
            let message = "this process was forked: it needs a client of its own";
            return Err(self.unavailable(message, Certainty::NotApplied));
        }
        let (answer, answered) = oneshot::channel();
        self.spawn(async move {
            // The caller may have dropped its future.
            let _ = answer.send(work.await);
        });
        answered.await.map_err(|_| {
            self.move_to_thread();
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
    fn later_work_runs_after_the_runtime_has_ended() {
        let runtime_of_its_own = runtime();
        let executor =
            runtime_of_its_own.block_on(async { Executor::current("test") }).expect("found");
        assert_eq!(runtime_of_its_own.block_on(executor.run(async { 1 })).expect("ran"), 1);
        drop(runtime_of_its_own);
        // The task for the ended runtime is lost, with an error; the next one runs on the thread.
        let other = runtime();
        let lost = other.block_on(executor.run(async { 2 })).expect_err("lost");
        assert_eq!(lost.certainty(), Certainty::Unknown);
        let thread = other.block_on(executor.run(async { std::thread::current().id() }));
        assert_ne!(thread.expect("ran"), std::thread::current().id());
        assert!(!executor.move_to_thread());
    }

    #[test]
    fn process_wide_work_outlives_the_callers_runtime() {
        let runtime_of_its_own = runtime();
        let executor =
            runtime_of_its_own.block_on(async { Executor::process_wide("test") }).expect("found");
        let first =
            runtime_of_its_own.block_on(executor.run(async { std::thread::current().id() }));
        drop(runtime_of_its_own);
        let second = runtime().block_on(executor.run(async { std::thread::current().id() }));
        assert_eq!(second.expect("ran"), first.expect("ran"));
    }

    #[test]
    fn a_forked_process_needs_its_own_executor() {
        let executor = Executor::process_wide("test").expect("found");
        let inner = ExecutorParts {
            engine: "test",
            runtime: RuntimeHandle::process_wide().expect("found"),
            process: 0,
        };
        let forked = Executor(Arc::new(inner));
        assert_eq!(runtime().block_on(executor.run(async { 1 })).expect("ran"), 1);
        let error = runtime().block_on(forked.run(async { 1 })).expect_err("a copy");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        assert!(error.to_string().contains("fork"), "{error}");
    }
}
