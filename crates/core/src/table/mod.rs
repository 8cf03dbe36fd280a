//! The lock table: the executable definition of what a lock is.
//!
//! A pure state machine for one name: `(state, command, now) -> (state, reply, wake-ups)`. The
//! memory engine is this table behind a mutex, the local engine is this table over rows of a
//! database, and the conformance suite compares every other engine with it.
//!
//! The state has two parts. The [`Head`] is small and always loaded: holders, tombstones, revoked
//! ids. The queue is behind the trait [`Store`], so that a store with a thousand waiters need not
//! load them to serve one.
//!
//! Every command first **settles** the name: it removes what has expired, and gives a free name to
//! the head of the queue. Invariants, for every reachable state (checked by the property tests
//! and the model in this crate's tests):
//!
//! - T1: an exclusive holder is the only holder; permits in use never exceed their total.
//! - T2: a newcomer never passes a queue, and a shared contender never passes a waiting exclusive
//!   one, so that no writer starves.
//! - T3: tokens of one name are distinct, and grow in the order in which grants begin; a grant
//!   keeps its token to its end.
//! - T4: a lease id exists at most once: as a holder, or in the queue, or among the tombstones.
//! - T5: a grant that has expired, or was released or revoked, is never renewed again.
//! - T6: only the lease id itself renews or releases; any other id changes nothing.
//! - T7: a repeated request does not change a grant.
//! - T8: after every command the head of the queue does not fit beside the holders, unless the name
//!   is frozen or the command has handed it to a full batch; and no contender in the queue has
//!   been silent for too long.
//! - T9: a name without holders, queue and remembered ids has an empty state.
//!
//! If the profile says that a store keeps sessions, or hands over directly, the table does so too.
//!
//! Read next: `settle`, then `acquire`, and `session` for stores with sessions.

mod acquire;
mod command;
mod memory;
#[cfg(any(test, feature = "mutants"))]
mod mutants;
mod operate;
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
#[cfg(any(test, feature = "mutants"))]
pub use mutants::Mutant;
pub use state::{Freeze, Head, Holder, QueueEntry};
pub use store::{Remaining, Store};

use crate::capabilities::Capabilities;
use crate::contract::Hint;
use crate::error::LockError;
use crate::lease_id::{ClientId, LeaseId};
use crate::moment::Moment;

/// How many tombstones, and how many revoked lease ids, a name keeps at most. Beyond that, the one
/// that expires first is removed.
pub const MAX_REMEMBERED: usize = 1_024;

/// The result of a command. The outer error is a failure of the store, which undoes the command.
/// The inner error is the reply of a rule; the name stays settled.
pub type Outcome<T, E> = Result<Result<T, LockError>, E>;

/// A client to notify after the command has been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakeUp {
    /// The client of the lease id.
    pub client: ClientId,
    /// The lease id that it concerns.
    pub lease_id: LeaseId,
    /// What the client should do.
    pub hint: Hint,
}

/// The rules, applied to one name at one moment.
#[derive(Debug)]
pub struct Table<'a, S: Store> {
    head: &'a mut Head,
    store: &'a mut S,
    profile: &'a Capabilities,
    now: Moment,
    /// How many contenders this command has handed the name to.
    handed: usize,
    wake_ups: Vec<WakeUp>,
}

impl<'a, S: Store> Table<'a, S> {
    /// Applies the rules to a name's state, for an engine of this profile, at `now`.
    pub fn new(
        head: &'a mut Head,
        store: &'a mut S,
        profile: &'a Capabilities,
        now: Moment,
    ) -> Table<'a, S> {
        Table { head, store, profile, now, handed: 0, wake_ups: Vec::new() }
    }

    /// Returns the clients to notify once the command is durable.
    pub fn into_wake_ups(self) -> Vec<WakeUp> {
        self.wake_ups
    }

    fn wake(&mut self, client: ClientId, lease_id: LeaseId, hint: Hint) {
        self.wake_ups.push(WakeUp { client, lease_id, hint });
    }
}
