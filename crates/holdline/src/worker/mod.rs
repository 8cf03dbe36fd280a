//! Starts the background work of a client.
//!
//! The work runs in the runtime in which the client was made, or on a thread of its own if there is
//! none. If that runtime is shut down while the client is still used, or still has something to
//! give up, a thread takes over: the runtime drops the worker's task, and the drop starts the
//! thread.
//! Read next: `task`, the rounds of the work; `keeper`, `heartbeat` and `janitor`, what is done in
//! them.

pub(crate) mod heartbeat;
pub(crate) mod janitor;
pub(crate) mod keeper;
mod task;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll};

use futures_core::future::BoxFuture;
use tokio::runtime::{Builder, Handle};

use crate::core::ClientState;

/// Where the background work is spawned.
#[derive(Default)]
pub(crate) enum SpawnTarget {
    /// In the caller's runtime, if there is one.
    #[default]
    Caller,
    OwnThread,
    /// By this function.
    Spawner(Box<dyn FnOnce(BoxFuture<'static, ()>) + Send>),
}

/// Starts the background work.
pub(crate) fn start(state: &Arc<ClientState>, target: SpawnTarget) -> io::Result<()> {
    match (target, Handle::try_current()) {
        (SpawnTarget::Spawner(spawn), _) => {
            spawn(Box::pin(task::work(state.clone())));
            Ok(())
        }
        (SpawnTarget::Caller, Ok(handle)) => {
            handle.spawn(Work::new(state.clone()));
            state.runtime.set(handle);
            Ok(())
        }
        _ => {
            let (ready, started) = mpsc::sync_channel(1);
            spawn_thread(state.clone(), move |outcome| drop(ready.send(outcome)))?;
            started.recv().unwrap_or_else(|_| Err(io::Error::other("the worker thread ended")))
        }
    }
}

fn spawn_thread(
    state: Arc<ClientState>,
    started: impl FnOnce(io::Result<()>) + Send + 'static,
) -> io::Result<()> {
    let run = move || match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            state.runtime.set(runtime.handle().clone());
            started(Ok(()));
            runtime.block_on(Work::new(state));
        }
        Err(error) => started(Err(error)),
    };
    std::thread::Builder::new().name("holdline-worker".to_owned()).spawn(run).map(drop)
}

/// The worker's task. If it is dropped before its end, a thread takes over.
struct Work {
    state: Arc<ClientState>,
    worker: Option<BoxFuture<'static, ()>>,
}

impl Work {
    fn new(state: Arc<ClientState>) -> Work {
        let worker = Box::pin(task::work(state.clone()));
        Work { state, worker: Some(worker) }
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
        // Requests in flight are dropped first; the next worker repeats them.
        if self.worker.take().is_none() || !self.state.is_own_process() {
            return;
        }
        let registry = self.state.registry.lock();
        let idle = registry.abandoned && registry.releasing == 0;
        drop(registry);
        if idle {
            return;
        }
        if !self.state.runtime.may_take_over() {
            tracing::error!("the background work of a client keeps failing: it ends");
            return;
        }
        tracing::debug!("the runtime of a client ended: a thread takes its work over");
        let report = |outcome: io::Result<()>| {
            if let Err(error) = outcome {
                tracing::error!(%error, "no runtime for the background work of a client");
            }
        };
        if let Err(error) = spawn_thread(self.state.clone(), report) {
            tracing::error!(%error, "no thread for the background work of a client");
        }
    }
}
