//! Clocks: the machine's own, and one that tests move by hand.
//!
//! A [`Moment`] is read from a [`Clock`]: two moments of one clock can be compared, and those of
//! two clocks cannot. [`Client::clock`](crate::Client::clock) is the clock of a client. Tests set a
//! [`ManualClock`] by [`ClientOptions::with_clock`](crate::ClientOptions::with_clock).
//!
//! Local deadlines never use the time of day. [`SystemClock`] also counts suspended time if the
//! store's timer runs on while this machine is suspended. [`ManualClock`] moves only when a test
//! advances it.

#[cfg(any(not(target_os = "linux"), test))]
mod condvar;
mod driver;
mod manual;
mod reading;
mod sleepers;
mod system;
#[cfg(target_os = "linux")]
mod timerfd;

#[cfg(not(target_os = "linux"))]
use self::condvar::Timer;
#[cfg(target_os = "linux")]
use self::timerfd::Timer;
pub use holdline_core::{Clock, ClockKind, Moment};
pub use manual::ManualClock;
pub use system::SystemClock;
