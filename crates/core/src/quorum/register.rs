//! The state that one node keeps for one name, and how it answers requests.
//!
//! This is the executable definition of the node's side: the scripts of a store must answer as it
//! does. It reads no clock: expiry and proposed tokens are passed in.

use crate::lease_id::LeaseId;
use crate::token::{FencingToken, TokenError};

/// The state of one name on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameRegister {
    holder: Option<LeaseId>,
    last: u64,
    /// The token that the holder was healed with; `None` if the holder was granted the name.
    healed: Option<FencingToken>,
}

/// A node's answer to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// The contender holds the name here, and the counter of the name stands at `last`.
    Granted {
        /// The value of the counter.
        last: FencingToken,
    },
    /// Another lease id holds the name here.
    Busy,
    /// The contender holds the name here because it was healed: no evidence for any token.
    Healed,
}

/// A node's answer to a write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteBackReply {
    /// The contender still holds the name here, and the counter stands at this number: the one that
    /// was written, unless it was higher already.
    Counter(FencingToken),
    /// The contender no longer holds the name here. Nothing was written.
    NotHeld,
}

impl NameRegister {
    /// Takes the name for a lease id, if it is free, and raises the counter: above its last value
    /// and above `floor`, and to `proposed` if that is larger.
    ///
    /// `floor` is the result of [`super::QuorumNode::floor`]: the floor that the node was given
    /// when it was readmitted after a loss of data, or, where the counter of this name was deleted
    /// on purpose, the largest token of the node. A lease id that already holds the name gets the
    /// same answer again.
    ///
    /// # Errors
    /// [`TokenError`]: the counter is exhausted. Nothing has changed.
    pub fn acquire(
        &mut self,
        lease_id: LeaseId,
        floor: u64,
        proposed: u64,
    ) -> Result<Vote, TokenError> {
        match self.holder {
            Some(holder) if holder == lease_id && self.healed.is_some() => Ok(Vote::Healed),
            Some(holder) if holder == lease_id => {
                Ok(Vote::Granted { last: FencingToken::new(self.last)? })
            }
            Some(_) => Ok(Vote::Busy),
            None => {
                let above = self.last.max(floor).saturating_add(1);
                let last = FencingToken::new(above.max(proposed))?;
                self.holder = Some(lease_id);
                self.last = last.get();
                Ok(Vote::Granted { last })
            }
        }
    }

    /// Raises the counter to a token, if the contender still holds the name. A grant that ended
    /// here and was healed is not the same grant, so its counter is not raised.
    pub fn write_back(&mut self, lease_id: LeaseId, token: FencingToken) -> WriteBackReply {
        if self.holder != Some(lease_id) || self.healed.is_some() {
            return WriteBackReply::NotHeld;
        }
        self.last = self.last.max(token.get());
        // It held a token before, and holds one now.
        WriteBackReply::Counter(FencingToken::new(self.last).unwrap_or(token))
    }

    /// Takes the name again for a lease that is held elsewhere with this token, if the name is
    /// free; returns `false` if not. This is no vote: the counter only rises to the token and the
    /// floor. The token must be the one that the lease was granted with: as its winner knows it, or
    /// as [`super::proven`] returns it.
    pub fn heal(&mut self, lease_id: LeaseId, floor: u64, token: FencingToken) -> bool {
        if self.holder.is_some() {
            return false;
        }
        self.holder = Some(lease_id);
        self.last = self.last.max(floor).max(token.get());
        self.healed = Some(token);
        true
    }

    /// Frees the name, if this lease id holds it. The counter stays.
    pub fn release(&mut self, lease_id: LeaseId) -> bool {
        let mine = self.holder == Some(lease_id);
        if mine {
            self.expire();
        }
        mine
    }

    /// Ends the current lease, as its expiry does.
    pub fn expire(&mut self) {
        self.holder = None;
        self.healed = None;
    }

    /// Returns the token in the record of this holder, healed or not. A process that was not
    /// granted the lease heals it with the token that a majority of records has.
    pub fn recorded(&self, lease_id: LeaseId) -> Option<FencingToken> {
        if self.holder != Some(lease_id) {
            return None;
        }
        self.healed.or_else(|| FencingToken::new(self.last).ok())
    }

    /// Returns what this node can prove to a lease id that asks again: the counter, while it holds
    /// the name; nothing, if the name was only healed.
    pub fn evidence(&self, lease_id: LeaseId) -> Option<FencingToken> {
        self.recorded(lease_id).filter(|_| self.healed.is_none())
    }

    /// Returns the lease id that holds the name here.
    pub fn holder(&self) -> Option<LeaseId> {
        self.holder
    }

    /// Returns the counter; 0 before the first grant.
    pub fn last(&self) -> u64 {
        self.last
    }
}
