//! Where an engine's work runs: on a thread of the process.
//!
//! - O1: a request is sent, and its answer read, by a task that outlives the future which asked.
//! - O2: a session is a connection, and what hangs on it goes with it: so no runtime that may end
//!   has it. The client crate waits for its sockets on a thread of its own anyway.

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
        let refused = |why: &dyn std::fmt::Display| {
            not_applied(ErrorKind::Refused { message: format!("no thread to work on: {why}") })
        };
        // Outside of any runtime it is the thread that is found.
        let finding = std::thread::Builder::new()
            .spawn(|| holdline_net::home::Home::find(None))
            .map_err(|error| refused(&error))?;
        let place = finding.join().map_err(|_| refused(&"it ended at once"))?;
        let place = place.map_err(|error| refused(&error))?;
        Ok(Home(Arc::new(Inner { place, process: std::process::id() })))
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.place.spawn(Box::pin(task));
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
            unavailable("the thread of the engine ended meanwhile", Certainty::Unknown)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn work_outlives_the_runtime_that_asked_for_it() {
        let runtime = Builder::new_current_thread().enable_all().build().expect("made");
        let home = runtime.block_on(async { Home::find() }).expect("found");
        let there = runtime.block_on(home.run(async { std::thread::current().id() }));
        drop(runtime);
        let other = Builder::new_current_thread().build().expect("made");
        let again = other.block_on(home.run(async { std::thread::current().id() }));
        assert_eq!(again.expect("ran"), there.expect("ran"));
    }
}
