//! The recent pauses of this process. A paused process sends no heartbeat, and does not notice it.
//!
//! The leader expires a session by what the members have reported, and a member that dies reports
//! nothing more. While this process runs, the leader knows of a heartbeat that is at most `late`
//! old (S3). A pause within that time makes it older by the length of the pause. So:
//!
//! - U1: a proof by a majority counts from when its request was sent, less all pauses within `late`
//!   before that; and `late` is longer by those pauses.
//! - U2: the leader itself knows of the opening of the session: nothing counts from before it.

use std::collections::VecDeque;
use std::time::Duration;

use holdline_core::Moment;

/// The known pauses of this process.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// The age of the newest heartbeat that the leader knows of, at most.
    late: Duration,
    /// The interval between two checks, if the process runs.
    interval: Duration,
    /// How long a pause is remembered: the session timeout.
    memory: Duration,
    opened: Moment,
    checked: Moment,
    /// The pauses, each from one check to the next, the oldest first.
    known: VecDeque<(Moment, Moment)>,
}

impl Pauses {
    /// Begins at the opening of a session with the timeout `memory`.
    pub(crate) fn new(
        opened: Moment,
        late: Duration,
        interval: Duration,
        memory: Duration,
    ) -> Pauses {
        Pauses { late, interval, memory, opened, checked: opened, known: VecDeque::new() }
    }

    /// Checks whether the process was paused; to be called after each interval.
    pub(crate) fn check(&mut self, now: Moment) {
        if self.checked.until(now) > self.interval {
            self.known.push_back((self.checked, now));
        }
        self.checked = self.checked.max(now);
        let old = now.before(self.memory);
        while self.known.front().is_some_and(|(_, end)| *end <= old) {
            self.known.pop_front();
        }
    }

    /// The age of the newest heartbeat that the leader knows of, at most.
    pub(crate) fn late(&self) -> Duration {
        self.late
    }

    /// Returns when to check again.
    pub(crate) fn next_check(&self) -> Moment {
        self.checked.after(self.interval)
    }

    /// Returns from when a session counts that was proven by a request sent at `since`.
    pub(crate) fn counts_from(&self, since: Moment) -> Moment {
        let mut paused = Duration::ZERO;
        // Each pause extends the time in which earlier pauses matter.
        loop {
            let more = self.paused(since.before(self.late.saturating_add(paused)), since);
            if more <= paused {
                break;
            }
            paused = more;
        }
        since.before(paused).max(since.min(self.opened.after(self.late)))
    }

    /// Returns the total length of all pauses that overlap this time.
    fn paused(&self, from: Moment, to: Moment) -> Duration {
        let last = (self.checked, Moment::NEVER);
        let pauses = self.known.iter().copied().chain([last]);
        let reaching = pauses.map(|(began, ended)| (began, ended.min(to)));
        let reaching = reaching.filter(|(began, ended)| *ended > from && began < ended);
        reaching.map(|(began, ended)| began.until(ended).saturating_sub(self.interval)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Duration = Duration::from_secs(5);
    const INTERVAL: Duration = Duration::from_secs(1);
    const MEMORY: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs(100 + seconds))
    }

    /// Opened at 0, and checked at these seconds.
    fn checked(seconds: impl IntoIterator<Item = u64>) -> Pauses {
        let mut pauses = Pauses::new(at(0), LATE, INTERVAL, MEMORY);
        seconds.into_iter().for_each(|second| pauses.check(at(second)));
        pauses
    }

    #[test]
    fn without_a_pause_a_proof_counts_from_when_it_was_sent() {
        for end in 0..20 {
            let pauses = checked(0..=end);
            assert_eq!(pauses.counts_from(at(end)), at(end));
            assert_eq!(
                pauses.counts_from(at(end + 1)),
                at(end + 1),
                "the next check is not late yet"
            );
        }
    }

    #[test]
    fn a_pause_costs_its_own_length_until_it_is_too_long_ago() {
        let mut pauses = checked(0..=10);
        for now in 14..30 {
            let counts_from = if now < 19 { at(now - 3) } else { at(now) };
            assert_eq!(pauses.counts_from(at(now)), counts_from, "before the check at {now}");
            pauses.check(at(now));
            assert_eq!(pauses.counts_from(at(now)), counts_from, "at {now}");
        }
    }

    #[test]
    fn consecutive_pauses_add_up() {
        // Two pauses of three seconds, and one second between them.
        let pauses = checked((0..=10).chain([14, 15, 19, 20]));
        assert_eq!(pauses.counts_from(at(20)), at(14));
        assert_eq!(pauses.counts_from(at(15)), at(12), "sent before the second");
    }

    #[test]
    fn a_proof_sent_before_a_pause_is_not_affected_by_it() {
        let pauses = checked((0..=10).chain([17]));
        assert_eq!(pauses.counts_from(at(10)), at(10));
        assert_eq!(pauses.counts_from(at(11)), at(11));
        assert_eq!(pauses.counts_from(at(13)), at(11), "two seconds of the pause had passed");
    }

    #[test]
    fn nothing_counts_from_before_the_opening() {
        let pauses = checked([0, 20]);
        assert_eq!(pauses.counts_from(at(20)), at(5), "the leader knew of the opening");
        assert_eq!(checked([0, 3]).counts_from(at(3)), at(3));
    }

    #[test]
    fn pauses_are_forgotten_after_the_session_timeout() {
        let pauses = checked((0..200).map(|n| n * 2));
        assert!(pauses.known.len() <= 16, "{}", pauses.known.len());
    }
}
