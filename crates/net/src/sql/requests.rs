//! The values of requests, as the functions and procedures take them.

use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{Ending, FencingToken, Hold, Mode};

/// A mode, as the server keeps it.
pub struct ModeColumns {
    /// `x`, `s` or `p`.
    pub letter: &'static str,
    /// How many permits; 0 for the other modes.
    pub permits: i32,
    /// How many permits the name has; 0 for the other modes.
    pub total: i32,
}

/// Returns the columns of a mode.
pub fn mode(mode: Mode) -> ModeColumns {
    let number = |permits: u32| i32::try_from(permits).unwrap_or(i32::MAX);
    match mode {
        Mode::Exclusive => ModeColumns { letter: "x", permits: 0, total: 0 },
        Mode::Shared => ModeColumns { letter: "s", permits: 0, total: 0 },
        Mode::Permits { count, of } => {
            ModeColumns { letter: "p", permits: number(count), total: number(of) }
        }
    }
}

/// Returns a hold as two values: its letter, and how long.
pub fn hold(hold: Hold) -> (&'static str, i64) {
    match hold {
        Hold::Leased(duration) => ("l", micros(duration)),
        Hold::Detached(duration) => ("d", micros(duration)),
        // The capabilities exclude it.
        Hold::Live => ("l", 0),
    }
}

/// Returns how long the tombstone of an ending lasts; 0 if it leaves none.
pub fn remembered(ending: Ending) -> i64 {
    let lease = ending.hold.duration().unwrap_or(MIN_TOMBSTONE);
    if ending.for_good { micros(lease.max(MIN_TOMBSTONE)) } else { 0 }
}

/// Returns a token as the server's number.
pub fn token(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// Returns a count as the server's number.
pub fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Rounds up to whole microseconds, the unit of the stored times.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up() {
        for (nanos, expected) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(micros(Duration::from_nanos(nanos)), expected);
        }
    }

    #[test]
    fn a_tombstone_lasts_as_long_as_the_lease_and_half_a_minute_at_least() {
        let of = |for_good, secs| {
            remembered(Ending { for_good, hold: Hold::Leased(Duration::from_secs(secs)) })
        };
        assert_eq!((of(false, 60), of(true, 60), of(true, 1)), (0, 60_000_000, 30_000_000));
    }
}
