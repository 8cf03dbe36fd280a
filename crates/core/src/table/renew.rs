//! Renewal, and the queue heartbeat.

use super::acquire::may_become;
use super::state::deadline_of;
use super::store::Store;
use super::{Outcome, Table};
use crate::contract::{Purpose, RenewReply, RenewRequest};
use crate::error::LockError;
use crate::lease::Hold;
use crate::lease_id::LeaseId;

impl<S: Store> Table<'_, S> {
    /// Carries out one renewal of a batch.
    ///
    /// # Errors
    /// Outer: the store's own failure. Inner: `Invalid` or `Unsupported` for the hold; nothing is
    /// applied.
    pub fn renew(&mut self, renewal: &RenewRequest) -> Outcome<RenewReply, S::Error> {
        if let Purpose::Keep(hold) = renewal.purpose
            && let Err(error) = self.profile.check(crate::Mode::Exclusive, hold)
        {
            return Ok(Err(error.with_name(&renewal.name)));
        }
        self.settle()?;
        if self.head.holder(renewal.lease_id).is_some() {
            self.keep_grant(renewal.lease_id)?;
            let reply = self.renew_holder(renewal);
            // The grant may have moved to another session.
            self.keep_grant(renewal.lease_id)?;
            let reply = reply.map(|reply| self.with_what_is_left(renewal.lease_id, reply));
            return Ok(reply.map_err(|error| error.with_name(&renewal.name)));
        }
        if let Some(reason) = self.head.revoked_reason(renewal.lease_id) {
            let left = Some(std::time::Duration::ZERO);
            return Ok(Ok(RenewReply::Revoked { reason: reason.to_owned(), left }));
        }
        if self.head.queued == 0 {
            return Ok(Ok(RenewReply::Unknown));
        }
        let Some(entry) = self.store.find(renewal.lease_id)? else {
            return Ok(Ok(RenewReply::Unknown));
        };
        self.store.touch(entry.place, self.now)?;
        self.keep_place(&entry)?;
        let position = self.store.ahead_of(entry.place)?;
        Ok(Ok(RenewReply::Queued { position: Some(position), next_look: self.next_look(position) }))
    }

    fn renew_holder(&mut self, renewal: &RenewRequest) -> Result<RenewReply, LockError> {
        let now = self.now;
        let engine = self.profile.engine;
        let sessions = self.has_sessions();
        let Some(holder) = self.head.holder_mut(renewal.lease_id) else {
            return Ok(RenewReply::Unknown);
        };
        let Purpose::Keep(hold) = renewal.purpose else {
            return Ok(RenewReply::Held { left: holder.left(now) });
        };
        if let Some(reason) = &holder.revoked {
            return Ok(RenewReply::Revoked { reason: reason.clone(), left: holder.left(now) });
        }
        if !may_become(holder.hold, hold) {
            let message = "a live grant stays live and a lease stays a lease";
            return Err(LockError::invalid(engine, "hold", message));
        }
        if sessions {
            let left = holder.left(now);
            self.move_grant(renewal, hold);
            return Ok(RenewReply::Renewed { left });
        }
        if matches!(hold, Hold::Leased(_)) {
            holder.client = renewal.client;
        }
        holder.hold = hold;
        holder.deadline = holder.deadline.max(deadline_of(now, hold));
        Ok(RenewReply::Renewed { left: holder.left(now) })
    }

    /// Returns the reply with what is left after the grant's session was renewed.
    fn with_what_is_left(&self, lease_id: LeaseId, reply: RenewReply) -> RenewReply {
        match (reply, self.head.holder(lease_id)) {
            (RenewReply::Renewed { .. }, Some(holder)) => {
                RenewReply::Renewed { left: holder.left(self.now) }
            }
            (reply, _) => reply,
        }
    }
}
