//! Where a client's background work runs.
//!
//! In the runtime in which the client was made, or else on a thread of its own. When that
//! runtime is shut down while the client is still used, or something is still to be given up, a
//! thread takes over: the worker's task is dropped with its runtime, and its drop says so.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};

use crate::core::{Boxed, Shared};
use crate::worker;

/// How often a thread takes over before a client is left to its leases' ends: only a worker that
/// panics again and again comes here.
const MAX_TAKE_OVERS: u32 = 8;

/// Where a client's background work is wanted.
#[derive(Default)]
pub(crate) enum Place {
    /// In the caller's runtime, if there is one.
    #[default]
    Caller,
    OwnThread,
    /// Where this puts it.
    Given(Box<dyn FnOnce(Boxed<'static, ()>) + Send>),
}

/// The runtime of a client's background work.
#[derive(Default)]
pub(crate) struct Home {
    handle: Mutex<Option<Handle>>,
    take_overs: AtomicU32,
}

impl Home {
    /// Runs `poll` inside a runtime: the caller's, or else the worker's.
    pub(crate) fn within<T>(&self, poll: impl FnOnce() -> T) -> T {
        if Handle::try_current().is_ok() {
            return poll();
        }
        let handle = self.handle.lock().clone();
        let _entered = handle.as_ref().map(Handle::enter);
        poll()
    }
}

/// Starts the background work, in the caller's runtime unless there is none or it is not wanted.
pub(crate) fn start(shared: &Arc<Shared>, place: Place) -> io::Result<()> {
    match (place, Handle::try_current()) {
        (Place::Given(spawn), _) => {
            spawn(Box::pin(worker::work(shared.clone())));
            Ok(())
        }
        (Place::Caller, Ok(handle)) => {
            handle.spawn(Work::new(shared.clone()));
            *shared.home.handle.lock() = Some(handle);
            Ok(())
        }
        _ => {
            let (ready, started) = mpsc::sync_channel(1);
            spawn_thread(shared.clone(), move |outcome| drop(ready.send(outcome)))?;
            started.recv().unwrap_or_else(|_| Err(io::Error::other("the worker thread ended")))
        }
    }
}

fn spawn_thread(
    shared: Arc<Shared>,
    started: impl FnOnce(io::Result<()>) + Send + 'static,
) -> io::Result<()> {
    let run = move || match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            *shared.home.handle.lock() = Some(runtime.handle().clone());
            started(Ok(()));
            runtime.block_on(Work::new(shared));
        }
        Err(error) => started(Err(error)),
    };
    std::thread::Builder::new().name("holdline-worker".to_owned()).spawn(run).map(drop)
}

/// The worker's task. Its drop before its end hands the work to a thread.
struct Work {
    shared: Arc<Shared>,
    worker: Option<Boxed<'static, ()>>,
}

impl Work {
    fn new(shared: Arc<Shared>) -> Work {
        let worker = Box::pin(worker::work(shared.clone()));
        Work { shared, worker: Some(worker) }
    }
}

impl Future for Work {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(worker) = &mut self.worker else { return Poll::Ready(()) };
        let polled = worker.as_mut().poll(context);
        if polled.is_ready() {
            self.worker = None;
        }
        polled
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What was under way is dropped first: the next worker asks again.
        if self.worker.take().is_none() || !self.shared.is_own_process() {
            return;
        }
        let registry = self.shared.registry.lock();
        let idle = registry.abandoned && registry.undoing == 0;
        drop(registry);
        if idle {
            return;
        }
        if self.shared.home.take_overs.fetch_add(1, Ordering::Relaxed) >= MAX_TAKE_OVERS {
            tracing::error!("the background work of a client fails again and again: it ends");
            return;
        }
        tracing::debug!("a runtime ended under a client: a thread takes its work over");
        let told = |outcome: io::Result<()>| {
            if let Err(error) = outcome {
                tracing::error!(%error, "no runtime for the background work of a client");
            }
        };
        if let Err(error) = spawn_thread(self.shared.clone(), told) {
            tracing::error!(%error, "no thread for the background work of a client");
        }
    }
}
