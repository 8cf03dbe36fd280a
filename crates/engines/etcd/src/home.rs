//! Where an engine's work runs: in the runtime in which it was made, or on a thread of the process.
//!
//! - O1: a request is sent, and its answer read, by a task that outlives the future which asked.
//! - O2: a runtime that ends takes its tasks and connections with it. What was under way is then
//!   told to be unknown; what comes next runs on the thread, over a new connection.

use std::future::Future;
use std::sync::Arc;

use holdline_core::{Certainty, ErrorKind, LockError};
use tokio::sync::oneshot;

use crate::error::{not_applied, unavailable};

/// A home that engine and watcher share.
#[derive(Clone)]
pub(crate) struct Home(Arc<Inner>);

struct Inner {
    place: holdline_net::home::Home,
    process: u32,
}

impl Home {
    /// Finds the place.
    ///
    /// # Errors
    /// `Refused`: the process gets no thread.
    pub(crate) fn find() -> Result<Home, LockError> {
        let place = holdline_net::home::Home::find(None).map_err(|error| {
            not_applied(ErrorKind::Refused { message: format!("no thread to work on: {error}") })
        })?;
        Ok(Home(Arc::new(Inner { place, process: std::process::id() })))
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.place.spawn(Box::pin(task));
    }

    /// Moves to the thread, if that is not where we are; tells whether it did.
    pub(crate) fn leave(&self) -> bool {
        self.0.place.leave()
    }

    /// Runs work there and waits for its answer. Dropping the wait does not end the work.
    ///
    /// # Errors
    /// `Unavailable`: the runtime ended under the work, or this process is a copy by fork.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, LockError> {
        if std::process::id() != self.0.process {
            let message = "this process was copied by fork: it needs a client of its own";
            return Err(unavailable(message, Certainty::NotApplied));
        }
        let (answer, answered) = oneshot::channel();
        self.spawn(async move {
            // Whoever asked may be gone.
            let _ = answer.send(work.await);
        });
        answered.await.map_err(|_| {
            self.leave();
            unavailable("the runtime of the engine ended meanwhile", Certainty::Unknown)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn work_goes_on_when_the_runtime_has_ended() {
        let runtime = Builder::new_current_thread().enable_all().build().expect("made");
        let home = runtime.block_on(async { Home::find() }).expect("found");
        assert_eq!(runtime.block_on(home.run(async { 1 })).expect("ran"), 1);
        drop(runtime);
        // What was for the runtime that is gone is lost, and told; the next one is on the thread.
        let other = Builder::new_current_thread().build().expect("made");
        let lost = other.block_on(home.run(async { 2 })).expect_err("lost");
        assert_eq!(lost.certainty(), Certainty::Unknown);
        let thread = other.block_on(home.run(async { std::thread::current().id() }));
        assert_ne!(thread.expect("ran"), std::thread::current().id());
        assert!(!home.leave());
    }
}
