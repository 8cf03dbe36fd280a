//! Clocks: the machine's own, and one that tests move by hand.
//!
//! Local deadlines never use the time of day. [`SystemClock`] also counts suspended time if the
//! store's timer runs on while this machine is suspended. [`ManualClock`] moves only when a test
//! advances it.

#[cfg(any(not(target_os = "linux"), test))]
mod condvar;
mod driver;
mod manual;
mod sleepers;
mod system;
#[cfg(target_os = "linux")]
mod timerfd;

#[cfg(not(target_os = "linux"))]
use self::condvar::Timer;
#[cfg(target_os = "linux")]
use self::timerfd::Timer;
pub use manual::ManualClock;
pub use system::SystemClock;
