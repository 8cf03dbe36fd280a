//! How long a holder may believe its lease.
//!
//! We count from just before the request left, never from its reply. The store may have
//! started its own timer the moment the request arrived, so any later start is too hopeful
//! (Gray and Cheriton, 1989). Drift covers the difference of both clocks' rates; the margin
//! covers a store that rounds to milliseconds.
//! Invariant V1: `valid_until` comes before the store can grant the name to anyone else,
//! as long as both clocks run at rates within `drift` of each other.
//! Read next: [`crate::renewal`], which renews before that moment.

use std::time::Duration;

use crate::moment::Moment;

/// What is taken off every lease beside drift.
pub const MARGIN: Duration = Duration::from_millis(2);

/// Returns how much of `left` may be believed: less drift, less [`MARGIN`].
pub fn believed(left: Duration, drift_ppm: u32) -> Duration {
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

/// Returns until when a grant may be believed whose reply said that `left` was left.
///
/// `sent` is the clock read just before the request left whose reply carried `left`. `None`
/// stands for a live grant, which time does not end.
pub fn valid_until(sent: Moment, left: Option<Duration>, drift_ppm: u32) -> Moment {
    match left {
        Some(left) => sent.after(believed(left, drift_ppm)),
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
