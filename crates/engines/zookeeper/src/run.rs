//! How long this process has run without a stop: one that stands still sends no sign of life, and
//! does not feel it.
//!
//! A leader ends a session by what the members told it, and a member that dies tells nothing more.
//! Of a process that runs, the leader was told a known time ago at most: `late` (S3). So:
//!
//! - U1: what a majority carried out counts from when it was sent, if by then the process had run
//!   for as long as `late` without a stop.
//! - U2: before that it counts from the end of the last run that was as long, or not at all.

use std::time::Duration;

use holdline_core::Moment;

/// What is known of the runs of this process.
#[derive(Debug)]
pub(crate) struct Run {
    /// How late the leader may be told of what lives, at most.
    late: Duration,
    /// How far apart two looks are at most of a process that runs.
    gap: Duration,
    began: Moment,
    looked: Moment,
    /// The end of the last run that was long enough (U2).
    carried: Moment,
}

impl Run {
    /// Begins at the opening of a session, which the leader itself knows of.
    pub(crate) fn new(opened: Moment, late: Duration, gap: Duration) -> Run {
        Run { late, gap, began: opened, looked: opened, carried: opened.after(late) }
    }

    /// Looks; it is to be called more often than each `gap`.
    pub(crate) fn look(&mut self, now: Moment) {
        if self.looked.until(now) > self.gap {
            if self.began.until(self.looked) >= self.late {
                self.carried = self.carried.max(self.looked);
            }
            self.began = now;
        }
        self.looked = self.looked.max(now);
    }

    /// From when on a session counts that stood for a majority by what was sent at `since`.
    pub(crate) fn counts_from(&mut self, since: Moment) -> Moment {
        // It may have stood still just before.
        self.look(since);
        match self.began.until(since) >= self.late {
            true => since,
            false => since.min(self.carried),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Duration = Duration::from_secs(2);
    const GAP: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs(100 + seconds))
    }

    /// Opened at 0, and looked at each second until `end`.
    fn ran_until(end: u64) -> Run {
        let mut run = Run::new(at(0), LATE, GAP);
        (0..=end).for_each(|second| run.look(at(second)));
        run
    }

    #[test]
    fn of_a_process_that_runs_all_counts_from_when_it_was_sent() {
        for end in 0..10 {
            assert_eq!(ran_until(end).counts_from(at(end)), at(end));
        }
    }

    #[test]
    fn after_a_stop_the_time_before_it_counts_until_it_has_run_long_enough() {
        let mut run = ran_until(5);
        for (now, counts_from) in [(9, 5), (10, 5), (11, 11), (12, 12)] {
            assert_eq!(run.counts_from(at(now)), at(counts_from), "at {now}");
        }
    }

    #[test]
    fn runs_that_are_too_short_between_two_stops_count_for_nothing() {
        let mut run = ran_until(5);
        for (now, counts_from) in [(9, 5), (10, 5), (14, 5), (15, 5), (19, 5), (21, 5), (23, 5)] {
            run.look(at(now));
            assert_eq!(run.counts_from(at(now)), at(counts_from), "at {now}");
        }
        run.look(at(24));
        run.look(at(25));
        assert_eq!(run.counts_from(at(25)), at(25));
    }

    #[test]
    fn a_stop_right_after_the_opening_counts_from_there() {
        let mut run = ran_until(0);
        assert_eq!(run.counts_from(at(7)), at(0).after(LATE), "the leader knew of the opening");
        run.look(at(6));
        assert_eq!(run.counts_from(at(1)), at(1), "sent before the stop");
    }
}
