//! The machine's clock, with timers that fire right after a suspend.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use holdline_core::{Clock, ClockKind, Moment};

use super::driver::Driver;

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

/// Reads a clock of the machine.
#[cfg(unix)]
pub(super) fn read(kind: ClockKind) -> Moment {
    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(match kind {
        #[cfg(target_os = "linux")]
        ClockKind::Boottime => ClockId::Boottime,
        #[cfg(not(target_os = "linux"))]
        ClockKind::Boottime => ClockId::Monotonic,
        ClockKind::Monotonic => ClockId::Monotonic,
    });
    // These clocks start at the boot of the machine and are never negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Reads the clock of the machine, from the first reading on.
#[cfg(windows)]
pub(super) fn read(_kind: ClockKind) -> Moment {
    static FIRST: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    Moment::ORIGIN.after(FIRST.elapsed())
}
