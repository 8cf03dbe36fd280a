//! When the keeper renews, and when it gives up.
//!
//! Invariant R1: a renewal is planned before the lease is at risk, and a failed one is tried
//! again until the lease may no longer be believed.
//! Invariant R2: a renewal never resurrects: once `valid_until` has passed the lease is lost,
//! whatever a late reply says.

use std::time::Duration;

use crate::lease::LeaseTerms;
use crate::moment::Moment;

/// The smallest pause between two tries of a renewal that failed.
pub const MIN_RETRY: Duration = Duration::from_millis(5);

/// Where a lease stands, by the holder's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing to do before `renew_at`.
    Valid,
    /// A renewal is due.
    Due,
    /// At most one renewal interval is left: the holder is told.
    AtRisk,
    /// The lease may no longer be believed.
    Lost,
}

/// Returns when a lease is renewed next that was last confirmed by a request sent at `sent`, whose
/// reply said that `left` was left: after the renewal interval, or a third of what is left if
/// that is less (asking again answers what is left of a lease, and sessions share theirs).
///
/// `jitter` from 0 to 255 spreads renewals over the last eighth of the interval, so that leases
/// taken together are not renewed together for ever.
pub fn renew_at(sent: Moment, left: Option<Duration>, terms: &LeaseTerms, jitter: u8) -> Moment {
    // In nanoseconds, which every lease fits into: this is on the path of each grant.
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let interval = nanos(terms.renew_interval()).min(left.map_or(u64::MAX, nanos) / 3);
    let spread = (interval / 8).saturating_mul(u64::from(jitter)) / 255;
    sent.after(Duration::from_nanos(interval - spread.min(interval)))
}

/// Returns when the holder is told that its lease is at risk: one interval before the end.
pub fn at_risk_at(valid_until: Moment, terms: &LeaseTerms) -> Moment {
    if valid_until == Moment::NEVER {
        valid_until
    } else {
        valid_until.before(terms.renew_interval())
    }
}

/// Returns where a lease stands at `now`.
pub fn standing(
    now: Moment,
    renew_at: Moment,
    valid_until: Moment,
    terms: &LeaseTerms,
) -> Standing {
    if now >= valid_until {
        Standing::Lost
    } else if now >= at_risk_at(valid_until, terms) {
        Standing::AtRisk
    } else if now >= renew_at {
        Standing::Due
    } else {
        Standing::Valid
    }
}

/// Returns the pause after a failed try that `failures` others came before: it doubles from
/// [`MIN_RETRY`] and is at most an eighth of the interval, so that several tries fit before the
/// end.
pub fn retry_after(failures: u32, terms: &LeaseTerms) -> Duration {
    let ceiling = (terms.renew_interval() / 8).max(MIN_RETRY);
    MIN_RETRY.saturating_mul(1 << failures.min(16)).min(ceiling)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> LeaseTerms {
        LeaseTerms::new(Duration::from_secs(30), None, 10_000).expect("good terms")
    }

    #[test]
    fn renewals_are_spread_over_the_last_eighth() {
        let (sent, terms) = (Moment::ORIGIN, terms());
        let full = Some(Duration::from_secs(30));
        assert_eq!(renew_at(sent, full, &terms, 0), sent.after(Duration::from_secs(10)));
        assert_eq!(renew_at(sent, full, &terms, 255), sent.after(Duration::from_millis(8_750)));
        let little = Some(Duration::from_secs(6));
        assert_eq!(renew_at(sent, little, &terms, 0), sent.after(Duration::from_secs(2)));
        assert_eq!(renew_at(sent, None, &terms, 0), sent.after(Duration::from_secs(10)));
    }

    #[test]
    fn a_lease_goes_from_valid_to_lost_in_order() {
        let (terms, at) = (terms(), |s| Moment::ORIGIN.after(Duration::from_secs(s)));
        let (renew, until) = (at(10), at(29));
        for (now, expected) in [
            (at(0), Standing::Valid),
            (at(10), Standing::Due),
            (at(18), Standing::Due),
            (at(19), Standing::AtRisk),
            (at(29), Standing::Lost),
            (Moment::NEVER, Standing::Lost),
        ] {
            assert_eq!(standing(now, renew, until, &terms), expected, "{now:?}");
        }
    }

    #[test]
    fn a_live_grant_is_never_at_risk_by_time() {
        assert_eq!(at_risk_at(Moment::NEVER, &terms()), Moment::NEVER);
    }

    #[test]
    fn retries_grow_and_stay_bounded() {
        let terms = terms();
        assert_eq!(retry_after(0, &terms), MIN_RETRY);
        assert_eq!(retry_after(3, &terms), MIN_RETRY * 8);
        assert_eq!(retry_after(u32::MAX, &terms), Duration::from_millis(1_250));
        let short = LeaseTerms::new(Duration::from_millis(50), None, 0).expect("good terms");
        assert_eq!(retry_after(9, &short), MIN_RETRY);
    }
}
