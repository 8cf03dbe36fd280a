//! What the nodes report of a name, and what follows from it.

use std::cmp::Reverse;
use std::time::Duration;

use holdline_core::quorum::{majority, proven};
use holdline_core::snapshot::{ServerHold, ServerHolds};
use holdline_core::{FencingToken, GrantState, HolderView, LockError, ShortLeaseId, Snapshot};

use super::outcome::NodeOutcome;

/// The nodes' reports of a name.
pub(super) struct NameReports {
    /// Each node that answered, with the holder there.
    pub(super) nodes: Vec<(usize, Option<HolderView>)>,
    pub(super) outcomes: Vec<NodeOutcome>,
    pub(super) failure: Option<LockError>,
}

impl NameReports {
    /// Starts without an answer of any node.
    pub(super) fn new(nodes: usize) -> NameReports {
        NameReports { nodes: Vec::new(), outcomes: vec![NodeOutcome::Open; nodes], failure: None }
    }

    /// Adds a node's report.
    pub(super) fn add(&mut self, node: usize, snapshot: Result<Snapshot, LockError>) {
        match snapshot {
            Ok(snapshot) => self.nodes.push((node, snapshot.holders.into_iter().next())),
            Err(error) => {
                self.outcomes[node] = NodeOutcome::Failed(error.clone());
                self.failure = Some(error);
            }
        }
    }

    /// Returns each holder with the number of servers that show it.
    pub(super) fn holds(&self) -> ServerHolds {
        let mut holds: Vec<ServerHold> = Vec::new();
        for holder in self.nodes.iter().filter_map(|(_, holder)| holder.as_ref()) {
            let lease_id = holder.summary.lease_id;
            let at = holds.iter().position(|hold| hold.lease_id == lease_id);
            let at = at.unwrap_or_else(|| {
                holds.push(ServerHold { lease_id, servers: 0, without_expiry: 0 });
                holds.len() - 1
            });
            holds[at].servers += 1;
            holds[at].without_expiry += usize::from(holder.summary.no_expiry);
        }
        holds.sort_by_key(|hold| Reverse(hold.servers));
        ServerHolds { servers: self.outcomes.len(), holds }
    }

    /// Returns the holder of the name on a majority.
    pub(super) fn holder(&self) -> Option<HolderView> {
        let holders = || self.nodes.iter().filter_map(|(_, holder)| holder.as_ref());
        let of = |id: ShortLeaseId| holders().filter(move |one| one.summary.lease_id == id);
        // A node without an answer may have the same holder: missing answers free no name.
        let unanswered = self.outcomes.len() - self.nodes.len();
        let needed = majority(self.outcomes.len());
        let id = holders()
            .map(|one| one.summary.lease_id)
            .find(|id| of(*id).count() + unanswered >= needed)?;
        // Not all nodes need have its token.
        let mut views: Vec<&HolderView> = of(id).collect();
        // Leases without an end come last.
        views.sort_by_key(|view| view.summary.left.unwrap_or(Duration::MAX));
        let mut view = (*views.get(views.len().saturating_sub(needed))?).clone();
        let tokens: Vec<FencingToken> =
            views.iter().filter_map(|view| view.summary.token).collect();
        // A node that voted late may have another one on record.
        let proven = proven(&tokens, self.outcomes.len());
        view.summary.token = proven.or_else(|| tokens.iter().copied().max());
        view.summary.held_for = views.iter().filter_map(|view| view.summary.held_for).max();
        if let Some(revoked) = views.iter().find(|view| view.state != GrantState::Held) {
            view.state = revoked.state.clone();
        }
        Some(view)
    }
}
