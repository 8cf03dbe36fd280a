//! The clocks of the suite: a manual one, the machine's, and one without polls.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use holdline_core::{Clock, Moment};
use tokio::sync::Notify;

use crate::factory::ManualTime;

/// A clock that does not advance until it is moved.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<ClockState>);

#[derive(Debug)]
struct ClockState {
    nanos: AtomicU64,
    moved: Notify,
}

impl ManualClock {
    /// Starts a day after the clock's origin.
    pub fn new() -> ManualClock {
        let start = Moment::ORIGIN.after(Duration::from_secs(24 * 60 * 60));
        ManualClock(Arc::new(ClockState {
            nanos: AtomicU64::new(start.as_nanos()),
            moved: Notify::new(),
        }))
    }
}

impl Default for ManualClock {
    fn default() -> ManualClock {
        ManualClock::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.nanos.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        let clock = self.clone();
        Box::pin(async move {
            loop {
                // Registered before the look, so that a move in between is not missed.
                let moved = clock.0.moved.notified();
                if clock.now() >= at {
                    return;
                }
                moved.await;
            }
        })
    }
}

impl ManualTime for ManualClock {
    fn advance(&self, by: Duration) {
        let at = self.now().after(by);
        self.0.nanos.store(at.as_nanos(), Ordering::SeqCst);
        self.0.moved.notify_waiters();
    }
}

/// The machine's monotonic clock, on tokio's timers.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineClock;

/// The origin of every [`MachineClock`] of this process.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

impl Clock for MachineClock {
    fn now(&self) -> Moment {
        // A day after the origin, so that a moment before the process began is not cut off.
        let day = Duration::from_secs(24 * 60 * 60);
        Moment::ORIGIN.after(day).after(origin().elapsed())
    }

    fn sleep_until(&self, at: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(tokio::time::sleep(self.now().until(at)))
    }
}

/// The machine's clock, on which no pause of more than five seconds ever ends: nothing is looked at
/// from time to time, and no longer time limit is met.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithoutPolls;

/// A shorter pause than that of any poll.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Clock for WithoutPolls {
    fn now(&self) -> Moment {
        MachineClock.now()
    }

    fn sleep_until(&self, at: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        if self.now().until(at) > LONGEST_PAUSE {
            Box::pin(std::future::pending())
        } else {
            MachineClock.sleep_until(at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleeper_wakes_when_the_hand_has_moved_far_enough() {
        let clock = ManualClock::new();
        let start = clock.now();
        let sleeper = tokio::spawn(clock.sleep_until(start.after(Duration::from_secs(5))));
        clock.advance(Duration::from_secs(4));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_secs(1));
        sleeper.await.expect("it wakes");
        assert_eq!(start.until(clock.now()), Duration::from_secs(5));
    }
}
