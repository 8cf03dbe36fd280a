//! How long a holder may rely on its lease.
//!
//! The time is counted from just before the request was sent, never from its reply. The store may
//! have started its own timer as soon as the request arrived, so a later start is unsafe (Gray and
//! Cheriton, 1989). Drift covers the difference of both clocks' rates; the margin
//! covers a store that rounds to milliseconds.
//! Invariant V1: provided that the rates of both clocks agree within `drift`, `valid_until` comes
//! before the store can grant the name to another client.
//! Read next: [`crate::renewal`], which renews before that moment.

use std::time::Duration;

use crate::moment::Moment;

/// What is subtracted from every lease in addition to drift.
pub const MARGIN: Duration = Duration::from_millis(2);

/// Returns how much of `left` the holder may rely on: less drift, less [`MARGIN`].
pub fn validity_time(left: Duration, drift_ppm: u32) -> Duration {
    let parts = u64::from(1_000_000_u32.saturating_sub(drift_ppm));
    let nanos = u64::try_from(left.as_nanos()).ok().and_then(|nanos| nanos.checked_mul(parts));
    let nanos = match nanos {
        Some(nanos) => nanos / 1_000_000,
        // Longer than five hours: the wide arithmetic is ten times slower.
        None => {
            let nanos = left.as_nanos().saturating_mul(u128::from(parts)) / 1_000_000;
            u64::try_from(nanos).unwrap_or(u64::MAX)
        }
    };
    let drifted = Duration::from_nanos(nanos);
    drifted.saturating_sub(MARGIN)
}

/// Returns until when the holder may rely on a grant.
///
/// `sent` is when the request was sent, by a clock reading just before; `left` is what its reply
/// reported as left. `None` stands for a live grant, which time does not end.
pub fn valid_until(sent: Moment, left: Option<Duration>, drift_ppm: u32) -> Moment {
    match left {
        Some(left) => sent.after(validity_time(left, drift_ppm)),
        None => Moment::NEVER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_from_the_sending_and_takes_off_drift_and_margin() {
        let sent = Moment::from_nanos(5_000_000_000);
        let until = valid_until(sent, Some(Duration::from_secs(10)), 10_000);
        assert_eq!(sent.until(until), Duration::from_millis(9_898));
        assert_eq!(valid_until(sent, None, 10_000), Moment::NEVER);
    }

    #[test]
    fn forbidden_inputs_shorten_and_never_wrap() {
        let sent = Moment::from_nanos(7);
        assert_eq!(valid_until(sent, Some(Duration::ZERO), 0), sent);
        assert_eq!(valid_until(sent, Some(MARGIN), 0), sent);
        assert_eq!(valid_until(sent, Some(Duration::from_secs(1)), u32::MAX), sent);
        assert_eq!(
            valid_until(sent, Some(Duration::MAX), 0),
            Moment::NEVER.before(MARGIN).after(Duration::from_nanos(7))
        );
    }
}
