//! Settling: what every command does first.
//!
//! It removes expired leases, silent contenders, and tombstones that are no longer needed. Then it
//! hands a free name to the head of the queue: a grant with a short first lease, of which the
//! contender is notified.

use super::Table;
use super::state::{Holder, QueueEntry, Remembered, memory_of};
use super::store::{Remaining, Store};
use crate::capabilities::HandOff;
use crate::contract::{HAND_OVER_BATCH, Hint, QUEUE_SILENCE};
use crate::lease::Hold;
use crate::lease_id::{ClientId, LeaseId};
use crate::token::FencingToken;

impl<S: Store> Table<'_, S> {
    /// Brings the name up to date. Every other command does this first.
    ///
    /// # Errors
    /// The store's own failure.
    pub fn settle(&mut self) -> Result<(), S::Error> {
        let now = self.now;
        if self.has_sessions() || self.head.next_change() <= now {
            self.head.tombstones.retain(|mark| mark.until > now);
            self.head.revoked.retain(|mark| mark.until > now);
            self.head.freeze.take_if(|freeze| freeze.until <= now);
            self.expire_holders();
            self.drop_silent()?;
        }
        self.hand_over()
    }

    /// Ends the leased grants and the queue entries of a client that is known to be dead. Detached
    /// and live grants stay.
    ///
    /// # Errors
    /// The store's own failure.
    pub fn end_client(&mut self, client: ClientId) -> Result<(), S::Error> {
        self.head
            .holders
            .retain(|holder| holder.client != client || !matches!(holder.hold, Hold::Leased(_)));
        if self.head.queued > 0 {
            let remaining = self.store.remove_client(client)?;
            self.note(remaining);
        }
        self.settle()
    }

    /// Ends a live grant whose anchor is known to be closed everywhere.
    ///
    /// # Errors
    /// The store's own failure.
    pub fn end_live_grant(&mut self, lease_id: LeaseId) -> Result<(), S::Error> {
        if self.head.holder(lease_id).is_some_and(|holder| holder.hold == Hold::Live) {
            self.head.take_holder(lease_id);
        }
        self.settle()
    }

    fn expire_holders(&mut self) {
        let now = self.now;
        let (over, stand) = std::mem::take(&mut self.head.holders)
            .into_iter()
            .partition::<Vec<Holder>, _>(|holder| holder.deadline <= now);
        self.head.holders = stand;
        for holder in over {
            self.remember_revoked(&holder);
        }
    }

    /// Remembers the id of a revoked grant that has ended, so that its holder learns the reason.
    pub(super) fn remember_revoked(&mut self, holder: &Holder) {
        let Some(reason) = &holder.revoked else { return };
        // Counted from its end, even if this command comes much later.
        let until = holder.deadline.min(self.now).after(memory_of(holder.hold));
        if until > self.now {
            let lease_id = holder.lease_id;
            let reason = reason.clone();
            Remembered::add(&mut self.head.revoked, Remembered { lease_id, until, reason });
        }
    }

    fn drop_silent(&mut self) -> Result<(), S::Error> {
        if self.has_sessions() {
            return self.drop_ended();
        }
        let due = self.head.oldest_seen.after(QUEUE_SILENCE) <= self.now;
        if self.head.queued == 0 || !due {
            return Ok(());
        }
        let remaining = self.store.remove_silent(self.now.before(QUEUE_SILENCE))?;
        self.note(remaining);
        Ok(())
    }

    pub(super) fn note(&mut self, remaining: Remaining) {
        self.head.queued = remaining.queued;
        self.head.oldest_seen = remaining.oldest_seen;
    }

    /// Gives a free name to the freeze, or to the first contenders in the queue that fit together.
    pub(super) fn hand_over(&mut self) -> Result<(), S::Error> {
        let frozen = self.head.freeze.is_some();
        let batch = if self.has_sessions() { usize::MAX } else { HAND_OVER_BATCH };
        while !frozen && self.head.queued > 0 && self.handed < batch {
            let Some(entry) = self.store.first()? else { break };
            if !self.head.admits(entry.mode) {
                break;
            }
            self.handed += 1;
            self.take_from_queue(entry.place)?;
            self.hand_to(entry)?;
        }
        let free = self.head.holders.is_empty();
        if free && self.head.freeze.as_ref().is_some_and(|freeze| freeze.token.is_none()) {
            let token = self.store.next_token()?;
            if let Some(freeze) = &mut self.head.freeze {
                freeze.token = Some(token);
            }
        }
        if free && self.head.queued == 0 {
            self.head.permits_of = None;
        }
        Ok(())
    }

    /// Returns how a contender is notified that the name is its own. For a live grant it must ask,
    /// since the reply has the anchor.
    pub(super) fn grant_hint(&self, hold: Hold, token: FencingToken) -> Hint {
        if hold == Hold::Live || self.profile.hand_off == HandOff::Direct {
            return Hint::LookAgain;
        }
        Hint::Granted { token }
    }

    pub(super) fn take_from_queue(&mut self, place: u64) -> Result<(), S::Error> {
        self.store.remove(place)?;
        self.head.queued -= 1;
        Ok(())
    }

    fn hand_to(&mut self, entry: QueueEntry) -> Result<(), S::Error> {
        let token = self.store.next_token()?;
        let mut hold = entry.hold;
        let mut deadline = self.end_of(&entry);
        if !self.has_sessions() {
            hold = hold.lasting(entry.hand_off_lease);
            deadline = self.now.after(entry.hand_off_lease);
        }
        self.wake(entry.client, entry.lease_id, self.grant_hint(hold, token));
        self.head.holders.push(Holder {
            lease_id: entry.lease_id,
            client: entry.client,
            mode: entry.mode,
            asked: entry.hold,
            hold,
            token,
            since: self.now,
            deadline,
            revoked: None,
            metadata: entry.metadata,
        });
        Ok(())
    }
}
