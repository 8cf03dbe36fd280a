//! How the nodes' reports become the current view.

use std::sync::Arc;

use holdline_core::quorum::{DesiredConfiguration, MembershipPlan, NodeReport, plan};
use holdline_core::{ErrorKind, Moment};

use super::{NodeSet, is_not_initialised};
use crate::quorum::member::{Member, Observed};

/// How many rounds pass before a set is declared unusable, and how many while it still changes.
const FIRST_ROUNDS: u64 = 2;
const MAX_FIRST_ROUNDS: u64 = 8;

impl NodeSet {
    pub(in crate::quorum) fn observed(&self) -> Vec<Observed> {
        self.members.iter().map(Member::observed).collect()
    }

    /// Returns the reports as of now, and the next steps.
    pub(in crate::quorum) fn assess(
        &self,
        observed: &[Observed],
        desired: &DesiredConfiguration,
    ) -> (Vec<Option<NodeReport>>, MembershipPlan) {
        let now = self.clock.now();
        let current = observed.iter().map(|observed| observed.current.as_ref());
        let reports: Vec<Option<NodeReport>> =
            current.map(|current| current.map(|current| current.with_measured_time(now))).collect();
        let plan = plan(&reports, desired);
        (reports, plan)
    }

    /// Publishes a view before the slowest node has answered, if a majority votes. Failed requests
    /// count as answers: they are no votes.
    pub(super) fn publish_early(&self) {
        let observed = self.observed();
        let (_, plan) = self.assess(&observed, &self.desired);
        if self.membership(&plan, &observed).is_ok_and(|view| view.has_majority()) {
            self.publish(&plan, &observed, false);
        }
    }

    pub(super) fn publish(&self, plan: &MembershipPlan, observed: &[Observed], round: bool) {
        let new = self.membership(plan, observed).map(Arc::new);
        let mut heals = false;
        let mut state = self.state.lock();
        state.rounds += u64::from(round);
        state.in_round &= !round;
        // At first a connection may take time, and the initialisation takes some steps.
        let settled = state.rounds >= FIRST_ROUNDS && plan.steps.is_empty();
        let silent =
            matches!(&new, Err(error) if matches!(error.kind(), ErrorKind::NoQuorum { .. }));
        let new = Some(new);
        // All nodes answered that they are no set, and no acquire asks to initialise them.
        let blank = is_not_initialised(&new) && !state.may_initialise;
        if silent && matches!(state.view, Some(Ok(_))) {
            // Silence changes nothing of the membership.
        } else if matches!(new, Some(Ok(_)))
            || settled && !is_not_initialised(&new)
            || blank
            || state.rounds >= MAX_FIRST_ROUNDS
        {
            heals = match (&state.view, &new) {
                (Some(Ok(before)), Some(Ok(now))) => now.has_new_voter(before),
                _ => false,
            };
            state.view = new;
        }
        drop(state);
        if round {
            self.report_health(plan, observed);
        }
        self.changed.notify_waiters();
        if heals {
            // Each lease is renewed now, and so healed where it is missing. The next server can be
            // restarted without waiting for the next regular renewal.
            self.watches.notify_all();
        }
    }

    /// Returns the median of the nodes' clocks, in microseconds, at a moment of ours.
    pub(in crate::quorum) fn median_clock(&self, observed: &[Observed]) -> (Moment, u64) {
        let now = self.clock.now();
        let current = observed.iter().filter_map(|observed| observed.current.as_ref());
        let mut times: Vec<u64> = current.map(|current| current.time_us_at(now)).collect();
        times.sort_unstable();
        (now, times.get(times.len() / 2).copied().unwrap_or(0))
    }
}
