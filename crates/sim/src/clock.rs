//! A server's wall clock, which may differ from the world's common time.
//!
//! Keys expire by it, as they do on a real server. A test can make the clock wrong: ahead or
//! behind, too fast or too slow, or stepped while leases run.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Clock, Moment};

/// The time at the start: the first second of 2026.
const START: i64 = 1_767_225_600_000_000;
/// The correct rate, in parts per million.
const RIGHT: i64 = 1_000_000;

/// A wall clock that a test can make wrong.
#[derive(Debug, Clone)]
pub struct WallClock {
    common: Arc<dyn Clock>,
    /// Its time at `since`, in microseconds of unix time.
    shown: i64,
    since: Moment,
    /// Its rate: microseconds per second of the common time.
    rate: i64,
}

impl WallClock {
    /// Makes a correct clock.
    pub fn new(common: Arc<dyn Clock>) -> WallClock {
        let since = Moment::ORIGIN;
        WallClock { common, shown: START, since, rate: RIGHT }
    }

    /// Reads the clock, in microseconds of unix time.
    pub fn now_us(&self) -> i64 {
        let passed = i128::try_from(self.common.now().since(self.since).as_nanos());
        let scaled = passed.unwrap_or(i128::MAX).saturating_mul(i128::from(self.rate));
        let micros = i64::try_from(scaled / 1_000_000_000).unwrap_or(i64::MAX);
        self.shown.saturating_add(micros)
    }

    /// Returns the clock of the common time.
    pub(crate) fn common(&self) -> &Arc<dyn Clock> {
        &self.common
    }

    /// Sets the clock to a unix time in microseconds.
    pub fn set(&mut self, unix_us: i64) {
        self.shown = unix_us;
        self.since = self.common.now();
    }

    /// Steps the clock forward.
    pub fn step_forward(&mut self, by: Duration) {
        self.set(self.now_us().saturating_add(micros(by)));
    }

    /// Steps the clock back.
    pub fn step_back(&mut self, by: Duration) {
        self.set(self.now_us().saturating_sub(micros(by)));
    }

    /// Makes the clock run too fast, or too slow if negative, from now on.
    ///
    /// A million parts too fast is twice as fast; a million too slow stops the clock.
    pub fn set_skew_ppm(&mut self, parts: i64) {
        self.set(self.now_us());
        self.rate = RIGHT.saturating_add(parts).max(0);
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdline::clock::ManualClock;

    #[test]
    fn a_clock_is_ahead_or_fast_or_both() {
        let common = ManualClock::new();
        let mut clock = WallClock::new(Arc::new(common.clone()));
        assert_eq!(clock.now_us(), START);
        common.advance(Duration::from_secs(1));
        assert_eq!(clock.now_us(), START + 1_000_000);
        clock.step_back(Duration::from_secs(3));
        clock.set_skew_ppm(10_000);
        common.advance(Duration::from_secs(100));
        assert_eq!(clock.now_us(), START - 2_000_000 + 101_000_000);
        clock.set_skew_ppm(-2_000_000);
        common.advance(Duration::from_secs(100));
        assert_eq!(clock.now_us(), START + 99_000_000);
    }
}
