//! Release: of a grant, of a hand-off, of a place in the queue. It hands over by itself.

use super::state::{Remembered, memory_of};
use super::store::Store;
use super::{Planted, Table};
use crate::contract::{ReleaseReply, ReleaseRequest};

impl<S: Store> Table<'_, S> {
    /// Carries out a release. Nothing of another's lease id is ever changed.
    ///
    /// # Errors
    /// The store's own failure.
    pub fn release(&mut self, request: &ReleaseRequest) -> Result<ReleaseReply, S::Error> {
        self.settle()?;
        if request.ending.for_good && !self.has(Planted::NoTombstone) {
            let mark = Remembered {
                lease_id: request.lease_id,
                until: self.now.after(memory_of(request.ending.hold)),
                reason: String::new(),
            };
            Remembered::add(&mut self.head.tombstones, mark);
        }
        let reply = self.end(request)?;
        if !self.has(Planted::ReleaseForgetsQueue) {
            self.hand_over()?;
        }
        Ok(reply)
    }

    fn end(&mut self, request: &ReleaseRequest) -> Result<ReleaseReply, S::Error> {
        let mut taken = self.head.take_holder(request.lease_id);
        if taken.is_none() && self.has(Planted::ReleaseWithoutCompare) {
            taken = self.head.holders.pop();
        }
        if let Some(holder) = taken {
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
