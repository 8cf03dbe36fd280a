//! How often a watch asks, and for how much.

use std::ops::RangeInclusive;
use std::time::Duration;

use holdline_core::LockError;

/// The options of a [`StoreWatch`](super::StoreWatch).
#[derive(Clone, Debug)]
pub struct WatchOptions {
    interval: Duration,
    max_share_percent: u32,
    max_names: usize,
    max_entries: usize,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions {
            interval: Duration::from_secs(1),
            max_share_percent: 10,
            max_names: 10_000,
            max_entries: 100_000,
        }
    }
}

impl WatchOptions {
    /// Sets the pause between two rounds, from 100 ms to an hour; 1 s unless set. It becomes longer
    /// by itself if the store is slow.
    #[must_use]
    pub fn with_interval(mut self, interval: Duration) -> WatchOptions {
        self.interval = interval;
        self
    }

    /// Sets which share of the time the store may spend on rounds at most, from 1 to 50 per cent;
    /// 10 unless set. The time counts from the first request of a round to its last answer.
    #[must_use]
    pub fn with_max_share_percent(mut self, percent: u32) -> WatchOptions {
        self.max_share_percent = percent;
        self
    }

    /// Sets how many names a round covers, from 1 to 1,000,000; 10,000 unless set. The names
    /// beyond, in byte order, are not watched. Listed names that the pattern does not match count
    /// too.
    #[must_use]
    pub fn with_max_names(mut self, max_names: usize) -> WatchOptions {
        self.max_names = max_names;
        self
    }

    /// Sets how many holders and waiters a round keeps, from 1 to 10,000,000; 100,000 unless set.
    /// It bounds the memory: each has about 1 KiB at most.
    #[must_use]
    pub fn with_max_entries(mut self, max_entries: usize) -> WatchOptions {
        self.max_entries = max_entries;
        self
    }

    /// Returns the shortest pause between two rounds.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    pub(super) fn max_names(&self) -> usize {
        self.max_names
    }

    pub(super) fn max_entries(&self) -> usize {
        self.max_entries
    }

    /// Returns the pause after a round that took this long, unless rounds fail.
    pub fn pause_after(&self, took: Duration) -> Duration {
        let share = self.max_share_percent.clamp(1, 50);
        // Of `share` parts in 100 the store works; the rest of them it must be left alone.
        let left_alone = took.saturating_mul(100 - share) / share;
        self.interval.max(left_alone)
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// `Invalid` names the field and the range.
    pub fn validate(&self) -> Result<(), LockError> {
        let wrong = |field, range: &str| {
            Err(LockError::invalid("holdline", field, format_args!("must be from {range}")))
        };
        if !(Duration::from_millis(100)..=Duration::from_secs(3_600)).contains(&self.interval) {
            return wrong("interval", "100 ms to an hour");
        }
        if !(1..=50).contains(&self.max_share_percent) {
            return wrong("max_share_percent", "1 to 50");
        }
        let names: RangeInclusive<usize> = 1..=1_000_000;
        let entries = 1..=10_000_000;
        if !names.contains(&self.max_names) {
            return wrong("max_names", "1 to 1,000,000");
        }
        if !entries.contains(&self.max_entries) {
            return wrong("max_entries", "1 to 10,000,000");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_store_is_asked_more_rarely() {
        let options = WatchOptions::default();
        for (took, pause) in [(0, 1_000), (100, 1_000), (200, 1_800), (10_000, 90_000)] {
            let pause = Duration::from_millis(pause);
            assert_eq!(options.pause_after(Duration::from_millis(took)), pause);
        }
        let half = options.with_max_share_percent(50);
        assert_eq!(half.pause_after(Duration::from_secs(3)), Duration::from_secs(3));
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let options = WatchOptions::default;
        options().validate().expect("the defaults are in range");
        for wrong in [
            options().with_interval(Duration::from_millis(99)),
            options().with_max_share_percent(0),
            options().with_max_share_percent(51),
            options().with_max_names(0),
            options().with_max_entries(10_000_001),
        ] {
            assert!(wrong.validate().is_err(), "{wrong:?}");
        }
    }
}
