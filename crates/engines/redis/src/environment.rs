//! The environment of a connection besides the clock: streams, tasks and random numbers.
//!
//! By default, streams come from the network, tasks run in the current runtime, and random numbers
//! come from the operating system. A simulator replaces them.

use std::io;

pub use holdline_net::runtime::{Task, TaskSpawner};
pub use holdline_net::socket::ByteStream as Stream;

/// Replaces the machine's streams, tasks and random numbers, for simulators.
pub trait Environment: TaskSpawner {
    /// Opens a stream to the server.
    fn dial(&self) -> Task<io::Result<Box<dyn Stream>>>;

    /// Draws a number, evenly over all of `u32`.
    fn random(&self) -> u32;
}
