//! Sessions: stores that end all leases of one client and duration together.
//!
//! If the profile says [`Expiry::Session`], a grant or a queue entry lasts as long as its session.
//! A session belongs to a client and a duration; a detached lease has a session of its own.
//! - N1: a fresh request, a renewal and a queue heartbeat renew their session for its whole
//!   duration from now, and so all its grants and queue entries. A repeated request renews nothing.
//! - N2: when a session ends, all its grants and queue entries end. No entry is removed for
//!   silence.
//! - N3: a renewal for longer, or of another kind, moves the grant to another session, never to a
//!   shorter one.

use std::time::Duration;

use super::Table;
use super::state::QueueEntry;
use super::store::Store;
use crate::capabilities::Expiry;
use crate::contract::{AcquireRequest, RenewRequest};
use crate::lease::Hold;
use crate::lease_id::{ClientId, LeaseId};
use crate::moment::Moment;

/// What identifies a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SessionKey {
    owner: Owner,
    duration: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Client(ClientId),
    Lease(LeaseId),
}

impl<S: Store> Table<'_, S> {
    pub(super) fn has_sessions(&self) -> bool {
        self.profile.expiry == Expiry::Session
    }

    /// Renews the session of a fresh request.
    pub(super) fn keep_for(&mut self, request: &AcquireRequest) -> Result<(), S::Error> {
        self.keep(self.session(request.client, request.lease_id, request.hold))
    }

    /// Renews the session of a queue entry.
    pub(super) fn keep_place(&mut self, entry: &QueueEntry) -> Result<(), S::Error> {
        self.keep(self.session(entry.client, entry.lease_id, entry.hold))
    }

    /// Renews the session of a grant.
    pub(super) fn keep_grant(&mut self, lease_id: LeaseId) -> Result<(), S::Error> {
        let Some(holder) = self.head.holder(lease_id) else { return Ok(()) };
        self.keep(self.session(holder.client, holder.lease_id, holder.hold))
    }

    /// Moves a grant to the session that a renewal names, if that is another one.
    pub(super) fn move_grant(&mut self, renewal: &RenewRequest, hold: Hold) {
        let Some(holder) = self.head.holder_mut(renewal.lease_id) else { return };
        let longer = hold.duration() > holder.hold.duration();
        let duration = hold.duration().max(holder.hold.duration()).unwrap_or_default();
        let detached = |hold: Hold| matches!(hold, Hold::Detached(_));
        match hold {
            Hold::Leased(_) if longer || detached(holder.hold) => {
                holder.client = renewal.client;
                holder.hold = Hold::Leased(duration);
            }
            Hold::Detached(_) => holder.hold = Hold::Detached(duration),
            Hold::Leased(_) | Hold::Live => {}
        }
    }

    /// Removes the queue entries of sessions that have ended.
    pub(super) fn drop_ended(&mut self) -> Result<(), S::Error> {
        if self.head.queued == 0 {
            return Ok(());
        }
        for entry in self.store.page(usize::MAX)? {
            if self.end_of(&entry) <= self.now {
                self.take_from_queue(entry.place)?;
            }
        }
        Ok(())
    }

    /// Returns when a queue entry ends if its session is not renewed.
    pub(super) fn end_of(&self, entry: &QueueEntry) -> Moment {
        let session = self.session(entry.client, entry.lease_id, entry.hold);
        entry.last_seen.after(session.duration)
    }

    fn keep(&mut self, session: SessionKey) -> Result<(), S::Error> {
        if !self.has_sessions() {
            return Ok(());
        }
        let end = self.now.after(session.duration);
        for at in 0..self.head.holders.len() {
            let holder = &self.head.holders[at];
            if self.session(holder.client, holder.lease_id, holder.hold) == session {
                let holder = &mut self.head.holders[at];
                holder.deadline = holder.deadline.max(end);
            }
        }
        if self.head.queued == 0 {
            return Ok(());
        }
        for entry in self.store.page(usize::MAX)? {
            if self.session(entry.client, entry.lease_id, entry.hold) == session {
                self.store.touch(entry.place, self.now)?;
            }
        }
        Ok(())
    }

    fn session(&self, client: ClientId, lease_id: LeaseId, hold: Hold) -> SessionKey {
        let owner = match hold {
            Hold::Detached(_) => Owner::Lease(lease_id),
            Hold::Leased(_) | Hold::Live => Owner::Client(client),
        };
        let step = self.profile.lease.step.as_nanos().max(1);
        let steps = hold.duration().unwrap_or_default().as_nanos().div_ceil(step);
        let nanos = u64::try_from(steps.saturating_mul(step)).unwrap_or(u64::MAX);
        SessionKey { owner, duration: Duration::from_nanos(nanos) }
    }
}
