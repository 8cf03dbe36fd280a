//! The events that contenders record, and one attempt assembled from them.
//!
//! Invariant V1: all moments of a history are readings of one clock. Processes of one machine share
//! its clocks. The clock is read *before* an action that makes a hold certain to end, and *after*
//! one that makes it certain to begin, so that errors only shorten certain holds.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use holdline_core::{FencingToken, LockName, Mode, Moment};
use serde::{Deserialize, Serialize};

use super::Witness;

/// One thing that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Moment,
    /// By which attempt: a number that no other attempt of the history has.
    pub attempt: u64,
    /// What.
    pub seen: Seen,
}

/// What an attempt saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen {
    /// Just before its first request left.
    Called {
        /// The lock name.
        name: LockName,
        /// How it wants to hold it.
        mode: Mode,
    },
    /// It learned that it is queued; again if its entry was removed and it queued anew.
    Queued,
    /// It learned that it holds the name.
    Granted {
        /// The fencing token.
        token: FencingToken,
        /// Until when it may rely on that.
        valid_until: Moment,
    },
    /// A renewal was good.
    Renewed {
        /// Until when it may rely on that now.
        valid_until: Moment,
    },
    /// Just before its release left.
    Released,
    /// It was notified that the lease is lost.
    Lost,
    /// It ended without a grant: it failed or gave up.
    Failed,
    /// Its process was killed; nothing more is known of it.
    Killed,
    /// A resource that checks tokens answered it.
    Wrote {
        /// Just before the write left.
        sent: Moment,
        /// The token that it showed.
        token: FencingToken,
        /// Whether the resource took it.
        accepted: bool,
    },
}

/// The events of an attempt make no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedHistory {
    /// Which attempt.
    pub attempt: u64,
    /// The event that does not fit.
    pub event: Seen,
}

impl fmt::Display for MalformedHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}: {:?} does not follow what it saw before", self.attempt, self.event)
    }
}

impl std::error::Error for MalformedHistory {}

/// All that was seen of one name.
#[derive(Debug, Default)]
pub(super) struct Name {
    pub(super) attempts: Vec<Attempt>,
    pub(super) writes: Vec<Write>,
}

/// An accepted write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    /// The index of its attempt in [`Name::attempts`].
    pub(super) by: usize,
    pub(super) sent: Moment,
    pub(super) answered: Moment,
    pub(super) token: FencingToken,
}

/// One attempt to hold a name.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) id: u64,
    pub(super) mode: Mode,
    pub(super) called: Moment,
    pub(super) queued: Option<Moment>,
    pub(super) grant: Option<Grant>,
    pub(super) ended: Option<Moment>,
    pub(super) lost: bool,
    pub(super) resurrected: bool,
}

/// What an attempt was granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) known: Moment,
    pub(super) token: FencingToken,
    pub(super) valid_until: Moment,
}

impl Attempt {
    /// Returns the certain hold, unless it was over when it became known.
    pub(super) fn certain(&self) -> Option<(Moment, Moment)> {
        let grant = self.grant?;
        let end = grant.valid_until.min(self.ended.unwrap_or(Moment::NEVER));
        (grant.known < end).then_some((grant.known, end))
    }

    pub(super) fn token(&self) -> Option<FencingToken> {
        self.grant.map(|grant| grant.token)
    }

    pub(super) fn is_hung(&self) -> bool {
        self.grant.is_none() && self.ended.is_none()
    }

    /// Returns whether both cannot hold at once.
    pub(super) fn excludes(&self, other: &Attempt) -> bool {
        match (self.mode, other.mode) {
            (Mode::Shared, Mode::Shared) => false,
            (Mode::Permits { count, of }, Mode::Permits { count: other, .. }) => {
                u64::from(count) + u64::from(other) > u64::from(of)
            }
            _ => true,
        }
    }

    pub(super) fn witness(&self) -> Witness {
        Witness {
            attempt: self.id,
            mode: self.mode,
            called: self.called,
            queued: self.queued,
            held: self.grant.map(|grant| {
                (grant.known, grant.valid_until.min(self.ended.unwrap_or(Moment::NEVER)))
            }),
            token: self.token(),
        }
    }

    /// Adds what it saw next; `None` when that cannot follow.
    fn see(&mut self, at: Moment, seen: &Seen) -> Option<()> {
        match (seen, &mut self.grant) {
            (Seen::Queued, None) if self.ended.is_none() => self.queued = Some(at),
            (Seen::Granted { token, valid_until }, None) if self.ended.is_none() => {
                self.grant = Some(Grant { known: at, token: *token, valid_until: *valid_until });
            }
            (Seen::Renewed { .. }, Some(_)) if self.lost => self.resurrected = true,
            (Seen::Renewed { valid_until }, Some(grant)) => {
                grant.valid_until = grant.valid_until.max(*valid_until);
            }
            (Seen::Lost, Some(_)) => {
                self.lost = true;
                self.end(at);
            }
            (Seen::Released, Some(_)) | (Seen::Failed, None) | (Seen::Killed, _) => self.end(at),
            _ => return None,
        }
        Some(())
    }

    fn end(&mut self, at: Moment) {
        self.ended = Some(self.ended.map_or(at, |ended| ended.min(at)));
    }
}

/// Puts the attempts of each name together.
pub(super) fn by_name(events: &[Event]) -> Result<BTreeMap<LockName, Name>, MalformedHistory> {
    let mut names: BTreeMap<LockName, Name> = BTreeMap::new();
    let mut slots: HashMap<u64, (LockName, usize)> = HashMap::new();
    for event in events {
        let malformed = || MalformedHistory { attempt: event.attempt, event: event.seen.clone() };
        if let Seen::Called { name, mode } = &event.seen {
            let attempts = &mut names.entry(name.clone()).or_default().attempts;
            if slots.insert(event.attempt, (name.clone(), attempts.len())).is_some() {
                return Err(malformed());
            }
            attempts.push(Attempt {
                id: event.attempt,
                mode: *mode,
                called: event.at,
                queued: None,
                grant: None,
                ended: None,
                lost: false,
                resurrected: false,
            });
            continue;
        }
        let (name, slot) = slots.get(&event.attempt).ok_or_else(malformed)?;
        let of_name = names.get_mut(name).ok_or_else(malformed)?;
        if let Seen::Wrote { sent, token, accepted } = event.seen {
            if accepted {
                of_name.writes.push(Write { by: *slot, sent, answered: event.at, token });
            }
            continue;
        }
        of_name.attempts[*slot].see(event.at, &event.seen).ok_or_else(malformed)?;
    }
    Ok(names)
}
