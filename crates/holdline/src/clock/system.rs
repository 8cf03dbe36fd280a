//! The machine's clock, with timers that fire right after a suspend.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use holdline_core::{Clock, ClockKind, Moment};

use super::driver::Driver;
use super::reading::read;

/// The machine's clock: `CLOCK_BOOTTIME`, which counts suspended time, or `CLOCK_MONOTONIC`.
///
/// Its timers belong to the process, not to a runtime: one thread for each kind of clock sleeps on
/// a kernel timer and wakes the sleepers that are due. So they fire right after the machine resumes
/// from a suspend, outside any runtime, and while a runtime shuts down.
///
/// Elsewhere than on Linux both kinds count suspended time: `CLOCK_MONOTONIC` of macOS does, and so
/// does Windows' performance counter. Timers fire within a second of a resume there.
///
/// ```
/// use holdline::clock::{Clock, ClockKind, SystemClock};
///
/// let clock = SystemClock::new(ClockKind::Boottime).expect("the machine gives a timer");
/// assert!(clock.now() <= clock.now());
/// ```
#[derive(Clone, Debug)]
pub struct SystemClock {
    kind: ClockKind,
    driver: Arc<Driver>,
}

impl SystemClock {
    /// Makes a clock of this kind.
    ///
    /// # Errors
    /// The machine has no timer or no thread left.
    pub fn new(kind: ClockKind) -> io::Result<SystemClock> {
        Ok(SystemClock { kind, driver: Driver::of(kind)? })
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        read(self.kind)
    }

    fn sleep_until(&self, at: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(self.driver.clone().sleep_until(at))
    }
}
