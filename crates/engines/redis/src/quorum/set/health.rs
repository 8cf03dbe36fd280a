//! The state of the nodes, for those who watch over them: what the last round of maintenance found.

use std::time::Duration;

use holdline_core::quorum::{MembershipPlan, majority};
use holdline_core::{NodeHealth, QuorumHealth};

use super::NodeSet;
use crate::quorum::ENGINE;
use crate::quorum::member::{Member, Observed};

impl NodeSet {
    /// Reports the nodes as the last round has found them. It asks none of them.
    pub(super) fn report_health(&self, plan: &MembershipPlan, observed: &[Observed]) {
        let view = self.membership(plan, observed).ok();
        let (now, median) = self.median_clock(observed);
        let node = |(at, (member, observed)): (usize, (&Member, &Observed))| {
            let current = observed.current.as_ref();
            let may_vote = view.as_ref().is_some_and(|view| view.nodes[at].is_ok());
            NodeHealth {
                address: member.address().to_owned(),
                up: current.is_some(),
                // One that is silent may vote again, and does not now.
                votes: current.is_some() && may_vote,
                quarantine: current
                    .and_then(|current| current.with_measured_time(now).quarantine_left())
                    .unwrap_or(Duration::ZERO),
                clock_drift_us: current.and_then(|current| current.clock_offset_us(now, median)),
            }
        };
        let nodes: Vec<NodeHealth> =
            self.members.iter().zip(observed).enumerate().map(node).collect();
        let votes = nodes.iter().filter(|node| node.votes).count();
        let margin = margin(votes, nodes.len());
        self.health.report(&QuorumHealth::new(ENGINE, margin, nodes));
    }
}

/// Returns how many votes there are beyond a majority; negative without one.
fn margin(votes: usize, nodes: usize) -> i32 {
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    count(votes) - count(majority(nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_what_may_fail_and_negative_without_a_majority() {
        let cases = [(3, 3, 1), (2, 3, 0), (1, 3, -1), (0, 3, -2), (5, 5, 2), (3, 4, 0)];
        for (votes, nodes, expected) in cases {
            assert_eq!(margin(votes, nodes), expected, "{votes} of {nodes}");
        }
    }
}
