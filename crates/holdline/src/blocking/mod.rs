//! The same locks without async; they need no runtime.
//!
//! Calls drive their futures on the calling thread, which sleeps while there is nothing to do. A
//! thread of the client's own renews the leases. Do not call these from async code: they block a
//! thread that other tasks need.
//!
//! ```
//! # fn main() -> Result<(), holdline::LockError> {
//! use std::time::Duration;
//! use holdline::blocking::Client;
//! use holdline::LockOptions;
//!
//! let client = Client::connect("memory:blocking")?;
//! let options = LockOptions::default().with_wait(Duration::from_secs(5));
//! let mutex = client.mutex_with("report", &options)?;
//! let guard = mutex.lock()?;
//! assert!(guard.is_valid());
//! let outcome = guard.release();
//! assert!(outcome.is_released());
//! assert!(client.shutdown(Duration::from_secs(5)).is_clean());
//! # Ok(())
//! # }
//! ```

mod admin;
mod client;
mod guard;
mod layers;
mod locks;

pub use admin::{Admin, Leases};
pub use client::Client;
pub use guard::{Guard, Guards};
pub use layers::{AnyOf, Begun, CountingSemaphore, Election, Latch, Leadership, Once, OnceRun};
pub use locks::{Mutex, RwLock, Semaphore};
