//! Locks within one process, for tests and for programs that need no server: `memory:`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), holdline::LockError> {
//! let client = holdline::Client::connect("memory:").await?;
//! # Ok(())
//! # }
//! ```
//!
//! `memory:NAME` makes separate stores. The names end with the process. Everything else is as in
//! the other stores: leases, queues, fencing tokens. A test that moves the clock by hand makes the
//! engine itself, as in the example of [`ManualClock`](crate::clock::ManualClock).

pub use holdline_memory::{MemoryEngine, MemoryOptions};
