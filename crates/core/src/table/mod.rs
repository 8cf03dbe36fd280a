//! The lock table: the executable definition of what a lock is.
//!
//! A pure state machine for one name: `(state, command, now) -> (state, reply, wake-ups)`. The
//! memory engine is this table behind a mutex, the local engine is this table over rows of a
//! database, and every other engine is held against it by the conformance suite.
//!
//! The state has two parts. The [`Head`] is small and always at hand: holders, tombstones, marks.
//! The queue stands behind the trait [`Store`], so that a store with a thousand waiters need not
//! load them to serve one.
//!
//! Every command first **settles** the name: what is over is removed, and a free name goes to
//! the head of the queue. Invariants, for every reachable state (checked by the property tests
//! and the model in this crate's tests):
//!
//! - T1: an exclusive holder is the only holder; permits in use never exceed their total.
//! - T2: a newcomer never passes a queue, and a shared contender never passes a waiting exclusive
//!   one, so that no writer starves.
//! - T3: tokens of one name are distinct, and grow in the order in which grants begin; a grant
//!   keeps its token from its hand-off to its end.
//! - T4: a lease id stands at most once: as a holder, or in the queue, or among the tombstones.
//! - T5: a grant that time, release or revoke has ended is never renewed again.
//! - T6: only the lease id itself renews or releases; any other id changes nothing.
//! - T7: asking again changes nothing that was given.
//! - T8: after every command no contender that could be admitted stands at the head of the queue,
//!   unless the name is frozen or the command has handed it to a full batch; and no contender
//!   that has been silent for too long stands in it at all.
//! - T9: a name that nobody holds, queues for or must remember has an empty state.
//!
//! Where the profile says that a store keeps sessions, or hands over directly, the table does so
//! too: a hand-off is then a grant that nobody has to claim.
//!
//! Read next: `settle` for the heart of it, then `acquire`, and `session` for stores with sessions.

mod acquire;
mod command;
mod memory;
mod operate;
mod planted;
mod release;
mod renew;
mod session;
mod settle;
mod state;
mod store;
mod view;

#[cfg(test)]
mod tests;

pub use command::{Command, Reply};
pub use memory::{LockState, MemoryQueue, MemoryStore};
pub use planted::Planted;
pub use state::{Entry, Freeze, Head, Holder};
pub use store::{Remaining, Store};

use crate::capabilities::Capabilities;
use crate::contract::Hint;
use crate::error::LockError;
use crate::lease_id::{ClientId, LeaseId};
use crate::moment::Moment;

/// How many tombstones, and how many revoked lease ids, a name keeps at most. Beyond that the one
/// that would go first goes.
pub const MAX_REMEMBERED: usize = 1_024;

/// What a store's own failure or a rule's refusal looks like: the outer error is the store's and
/// undoes the command; the inner one is the reply, and what was settled stays settled.
pub type Outcome<T, E> = Result<Result<T, LockError>, E>;

/// Somebody to tell, after the command has been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakeUp {
    /// Whose lease id it is.
    pub client: ClientId,
    /// Whom it concerns.
    pub lease_id: LeaseId,
    /// What it is worth doing.
    pub hint: Hint,
}

/// The rules, at work on one name at one moment.
#[derive(Debug)]
pub struct Table<'a, S: Store> {
    head: &'a mut Head,
    store: &'a mut S,
    profile: &'a Capabilities,
    now: Moment,
    /// How many contenders this command has handed the name to.
    handed: usize,
    wake_ups: Vec<WakeUp>,
    #[cfg(feature = "planted")]
    planted: Option<Planted>,
}

impl<'a, S: Store> Table<'a, S> {
    /// Sets the rules to work on a name's state, for an engine of this profile, at `now`.
    pub fn new(
        head: &'a mut Head,
        store: &'a mut S,
        profile: &'a Capabilities,
        now: Moment,
    ) -> Table<'a, S> {
        Table {
            head,
            store,
            profile,
            now,
            handed: 0,
            wake_ups: Vec::new(),
            #[cfg(feature = "planted")]
            planted: None,
        }
    }

    /// Plants a bug, for tests of the tests.
    #[cfg(feature = "planted")]
    #[must_use]
    pub fn with_planted(mut self, planted: Option<Planted>) -> Table<'a, S> {
        self.planted = planted;
        self
    }

    /// Returns whom to tell, once the command is durable.
    pub fn into_wake_ups(self) -> Vec<WakeUp> {
        self.wake_ups
    }

    fn wake(&mut self, client: ClientId, lease_id: LeaseId, hint: Hint) {
        self.wake_ups.push(WakeUp { client, lease_id, hint });
    }

    #[cfg(feature = "planted")]
    fn has(&self, bug: Planted) -> bool {
        self.planted == Some(bug)
    }

    #[cfg(not(feature = "planted"))]
    #[allow(clippy::unused_self)]
    fn has(&self, _bug: Planted) -> bool {
        false
    }
}
