//! What a connection takes from outside besides the clock: streams, tasks, random numbers.
//!
//! Users never need it: without it, streams come from the network, tasks go to the runtime, and
//! random numbers come from the operating system. A simulator brings its own.

use std::io;

pub use holdline_net::home::{Elsewhere, Task};
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// Streams, tasks and random numbers of a world that is not the machine's.
pub trait Surroundings: Elsewhere {
    /// Opens a stream to the server.
    fn dial(&self) -> Task<io::Result<Box<dyn Stream>>>;

    /// Draws a number, evenly over all of `u32`.
    fn random(&self) -> u32;
}
