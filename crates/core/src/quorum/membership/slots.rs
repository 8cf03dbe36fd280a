//! Which slots go to new nodes (M5).

use super::Planner;
use crate::quorum::configuration::{Configuration, MemberSlot, NodeId};
use crate::quorum::node::{MemberState, NodeReport};

/// A slot that goes to another node: the old id, the new one, the address.
pub(super) type SlotChange = (NodeId, NodeId, String);

/// Whether a slot belongs to the new node at an index.
type SlotMatch<'a> = &'a dyn Fn(&MemberSlot, usize, &NodeReport) -> bool;

impl Planner<'_> {
    /// Returns whether a node needs a slot in the set. A node that has had a slot under its id gets
    /// none under that id again (N6 of [`crate::quorum::node`]).
    fn is_new(current: &Configuration, report: &NodeReport) -> bool {
        matches!(report.state, MemberState::Blank | MemberState::Recovering)
            && !current.has(report.id)
            && !report.is_evicted(current)
    }

    /// Returns the slots that go to new nodes, and the indices of the new nodes that get none.
    pub(super) fn slot_changes(&self, current: &Configuration) -> (Vec<SlotChange>, Vec<usize>) {
        let address = |at: usize| self.desired.addresses.get(at).cloned().unwrap_or_default();
        let new_nodes = self.seen().filter(|(_, report)| Planner::is_new(current, report));
        let mut new_nodes: Vec<(usize, &NodeReport)> = new_nodes.collect();
        let is_given = |slot: &MemberSlot| {
            let mut pairs = self.desired.replace.iter().filter(|(old, _)| *old == slot.id);
            pairs.any(|(_, new)| new_nodes.iter().any(|(_, report)| report.id == *new))
        };
        let is_seen = |slot: &MemberSlot| self.seen().any(|(_, report)| report.id == slot.id);
        let slots = current.slots().iter();
        let mut free: Vec<&MemberSlot> =
            slots.filter(|slot| is_given(slot) || !is_seen(slot)).collect();
        // The surest match first, for all nodes.
        let matches: [SlotMatch<'_>; 4] = [
            &|slot, _, report| self.desired.replace.contains(&(slot.id, report.id)),
            // The data of a member may have been copied to another server.
            &|slot, at, report| report.previous_id == Some(slot.id) && slot.address == address(at),
            &|slot, _, report| report.last_seen_id == Some(slot.id),
            &|slot, at, _| self.desired.by_address && slot.address == address(at),
        ];
        let mut changes = Vec::new();
        for is_match in matches {
            new_nodes.retain(|(at, report)| {
                let slot = free.iter().position(|slot| is_match(slot, *at, report));
                if let Some(slot) = slot {
                    changes.push((free.remove(slot).id, report.id, address(*at)));
                }
                slot.is_none()
            });
        }
        (changes, new_nodes.into_iter().map(|(at, _)| at).collect())
    }
}
