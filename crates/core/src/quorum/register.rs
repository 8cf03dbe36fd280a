//! What one node keeps of one name, and how it answers.
//!
//! The executable definition of the node's side: what a node's store runs must answer as this does.
//! Time is the node's own affair, so it is passed in as what has expired and what is proposed.

use crate::lease_id::LeaseId;
use crate::token::{FencingToken, TokenError};

/// What one node keeps of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register {
    holder: Option<LeaseId>,
    last: u64,
    /// The token that the holder was healed with; `None` where the holder was granted the name.
    healed: Option<FencingToken>,
}

/// How a node answers who asks for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// The name is the contender's here, and the counter of the name stands at `last`.
    Granted {
        /// Where the counter stands.
        last: FencingToken,
    },
    /// Another lease id has it here.
    Busy,
    /// The name is the contender's here because it was healed: no evidence for any token.
    Healed,
}

/// How a node answers who writes a token back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Written {
    /// The name is still the contender's here, and the counter stands at this number now: the one
    /// that was written, unless it stood higher already.
    Stands(FencingToken),
    /// The name is not the contender's here any more. Nothing was written.
    NotYours,
}

impl Register {
    /// Takes the name for a lease id, if it is free, and raises the counter: above what it was and
    /// above `floor`, and to `proposed` if that is more.
    ///
    /// `floor` is what [`super::Node::floor`] says: what the node was told when it came back
    /// without its memory or with an old one, and where the counter of this name was forgotten on
    /// purpose the largest token of all. A lease id that has the name already is answered the same
    /// again.
    ///
    /// # Errors
    /// [`TokenError`]: the counter is spent. Nothing has changed.
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
                (self.holder, self.last) = (Some(lease_id), last.get());
                Ok(Vote::Granted { last })
            }
        }
    }

    /// Raises the counter to a token, if the name is still the contender's. A grant that ended here
    /// and was healed is not the same grant, so it is not raised.
    pub fn write_back(&mut self, lease_id: LeaseId, token: FencingToken) -> Written {
        if self.holder != Some(lease_id) || self.healed.is_some() {
            return Written::NotYours;
        }
        self.last = self.last.max(token.get());
        // It held a token before, and holds one now.
        Written::Stands(FencingToken::new(self.last).unwrap_or(token))
    }

    /// Takes the name again for a lease that is held elsewhere with this token, if it is free;
    /// `false` if not. It is no vote: the counter falls below neither the token nor the floor, and
    /// stands where it stood. The token must be the one that the lease was granted with: as its
    /// winner knows it, or as [`super::proven`] returns it.
    pub fn heal(&mut self, lease_id: LeaseId, floor: u64, token: FencingToken) -> bool {
        if self.holder.is_some() {
            return false;
        }
        (self.holder, self.last) = (Some(lease_id), self.last.max(floor).max(token.get()));
        self.healed = Some(token);
        true
    }

    /// Frees the name, if it is the contender's. The counter stays.
    pub fn release(&mut self, lease_id: LeaseId) -> bool {
        let mine = self.holder == Some(lease_id);
        if mine {
            self.expire();
        }
        mine
    }

    /// Ends whatever lease is there, as time does.
    pub fn expire(&mut self) {
        (self.holder, self.healed) = (None, None);
    }

    /// Returns the token that the record of this holder carries, healed or not. A process that was
    /// not granted the lease heals it with what a majority of records agree on.
    pub fn recorded(&self, lease_id: LeaseId) -> Option<FencingToken> {
        self.healed_or_last().filter(|_| self.holder == Some(lease_id))
    }

    /// Returns what this node can prove to a lease id that is asked again: where the counter stands
    /// while the name is the contender's, and nothing where the name was only healed.
    pub fn evidence(&self, lease_id: LeaseId) -> Option<FencingToken> {
        self.recorded(lease_id).filter(|_| self.healed.is_none())
    }

    fn healed_or_last(&self) -> Option<FencingToken> {
        self.healed.or_else(|| FencingToken::new(self.last).ok())
    }

    /// Returns who has the name here.
    pub fn holder(&self) -> Option<LeaseId> {
        self.holder
    }

    /// Returns where the counter stands; 0 before the first grant.
    pub fn last(&self) -> u64 {
        self.last
    }
}
