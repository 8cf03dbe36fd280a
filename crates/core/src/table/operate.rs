//! What an operator may do to one name: revoke, remove a waiter, freeze, unfreeze.

use std::time::Duration;

use super::state::{Freeze, Remembered, memory_of};
use super::store::Store;
use super::{Outcome, Table};
use crate::contract::Hint;
use crate::lease_id::ShortLeaseId;
use crate::operation::{Operation, OperationReply, removal_reason};
use crate::token::FencingToken;

impl<S: Store> Table<'_, S> {
    /// Carries out an operator's command on this name.
    ///
    /// # Errors
    /// Outer: the store's own failure. Inner: those of [`Operation::check`], and `Unsupported` for
    /// what is not about one name, or not in the table's terms.
    pub fn operate(&mut self, operation: &Operation) -> Outcome<OperationReply, S::Error> {
        if let Err(error) = operation.check(self.profile) {
            return Ok(Err(error));
        }
        let reply = match operation {
            Operation::Revoke { token, reason, now, .. } => self.revoke(*token, reason, *now),
            Operation::RemoveWaiter { waiter, reason, .. } => self.remove_waiter(*waiter, reason),
            Operation::Freeze { duration, reason, .. } => self.freeze(*duration, reason),
            Operation::Unfreeze { .. } => self.unfreeze(),
            Operation::RevokeHolder { .. } | Operation::RaiseFence { .. } => {
                return Ok(Err(operation.unsupported(self.profile)));
            }
        };
        reply.map(Ok)
    }

    /// Revokes the grant with this token: politely, or `at_once`.
    fn revoke(
        &mut self,
        token: FencingToken,
        reason: &str,
        at_once: bool,
    ) -> Result<OperationReply, S::Error> {
        self.settle()?;
        let now = self.now;
        let Some(holder) = self.head.holders.iter_mut().find(|holder| holder.token == token) else {
            return Ok(OperationReply::NothingThere);
        };
        holder.revoked = Some(reason.to_owned());
        let client = holder.client;
        let lease_id = holder.lease_id;
        let left = holder.left(now);
        self.wake(client, lease_id, Hint::CheckLease);
        if !at_once {
            return Ok(OperationReply::Notified { left });
        }
        if let Some(holder) = self.head.take_holder(lease_id) {
            self.remember_revoked(&holder);
        }
        self.hand_over()?;
        Ok(OperationReply::Done)
    }

    /// Removes the first waiter whose lease id begins so. The id is remembered as a revoked one, so
    /// that its client receives the reason.
    fn remove_waiter(
        &mut self,
        waiter: ShortLeaseId,
        reason: &str,
    ) -> Result<OperationReply, S::Error> {
        self.settle()?;
        if self.head.queued == 0 {
            return Ok(OperationReply::NothingThere);
        }
        let queue = self.store.page(self.head.queued)?;
        let Some(entry) = queue.into_iter().find(|entry| entry.lease_id.short() == waiter) else {
            return Ok(OperationReply::NothingThere);
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
        Ok(OperationReply::Done)
    }

    /// Freezes the name for `duration` from now; replaces an earlier freeze.
    fn freeze(&mut self, duration: Duration, reason: &str) -> Result<OperationReply, S::Error> {
        self.settle()?;
        let token = self.head.freeze.take().and_then(|freeze| freeze.token);
        let until = self.now.after(duration);
        self.head.freeze = Some(Freeze { reason: reason.to_owned(), duration, until, token });
        self.hand_over()?;
        Ok(OperationReply::Done)
    }

    /// Ends a freeze.
    fn unfreeze(&mut self) -> Result<OperationReply, S::Error> {
        self.settle()?;
        let was_frozen = self.head.freeze.take().is_some();
        self.hand_over()?;
        Ok(if was_frozen { OperationReply::Done } else { OperationReply::NothingThere })
    }
}
