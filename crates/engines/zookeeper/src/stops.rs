//! How long this process has stood still lately: while it does it sends no sign of life, and does
//! not feel it.
//!
//! A leader ends a session by what the members told it, and a member that dies tells nothing more.
//! Of a process that runs, the leader was told a known time ago at most: `late` (S3). Whatever the
//! process stands still in that time makes it as much longer. So:
//!
//! - U1: what a majority carried out counts from when it was sent, less all the time that the
//!   process stood still within `late` before that; and `late` is longer by that time.
//! - U2: the leader itself knows of the opening: nothing counts from before it.

use std::collections::VecDeque;
use std::time::Duration;

use holdline_core::Moment;

/// What is known of the stops of this process.
#[derive(Debug)]
pub(crate) struct Stops {
    /// How late the leader may be told of what lives, at most.
    late: Duration,
    /// How far apart two looks are of a process that runs.
    look: Duration,
    /// How long a stop is remembered: what is older than the session proves nothing.
    memory: Duration,
    opened: Moment,
    looked: Moment,
    /// Between which looks it stood still, the oldest first.
    known: VecDeque<(Moment, Moment)>,
}

impl Stops {
    /// Begins at the opening of a session that lasts for `memory`.
    pub(crate) fn new(opened: Moment, late: Duration, look: Duration, memory: Duration) -> Stops {
        Stops { late, look, memory, opened, looked: opened, known: VecDeque::new() }
    }

    /// Looks; it is to be called after each `look`.
    pub(crate) fn look(&mut self, now: Moment) {
        if self.looked.until(now) > self.look {
            self.known.push_back((self.looked, now));
        }
        self.looked = self.looked.max(now);
        let old = now.before(self.memory);
        while self.known.front().is_some_and(|(_, end)| *end <= old) {
            self.known.pop_front();
        }
    }

    /// How late the leader may be told of what lives, at most.
    pub(crate) fn late(&self) -> Duration {
        self.late
    }

    /// When to look again.
    pub(crate) fn next_look(&self) -> Moment {
        self.looked.after(self.look)
    }

    /// From when on a session counts that stood for a majority by what was sent at `since`.
    pub(crate) fn counts_from(&self, since: Moment) -> Moment {
        let mut stood = Duration::ZERO;
        // The longer it stood, the further back it matters whether it did.
        loop {
            let more = self.stood(since.before(self.late.saturating_add(stood)), since);
            if more <= stood {
                break;
            }
            stood = more;
        }
        since.before(stood).max(since.min(self.opened.after(self.late)))
    }

    /// How long it stood still in all stops that reach into this time.
    fn stood(&self, from: Moment, to: Moment) -> Duration {
        let last = (self.looked, Moment::NEVER);
        let stops = self.known.iter().copied().chain([last]);
        let reaching = stops.map(|(began, ended)| (began, ended.min(to)));
        let reaching = reaching.filter(|(began, ended)| *ended > from && began < ended);
        reaching.map(|(began, ended)| began.until(ended).saturating_sub(self.look)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Duration = Duration::from_secs(5);
    const LOOK: Duration = Duration::from_secs(1);
    const MEMORY: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs(100 + seconds))
    }

    /// Opened at 0, and looked at these moments.
    fn looked(seconds: impl IntoIterator<Item = u64>) -> Stops {
        let mut stops = Stops::new(at(0), LATE, LOOK, MEMORY);
        seconds.into_iter().for_each(|second| stops.look(at(second)));
        stops
    }

    #[test]
    fn of_a_process_that_runs_all_counts_from_when_it_was_sent() {
        for end in 0..20 {
            let stops = looked(0..=end);
            assert_eq!(stops.counts_from(at(end)), at(end));
            assert_eq!(stops.counts_from(at(end + 1)), at(end + 1), "not late yet");
        }
    }

    #[test]
    fn a_stop_costs_its_own_length_until_it_is_too_long_ago() {
        let mut stops = looked(0..=10);
        for now in 14..30 {
            let counts_from = if now < 19 { at(now - 3) } else { at(now) };
            assert_eq!(stops.counts_from(at(now)), counts_from, "before the look at {now}");
            stops.look(at(now));
            assert_eq!(stops.counts_from(at(now)), counts_from, "at {now}");
        }
    }

    #[test]
    fn stops_one_after_the_other_add_up() {
        // Three seconds each, between which it ran for two.
        let stops = looked((0..=10).chain([14, 15, 19, 20]));
        assert_eq!(stops.counts_from(at(20)), at(14));
        assert_eq!(stops.counts_from(at(15)), at(12), "sent before the second");
    }

    #[test]
    fn what_was_sent_before_a_stop_is_not_touched_by_it() {
        let stops = looked((0..=10).chain([17]));
        assert_eq!(stops.counts_from(at(10)), at(10));
        assert_eq!(stops.counts_from(at(11)), at(11));
        assert_eq!(stops.counts_from(at(13)), at(11), "two seconds of it had passed");
    }

    #[test]
    fn nothing_counts_from_before_the_opening() {
        let stops = looked([0, 20]);
        assert_eq!(stops.counts_from(at(20)), at(5), "the leader knew of the opening");
        assert_eq!(looked([0, 3]).counts_from(at(3)), at(3));
    }

    #[test]
    fn stops_are_forgotten_when_the_session_of_their_time_is_over() {
        let stops = looked((0..200).map(|n| n * 2));
        assert!(stops.known.len() <= 16, "{}", stops.known.len());
    }
}
