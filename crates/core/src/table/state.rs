//! The state of a name.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::MAX_REMEMBERED;
use crate::contract::{MIN_TOMBSTONE, QUEUE_SILENCE};
use crate::lease::Hold;
use crate::lease_id::{ClientId, LeaseId};
use crate::metadata::Metadata;
use crate::mode::Mode;
use crate::moment::Moment;
use crate::token::FencingToken;

/// The small part of a name's state: everything but the queue's entries.
///
/// A store keeps it unchanged; only the rules interpret it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Head {
    pub(super) holders: Vec<Holder>,
    /// The semaphore's total, kept while there are holders or waiters.
    pub(super) permits_of: Option<u32>,
    pub(super) freeze: Option<Freeze>,
    pub(super) tombstones: Vec<Remembered>,
    pub(super) revoked: Vec<Remembered>,
    /// How many entries the store's queue has.
    pub(super) queued: usize,
    /// The place that the next entry gets.
    pub(super) next_place: u64,
    /// No entry of the queue was last seen before this.
    pub(super) oldest_seen: Moment,
}

/// A grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    pub(super) lease_id: LeaseId,
    pub(super) client: ClientId,
    pub(super) mode: Mode,
    /// The hold of the first request: a repeated request must name the same.
    pub(super) asked: Hold,
    /// The hold that the hand-off or the last renewal gave.
    pub(super) hold: Hold,
    pub(super) token: FencingToken,
    /// When the grant was made.
    pub(super) since: Moment,
    /// When it ends without a renewal.
    pub(super) deadline: Moment,
    pub(super) revoked: Option<String>,
    pub(super) metadata: Metadata,
}

/// A contender in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QueueEntry {
    /// Its place in the queue: entries are ordered by their places.
    pub place: u64,
    /// Its lease id, unique in the queue.
    pub lease_id: LeaseId,
    /// The client that queued it.
    pub client: ClientId,
    /// How it wants to hold the name.
    pub mode: Mode,
    /// How the grant is to be kept.
    pub hold: Hold,
    /// The lease with which a hand-off to it begins.
    pub hand_off_lease: Duration,
    /// When it was queued.
    pub queued_at: Moment,
    /// When its client last sent a request or a heartbeat for it.
    pub last_seen: Moment,
    /// What the contender states about itself.
    pub metadata: Metadata,
}

/// An operator's freeze: it comes before the queue until its time is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Freeze {
    pub(super) reason: String,
    /// The duration that the operator gave.
    pub(super) duration: Duration,
    pub(super) until: Moment,
    /// The token of the freeze's own grant, once it has the name.
    pub(super) token: Option<FencingToken>,
}

/// A lease id that must not be used again before a moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Remembered {
    pub(super) lease_id: LeaseId,
    pub(super) until: Moment,
    /// The operator's reason, for a revoked id.
    pub(super) reason: String,
}

impl Head {
    /// Returns whether there is nothing to keep: a store may remove the name.
    pub fn is_idle(&self) -> bool {
        self.holders.is_empty()
            && self.queued == 0
            && self.freeze.is_none()
            && self.tombstones.is_empty()
            && self.revoked.is_empty()
    }

    /// Carries the state over to the next boot of the machine, whose clock now shows `now`.
    ///
    /// No process of the earlier boot lives, so its grants and the queue end; the store removes the
    /// queue's entries. How long the machine was off is unknown, so detached leases and a freeze
    /// begin anew with their whole duration.
    pub fn restart(&mut self, now: Moment) {
        // A remote client's process did not run on this machine, so it may believe its lease yet.
        let outlives = |holder: &Holder| match holder.hold {
            Hold::Detached(_) => true,
            Hold::Leased(_) => holder.client.is_remote(),
            Hold::Live => false,
        };
        self.holders.retain(|holder| outlives(holder));
        for holder in &mut self.holders {
            holder.since = now;
            holder.deadline = deadline_of(now, holder.hold);
        }
        if let Some(freeze) = &mut self.freeze {
            freeze.until = now.after(freeze.duration);
        }
        for mark in self.tombstones.iter_mut().chain(&mut self.revoked) {
            mark.until = now.after(MIN_TOMBSTONE);
        }
        self.queued = 0;
        self.oldest_seen = Moment::ORIGIN;
        if self.holders.is_empty() {
            self.permits_of = None;
        }
    }

    /// Returns the holders, oldest first.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// Returns how many entries the queue has.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Returns whether a contender has queued since the state was empty.
    pub fn was_queued_for(&self) -> bool {
        self.next_place > 0
    }

    /// Returns the moment from which settling would change something by time alone:
    /// [`Moment::NEVER`] when nothing would.
    pub fn next_change(&self) -> Moment {
        let holders = self.holders.iter().map(|holder| holder.deadline);
        let freeze = self.freeze.iter().map(|freeze| freeze.until);
        let marks = self.tombstones.iter().chain(&self.revoked).map(|mark| mark.until);
        let silence = (self.queued > 0).then(|| self.oldest_seen.after(QUEUE_SILENCE));
        holders.chain(freeze).chain(marks).chain(silence).min().unwrap_or(Moment::NEVER)
    }

    /// Returns when settling would leave an empty state, if no command comes before. From then on a
    /// store may remove the name without settling it. [`Moment::NEVER`] if time alone does not
    /// empty the state: while contenders queue, or a revoked grant must be remembered.
    pub fn over_at(&self) -> Moment {
        if self.queued > 0 || self.holders.iter().any(|holder| holder.revoked.is_some()) {
            return Moment::NEVER;
        }
        let marks = self.tombstones.iter().chain(&self.revoked).map(|mark| mark.until);
        marks.fold(self.all_free(), Moment::max)
    }

    /// Returns the earliest end of a grant or of the freeze.
    pub(super) fn next_free(&self) -> Moment {
        let holders = self.holders.iter().map(|holder| holder.deadline);
        let freeze = self.freeze.iter().map(|freeze| freeze.until);
        holders.chain(freeze).min().unwrap_or(Moment::NEVER)
    }

    /// Returns when the name is free at the latest if no holder renews.
    pub(super) fn all_free(&self) -> Moment {
        let holders = self.holders.iter().map(|holder| holder.deadline);
        let freeze = self.freeze.iter().map(|freeze| freeze.until);
        holders.chain(freeze).max().unwrap_or(Moment::ORIGIN)
    }

    pub(super) fn holder(&self, lease_id: LeaseId) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.lease_id == lease_id)
    }

    pub(super) fn holder_mut(&mut self, lease_id: LeaseId) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.lease_id == lease_id)
    }

    pub(super) fn take_holder(&mut self, lease_id: LeaseId) -> Option<Holder> {
        let at = self.holders.iter().position(|holder| holder.lease_id == lease_id)?;
        Some(self.holders.remove(at))
    }

    /// Returns whether one more contender of this mode fits beside the holders.
    pub(super) fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.holders.is_empty(),
            Mode::Shared => self.holders.iter().all(|holder| holder.mode == Mode::Shared),
            Mode::Permits { count, of } => self.permits_used().saturating_add(count) <= of,
        }
    }

    fn permits_used(&self) -> u32 {
        let counts = self.holders.iter().map(|holder| match holder.mode {
            Mode::Permits { count, .. } => count,
            Mode::Exclusive | Mode::Shared => u32::MAX,
        });
        counts.fold(0, u32::saturating_add)
    }

    /// Returns the operator's reason if this id's grant was revoked and is remembered.
    pub(super) fn revoked_reason(&self, lease_id: LeaseId) -> Option<&str> {
        let mark = self.revoked.iter().find(|mark| mark.lease_id == lease_id)?;
        Some(&mark.reason)
    }

    pub(super) fn is_given_up(&self, lease_id: LeaseId) -> bool {
        self.tombstones.iter().any(|mark| mark.lease_id == lease_id)
    }
}

impl Remembered {
    /// Adds or prolongs a mark; if there are too many, removes the one that expires first.
    pub(super) fn add(marks: &mut Vec<Remembered>, mark: Remembered) {
        if let Some(known) = marks.iter_mut().find(|known| known.lease_id == mark.lease_id) {
            known.until = known.until.max(mark.until);
            return;
        }
        if marks.len() >= MAX_REMEMBERED {
            let first = marks.iter().enumerate().min_by_key(|(_, known)| known.until);
            if let Some((at, _)) = first {
                marks.swap_remove(at);
            }
        }
        marks.push(mark);
    }
}

/// Returns how long to remember a lease id that must not be used again.
pub(super) fn memory_of(hold: Hold) -> Duration {
    hold.duration().unwrap_or(MIN_TOMBSTONE).max(MIN_TOMBSTONE)
}

impl Holder {
    /// Lets the lease of a hand-off last as long as was asked, from now. A lease that lasts longer
    /// stays as it is, and so does a revoked one.
    pub(super) fn begin_whole_lease(&mut self, now: Moment) {
        let Some(duration) = self.asked.duration() else { return };
        let end = now.after(duration);
        if self.revoked.is_none() && end > self.deadline {
            self.hold = self.hold.lasting(duration);
            self.deadline = end;
        }
    }

    /// Returns the lease id of the grant.
    pub fn lease_id(&self) -> LeaseId {
        self.lease_id
    }

    /// Returns the client that holds the grant.
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// Returns how the grant is kept.
    pub fn hold(&self) -> Hold {
        self.hold
    }

    /// Returns the fencing token.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns the mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns whether time ends it: that of a live grant only until its holder has asked for it.
    pub fn is_timed(&self) -> bool {
        self.deadline != Moment::NEVER
    }

    /// Returns how much is left at `now`; `None` if time does not end it.
    pub(super) fn left(&self, now: Moment) -> Option<Duration> {
        self.is_timed().then(|| now.until(self.deadline))
    }
}

/// Returns when a grant that is made or renewed at `now` ends.
pub(super) fn deadline_of(now: Moment, hold: Hold) -> Moment {
    hold.duration().map_or(Moment::NEVER, |duration| now.after(duration))
}
