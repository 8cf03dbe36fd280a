//! Clocks: the machine's own, and one that tests drive by hand.
//!
//! Local deadlines never run on the time of day. [`SystemClock`] counts the time that the machine
//! is suspended where the store's timer runs on meanwhile; [`ManualClock`] moves when a test
//! says so.

mod driver;
mod manual;
mod sleepers;
mod system;

pub use manual::ManualClock;
pub use system::SystemClock;
