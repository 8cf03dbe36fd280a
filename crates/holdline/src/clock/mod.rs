//! Clocks: the machine's own, and one that tests move by hand.
//!
//! Local deadlines never use the time of day. [`SystemClock`] also counts suspended time if the
//! store's timer runs on while this machine is suspended. [`ManualClock`] moves only when a test
//! advances it.

mod driver;
mod manual;
mod sleepers;
mod system;

pub use manual::ManualClock;
pub use system::SystemClock;
