//! A timer for systems without `timerfd`: a condition variable.
//!
//! Such a wait does not count the time for which the machine is suspended, and the clock does. So
//! the timer looks at the clock at least once a second, and fires within a second of a resume.

use std::io;
use std::time::Duration;

use holdline_core::{ClockKind, Moment};
use parking_lot::{Condvar, Mutex};

use super::reading::read;

/// The longest wait between two looks at the clock.
const LOOK: Duration = Duration::from_secs(1);

/// A timer of one kind of clock.
pub(super) struct Timer {
    kind: ClockKind,
    at: Mutex<Moment>,
    changed: Condvar,
}

impl Timer {
    #[cfg_attr(target_os = "linux", expect(clippy::unnecessary_wraps, reason = "as timerfd"))]
    pub(super) fn new(kind: ClockKind) -> io::Result<Timer> {
        Ok(Timer { kind, at: Mutex::new(Moment::NEVER), changed: Condvar::new() })
    }

    /// Sets the moment at which [`Timer::wait`] returns, or none for [`Moment::NEVER`].
    pub(super) fn set(&self, at: Moment) -> io::Result<()> {
        *self.at.lock() = at;
        self.changed.notify_one();
        Ok(())
    }

    /// Waits until the moment that was set last.
    pub(super) fn wait(&self) -> io::Result<()> {
        let mut at = self.at.lock();
        loop {
            let now = read(self.kind);
            if *at == Moment::NEVER {
                self.changed.wait(&mut at);
            } else if now >= *at {
                return Ok(());
            } else {
                let left = Duration::from_nanos(at.as_nanos() - now.as_nanos());
                self.changed.wait_for(&mut at, left.min(LOOK));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_timer_fires_at_the_moment_that_was_set_last_and_not_before() {
        let timer = Arc::new(Timer::new(ClockKind::Monotonic).expect("a timer"));
        let waiting = std::thread::spawn({
            let timer = timer.clone();
            move || timer.wait().map(|()| read(ClockKind::Monotonic))
        });
        let start = read(ClockKind::Monotonic);
        timer.set(start.after(Duration::from_secs(3_600))).expect("set");
        let sooner = start.after(Duration::from_millis(30));
        timer.set(sooner).expect("set");
        let fired = waiting.join().expect("no panic").expect("a wait");
        assert!(fired >= sooner);
        timer.set(start).expect("set");
        timer.wait().expect("a moment in the past fires at once");
    }
}
