//! Release of a grant or a queue entry. It hands the name over in the same step.

use super::Table;
use super::state::{Remembered, memory_of};
use super::store::Store;
use crate::contract::{ReleaseReply, ReleaseRequest};

impl<S: Store> Table<'_, S> {
    /// Carries out a release. It never changes anything under another lease id.
    ///
    /// # Errors
    /// The store's own failure.
    pub fn release(&mut self, request: &ReleaseRequest) -> Result<ReleaseReply, S::Error> {
        self.settle()?;
        if request.ending.for_good {
            let mark = Remembered {
                lease_id: request.lease_id,
                until: self.now.after(memory_of(request.ending.hold)),
                reason: String::new(),
            };
            Remembered::add(&mut self.head.tombstones, mark);
        }
        let reply = self.end(request)?;
        self.hand_over()?;
        Ok(reply)
    }

    fn end(&mut self, request: &ReleaseRequest) -> Result<ReleaseReply, S::Error> {
        if let Some(holder) = self.head.take_holder(request.lease_id) {
            self.remember_revoked(&holder);
            let held_for = Some(holder.since.until(self.now));
            return Ok(ReleaseReply::Released { held_for });
        }
        if self.head.queued > 0
            && let Some(entry) = self.store.find(request.lease_id)?
        {
            self.take_from_queue(entry.place)?;
            return Ok(ReleaseReply::Withdrawn);
        }
        let revoked = self.head.revoked_reason(request.lease_id).map(str::to_owned);
        Ok(ReleaseReply::NotHeld { revoked })
    }
}
