//! The way of a call: to the master that serves its slot, by the table that was heard last, and on
//! by what that master says.
//!
//! - Invariant R1: a call leaves again only after a node has said that it did not carry it out, or
//!   when it never left. All else is told with its certainty.
//! - Invariant R2: each call ends at its deadline, however often it is sent elsewhere.
//! - Invariant R3: a node that does not answer delays only the calls that are for it.
//! - Invariant R4: while other nodes answer, a slot without a master is no quorum and not silence:
//!   whoever waits goes on waiting (decision 0030).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdline_core::{Backoff, Certainty, Clock, ErrorKind, LockError, Moment};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Place;
use super::redirect::Redirect;
use super::roster::Roster;
use super::slots::{SLOTS, Table};
use crate::error::{ENGINE, LONELY, lonely, masterless, refusal, unavailable};
use crate::node::{Call, Node, Told, Value, Words};
use crate::options::{Address, RedisOptions};
use crate::quorum::race::Race;

/// How often the table is asked for although nobody has said anything.
const POLL: Duration = Duration::from_secs(10);
/// How often while the cluster is not well.
const SOON: Duration = Duration::from_millis(500);
/// How soon after one look another may follow.
const GAP: Duration = Duration::from_millis(50);
/// How long other nodes are waited for once one has told its table.
const GRACE: Duration = Duration::from_millis(200);
/// How many nodes are asked for their table at once.
const MOST_ASKED: usize = 5;
/// Pauses before a call that was not carried out leaves again.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// How often a call follows a redirection without a pause.
const HOPS: u32 = 3;
/// How much longer than a connection its outcome is waited for.
const HEARD_OUT: Duration = Duration::from_millis(500);
/// Of so many nodes in the URL each is tried within the time for a connection.
const MOST_IN_TURN: u32 = 4;

/// What is asked about one name.
pub(super) struct Ask<'a> {
    pub(super) slot: u16,
    pub(super) deadline: Duration,
    pub(super) whole: &'a (dyn Fn() -> Call + Send + Sync),
    /// The same by the lock key alone, where that may do.
    pub(super) alone: &'a (dyn Fn() -> Option<Call> + Send + Sync),
}

/// What came of one try.
enum Tried {
    Done(Value),
    Moved,
    /// It was not carried out, and this is why.
    Later(LockError),
}

/// The connections to a cluster. Dropping it ends them.
pub(crate) struct Router {
    shared: Arc<Shared>,
    _end: DropGuard,
}

struct Shared {
    options: RedisOptions,
    clock: Arc<dyn Clock>,
    /// A connection to any node.
    scout: Node,
    roster: Arc<Roster>,
    nodes: Mutex<BTreeMap<Place, Node>>,
    table: Mutex<Arc<Table>>,
    /// Grows with each table.
    version: watch::Sender<u64>,
    wanted: Notify,
    /// The last time that somebody was asked for the table, a node told it.
    answers: AtomicBool,
    /// The task that looks after the table runs.
    watched: AtomicBool,
    end: CancellationToken,
}

impl Router {
    /// Makes a router, which begins to dial at once.
    pub(crate) fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<Router, LockError> {
        options.validate()?;
        let Address::Cluster { seeds, .. } = options.address() else {
            let message = "is for a cluster here: write `redis-cluster://`";
            return Err(LockError::invalid(ENGINE, "url", message));
        };
        // A node of several that stands still is to leave time for the next.
        let turns = u32::try_from(seeds.len()).unwrap_or(MOST_IN_TURN).clamp(1, MOST_IN_TURN);
        let each = (options.connect_timeout() / turns).max(Duration::from_millis(10));
        let begin: u32 = rand::random();
        let roster = Arc::new(Roster::new(seeds.clone(), begin as usize % seeds.len().max(1)));
        let scouting = options.clone().with_connect_timeout(each);
        let scout = Node::any_of(&scouting, clock.clone(), roster.clone())?;
        let shared = Arc::new(Shared {
            options: options.clone(),
            clock,
            scout,
            roster,
            nodes: Mutex::default(),
            table: Mutex::default(),
            version: watch::Sender::new(0),
            wanted: Notify::new(),
            answers: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            end: CancellationToken::new(),
        });
        shared.keep_watch();
        let end = shared.end.clone().drop_guard();
        Ok(Router { shared, _end: end })
    }

    /// A connection to any node.
    pub(crate) fn scout(&self) -> &Node {
        &self.shared.scout
    }

    /// Waits until a node has told who serves which slot.
    pub(crate) async fn ready(&self) -> Result<Arc<Table>, LockError> {
        let shared = &self.shared;
        let asked = shared.options.connect_timeout().saturating_add(HEARD_OUT);
        let end = shared.clock.now().after(asked);
        loop {
            let left = shared.clock.now().until(end);
            let error = match shared.scout.ready_within(left).await {
                Ok(_) => match shared.look().await {
                    Ok(()) => return Ok(self.table()),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let passing = matches!(error.kind(), ErrorKind::Unavailable { .. });
            if !passing || shared.clock.now().until(end).is_zero() {
                return Err(error);
            }
            shared.clock.sleep_until(shared.clock.now().after(GAP).min(end)).await;
        }
    }

    /// Who serves which slot, as was heard last.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.shared.table.lock().clone()
    }

    /// How long the slowest of the nodes that answer took for its first words.
    pub(crate) fn slowest_trip(&self) -> Duration {
        let nodes = self.shared.nodes.lock();
        let well = nodes.values().filter_map(Node::well);
        well.map(|facts| facts.round_trip).max().unwrap_or_default()
    }

    /// The connection to one of the masters.
    pub(crate) async fn node(&self, place: &Place) -> Result<Node, LockError> {
        self.shared.node(place).await
    }

    /// Asks the master that serves the slot, whoever that is.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only: the request may be carried out.
    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<Value, LockError> {
        let shared = &self.shared;
        let end = shared.clock.now().after(ask.deadline);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut hops = 0;
        let mut trouble = None;
        loop {
            if shared.clock.now() >= end {
                return Err(trouble.unwrap_or_else(|| nothing_within(ask.deadline)));
            }
            let mut version = shared.version.subscribe();
            let why = match shared.owner(ask.slot).await? {
                None => shared.between_masters(shared.uncovered(ask.slot)),
                Some((place, node)) => match shared.try_whole(&ask, &place, &node, end).await? {
                    Tried::Done(value) => return Ok(value),
                    Tried::Moved if hops < HOPS => {
                        hops += 1;
                        continue;
                    }
                    Tried::Moved => {
                        // What it changed itself is no reason to ask again at once.
                        version = shared.version.subscribe();
                        shared.between_masters(sent_on(ask.slot))
                    }
                    Tried::Later(error) => error,
                },
            };
            trouble = Some(why);
            shared.want();
            let pause = shared.clock.now().after(backoff.next_pause(shared.scout.random()));
            tokio::select! {
                biased;
                _ = version.changed() => {}
                () = shared.clock.sleep_until(pause.min(end)) => {}
            }
        }
    }
}

impl Shared {
    async fn owner(&self, slot: u16) -> Result<Option<(Place, Node)>, LockError> {
        let owner = self.table.lock().owner(slot).cloned();
        let Some(place) = owner else { return Ok(None) };
        let node = self.node(&place).await?;
        Ok(Some((place, node)))
    }

    async fn node(&self, place: &Place) -> Result<Node, LockError> {
        if let Some(node) = self.nodes.lock().get(place) {
            return Ok(node.clone());
        }
        // Its tasks are to run where those of the scout do, and not where somebody asks first.
        let (options, clock) = (self.options.at(&place.0, place.1), self.clock.clone());
        let (told, made) = oneshot::channel();
        self.scout.spawn(Box::pin(async move { drop(told.send(Node::new(&options, clock))) }));
        let node = match made.await {
            Ok(made) => made?,
            Err(_) => Node::new(&self.options.at(&place.0, place.1), self.clock.clone())?,
        };
        Ok(self.nodes.lock().entry(place.clone()).or_insert(node).clone())
    }

    /// What a master that takes nothing is told as, while other nodes answer: then the cluster
    /// makes another, or ends a move, by itself. That is outwaited, as an election is.
    fn between_masters(&self, error: LockError) -> LockError {
        match error.kind() {
            ErrorKind::Unavailable { message } if self.answers.load(Ordering::Relaxed) => {
                masterless(message, error.certainty())
            }
            _ => error,
        }
    }

    fn later(&self, error: LockError) -> Tried {
        Tried::Later(self.between_masters(error))
    }

    /// Sends a call to a node, and follows what that says.
    async fn try_whole(
        self: &Arc<Shared>,
        ask: &Ask<'_>,
        place: &Place,
        node: &Node,
        end: Moment,
    ) -> Result<Tried, LockError> {
        let left = self.clock.now().until(end);
        let told = node.answer(|| (ask.whole)().within(left), false).await;
        match self.heed(told, (place, node))? {
            Ok(value) => Ok(Tried::Done(value)),
            Err(Go::To) => Ok(Tried::Moved),
            Err(Go::Later(error)) => Ok(Tried::Later(error)),
            // Some of the keys are not here: the one that nobody has is on neither side. Servers
            // before 7.0.3 say only that, also where the lock key is here yet.
            Err(Go::Aside(_) | Go::Again) => self.try_alone(ask, place, end).await,
        }
    }

    /// Asks the lock key alone, here or on the side to which it has gone.
    async fn try_alone(
        self: &Arc<Shared>,
        ask: &Ask<'_>,
        place: &Place,
        end: Moment,
    ) -> Result<Tried, LockError> {
        let (mut place, mut asking) = (place.clone(), false);
        loop {
            let Some(call) = (ask.alone)() else { return Ok(self.later(moving(ask.slot))) };
            let node = self.node(&place).await?;
            let call = call.within(self.clock.now().until(end));
            let told = node.answer(|| call.clone(), asking).await;
            match self.heed(told, (&place, &node))? {
                Ok(Value::Nil) | Err(Go::Again) => return Ok(self.later(moving(ask.slot))),
                Ok(value) => return Ok(Tried::Done(value)),
                Err(Go::Aside(to)) if !asking => (place, asking) = (to, true),
                Err(Go::Aside(_)) => return Ok(self.later(sent_on(ask.slot))),
                Err(Go::To) => return Ok(Tried::Moved),
                Err(Go::Later(error)) => return Ok(Tried::Later(error)),
            }
        }
    }

    /// Sorts an answer: what it means for the way of the call, or how the call has failed.
    fn heed(
        self: &Arc<Shared>,
        told: Told,
        (place, node): (&Place, &Node),
    ) -> Result<Result<Value, Go>, LockError> {
        let words = match told {
            Ok(Ok(value)) => return Ok(Ok(value)),
            Ok(Err(words)) => words,
            Err(error) => {
                self.want();
                let passing = matches!(error.kind(), ErrorKind::Unavailable { .. });
                let error = match node.is_without_answers(&error) {
                    true => self.between_masters(error),
                    false => error,
                };
                return match passing && error.certainty() == Certainty::NotApplied {
                    true => Ok(Err(Go::Later(error))),
                    false => Err(error),
                };
            }
        };
        // Each write is refused so, also the first one of a script.
        if words.code == LONELY {
            return Ok(Err(Go::Later(lonely(words))));
        }
        Ok(Err(match Redirect::of(&words, place) {
            Some(Redirect::Moved(slot, to)) => {
                tracing::debug!(slot, host = to.0, port = to.1, "a slot is elsewhere");
                self.change(|table| table.with_moved(slot, to));
                self.want();
                Go::To
            }
            Some(Redirect::Ask(to)) => Go::Aside(to),
            Some(Redirect::TryAgain) => Go::Again,
            // It answers, and is busy with somebody's script for as long as that likes.
            Some(Redirect::Later) if words.code == "BUSY" => Go::Later(refusal(words)),
            Some(Redirect::Later) => Go::Later(self.between_masters(refusal(words))),
            None => return Err(refusal(words)),
        }))
    }

    fn change(&self, make: impl FnOnce(&Table) -> Table) {
        let mut table = self.table.lock();
        let new = make(&table);
        *table = Arc::new(new);
        drop(table);
        self.version.send_modify(|version| *version += 1);
    }

    fn uncovered(&self, slot: u16) -> LockError {
        let known = !self.table.lock().shards().is_empty();
        match self.scout.excuse().filter(|_| !known) {
            Some(error) => error,
            None => unavailable(
                format!("no node serves slot {slot}, in which the name's keys are"),
                Certainty::NotApplied,
            ),
        }
    }

    /// Has the table looked at soon.
    fn want(self: &Arc<Shared>) {
        self.keep_watch();
        self.wanted.notify_one();
    }

    fn keep_watch(self: &Arc<Shared>) {
        if self.watched.swap(true, Ordering::SeqCst) || self.end.is_cancelled() {
            return;
        }
        let shared = self.clone();
        let watching = Watching(shared.clone());
        self.scout.spawn(Box::pin(async move {
            let end = shared.end.clone();
            tokio::select! {
                biased;
                () = end.cancelled() => {}
                () = shared.watch() => {}
            }
            drop(watching);
        }));
    }

    /// Looks at the table whenever there is reason to. Never ends.
    async fn watch(&self) {
        loop {
            let well = {
                let table = self.table.lock();
                table.is_well && table.covered() == SLOTS
            };
            let end = self.clock.now().after(if well { POLL } else { SOON });
            tokio::select! {
                biased;
                () = self.wanted.notified() => {}
                () = self.clock.sleep_until(end) => {}
            }
            if let Err(error) = self.look().await {
                tracing::debug!(%error, "no node tells who serves which slot");
            }
            self.clock.sleep_until(self.clock.now().after(GAP)).await;
        }
    }

    /// Asks some nodes who serves which slot, and takes the newest answer.
    async fn look(&self) -> Result<(), LockError> {
        let (tables, failure) = self.ask_some().await;
        let scout_is_well = tables.iter().any(|(of, table)| *of == 0 && table.is_well);
        let best = tables.into_iter().max_by_key(|(_, table)| (table.is_well, table.epoch));
        self.answers.store(best.is_some(), Ordering::Relaxed);
        let Some((_, best)) = best else {
            let message = "no node tells who serves which slot";
            return Err(failure.unwrap_or_else(|| unavailable(message, Certainty::NotApplied)));
        };
        if best.is_well && !scout_is_well {
            // It may be cut off from the others, and hear nothing from them.
            self.scout.leave();
        } else if !best.is_well {
            // So may all be whom we know: others are asked the next time.
            self.meet(&best).await;
        }
        let known = self.table.lock().clone();
        if !best.is_well && best.epoch < known.epoch || *known == best {
            return Ok(());
        }
        tracing::debug!(masters = best.shards().len(), epoch = best.epoch, "who serves what");
        self.roster.learn(best.masters());
        self.nodes.lock().retain(|place, _| best.masters().any(|master| master == place));
        self.change(|_| best);
        Ok(())
    }

    /// Begins to dial some of the masters, unless there is a connection.
    async fn meet(&self, table: &Table) {
        let masters: Vec<&Place> = table.masters().collect();
        let begin = self.scout.random() as usize % masters.len().max(1);
        for place in masters.iter().cycle().skip(begin).take(masters.len().min(MOST_ASKED)) {
            if let Err(error) = self.node(place).await {
                tracing::debug!(%error, host = place.0, port = place.1, "no connection is begun");
            }
        }
    }

    /// The scout is the first; of the others only those whose connection is good are asked.
    async fn ask_some(&self) -> (Vec<(usize, Table)>, Option<LockError>) {
        let well: Vec<(Place, Node)> = {
            let nodes = self.nodes.lock();
            let well = nodes.iter().filter(|(_, node)| node.well().is_some());
            well.map(|(place, node)| (place.clone(), node.clone())).collect()
        };
        let begin = self.scout.random() as usize % well.len().max(1);
        let some = well.iter().cycle().skip(begin).take(well.len().min(MOST_ASKED - 1));
        let mut race = Race::with_room(MOST_ASKED);
        race.add(0, self.table_of(&self.scout, None));
        for (at, (place, node)) in some.enumerate() {
            race.add(at + 1, self.table_of(node, Some(place.clone())));
        }
        let (mut tables, mut failure, mut end) = (Vec::new(), None, None);
        loop {
            let grace = async {
                match end {
                    Some(end) => self.clock.sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            let next = tokio::select! {
                biased;
                next = race.next() => next,
                () = grace => None,
            };
            match next {
                None => return (tables, failure),
                Some((of, Ok(table))) => {
                    tables.push((of, table));
                    end.get_or_insert_with(|| self.clock.now().after(GRACE));
                }
                Some((_, Err(error))) => failure = failure.or(Some(error)),
            }
        }
    }

    async fn table_of(&self, node: &Node, place: Option<Place>) -> Result<Table, LockError> {
        let limit = self.options.command_timeout();
        let say = |words: [&'static str; 2]| node.command(Words::from(words), None, limit);
        let (slots, info) = tokio::join!(say(["CLUSTER", "SLOTS"]), say(["CLUSTER", "INFO"]));
        let slots = slots?;
        let teller = place.or_else(|| node.server()?.place.clone()).unwrap_or_default();
        let table = Table::read(&slots, info.as_ref().ok(), &teller);
        table.ok_or_else(|| unavailable("what came are no slots", Certainty::NotApplied))
    }
}

/// Where a call goes that was not carried out.
enum Go {
    /// To the node that serves its slot now.
    To,
    /// To the node that takes its slot over.
    Aside(Place),
    /// Nowhere yet: its keys are on two nodes.
    Again,
    Later(LockError),
}

/// Tells when the task has ended, also when its runtime drops it.
struct Watching(Arc<Shared>);

impl Drop for Watching {
    fn drop(&mut self) {
        // Whoever needs it next starts it where the scout runs then.
        self.0.watched.store(false, Ordering::SeqCst);
    }
}

fn nothing_within(asked: Duration) -> LockError {
    unavailable(format!("nothing within {asked:?}"), Certainty::NotApplied)
}

fn moving(slot: u16) -> LockError {
    let message = format!(
        "slot {slot}, in which the name's keys are, is being moved to another node: if that goes \
         on, end it (redis-cli --cluster fix)"
    );
    unavailable(message, Certainty::NotApplied)
}

fn sent_on(slot: u16) -> LockError {
    let message = format!("the nodes send each other's way for slot {slot}");
    unavailable(message, Certainty::NotApplied)
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("options", &self.shared.options).finish_non_exhaustive()
    }
}
