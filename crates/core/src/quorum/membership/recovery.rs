//! How a set in use changes its membership, and how a node that lost its data votes again (M2 to
//! M4, M7).

use std::time::Duration;

use super::{MembershipPlan, Planner, SetStatus, stamp_of};
use crate::quorum::configuration::Configuration;
use crate::quorum::node::{MemberState, NodeCommand, NodeReport};

/// A measured time below this is reported only if it is all that is left of the quarantine.
const MIN_REPORTED_WAIT: Duration = Duration::from_millis(100);

impl Planner<'_> {
    pub(super) fn maintain(&self) -> MembershipPlan {
        let newest = self.newest();
        let split = newest.len() > 1;
        let Some(current) = Configuration::merged(newest) else {
            // An initialised node always has a configuration, but a store may answer anything.
            // Or two operators have given one server two slots (G2).
            return MembershipPlan::none(SetStatus::Foreign { sets: self.sets() });
        };
        let nodes = current.slots().len();
        if nodes != self.reports.len() {
            return MembershipPlan::none(SetStatus::WrongSize { nodes });
        }
        let (changes, mislisted) = self.slot_changes(&current);
        // At least one slot has no node that answers, and gets none: nothing can be agreed on.
        let all_answer = self.reports.iter().all(Option::is_some);
        if !mislisted.is_empty() && all_answer && !self.majority_has_data(&current) {
            let status = SetStatus::Mislisted(current);
            return MembershipPlan { mislisted, ..MembershipPlan::none(status) };
        }
        let votes = |report: &NodeReport| report.state == MemberState::Voting;
        let is_founded = self.is_majority(&current, votes);
        let changed = split || !changes.is_empty() || (is_founded && current.is_new());
        let steps = if changed && self.may_change(&current, &changes) {
            let changes: Vec<_> =
                changes.iter().map(|(old, new, to)| (*old, *new, to.as_str())).collect();
            let next = current.successor(&changes);
            self.adopt(&if is_founded { next.founded() } else { next })
        } else if split {
            Vec::new()
        } else {
            self.advance(&current)
        };
        MembershipPlan { status: SetStatus::Agreed(current), steps, mislisted }
    }

    /// Sends a configuration to the nodes that have an older one, and to members that have none.
    fn adopt(&self, configuration: &Configuration) -> Vec<(usize, NodeCommand)> {
        let older = self.seen().filter(|(_, report)| match &report.configuration {
            Some(mine) => mine.epoch() < configuration.epoch(),
            None => configuration.has(report.id),
        });
        let adopt = |report: &NodeReport| NodeCommand::Adopt {
            from: stamp_of(report),
            configuration: configuration.clone(),
        };
        older.map(|(at, report)| (at, adopt(report))).collect()
    }

    /// Brings nodes to the agreed configuration, and recovering members back to voting.
    fn advance(&self, current: &Configuration) -> Vec<(usize, NodeCommand)> {
        let stamp = current.stamp();
        let mut steps = self.adopt(current);
        steps.extend(self.activate(current));
        let has_it = |report: &NodeReport| stamp_of(report) == Some(stamp);
        let is_member = |report: &NodeReport| has_it(report) && current.has(report.id);
        let with_data = |report: &NodeReport| is_member(report) && Planner::has_data(report);
        let seen = || self.seen().map(|(_, report)| report);
        let agreed = self.is_majority(current, with_data);
        // Each slot's own node is seen, and all seen nodes have the configuration.
        let all = self.every_slot_is_known(current, &[]) && seen().all(has_it);
        let asked = seen().filter(|report| !agreed || with_data(report));
        let floor = asked.map(|report| report.largest).max().unwrap_or(0);
        for (at, report) in self.seen() {
            if report.state != MemberState::Recovering || !is_member(report) {
                continue;
            }
            let episode = report.id;
            let step = match report.quarantine {
                None if agreed || all => NodeCommand::BeginQuarantine {
                    episode,
                    stamp,
                    quarantine: current.quarantine(),
                    by_time: !agreed,
                    floor,
                },
                Some((_, true)) if self.desired.vouched.contains(&episode) => {
                    NodeCommand::Vouch { episode }
                }
                Some((left, _)) if report.measured >= left.min(MIN_REPORTED_WAIT) => {
                    NodeCommand::ReportWait { episode, left, passed: report.measured }
                }
                _ => continue,
            };
            steps.push((at, step));
        }
        steps
    }
}
