//! Where an engine's work runs: on one thread of the process, which has a small runtime.
//!
//! A request is sent, and its answer read, by tasks that outlive the future which asked. So no
//! caller needs a runtime, and a runtime that ends takes no connection with it.

use std::future::Future;
use std::io;

use holdline_core::LockError;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};

use crate::error::protocol;

/// The thread's runtime, and the process that it runs in: a fork has no threads but its own.
static THREAD: Mutex<Option<(u32, Handle)>> = Mutex::new(None);

/// Returns the thread's runtime; starts it at its first use.
pub(crate) fn thread() -> io::Result<Handle> {
    let mut thread = THREAD.lock();
    let process = std::process::id();
    if let Some((_, handle)) = thread.as_ref().filter(|(started_in, _)| *started_in == process) {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("holdline-etcd".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    *thread = Some((process, handle.clone()));
    Ok(handle)
}

/// Runs work there and waits for its answer. Dropping the wait does not end the work.
pub(crate) async fn run<T: Send + 'static>(
    handle: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, LockError> {
    handle.spawn(work).await.map_err(|error| protocol(format!("the engine stumbled: {error}")))
}
