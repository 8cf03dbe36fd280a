//! The timers of [`super::SystemClock`]: one kernel timer and one thread for each kind of clock.
//!
//! Invariant C1: the kernel timer is never set later than the soonest sleeper, under the mutex that
//! guards the sleepers. So no wake-up is lost, and none needs a message. It may be set sooner: most
//! sleeps end early, and an occasional spurious wake-up costs less than resetting it for each.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use holdline_core::{ClockKind, Moment};
use parking_lot::Mutex;

use super::Timer;
use super::reading::read;
use super::sleepers::{Sleep, Sleepers};

/// The drivers of this process, by kind of clock. They live as long as the process.
static DRIVERS: Mutex<[Option<Arc<Driver>>; 2]> = Mutex::new([None, None]);

/// One kernel timer and its sleepers.
pub(super) struct Driver {
    kind: ClockKind,
    pid: u32,
    timer: Timer,
    sleepers: Mutex<Armed>,
}

/// The sleepers, and the moment that the kernel timer is set to; never if it is not set.
struct Armed {
    sleepers: Sleepers,
    at: Moment,
}

impl Driver {
    /// Returns the driver for this kind of clock; the first use starts it.
    pub(super) fn of(kind: ClockKind) -> io::Result<Arc<Driver>> {
        let mut drivers = DRIVERS.lock();
        let slot = match kind {
            ClockKind::Boottime => &mut drivers[0],
            ClockKind::Monotonic => &mut drivers[1],
        };
        // A forked child has the parent's memory and none of its threads.
        if let Some(driver) = slot.as_ref().filter(|driver| driver.is_of_this_process()) {
            return Ok(driver.clone());
        }
        let driver = Arc::new(Driver::start(kind)?);
        let run = driver.clone();
        std::thread::Builder::new()
            .name("holdline-timer".to_owned())
            .stack_size(64 * 1024)
            .spawn(move || run.run())?;
        *slot = Some(driver.clone());
        Ok(driver)
    }

    fn is_of_this_process(&self) -> bool {
        self.pid == std::process::id()
    }

    fn start(kind: ClockKind) -> io::Result<Driver> {
        let timer = Timer::new(kind)?;
        let sleepers = Mutex::new(Armed { sleepers: Sleepers::default(), at: Moment::NEVER });
        Ok(Driver { kind, pid: std::process::id(), timer, sleepers })
    }

    pub(super) fn sleep_until(self: Arc<Self>, at: Moment) -> SystemSleep {
        SystemSleep { driver: self, sleep: Sleep::until(at) }
    }

    /// Sets the kernel timer to the soonest sleeper; the caller holds the mutex.
    fn arm(&self, armed: &mut Armed) {
        let soonest = armed.sleepers.soonest().unwrap_or(Moment::NEVER);
        armed.at = match self.timer.set(soonest) {
            Ok(()) => soonest,
            Err(error) => {
                tracing::error!(%error, "a timer could not be set");
                Moment::NEVER
            }
        };
    }

    /// Wakes the sleepers that are due, for the life of the process.
    fn run(&self) {
        loop {
            if let Err(error) = self.timer.wait() {
                tracing::error!(%error, "the timer thread ends");
                return;
            }
            let due = {
                let mut armed = self.sleepers.lock();
                let due = armed.sleepers.take_due(read(self.kind));
                self.arm(&mut armed);
                due
            };
            due.for_each(Waker::wake);
        }
    }
}

crate::debug::debug_of!(Driver, |it| kind: it.kind);

/// Sleeps until a moment of the machine's clock.
pub(super) struct SystemSleep {
    driver: Arc<Driver>,
    sleep: Sleep,
}

impl Future for SystemSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if read(self.driver.kind) >= self.sleep.at {
            return Poll::Ready(());
        }
        if !self.driver.is_of_this_process() {
            // A forked child has a copy of the parent's sleep, and no thread that would end it. The
            // parent's timer is not the child's to set.
            match Driver::of(self.driver.kind) {
                Ok(driver) => {
                    let sleep = Sleep::until(self.sleep.at);
                    *self = SystemSleep { driver, sleep };
                }
                Err(error) => {
                    tracing::error!(%error, "no timer in a forked process: a wait ends early");
                    return Poll::Ready(());
                }
            }
        }
        let driver = self.driver.clone();
        let mut armed = driver.sleepers.lock();
        if armed.sleepers.enter(&mut self.sleep, context.waker()) && self.sleep.at < armed.at {
            driver.arm(&mut armed);
        }
        Poll::Pending
    }
}

impl Drop for SystemSleep {
    fn drop(&mut self) {
        // In a forked child, a thread of the parent may hold the mutex for ever.
        if self.sleep.is_entered() && self.driver.is_of_this_process() {
            // The timer stays set: one early wake-up of the thread costs less than resetting it.
            self.driver.sleepers.lock().sleepers.leave(&self.sleep);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdline_core::Clock;

    use super::super::SystemClock;

    #[test]
    fn a_later_timer_fires_after_an_earlier_one_was_dropped() {
        let clock = SystemClock::new(super::ClockKind::Monotonic).expect("a timer");
        let start = clock.now();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut given_up = clock.sleep_until(start.after(Duration::from_millis(20)));
        assert!(given_up.as_mut().poll(&mut context).is_pending());
        let end = start.after(Duration::from_millis(60));
        let late = clock.sleep_until(end);
        drop(given_up);
        crate::parker::block_on(late);
        assert!(clock.now() >= end);
    }

    #[test]
    fn a_sleep_of_the_parent_is_taken_to_a_driver_of_this_process() {
        let kind = super::ClockKind::Monotonic;
        let timer = super::Timer::new(kind).expect("a timer");
        let sleepers = super::Mutex::new(super::Armed {
            sleepers: super::Sleepers::default(),
            at: super::Moment::NEVER,
        });
        let parents = super::Arc::new(super::Driver { kind, pid: 0, timer, sleepers });
        // A thread of the parent held it at the fork: it stays locked.
        let held = parents.sleepers.lock();
        let end = super::read(kind).after(Duration::from_millis(20));
        crate::parker::block_on(parents.clone().sleep_until(end));
        assert!(super::read(kind) >= end);
        drop(parents.clone().sleep_until(super::Moment::NEVER));
        assert_eq!((held.sleepers.soonest(), held.at), (None, super::Moment::NEVER));
    }

    #[test]
    fn timers_fire_in_order_and_not_early() {
        for kind in [super::ClockKind::Boottime, super::ClockKind::Monotonic] {
            let clock = SystemClock::new(kind).expect("a timer");
            let start = clock.now();
            let late = start.after(Duration::from_millis(60));
            let soon = start.after(Duration::from_millis(20));
            let far = clock.sleep_until(super::Moment::NEVER);
            let first =
                futures_util::future::select(clock.sleep_until(late), clock.sleep_until(soon));
            crate::parker::block_on(async {
                let order = futures_util::future::select(first, far).await;
                drop(order);
                assert!(clock.now() >= soon);
                clock.sleep_until(late).await;
                assert!(clock.now() >= late);
                clock.sleep_until(start).await;
            });
        }
    }
}
