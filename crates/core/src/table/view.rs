//! The state of a name, for people and tools.

use super::Table;
use super::state::{Holder, QueueEntry};
use super::store::Store;
use crate::contract::Hint;
use crate::lease::Hold;
use crate::lease_id::LeaseId;
use crate::name::LockName;
use crate::snapshot::{FreezeView, GrantState, HolderView, MAX_VIEWS, Snapshot, WaiterView};

impl<S: Store> Table<'_, S> {
    /// Returns the state of the name, after settling it.
    ///
    /// # Errors
    /// The store's own failure.
    pub fn inspect(&mut self, name: &LockName) -> Result<Snapshot, S::Error> {
        self.settle()?;
        let queue = match self.head.queued {
            0 => Vec::new(),
            _ => self.store.page(MAX_VIEWS)?,
        };
        let now = self.now;
        let holders = self.head.holders.iter().take(MAX_VIEWS);
        Ok(Snapshot {
            name: name.clone(),
            holders: holders.map(|holder| self.view(holder)).collect(),
            holder_count: self.head.holders.len(),
            queue: queue.iter().map(|entry| self.waiter(entry)).collect(),
            queue_length: self.head.queued,
            permits_of: self.head.permits_of,
            freeze: self.head.freeze.as_ref().map(|freeze| FreezeView {
                reason: freeze.reason.clone(),
                left: now.until(freeze.until),
                active: freeze.token.is_some(),
                token: freeze.token,
            }),
            servers: None,
        })
    }

    /// Returns the hint with which a watch of this lease id must begin (rule G4 of
    /// [`crate::engine`]): for a grant, a revoke, or an unknown id.
    ///
    /// # Errors
    /// The store's own failure.
    pub fn pending_hint(&mut self, lease_id: LeaseId) -> Result<Option<Hint>, S::Error> {
        self.settle()?;
        Ok(match self.head.holder(lease_id) {
            Some(Holder { revoked: Some(_), .. }) => Some(Hint::CheckLease),
            Some(holder) => Some(self.grant_hint(holder.hold, holder.token)),
            None if self.head.queued > 0 && self.store.find(lease_id)?.is_some() => None,
            None => Some(Hint::CheckLease),
        })
    }

    fn view(&self, holder: &Holder) -> HolderView {
        let state = match &holder.revoked {
            Some(reason) => GrantState::Revoked(reason.clone()),
            None => GrantState::Held,
        };
        HolderView {
            summary: self.summary(holder),
            state,
            detached: matches!(holder.hold, Hold::Detached(_)),
            live: holder.hold == Hold::Live,
            pids: Vec::new(),
        }
    }

    fn waiter(&self, entry: &QueueEntry) -> WaiterView {
        WaiterView {
            lease_id: entry.lease_id.short(),
            mode: entry.mode,
            waited: Some(entry.queued_at.until(self.now)),
            metadata: entry.metadata.clone(),
        }
    }
}
