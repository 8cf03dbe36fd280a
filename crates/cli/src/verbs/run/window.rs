//! Kill before regrant: when the job must be stopped so that it never runs beside the next holder.
//!
//! ```text
//! sent ──── renewals ────┬──── grace ────┬─ margin ─┬
//!                       TERM            KILL    valid_until     the store may grant again
//! ```
//!
//! Invariant K1: KILL is sent a margin before `valid_until`, and TERM a grace before KILL.
//! Invariant K2: a lease leaves room for two renewals before TERM; a shorter one is refused before
//! any request to the store.

use std::time::Duration;

use holdline_core::lease::{DEFAULT_DRIFT_PPM, MAX_LEASE, default_interval};
use holdline_core::moment::whole_millis;
use holdline_core::{LeaseTerms, validity};

use crate::duration::written;
use crate::failure::Failure;

/// How long the kernel may take to stop a job after KILL.
pub(crate) const MARGIN: Duration = Duration::from_millis(500);

/// When to stop the job if its lease is not renewed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    grace: Duration,
}

impl Window {
    /// Checks that the job can be stopped in time.
    ///
    /// # Errors
    /// The lease is too short for this grace; the message names values that work.
    pub(crate) fn new(lease: Duration, grace: Duration) -> Result<Window, Failure> {
        let terms = LeaseTerms::new(lease, None, DEFAULT_DRIFT_PPM)
            .map_err(|error| Failure::usage(format_args!("--lease: {error}")))?;
        if has_room(&terms, grace) {
            return Ok(Window { grace });
        }
        let refused = Failure::usage(format_args!(
            "--lease {}: leaves no time to stop the job with --grace {} before the next holder \
             may start",
            written(lease),
            written(grace),
        ));
        let longest = Window::longest_grace(lease);
        let longer = shortest_lease(grace).map(|lease| format!("use --lease {lease} or more"));
        let sooner = (!longest.is_zero()).then(|| format!("--grace {} or less", written(longest)));
        Err(refused.fix(match (longer, sooner) {
            (Some(longer), Some(sooner)) => format!("{longer}, or {sooner}"),
            (Some(longer), None) => longer,
            (None, Some(sooner)) => format!("use {sooner}"),
            (None, None) => "use a longer --lease and a shorter --grace".to_owned(),
        }))
    }

    /// Returns the longest grace that leaves room in a lease.
    pub(crate) fn longest_grace(lease: Duration) -> Duration {
        let validity = validity::validity_time(lease, DEFAULT_DRIFT_PPM);
        let renewals = default_interval(lease).saturating_mul(2);
        Duration::from_millis(whole_millis(validity.saturating_sub(renewals + MARGIN)))
    }

    /// Returns how long before the end of validity the job gets TERM.
    pub(crate) fn term_before(&self) -> Duration {
        self.grace.saturating_add(MARGIN)
    }

    /// Returns how long before the end of validity the job gets KILL.
    pub(crate) fn kill_before(&self) -> Duration {
        MARGIN
    }
}

/// Returns whether a lease holds two renewals, the grace and the margin.
fn has_room(terms: &LeaseTerms, grace: Duration) -> bool {
    let validity = validity::validity_time(terms.lease_duration(), terms.drift_ppm());
    let renewals = terms.renew_interval().saturating_mul(2);
    validity >= renewals.saturating_add(grace).saturating_add(MARGIN)
}

/// Returns the shortest lease in whole seconds that leaves room.
fn shortest_lease(grace: Duration) -> Option<String> {
    let terms = |seconds| LeaseTerms::new(Duration::from_secs(seconds), None, DEFAULT_DRIFT_PPM);
    let mut leases = (1..=MAX_LEASE.as_secs()).filter_map(|seconds| terms(seconds).ok());
    let shortest = leases.find(|terms| has_room(terms, grace))?;
    Some(written(shortest.lease_duration()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_lease_with_room_is_taken() {
        for (lease, grace) in
            [(30 * S, 5 * S), (30 * S, 9 * S), (2 * S, S / 10), (3600 * S, 60 * S)]
        {
            let window = Window::new(lease, grace).expect("room");
            assert_eq!(window.term_before(), grace + MARGIN);
            assert_eq!(window.kill_before(), MARGIN);
        }
    }

    #[test]
    fn a_lease_without_room_is_refused_with_values_that_work() {
        for (lease, grace) in
            [(10 * S, 5 * S), (S, Duration::ZERO), (30 * S, 10 * S), (60 * S, 3_600 * S)]
        {
            let failure = Window::new(lease, grace).expect_err("no room");
            assert_eq!(failure.exit.code(), 64);
            let fix = failure.fix.expect("what would do");
            let words: Vec<&str> = fix.split(' ').collect();
            let lease = crate::duration::positive(words[2]).expect("a duration");
            assert!(Window::new(lease, grace).is_ok(), "{fix}");
            if let Some(grace) = words.get(7) {
                let grace = crate::duration::any(grace).expect("a duration");
                assert!(Window::new(lease, grace).is_ok(), "{fix}");
            }
        }
    }

    #[test]
    fn forbidden_leases_name_the_flag() {
        for lease in [Duration::ZERO, S / 100, 86_401 * S, Duration::MAX] {
            let failure = Window::new(lease, S).expect_err("forbidden");
            assert!(failure.message.starts_with("--lease: lease_duration"), "{failure:?}");
        }
    }
}
