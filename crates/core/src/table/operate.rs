//! What an operator may do to one name: revoke, remove a waiter, freeze, unfreeze.

use std::time::Duration;

use super::state::{Freeze, Remembered, memory_of};
use super::store::Store;
use super::{Outcome, Table};
use crate::capabilities::HandOff;
use crate::contract::Hint;
use crate::lease_id::ShortLeaseId;
use crate::operation::{
    OperationReply, check_freeze, check_remove_waiter, check_revoke, check_unfreeze, removal_reason,
};
use crate::token::FencingToken;

impl<S: Store> Table<'_, S> {
    /// Revokes the grant with this token: politely, or `at_once`.
    ///
    /// # Errors
    /// Outer: the store's own failure. Inner: `Unsupported`, or `Invalid` for the reason.
    pub fn revoke(
        &mut self,
        token: FencingToken,
        reason: &str,
        at_once: bool,
    ) -> Outcome<OperationReply, S::Error> {
        if let Err(error) = check_revoke(self.profile, reason, at_once) {
            return Ok(Err(error));
        }
        self.settle()?;
        let now = self.now;
        let direct = self.profile.hand_off == HandOff::Direct;
        let Some(holder) = self.head.holders.iter_mut().find(|holder| holder.token == token) else {
            return Ok(Ok(OperationReply::NothingThere));
        };
        holder.revoked = Some(reason.to_owned());
        let client = holder.client;
        let lease_id = holder.lease_id;
        let left = holder.left(now);
        // No client relies on a hand-off that is not claimed: it can be revoked at once.
        let at_once = at_once || (!holder.claimed && !direct);
        self.wake(client, lease_id, Hint::CheckLease);
        if !at_once {
            return Ok(Ok(OperationReply::Notified { left }));
        }
        if let Some(holder) = self.head.take_holder(lease_id) {
            self.remember_revoked(&holder);
        }
        self.hand_over()?;
        Ok(Ok(OperationReply::Done))
    }

    /// Removes the first waiter whose lease id begins so. The id is remembered as a revoked one, so
    /// that its client receives the reason.
    ///
    /// # Errors
    /// Outer: the store's own failure. Inner: `Unsupported`, or `Invalid` for the reason.
    pub fn remove_waiter(
        &mut self,
        waiter: ShortLeaseId,
        reason: &str,
    ) -> Outcome<OperationReply, S::Error> {
        if let Err(error) = check_remove_waiter(self.profile, reason) {
            return Ok(Err(error));
        }
        self.settle()?;
        if self.head.queued == 0 {
            return Ok(Ok(OperationReply::NothingThere));
        }
        let queue = self.store.page(self.head.queued)?;
        let Some(entry) = queue.into_iter().find(|entry| entry.lease_id.short() == waiter) else {
            return Ok(Ok(OperationReply::NothingThere));
        };
        self.take_from_queue(entry.place)?;
        let mark = Remembered {
            lease_id: entry.lease_id,
            until: self.now.after(memory_of(entry.hold)),
            reason: removal_reason(reason),
        };
        Remembered::add(&mut self.head.revoked, mark);
        self.wake(entry.client, entry.lease_id, Hint::LookAgain);
        self.hand_over()?;
        Ok(Ok(OperationReply::Done))
    }

    /// Freezes the name for `duration` from now; replaces an earlier freeze.
    ///
    /// # Errors
    /// Outer: the store's own failure. Inner: `Unsupported`, or `Invalid` for reason or duration.
    pub fn freeze(
        &mut self,
        duration: Duration,
        reason: &str,
    ) -> Outcome<OperationReply, S::Error> {
        if let Err(error) = check_freeze(self.profile, duration, reason) {
            return Ok(Err(error));
        }
        self.settle()?;
        let token = self.head.freeze.take().and_then(|freeze| freeze.token);
        let until = self.now.after(duration);
        self.head.freeze = Some(Freeze { reason: reason.to_owned(), duration, until, token });
        self.hand_over()?;
        Ok(Ok(OperationReply::Done))
    }

    /// Ends a freeze.
    ///
    /// # Errors
    /// Outer: the store's own failure. Inner: `Unsupported`.
    pub fn unfreeze(&mut self) -> Outcome<OperationReply, S::Error> {
        if let Err(error) = check_unfreeze(self.profile) {
            return Ok(Err(error));
        }
        self.settle()?;
        let was_frozen = self.head.freeze.take().is_some();
        self.hand_over()?;
        Ok(Ok(if was_frozen { OperationReply::Done } else { OperationReply::NothingThere }))
    }
}
