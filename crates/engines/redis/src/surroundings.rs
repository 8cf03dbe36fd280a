//! What a connection takes from outside besides the clock: streams, tasks, random numbers.
//!
//! Users never need it: without it, streams come from the network, tasks go to the runtime, and
//! random numbers come from the operating system. A simulator brings its own.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// A future on the heap.
pub type Task<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Streams, tasks and random numbers of a world that is not the machine's.
pub trait Surroundings: Debug + Send + Sync + 'static {
    /// Opens a stream to the server.
    fn dial(&self) -> Task<io::Result<Box<dyn Stream>>>;

    /// Runs a task until it ends. Dropping it before its end is understood as the end of its
    /// world.
    fn spawn(&self, task: Task<()>);

    /// Draws a number, evenly over all of `u32`.
    fn random(&self) -> u32;
}
