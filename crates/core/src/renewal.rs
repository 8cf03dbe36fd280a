//! When the keeper renews, and when it gives up.
//!
//! Invariant R1: a renewal is planned before the lease is at risk, and a failed one is tried
//! again until the holder may no longer rely on the lease.
//! Invariant R2: a renewal never resurrects: once `valid_until` has passed the lease is lost,
//! whatever a late reply says.

use std::time::Duration;

use crate::lease::LeaseTerms;
use crate::moment::Moment;

pub use crate::lease::MIN_RETRY;

/// A lease that is held this long is watched for revokes; shorter holds never open a watch.
pub const WATCH_AFTER: Duration = Duration::from_secs(1);

/// When a lease is extended of which the store has granted only a part: one above
/// [`MAX_FIRST_LEASE`](crate::lease::MAX_FIRST_LEASE), or that of a hand-off. A shorter hold sends
/// no renewal.
pub const EXTEND_AFTER: Duration = Duration::from_millis(100);

/// Returns when to renew a lease next. Its last confirmation was sent at `sent`, and the reply
/// reported that `left` was left. The next renewal is after the renewal interval, or after a third
/// of `left` if that is less: a repeated request reports the rest of a lease, and leases of one
/// session share its rest.
///
/// `jitter` from 0 to 255 spreads renewals over the last eighth of the interval, so that leases
/// acquired together are not renewed together for ever.
pub fn renew_at(sent: Moment, left: Option<Duration>, terms: &LeaseTerms, jitter: u8) -> Moment {
    // In nanoseconds, which every lease fits into: this is on the path of each grant.
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let interval = nanos(terms.renew_interval()).min(left.map_or(u64::MAX, nanos) / 3);
    let spread = (interval / 8).saturating_mul(u64::from(jitter)) / 255;
    sent.after(Duration::from_nanos(interval - spread.min(interval)))
}

/// Returns how long after its start a grant with these terms needs no check, if its whole first
/// lease is left.
pub fn first_look(terms: &LeaseTerms, renews: bool) -> Duration {
    if renews { WATCH_AFTER.min(terms.renew_interval() / 16 * 13) } else { WATCH_AFTER }
}

/// Returns when to warn the holder that its lease is at risk: one renewal interval before the end,
/// or half-way to it if that is later. `sent` is when the last confirmation was sent.
pub fn at_risk_at(sent: Moment, valid_until: Moment, terms: &LeaseTerms) -> Moment {
    if valid_until == Moment::NEVER {
        return valid_until;
    }
    valid_until.before(terms.renew_interval().min(sent.until(valid_until) / 2))
}

/// Returns the pause after a failed renewal, which followed `failures` other failures. It doubles
/// from [`MIN_RETRY`] up to an eighth of the interval, so that several tries fit before the end.
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
        let sent = Moment::ORIGIN;
        let terms = terms();
        let full = Some(Duration::from_secs(30));
        assert_eq!(renew_at(sent, full, &terms, 0), sent.after(Duration::from_secs(10)));
        assert_eq!(renew_at(sent, full, &terms, 255), sent.after(Duration::from_millis(8_750)));
        let little = Some(Duration::from_secs(6));
        assert_eq!(renew_at(sent, little, &terms, 0), sent.after(Duration::from_secs(2)));
        assert_eq!(renew_at(sent, None, &terms, 0), sent.after(Duration::from_secs(10)));
    }

    #[test]
    fn the_warning_comes_one_interval_before_the_end_or_half_way() {
        let terms = terms();
        let at = |s| Moment::ORIGIN.after(Duration::from_secs(s));
        for (sent, until, expected) in [
            (at(0), at(29), at(19)),
            (at(10), at(39), at(29)),
            (at(0), at(20), at(10)),
            (at(0), at(6), at(3)),
            (at(6), at(6), at(6)),
            // Confirmed by a request that was sent after the end.
            (at(9), at(6), at(6)),
            (at(0), Moment::NEVER, Moment::NEVER),
        ] {
            assert_eq!(at_risk_at(sent, until, &terms), expected, "{sent:?} {until:?}");
        }
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
