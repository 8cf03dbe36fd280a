//! The kernel's own timer (`timerfd`), which also counts suspended time.

use std::io;
use std::os::fd::OwnedFd;

use holdline_core::{ClockKind, Moment};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A timer of one kind of clock.
pub(super) struct Timer(OwnedFd);

impl Timer {
    pub(super) fn new(kind: ClockKind) -> io::Result<Timer> {
        let clock = match kind {
            ClockKind::Boottime => TimerfdClockId::Boottime,
            ClockKind::Monotonic => TimerfdClockId::Monotonic,
        };
        Ok(Timer(timerfd_create(clock, TimerfdFlags::CLOEXEC)?))
    }

    /// Sets the moment at which [`Timer::wait`] returns, or none for [`Moment::NEVER`].
    pub(super) fn set(&self, at: Moment) -> io::Result<()> {
        // Zero would disarm the timer; a moment in the past fires at once.
        let nanos = if at == Moment::NEVER { 0 } else { at.as_nanos().max(1) };
        let spec = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
            },
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }

    /// Waits until the moment that was set last. It may return early.
    pub(super) fn wait(&self) -> io::Result<()> {
        match rustix::io::read(&self.0, &mut [0; 8]) {
            Ok(_) | Err(Errno::INTR | Errno::CANCELED) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
