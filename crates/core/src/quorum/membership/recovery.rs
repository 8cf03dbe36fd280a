//! How a set in use changes its membership, and how a node that lost its data votes again (M2 to
//! M4).

use std::time::Duration;

use super::{MembershipPlan, Planner, SetStatus, stamp_of};
use crate::quorum::configuration::Configuration;
use crate::quorum::majority;
use crate::quorum::node::{MemberState, NodeCommand, NodeReport};

/// A measured time below this is reported only if it is all that is left of the quarantine.
const MIN_REPORTED_WAIT: Duration = Duration::from_millis(100);

impl Planner<'_> {
    pub(super) fn maintain(&self) -> MembershipPlan {
        let newest = self.newest();
        let split = newest.len() > 1;
        let Some(current) = Configuration::merged(newest) else {
            // An initialised node always has a configuration, but a store may answer anything.
            return MembershipPlan::none(SetStatus::Uninitialised { silent: Vec::new() });
        };
        let nodes = current.slots().len();
        if nodes != self.reports.len() {
            return MembershipPlan::none(SetStatus::WrongSize { nodes });
        }
        let (changes, mislisted) = self.slot_changes(&current);
        // At least one slot has no node that answers, and gets none: nothing can be agreed on.
        if !mislisted.is_empty() && self.all_answer() && !self.majority_has_data(&current) {
            let status = SetStatus::Mislisted(current);
            return MembershipPlan { mislisted, ..MembershipPlan::none(status) };
        }
        let changed = split || !changes.is_empty();
        let steps = match changed && self.may_change(&current, &changes) {
            true => {
                let changes: Vec<_> =
                    changes.iter().map(|(old, new, to)| (*old, *new, to.as_str())).collect();
                self.adopt(&current.successor(&changes))
            }
            false if split => Vec::new(),
            false => self.advance(&current),
        };
        MembershipPlan { status: SetStatus::Agreed(current), steps, mislisted }
    }

    /// Returns the indices of the nodes that vote sooner if an operator vouches.
    pub(super) fn nodes_helped_by_vouching(&self) -> Vec<usize> {
        let current = match self.plan().status {
            SetStatus::Agreed(current) => current,
            SetStatus::Uninitialised { silent } if silent.is_empty() => {
                return self.seen().map(|(at, _)| at).collect();
            }
            _ => return Vec::new(),
        };
        let (changes, mislisted) = self.slot_changes(&current);
        // Nodes that have lost their data begin a quarantine by time.
        let begins =
            !self.majority_has_data(&current) && self.every_slot_is_known(&current, &changes);
        let is_sooner = |(at, report): &(usize, &NodeReport)| match report.state {
            MemberState::Proposed => current.has(report.id),
            MemberState::Recovering if report.quarantine.is_some_and(|(_, by_time)| by_time) => {
                report.quarantine.is_some_and(|(left, _)| !left.is_zero())
            }
            MemberState::Recovering | MemberState::Blank => begins && !mislisted.contains(at),
            MemberState::Voting | MemberState::Replaced => false,
        };
        self.seen().filter(is_sooner).map(|(at, _)| at).collect()
    }

    /// Sends a configuration to the nodes that have an older one, and to members that have none.
    fn adopt(&self, configuration: &Configuration) -> Vec<(usize, NodeCommand)> {
        let older = self.seen().filter(|(_, report)| match &report.configuration {
            Some(mine) => mine.epoch() < configuration.epoch(),
            None => configuration.has(report.id),
        });
        older
            .map(|(at, report)| {
                let (from, configuration) = (stamp_of(report), configuration.clone());
                (at, NodeCommand::Adopt { from, configuration })
            })
            .collect()
    }

    /// Brings nodes to the agreed configuration, and recovering members back to voting.
    fn advance(&self, current: &Configuration) -> Vec<(usize, NodeCommand)> {
        let stamp = current.stamp();
        let mut steps = self.adopt(current);
        steps.extend(self.activate(stamp));
        let has_it = |report: &NodeReport| stamp_of(report) == Some(stamp);
        let is_member = |report: &NodeReport| has_it(report) && current.has(report.id);
        let with_data = self.seen().map(|(_, report)| report);
        let with_data: Vec<u64> = with_data
            .filter(|report| is_member(report) && Planner::has_data(report))
            .map(|report| report.largest)
            .collect();
        let agreed = with_data.len() >= majority(current.slots().len());
        // Each slot's own node is seen, and all seen nodes have the configuration.
        let all =
            self.every_slot_is_known(current, &[]) && self.seen().all(|(_, report)| has_it(report));
        let largest = |tokens: &mut dyn Iterator<Item = u64>| tokens.max().unwrap_or(0);
        let quarantine = self.with_drift(current.max_lease());
        for (at, report) in self.seen() {
            if report.state != MemberState::Recovering || !is_member(report) {
                continue;
            }
            let episode = report.id;
            let begin =
                |by_time| NodeCommand::BeginQuarantine { episode, stamp, quarantine, by_time };
            let recover = |floor| NodeCommand::Recover { episode, stamp, floor };
            let step = match report.quarantine {
                None if agreed => begin(false),
                None if all => begin(true),
                Some((_, false)) if !agreed && all => begin(true),
                Some((left, true)) if self.desired.vouched && !left.is_zero() => {
                    NodeCommand::Vouch { episode, stamp }
                }
                Some((left, by_time)) if is_worth_reporting(left, report.measured) => {
                    let passed = report.measured;
                    NodeCommand::ReportWait { episode, stamp, by_time, left, passed }
                }
                Some((Duration::ZERO, false)) if agreed => {
                    recover(largest(&mut with_data.iter().copied()))
                }
                Some((Duration::ZERO, true)) => {
                    recover(largest(&mut self.seen().map(|(_, report)| report.largest)))
                }
                _ => continue,
            };
            steps.push((at, step));
        }
        steps
    }
}

/// Returns whether a measured time is reported to the node: it is all that is left, or long enough
/// to be worth a message.
fn is_worth_reporting(left: Duration, measured: Duration) -> bool {
    !left.is_zero() && measured >= left.min(MIN_REPORTED_WAIT)
}
