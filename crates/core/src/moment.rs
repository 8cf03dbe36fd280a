//! Readings of a clock that only moves forward.
//!
//! A [`Moment`] is not a time of day: it is the time since an origin that only its own clock knows.
//! Moments of different clocks must never be compared. Invariant M1: arithmetic never wraps; it
//! saturates at both ends. Read next: [`crate::validity`], which computes from moments how long a
//! holder may rely on a lease.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A reading of one clock, in nanoseconds since an origin that only that clock knows.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Moment(u64);

/// Returns whole milliseconds, rounded down, and cut to what JSON readers hold exactly.
pub fn whole_millis(duration: Duration) -> u64 {
    const LARGEST: u64 = (1 << 53) - 1;
    u64::try_from(duration.as_millis()).unwrap_or(LARGEST).min(LARGEST)
}

impl Moment {
    /// The origin of the clock.
    pub const ORIGIN: Moment = Moment(0);
    /// Later than every other moment: the deadline of a grant that does not end by time.
    pub const NEVER: Moment = Moment(u64::MAX);

    /// Makes a moment from nanoseconds since the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    /// Returns the nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the moment `duration` later; stays at [`Moment::NEVER`] instead of wrapping.
    #[must_use]
    pub fn after(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(duration)))
    }

    /// Returns the moment `duration` earlier; stays at [`Moment::ORIGIN`] instead of wrapping.
    #[must_use]
    pub fn before(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_sub(nanos(duration)))
    }

    /// Returns how long it is from `earlier` to this moment; zero if this one is not later.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns how long it is from this moment to `later`; zero if it is past.
    pub fn until(self, later: Moment) -> Duration {
        later.since(self)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A clock that is passed in: the rules never read one themselves.
///
/// # Guarantees
/// `now` never goes back. `sleep_until` resolves once `now` has reached the moment, and soon
/// after; a clock that counts suspended time resolves right after the machine wakes.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Reads the clock.
    fn now(&self) -> Moment;

    /// Resolves when the clock has reached `at`. Dropping the future loses nothing.
    fn sleep_until(&self, at: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let one = Duration::from_secs(1);
        assert_eq!(Moment::NEVER.after(one), Moment::NEVER);
        assert_eq!(Moment::ORIGIN.before(one), Moment::ORIGIN);
        assert_eq!(Moment::ORIGIN.after(Duration::MAX), Moment::NEVER);
        assert_eq!(Moment::ORIGIN.since(Moment::NEVER), Duration::ZERO);
        assert_eq!(Moment::from_nanos(5).until(Moment::from_nanos(9)), Duration::from_nanos(4));
    }
}
