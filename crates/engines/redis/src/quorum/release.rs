//! How a lease id is given up on the nodes.
//!
//! - Invariant P1: an undo is written behind every request under the id that may still be carried
//!   out, on a connection that does not answer, too: this process may be gone when the node goes
//!   on. It carries the script's text, since nobody would be there to answer `NOSCRIPT`.
//! - Invariant P2: a caller gets its answer once a majority has decided. What the other nodes are
//!   still to be told is counted in [`Debts`], and [`flush`] waits for those that answer.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::quorum::majority;
use holdline_core::{
    Backoff, Certainty, ErrorKind, LeaseId, LockError, LockName, Moment, ReleaseReply,
    ReleaseRequest,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::race::Race;
use super::renewal::foreign;
use super::replies;
use super::requests;
use super::set::Set;
use crate::error::unavailable;

/// The pauses between tries to tell a node.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long an attempt that was lost waits for the answers to its undo, and how long [`flush`]
/// waits.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// What is told to nodes in the background.
#[derive(Debug, Default)]
pub(super) struct Debts {
    /// How many tasks wait for nodes that are slower than a majority.
    tasks: AtomicUsize,
    /// Something was delivered, or is kept for later.
    changed: Notify,
    /// The tasks that pause before they tell a node again do so at once.
    hurry: Arc<Notify>,
}

impl Debts {
    pub(super) fn changed(&self) {
        self.changed.notify_waiters();
    }
}

/// One task that waits for slower nodes, until it is dropped.
struct Debt(Arc<Set>);

impl Debt {
    fn new(set: &Arc<Set>) -> Debt {
        set.debts.tasks.fetch_add(1, Ordering::AcqRel);
        Debt(set.clone())
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        self.0.debts.tasks.fetch_sub(1, Ordering::AcqRel);
        self.0.debts.changed();
    }
}

/// Waits until each node that answers was told all that it has to be told, for a short time.
pub(super) async fn flush(set: &Arc<Set>) {
    let end = set.clock.now().after(LAST_ANSWERS);
    tokio::select! {
        biased;
        () = set.report_waits() => {}
        () = set.clock.sleep_until(end) => return,
    }
    let is_told = |node: usize| set.members[node].owed().is_empty() || !set.answers(node);
    let is_over = || {
        let tasks = set.debts.tasks.load(Ordering::Acquire);
        tasks == 0 && set.visits.are_over() && (0..set.members.len()).all(is_told)
    };
    loop {
        let mut changed = pin!(set.debts.changed.notified());
        changed.as_mut().enable();
        if is_over() {
            return;
        }
        set.debts.hurry.notify_waiters();
        tokio::select! {
            biased;
            () = changed => {}
            () = set.clock.sleep_until(end) => return,
        }
    }
}

/// A lease id that is given up.
#[derive(Clone, Debug)]
pub(super) struct Parting {
    pub(super) name: LockName,
    pub(super) lease_id: LeaseId,
    /// What was asked for: nothing of it is left after so long.
    pub(super) lease: Duration,
    pub(super) deadline: Duration,
}

impl Parting {
    /// How long a request under the id may still do something: it may begin a lease when it
    /// arrives, and takes no longer to arrive than its connection may be silent.
    pub(super) fn memory(&self) -> Duration {
        self.lease.max(MIN_TOMBSTONE)
    }

    /// Tells one node, if it answers in time now. `tombstone`: a request under the id may still be
    /// on its way to it.
    async fn tell(
        &self,
        set: &Set,
        node: usize,
        tombstone: bool,
    ) -> Result<ReleaseReply, LockError> {
        let server = set.members[node].node();
        if !set.answers(node) && !server.owes(self.lease_id.as_bytes()) {
            return Err(unavailable("does not answer", Certainty::NotApplied));
        }
        if let Some(bare) = &set.bare {
            return bare.free(server, self, tombstone).await;
        }
        let remembered = tombstone.then(|| self.memory());
        let call = || {
            requests::release(&set.asker, &self.name, self.lease_id, remembered)
                .within(self.deadline)
        };
        let reply = match tombstone || !set.answers(node) {
            true => server.call_in_full(call).await?,
            false => server.call(call).await?,
        };
        replies::released(&reply)
    }
}

/// What one node has yet to be told. Bounded: what is pushed out ends with its lease.
#[derive(Debug, Default)]
pub(super) struct Owed(Mutex<VecDeque<(Moment, Arc<Parting>)>>);

/// How many a node has yet to be told at most.
const MOST_OWED: usize = 4_096;

impl Owed {
    /// Adds one; tells whether it is the first.
    fn add(&self, end: Moment, parting: Arc<Parting>) -> bool {
        let mut owed = self.0.lock();
        if owed.len() == MOST_OWED {
            owed.pop_front();
        }
        owed.push_back((end, parting));
        owed.len() == 1
    }

    /// Returns the first that can still matter.
    fn first(&self, now: Moment) -> Option<Arc<Parting>> {
        let mut owed = self.0.lock();
        while owed.front().is_some_and(|(end, _)| *end <= now) {
            owed.pop_front();
        }
        owed.front().map(|(_, parting)| parting.clone())
    }

    /// The first was told; tells whether none is left.
    fn told(&self, parting: &Parting) {
        let mut owed = self.0.lock();
        if owed.front().is_some_and(|(_, first)| first.lease_id == parting.lease_id) {
            owed.pop_front();
        }
    }

    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

/// Has nodes told in the background, as soon as they answer.
fn insist_later(set: &Arc<Set>, parting: &Arc<Parting>, nodes: impl IntoIterator<Item = usize>) {
    let end = set.clock.now().after(parting.memory());
    for node in nodes {
        if set.members[node].owed().add(end, parting.clone()) {
            let weak = Arc::downgrade(set);
            set.members[node].node().spawn(Box::pin(insist(weak, node)));
        }
    }
}

/// Tells one node what it has yet to be told, until nothing is left.
async fn insist(set: Weak<Set>, node: usize) {
    let mut pauses = Backoff::new(PAUSES.0, PAUSES.1);
    loop {
        let Some(here) = set.upgrade() else { return };
        let Some(parting) = here.members[node].owed().first(here.clock.now()) else { return };
        if here.answers(node) && parting.tell(&here, node, true).await.is_ok() {
            here.members[node].owed().told(&parting);
            here.debts.changed();
            pauses.reset();
            continue;
        }
        let pause = pauses.next_pause(here.members[node].node().random());
        let sleep = here.clock.sleep_until(here.clock.now().after(pause));
        let hurry = here.debts.hurry.clone();
        drop((here, parting));
        tokio::select! {
            biased;
            () = sleep => {}
            () = hurry.notified() => {}
        }
    }
}

/// Gives up what an attempt has taken on these nodes: `true` for those that said so. All that
/// answer soon have undone it when this ends; the others are told in the background.
pub(super) async fn give_up(set: &Arc<Set>, parting: Arc<Parting>, nodes: Vec<(usize, bool)>) {
    let mut race = Race::with_room(nodes.len());
    for (node, has_voted) in nodes {
        let (set, parting) = (set.clone(), parting.clone());
        race.add(node, async move { parting.tell(&set, node, !has_voted).await });
    }
    let mut end = set.clock.sleep_until(set.clock.now().after(LAST_ANSWERS));
    loop {
        // The first look at the race puts all on their way.
        let next = tokio::select! {
            biased;
            next = race.next() => next,
            () = &mut end => break,
        };
        match next {
            Some((node, Err(_))) => insist_later(set, &parting, [node]),
            Some(_) => {}
            None => break,
        }
    }
    settle(set, &parting, race, |answer| answer.is_err());
}

/// Releases a lease. Nodes that do not answer in time are told in the background.
pub(super) async fn release(
    set: &Arc<Set>,
    request: &ReleaseRequest,
) -> Result<ReleaseReply, LockError> {
    let lease = request.ending.hold.duration().unwrap_or(MIN_TOMBSTONE);
    let parting = Arc::new(Parting {
        name: request.name.clone(),
        lease_id: request.lease_id,
        lease,
        deadline: set.node_deadline(lease),
    });
    // What takes the lease again may be on its way still: then the id must be known to be dead.
    let for_good = request.ending.for_good || set.visits.any(request.lease_id);
    let nodes = set.members.len();
    if let (true, Some(bare)) = (for_good, &set.bare) {
        bare.give_up(set, &parting);
    }
    let mut race = Race::with_room(nodes);
    for node in 0..nodes {
        let (set, parting) = (set.clone(), parting.clone());
        race.add(node, async move { parting.tell(&set, node, for_good).await });
    }
    let mut count = Count::new(nodes);
    while let Some((node, answer)) = race.next().await {
        if answer.is_err() {
            insist_later(set, &parting, [node]);
        }
        count.note(node, answer);
        if let Some(reply) = count.decided() {
            settle(set, &parting, race, |answer| answer.is_err());
            return Ok(reply);
        }
    }
    if let Some(error) = count.foreign {
        return Err(foreign(&error));
    }
    Err(set.no_quorum(&count.lines).with_certainty(Certainty::Unknown))
}

/// Hears out those that have not answered yet.
fn settle<T: Send + 'static>(
    set: &Arc<Set>,
    parting: &Arc<Parting>,
    mut race: Race<'static, T>,
    failed: fn(&T) -> bool,
) {
    if race.is_empty() {
        return;
    }
    let (set, parting, debt) = (set.clone(), parting.clone(), Debt::new(set));
    let home = set.members[0].node().clone();
    home.spawn(Box::pin(async move {
        let _debt = debt;
        while let Some((node, answer)) = race.next().await {
            if failed(&answer) {
                insist_later(&set, &parting, [node]);
            }
        }
    }));
}

/// What the nodes said.
struct Count {
    nodes: usize,
    released: usize,
    nothing: usize,
    held_for: Option<Duration>,
    revoked: Option<String>,
    foreign: Option<LockError>,
    lines: Vec<Option<String>>,
}

impl Count {
    fn new(nodes: usize) -> Count {
        let lines = vec![None; nodes];
        Count {
            nodes,
            released: 0,
            nothing: 0,
            held_for: None,
            revoked: None,
            foreign: None,
            lines,
        }
    }

    fn note(&mut self, node: usize, answer: Result<ReleaseReply, LockError>) {
        let line = match answer {
            Ok(ReleaseReply::Released { held_for }) => {
                self.released += 1;
                self.held_for = self.held_for.max(held_for);
                "released".to_owned()
            }
            Ok(ReleaseReply::Withdrawn) => "held nothing".to_owned(),
            Ok(ReleaseReply::NotHeld { revoked }) => {
                self.nothing += 1;
                self.revoked = self.revoked.take().or(revoked);
                "held nothing".to_owned()
            }
            Err(error) => {
                let line = error.kind().to_string();
                if matches!(error.kind(), ErrorKind::Foreign { .. }) {
                    self.foreign.get_or_insert(error);
                }
                line
            }
        };
        self.lines[node] = Some(line);
    }

    /// What a majority says. Where none had anything, nobody else can have let it go; where too few
    /// had it still, it was lost before.
    fn decided(&mut self) -> Option<ReleaseReply> {
        let needed = majority(self.nodes);
        if self.released >= needed {
            return Some(ReleaseReply::Released { held_for: self.held_for });
        }
        let lost = self.nothing > self.nodes - needed;
        lost.then(|| ReleaseReply::NotHeld { revoked: self.revoked.take() })
    }
}
