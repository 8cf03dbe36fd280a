//! A client's clock with a wrong rate.

use std::pin::Pin;

use holdline::clock::ManualClock;
use holdline_core::{Clock, Moment};

/// A clock with another rate than the common time.
#[derive(Clone, Debug)]
pub(crate) struct SkewedClock {
    pub(crate) common: ManualClock,
    /// How much too fast it runs, in parts per million.
    pub(crate) ppm: i64,
}

impl SkewedClock {
    fn rate(&self) -> i128 {
        1_000_000 + i128::from(self.ppm)
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Moment {
        let nanos = i128::from(self.common.now().as_nanos()) * self.rate() / 1_000_000;
        Moment::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn sleep_until(&self, at: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        // Rounded up, so that this clock has reached it as well.
        let nanos = i128::from(at.as_nanos()) * 1_000_000 / self.rate() + 1;
        let common = Moment::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.common.sleep_until(common)
    }
}

#[cfg(test)]
mod own_tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_skewed_clock_wakes_at_its_own_time() {
        let common = ManualClock::new();
        for ppm in [-4_000, 0, 4_000] {
            let own = SkewedClock { common: common.clone(), ppm };
            common.advance(Duration::from_millis(1_234_567));
            let at = own.now().after(Duration::from_nanos(7_654_321));
            let mut sleep = own.sleep_until(at);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(sleep.as_mut().poll(&mut context).is_pending(), "{ppm}");
            let next = common.next_wake().expect("somebody sleeps");
            common.advance(common.now().until(next));
            assert!(sleep.as_mut().poll(&mut context).is_ready(), "{ppm}");
            assert!(own.now() >= at, "{ppm}");
        }
    }
}
