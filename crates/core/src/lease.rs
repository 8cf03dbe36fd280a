//! The five times of a lease, checked together.
//!
//! | time | what it is |
//! |---|---|
//! | `lease_duration` | how long the store keeps the grant without a renewal |
//! | `renew_interval` | how often the keeper renews; a third of the lease unless set |
//! | `drift` | by how much the rates of two clocks may differ; 1 % unless set |
//! | `valid_until` | until when the holder may rely on its lease ([`crate::validity`]) |
//! | `wait` | how long a contender waits for the name |
//!
//! Invariant D1: every [`LeaseTerms`] leaves room for at least two renewals before the holder may
//! no longer rely on the lease.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::validity::MARGIN;

/// The shortest lease.
pub const MIN_LEASE: Duration = Duration::from_millis(50);
/// The longest lease: 24 hours.
pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
// The messages say so: of `TermsError::LeaseDuration`, and of options of engines.
const _: () = assert!(MIN_LEASE.as_millis() == 50 && MAX_LEASE.as_secs() == 24 * 60 * 60);
/// The lease of a library lock unless set.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// The longest lease that a grant starts with; the first renewal gives a longer one. So if a reply
/// is lost and the release cannot be sent, the grant has ended after this time.
pub const MAX_FIRST_LEASE: Duration = Duration::from_secs(30);
/// The shortest renew interval, and the smallest pause between two tries of a renewal that failed.
pub const MIN_RETRY: Duration = Duration::from_millis(5);
/// By how much the rates of two clocks may differ unless set, in parts per million: 1 %.
pub const DEFAULT_DRIFT_PPM: u32 = 10_000;
/// The largest drift that may be set: 20 %.
pub const MAX_DRIFT_PPM: u32 = 200_000;

/// Returns how often a lease is renewed unless the interval is set: a third of it.
pub fn default_interval(lease_duration: Duration) -> Duration {
    lease_duration / 3
}

/// How a grant is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Renewed by its client. An engine that sees the client die ends it at once.
    Leased(Duration),
    /// Belongs to no process: it ends by time, or is released under its lease id.
    Detached(Duration),
    /// Held as long as a process keeps the grant's [`crate::Anchor`] open; never ends by time.
    Live,
}

impl Hold {
    /// Returns the duration, or `None` for a live grant.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Hold::Leased(duration) | Hold::Detached(duration) => Some(duration),
            Hold::Live => None,
        }
    }

    /// Returns the same kind of hold with another duration; a live one has none.
    #[must_use]
    pub fn lasting(self, duration: Duration) -> Hold {
        match self {
            Hold::Leased(_) => Hold::Leased(duration),
            Hold::Detached(_) => Hold::Detached(duration),
            Hold::Live => Hold::Live,
        }
    }

    /// Returns the same kind of hold, limited to [`MAX_FIRST_LEASE`].
    #[must_use]
    pub fn first(self) -> Hold {
        match self {
            Hold::Leased(duration) => Hold::Leased(duration.min(MAX_FIRST_LEASE)),
            Hold::Detached(duration) => Hold::Detached(duration.min(MAX_FIRST_LEASE)),
            Hold::Live => Hold::Live,
        }
    }
}

/// The times of a lease, checked against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    lease_duration: Duration,
    renew_interval: Duration,
    drift_ppm: u32,
}

impl LeaseTerms {
    /// Checks the times; `renew_interval` is a third of the lease when `None`.
    ///
    /// # Errors
    /// [`TermsError`] names the wrong field and its limits. No request was sent.
    pub fn new(
        lease_duration: Duration,
        renew_interval: Option<Duration>,
        drift_ppm: u32,
    ) -> Result<LeaseTerms, TermsError> {
        if !(MIN_LEASE..=MAX_LEASE).contains(&lease_duration) {
            return Err(TermsError::LeaseDuration(lease_duration));
        }
        if drift_ppm > MAX_DRIFT_PPM {
            return Err(TermsError::Drift(drift_ppm));
        }
        let renew_interval = renew_interval.unwrap_or(default_interval(lease_duration));
        let longest = crate::validity::validity_time(lease_duration, drift_ppm) / 2;
        if !(MIN_RETRY..=longest).contains(&renew_interval) {
            return Err(TermsError::RenewInterval { renew_interval, longest });
        }
        Ok(LeaseTerms { lease_duration, renew_interval, drift_ppm })
    }

    /// Returns how long the store keeps the grant without a renewal.
    pub fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// Returns how often the keeper renews.
    pub fn renew_interval(&self) -> Duration {
        self.renew_interval
    }

    /// Returns by how much the rates of two clocks may differ, in parts per million.
    pub fn drift_ppm(&self) -> u32 {
        self.drift_ppm
    }
}

impl Default for LeaseTerms {
    fn default() -> LeaseTerms {
        LeaseTerms {
            lease_duration: DEFAULT_LEASE,
            renew_interval: default_interval(DEFAULT_LEASE),
            drift_ppm: DEFAULT_DRIFT_PPM,
        }
    }
}

/// Which of the times is wrong, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// The lease is too short or too long.
    #[error("lease_duration must be from 50ms to 24h, not {0:?}")]
    LeaseDuration(Duration),
    /// The renew interval leaves no room for two renewals.
    #[error(
        "renew_interval must be from {MIN_RETRY:?} to {longest:?} (two renewals must fit into the \
         lease less drift and a margin of {MARGIN:?}), not {renew_interval:?}"
    )]
    RenewInterval {
        /// The interval that was set.
        renew_interval: Duration,
        /// The longest that fits.
        longest: Duration,
    },
    /// The drift is above [`MAX_DRIFT_PPM`].
    #[error(
        "drift must be at most {percent} % ({MAX_DRIFT_PPM} parts per million), not {0} parts per \
         million",
        percent = MAX_DRIFT_PPM / 10_000
    )]
    Drift(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn good_terms() {
        let terms = LeaseTerms::new(30 * S, None, DEFAULT_DRIFT_PPM).expect("default");
        assert_eq!(terms, LeaseTerms::default());
        assert!(LeaseTerms::new(MIN_LEASE, None, 0).is_ok());
        assert!(LeaseTerms::new(MAX_LEASE, Some(S), MAX_DRIFT_PPM).is_ok());
    }

    #[test]
    fn forbidden_terms_name_the_field() {
        let cases = [
            (Duration::ZERO, None, 0, "lease_duration"),
            (Duration::from_millis(49), None, 0, "lease_duration"),
            (MAX_LEASE + S, None, 0, "lease_duration"),
            (Duration::MAX, None, 0, "lease_duration"),
            (30 * S, Some(Duration::ZERO), 0, "renew_interval"),
            (30 * S, Some(Duration::from_micros(4_999)), 0, "renew_interval"),
            (30 * S, Some(16 * S), 0, "renew_interval"),
            (30 * S, Some(Duration::MAX), 0, "renew_interval"),
            (30 * S, None, MAX_DRIFT_PPM + 1, "drift"),
        ];
        for (lease, renew, drift, field) in cases {
            let error = LeaseTerms::new(lease, renew, drift).expect_err("forbidden").to_string();
            assert!(error.starts_with(field), "{error}");
        }
    }

    #[test]
    fn no_grant_starts_longer_than_thirty_seconds() {
        assert_eq!(Hold::Leased(90 * S).first(), Hold::Leased(30 * S));
        assert_eq!(Hold::Detached(5 * S).first(), Hold::Detached(5 * S));
        assert_eq!(Hold::Live.first(), Hold::Live);
    }
}
