//! A quorum without tokens: on each node exactly what other Redlock libraries do, decided at a
//! majority.
//!
//! A name is had by `SET key value NX PX …`, freed by a compare-and-delete, kept by a
//! compare-and-expire. Nothing else is kept on a node, so nobody sets the servers up, and nobody
//! knows who has lost its memory: such a node votes again at once.
//!
//! - Invariant B1: what is not ours is never overwritten, extended or deleted: each command
//!   compares in the step in which it acts.
//! - Invariant B2: a lease id of which an undo may have left is not asked for again by this
//!   process, on any node, until nothing of it can be left.
//!
//! Read next: `attempt` for how a name is had, and `plain` for the commands.

mod attempt;
mod renewal;

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::majority;
use holdline_core::{ErrorKind, LockError, LockName, Moment, ReleaseReply};

pub(super) use attempt::{acquire, again};
pub(super) use renewal::renew;

use super::look::Seen;
use super::race::Race;
use super::release::Parting;
use super::set::{FIRST_GRACE, Set};
use crate::native;
use crate::node::{Call, Node, Value};
use crate::options::RedisOptions;
use crate::plain::{Asker, GivenUp, Keys, Reading};

/// How long a first connection may take before the others are not kept waiting for it.
const FIRST_CONNECTION: Duration = Duration::from_secs(1);

/// How nodes are asked where no tokens are given.
#[derive(Debug)]
pub(super) struct Bare {
    asker: Asker,
    reading: Reading,
    given_up: GivenUp,
}

impl Bare {
    /// Returns how nodes with these options are asked; `None` where tokens are given.
    pub(super) fn of(options: &RedisOptions) -> Option<Bare> {
        if options.fencing() {
            return None;
        }
        let asker = Asker {
            keys: Keys::of(options),
            format: options.lease_format(),
            fencing: false,
            deadline: options.command_timeout(),
        };
        let reading = Reading { format: asker.format, fencing: false };
        Some(Bare { asker, reading, given_up: GivenUp::default() })
    }

    /// Frees the name on one node; `for_good`: a request under the id may still be on its way.
    pub(super) async fn free(
        &self,
        node: &Node,
        parting: &Parting,
        for_good: bool,
    ) -> Result<ReleaseReply, LockError> {
        let (name, id) = (&parting.name, parting.lease_id);
        let server = node.server().filter(|_| !for_good);
        if let Some(words) = server.and_then(|server| self.asker.delete(name, id, &server)) {
            let reply = node.send(&words, Some(*id.as_bytes()), parting.deadline).await?;
            if reply.as_integer() == Some(1) {
                return Ok(ReleaseReply::Released { held_for: None });
            }
            // Nothing was deleted: the script tells why.
        }
        let call = || self.asker.release(name, id, None).within(parting.deadline);
        native::released(&node.call(call).await?)
    }

    /// Notes that the lease id may not be asked for any more.
    pub(super) fn give_up(&self, set: &Set, parting: &Parting) {
        let now = set.clock.now();
        self.given_up.add(parting.lease_id, now, now.after(parting.memory()));
    }

    /// Asks those of the nodes that answer, and hears out all of them.
    async fn ask_all(
        &self,
        set: &Set,
        nodes: impl IntoIterator<Item = usize>,
        make: impl Fn(&Asker) -> Call + Sync,
    ) -> Vec<(usize, Result<Value, LockError>)> {
        let mut race = Race::with_room(set.members.len());
        let make = &make;
        for node in nodes {
            if set.answers(node) {
                let member = &set.members[node];
                race.add(node, async move { member.node().call(|| make(&self.asker)).await });
            }
        }
        let mut answers = Vec::with_capacity(set.members.len());
        while let Some(answer) = race.next().await {
            answers.push(answer);
        }
        answers
    }
}

/// Asks all nodes that answer who has the name.
pub(super) async fn see(set: &Set, bare: &Bare, name: &LockName) -> Seen {
    let nodes = set.members.len();
    let mut seen = Seen::of_nobody(nodes);
    for (node, answer) in bare.ask_all(set, 0..nodes, |asker| asker.inspect(name)).await {
        seen.note(node, answer.and_then(|reply| bare.reading.inspected(&reply, name)));
    }
    seen
}

/// Waits until enough nodes have connections, or have shown that they get none; not for long.
///
/// # Errors
/// `Refused`: so many do not let us in that there is no majority.
pub(super) async fn connect(set: &Arc<Set>) -> Result<(), LockError> {
    let (nodes, needed) = (set.members.len(), majority(set.members.len()));
    let mut race = Race::with_room(nodes);
    for (at, member) in set.members.iter().enumerate() {
        race.add(at, member.node().ready_within(FIRST_CONNECTION));
    }
    let (mut ready, mut refused, mut end) = (0, Vec::new(), Moment::NEVER);
    loop {
        let answer = tokio::select! {
            biased;
            answer = race.next() => answer,
            () = set.clock.sleep_until(end) => None,
        };
        match answer {
            None => break,
            Some((_, Ok(_))) => ready += 1,
            Some((_, Err(error))) if matches!(error.kind(), ErrorKind::Refused { .. }) => {
                refused.push(error);
            }
            Some((_, Err(error))) => tracing::debug!(%error, "a node is not there yet"),
        }
        // The slower ones get a moment, so that nobody goes by three of five that are well.
        if ready >= needed && end == Moment::NEVER {
            end = set.clock.now().after(FIRST_GRACE);
        }
    }
    match refused.pop() {
        Some(error) if refused.len() >= nodes - needed => Err(error),
        _ => Ok(()),
    }
}
