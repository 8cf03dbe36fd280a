//! The reply for a name that another client holds, or that several clients hold in part.

use std::time::Duration;

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::quorum::majority;
use holdline_core::{AcquireReply, HolderSummary, ShortLeaseId};

use super::set::NodeSet;

/// The number of round trips over which colliding clients are spread.
const SPREAD_ROUNDS: u32 = 12;

/// The holder of the name on a node, and how much of its lease is left.
#[derive(Default)]
pub(super) struct BusyNode {
    pub(super) holder: Option<Box<HolderSummary>>,
    /// `None` if the lease has no end.
    pub(super) left: Option<Duration>,
}

/// Makes the reply for a busy name: one client holds it, or several hold minorities and none a
/// majority. `granted` nodes granted this attempt, and `open` nodes have not answered yet.
///
/// If no client holds a majority, a random pause comes before the reply. Without it, clients that
/// retry at once would block each other forever.
pub(super) async fn busy_reply(
    set: &NodeSet,
    busy: Vec<BusyNode>,
    granted: usize,
    open: usize,
) -> AcquireReply {
    let needed = majority(set.members.len());
    let id = |holder: &HolderSummary| holder.lease_id;
    let ids: Vec<_> = busy.iter().filter_map(|busy| busy.holder.as_deref().map(id)).collect();
    let times = |one| ids.iter().filter(|id| **id == one).count();
    let most = ids.iter().copied().max_by_key(|one| times(*one));
    // If a node is down, fewer than a majority may name the holder.
    let alone = granted == 0 && ids.len() == busy.len();
    let is_held = |one| times(one) >= needed || (alone && times(one) == ids.len());
    let held = most.is_some_and(is_held);
    // The name is free once it is free on a majority: the latest end among the earliest that are
    // needed. Leases without an end come last.
    let mut ends: Vec<Duration> = busy.iter().filter_map(|busy| busy.left).collect();
    ends.sort_unstable();
    let free = granted + open;
    let at_most = needed.checked_sub(free + 1).and_then(|at| ends.get(at)).copied();
    let holder = most.filter(|_| held).and_then(|most| merge_summaries(busy, most));
    let next_look = if held {
        at_most.unwrap_or(QUEUE_HEARTBEAT).min(QUEUE_HEARTBEAT)
    } else {
        // Random pauses separate the clients: the first to retry finds the name free.

        set.clock.sleep_until(set.clock.now().after(set.random_pause(SPREAD_ROUNDS))).await;
        Duration::ZERO
    };
    AcquireReply::Busy { holder, at_most, next_look }
}

/// Merges the summaries of a holder: a node that voted late may have another token.
fn merge_summaries(busy: Vec<BusyNode>, id: ShortLeaseId) -> Option<Box<HolderSummary>> {
    let holders = busy.into_iter().filter_map(|busy| busy.holder);
    let mut all = holders.filter(|holder| holder.lease_id == id);
    let mut holder = all.next()?;
    if all.any(|other| other.token != holder.token) {
        holder.token = None;
    }
    Some(holder)
}

#[cfg(test)]
mod tests {
    use holdline_core::{FencingToken, LeaseId, Metadata, Mode};

    use super::*;

    #[test]
    fn a_holder_with_two_tokens_on_record_is_named_without_one() {
        let busy = |id: u8, token: u64| {
            let holder = HolderSummary {
                lease_id: LeaseId::from_bytes([id; 16]).short(),
                token: FencingToken::new(token).ok(),
                mode: Mode::Exclusive,
                held_for: None,
                left: None,
                no_expiry: false,
                metadata: Metadata::default(),
            };
            BusyNode { holder: Some(Box::new(holder)), left: None }
        };
        let token = |all: Vec<BusyNode>| {
            let holder =
                merge_summaries(all, LeaseId::from_bytes([1; 16]).short()).expect("it is named");
            holder.token.map(FencingToken::get)
        };
        assert_eq!(token(vec![busy(1, 7), busy(2, 9), busy(1, 7)]), Some(7));
        assert_eq!(token(vec![busy(1, 7), busy(1, 8), busy(1, 7)]), None);
        assert!(merge_summaries(vec![busy(2, 9)], LeaseId::from_bytes([1; 16]).short()).is_none());
    }
}
