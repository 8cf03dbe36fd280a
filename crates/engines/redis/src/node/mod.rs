//! One server: how a request travels to it and what comes back.
//!
//! ```text
//! call, command ── board: which connection? ── lane: in order, with a deadline ── wire: bytes
//!                      │                            │
//!                  supervisor: dial, greet,     lane_task: writes and reads, tells deadlines,
//!                  subscribe, dial again            suspects a silent server
//! ```
//!
//! - Invariant N1: no request is ever sent twice. `EVAL` follows `EVALSHA` only after the server
//!   has said that it does not know the script.
//! - Invariant N2: an error tells whether the request may have left: what still waited for a
//!   connection was *not applied*; what was handed to one is *unknown*.
//! - Invariant N3: dropping the node ends its tasks and connections.
//! - Invariant N4: where sentinels name a master and no master answers, that is no quorum and not
//!   silence: whoever waits goes on waiting (decision 0030).
//!
//! Where the tasks run: [`holdline_net::home`]. Read next: `board` for which connection a request
//! takes, `lane` for what happens on it, `supervisor` for how connections come and go.

mod board;
mod dial;
mod ear;
mod greet;
mod hub;
mod lane;
mod lane_task;
mod pending;
mod reign;
mod request;
mod resp;
mod script;
mod supervisor;
mod value;
mod wire;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use holdline_core::{Certainty, Clock, ErrorKind, LockError};
use holdline_net::home::{Elsewhere, Home};

pub(crate) use hub::{Heard, Inbox, Taker};
pub(crate) use resp::digits;
pub(crate) use script::Script;
pub(crate) use value::Value;
pub(crate) use words::Words;

use crate::cluster::Roster;
use crate::error::{ENGINE, LONELY, ServerWords, lonely, masterless, refusal, unavailable};
use crate::options::RedisOptions;
use crate::sentinel::Watcher;
use crate::surroundings::Task;
use board::{Board, Route};
use hub::Hub;
use lane::{Exchange, Limit, NotTaken};
use reign::Quarantine;
use request::{Request, Way};

/// What a server answers that does not know a script by its sum.
const NO_SCRIPT: &str = "NOSCRIPT";
/// How much longer than a try to connect its outcome is waited for.
const HEARD_OUT: Duration = Duration::from_millis(500);

/// How long the last report of a process may take.
const LAST_REPORT: Duration = Duration::from_millis(500);

/// The answer of a server, or its refusal in its own words; or no answer.
pub(crate) type Told = Result<Result<Value, ServerWords>, LockError>;

/// Sixteen bytes that tie requests together: a lease id.
pub(crate) type Affinity = [u8; 16];

/// Which connection a request takes while an earlier one of its lease id hangs on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tie {
    /// It belongs to no lease id: a good one.
    Free,
    /// The one on which the earlier hangs, behind it.
    Behind(Affinity),
    /// A good one if there is one or soon will be, else behind: it is right in any order.
    Again(Affinity),
    /// A good one if there is one, else behind; and a copy goes behind whatever hangs: it undoes
    /// what may come yet.
    Undo(Affinity),
}

impl Tie {
    fn affinity(&self) -> Option<&Affinity> {
        match self {
            Tie::Free => None,
            Tie::Behind(affinity) | Tie::Again(affinity) | Tie::Undo(affinity) => Some(affinity),
        }
    }

    /// What was asked before, and may hang, is worth asking over another connection only.
    fn is_patient(&self) -> bool {
        matches!(self, Tie::Again(_))
    }

    /// Tells whether it may overtake what hangs.
    fn overtakes(&self) -> bool {
        matches!(self, Tie::Again(_) | Tie::Undo(_))
    }
}

/// One run of a script.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) keys: Words,
    pub(crate) arguments: Words,
    pub(crate) tie: Tie,
    pub(crate) deadline: Duration,
}

impl Call {
    /// Gives the answer this long.
    #[must_use]
    pub(crate) fn within(self, deadline: Duration) -> Call {
        Call { deadline, ..self }
    }
}

/// What is known of the server behind the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    /// New with each start of the server, and with each promotion where sentinels make the master;
    /// `None` where we may not ask.
    pub(crate) run_id: Option<String>,
    /// 2 or 3.
    pub(crate) resp: u8,
    /// `DELEX … IFEQ` is known.
    pub(crate) delex: bool,
    /// `DELIFEQ` is known.
    pub(crate) delifeq: bool,
    /// How long the first words took, there and back.
    pub(crate) round_trip: Duration,
    /// For how long it grants nothing: it may have lost grants that are believed.
    pub(crate) quarantine: Option<Quarantine>,
    /// Where it is, if sentinels or a cluster told.
    pub(crate) place: Option<(String, u16)>,
    /// It is a node of a cluster.
    pub(crate) in_cluster: bool,
}

impl ServerFacts {
    /// Tells whether they are of this run of a server.
    fn is_of(&self, run_id: Option<&str>) -> bool {
        run_id.is_none_or(|run_id| self.run_id.as_deref() == Some(run_id))
    }

    /// Refuses a node of a cluster where one server is meant: most names would be elsewhere.
    pub(crate) fn check_is_alone(&self) -> Result<(), LockError> {
        if !self.in_cluster {
            return Ok(());
        }
        let message = "the server is a node of a Redis Cluster: write `redis-cluster://`, or \
                       `rediss-cluster://` for TLS";
        let kind = ErrorKind::Refused { message: message.to_owned() };
        Err(LockError::new(ENGINE, kind, Certainty::NotApplied))
    }

    /// Tells whether this is another server, or the same started anew, as far as both have told.
    fn is_another_than(&self, before: &ServerFacts) -> bool {
        let both = self.run_id.as_ref().zip(before.run_id.as_ref());
        both.is_some_and(|(now, before)| now != before)
    }
}

/// What the tasks of a node share with it.
struct Shared {
    options: RedisOptions,
    clock: Arc<dyn Clock>,
    home: Home,
    board: Arc<Board>,
    hub: Arc<Hub>,
    ids: AtomicU64,
    /// Who tells where the server is, if the options name no place.
    watcher: Option<Arc<Watcher>>,
    /// The node keeps the watcher going, which others only read.
    leads: bool,
    /// Which servers may be dialled, where any node of a cluster will do.
    roster: Option<Arc<Roster>>,
    /// `HELLO 3` was refused, and the older protocol worked.
    old_protocol: AtomicBool,
    /// How often the server did not know a script.
    unknown_scripts: AtomicU64,
    /// How often the tasks have moved to another runtime.
    moves: AtomicU32,
    process: AtomicU32,
}

impl Shared {
    /// A number for a connection.
    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    fn random(&self) -> u32 {
        match self.options.surroundings() {
            Some(surroundings) => surroundings.random(),
            None => rand::random(),
        }
    }

    fn shut(&self) {
        self.board.close();
        self.hub.close();
    }
}

/// A server, and one logical connection to it. Clones share it; the last one ends it.
#[derive(Clone)]
pub(crate) struct Node(Arc<Owner>);

struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.shut();
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("options", &self.shared().options).finish_non_exhaustive()
    }
}

impl Node {
    /// Makes a node, which begins to dial at once. Its tasks run in the current runtime; outside
    /// of any, on a thread of their own.
    ///
    /// # Errors
    /// `Invalid` for options that do not fit together, `Refused` when the process gets no thread.
    pub(crate) fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<Node, LockError> {
        options.validate()?;
        let watcher = Watcher::new(options, &clock)?.map(Arc::new);
        Node::of(options, clock, (watcher, true), None)
    }

    /// Makes a node that is any of a cluster's, and another when that one is gone.
    pub(crate) fn any_of(
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
        roster: Arc<Roster>,
    ) -> Result<Node, LockError> {
        options.validate()?;
        Node::of(options, clock, (None, false), Some(roster))
    }

    /// Makes another node for the same server, with a connection of its own.
    pub(crate) fn beside(&self) -> Result<Node, LockError> {
        let Shared { options, clock, watcher, .. } = &**self.shared();
        Node::of(options, clock.clone(), (watcher.clone(), false), None)
    }

    fn of(
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
        (watcher, leads): (Option<Arc<Watcher>>, bool),
        roster: Option<Arc<Roster>>,
    ) -> Result<Node, LockError> {
        if options.exposes_password() {
            let address = options.address();
            tracing::warn!(%address, "the password travels unencrypted: write `rediss://`");
        }
        let elsewhere = options.surroundings().map(|one| one as Arc<dyn Elsewhere>);
        let home = Home::find(elsewhere).map_err(|error| {
            let message = format!("no thread for the connection: {error}");
            LockError::new(ENGINE, ErrorKind::Refused { message }, Certainty::NotApplied)
        })?;
        let shared = Arc::new(Shared {
            options: options.clone(),
            clock,
            home,
            board: Arc::new(Board::new()),
            hub: Arc::default(),
            ids: AtomicU64::new(1),
            watcher,
            leads,
            roster,
            old_protocol: AtomicBool::new(false),
            unknown_scripts: AtomicU64::new(0),
            moves: AtomicU32::new(0),
            process: AtomicU32::new(std::process::id()),
        });
        supervisor::start(&shared);
        Ok(Node(Arc::new(Owner(shared))))
    }

    /// Reports how much of the server's quarantine has passed, for the next client: this process
    /// may end.
    pub(crate) async fn report_wait(&self) {
        let (shared, Some(facts)) = (self.shared(), self.well()) else { return };
        if let Some(words) = reign::report(&shared.options, &facts, shared.clock.now()) {
            drop(self.send_to(facts.run_id.as_deref(), &words, LAST_REPORT).await);
        }
    }

    /// Waits until there is a connection, and returns what is known of the server.
    pub(crate) async fn ready(&self) -> Result<Arc<ServerFacts>, LockError> {
        // The try that fails in that time tells more than that nothing came: it is heard out.
        let asked = self.shared().options.connect_timeout();
        self.ready_within(asked.saturating_add(HEARD_OUT)).await
    }

    /// The same within a time of the caller's.
    pub(crate) async fn ready_within(
        &self,
        limit: Duration,
    ) -> Result<Arc<ServerFacts>, LockError> {
        let limit = self.limit(limit);
        let mut waiter = Waiter::default();
        Ok(self.next_lane(Tie::Free, limit, &mut waiter).await?.facts().clone())
    }

    /// Returns what is known of the server whose connection answers in time; `None` while there is
    /// no such connection.
    pub(crate) fn well(&self) -> Option<Arc<ServerFacts>> {
        self.shared().board.well()
    }

    /// How often the server did not know a script, so far.
    pub(crate) fn unknown_scripts(&self) -> u64 {
        self.shared().unknown_scripts.load(Ordering::Relaxed)
    }

    /// Who tells where the master is, where sentinels do.
    pub(crate) fn watcher(&self) -> Option<&Arc<Watcher>> {
        self.shared().watcher.as_ref()
    }

    /// Returns why the last try to get a connection failed.
    pub(crate) fn excuse(&self) -> Option<LockError> {
        self.shared().board.excuse()
    }

    /// Returns what is known of the server; `None` while there never was a connection.
    pub(crate) fn server(&self) -> Option<Arc<ServerFacts>> {
        self.shared().board.facts()
    }

    /// Runs a script: by its name, and where the server does not know that, once by its text.
    ///
    /// What was made is let go as soon as it is written down, and made again where that is needed:
    /// of a thousand requests that wait, only their answers' places are kept.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only: the request may be carried out.
    pub(crate) async fn call(&self, make: impl Fn() -> Call) -> Result<Value, LockError> {
        self.call_of(None, make).await
    }

    /// The same on a connection to this run of the server alone. One to another is told as
    /// `Unavailable`, and nothing has left.
    pub(crate) async fn call_of(
        &self,
        run_id: Option<&str>,
        make: impl Fn() -> Call,
    ) -> Result<Value, LockError> {
        let ways = (request::by_name as Way, request::by_text as Way);
        self.run_known(&make, ways, run_id).await?.map_err(|words| self.refused(words))
    }

    /// The same by the script's text at once: it is understood also when nobody is left to repeat
    /// it.
    pub(crate) async fn call_in_full(&self, make: impl Fn() -> Call) -> Result<Value, LockError> {
        let ways = (request::by_text as Way, request::by_text as Way);
        self.run_known(&make, ways, None).await?.map_err(|words| self.refused(words))
    }

    /// Tells whether a request of this affinity is unanswered on any connection.
    pub(crate) fn owes(&self, affinity: &Affinity) -> bool {
        self.shared().board.owes(affinity)
    }

    /// The same, with what the server refuses in its own words; `asking` of a server that takes
    /// the slot over.
    pub(crate) async fn answer(&self, make: impl Fn() -> Call, asking: bool) -> Told {
        let ways = match asking {
            true => (request::asking_by_name as Way, request::asking_by_text as Way),
            false => (request::by_name as Way, request::by_text as Way),
        };
        self.run_known(&make, ways, None).await
    }

    /// Runs a script by the first way, and by the second where the server does not know it.
    async fn run_known(
        &self,
        make: &impl Fn() -> Call,
        (by_name, by_text): (Way, Way),
        run_id: Option<&str>,
    ) -> Told {
        let call = make();
        let (script, limit) = (call.script, self.limit(call.deadline));
        match self.run(call, make, (by_name, by_text), (run_id, limit)).await? {
            Err(words) if words.code == NO_SCRIPT => {
                tracing::debug!(script = script.name(), "the server did not know a script");
                self.shared().unknown_scripts.fetch_add(1, Ordering::Relaxed);
                self.run(make(), make, (by_text, by_text), (run_id, limit)).await
            }
            other => Ok(other),
        }
    }

    /// Runs a script in the first of the two ways; copies of it take the second.
    async fn run(
        &self,
        call: Call,
        make: &impl Fn() -> Call,
        (by, by_text): (Way, Way),
        (run_id, limit): (Option<&str>, Limit),
    ) -> lane::Answered {
        let tie = call.tie;
        let (lane, exchange) = self.put(by(&call), tie, (run_id, limit)).await?;
        drop(call);
        let answered = exchange.await.map_err(|error| self.between_masters(error));
        self.leave_replica(&lane, &answered);
        // Only now: a copy that came first would leave nothing for the answer to tell. The same
        // holds where the script is about to be sent again.
        let unknown = matches!(&answered, Ok(Err(words)) if words.code == NO_SCRIPT);
        if let (Tie::Undo(affinity), false) = (tie, unknown) {
            // Nobody waits for these copies, nor repeats them for a server that does not know the
            // script: what they undo may never come.
            for hangs in self.shared().board.owing(&affinity, &lane) {
                drop(hangs.begin(by_text(&make()), Some(affinity), self.limit(limit.asked)));
            }
        }
        answered
    }

    /// Sends a command.
    ///
    /// # Cancel safety
    /// As for [`Node::call`].
    pub(crate) async fn command(
        &self,
        words: impl Into<Words>,
        affinity: Option<Affinity>,
        deadline: Duration,
    ) -> Result<Value, LockError> {
        self.send(&words.into(), affinity, deadline).await
    }

    /// The same with words that several nodes are sent.
    ///
    /// # Cancel safety
    /// As for [`Node::call`].
    pub(crate) async fn send(
        &self,
        words: &Words,
        affinity: Option<Affinity>,
        deadline: Duration,
    ) -> Result<Value, LockError> {
        let tie = affinity.map_or(Tie::Free, Tie::Behind);
        self.exchange(words, tie, (None, self.limit(deadline))).await
    }

    /// The same to this run of the server alone.
    pub(crate) async fn send_to(
        &self,
        run_id: Option<&str>,
        words: &Words,
        deadline: Duration,
    ) -> Result<Value, LockError> {
        self.exchange(words, Tie::Free, (run_id, self.limit(deadline))).await
    }

    async fn exchange(
        &self,
        words: &Words,
        tie: Tie,
        limit: (Option<&str>, Limit),
    ) -> Result<Value, LockError> {
        let (lane, exchange) = self.put(Request::Words(words), tie, limit).await?;
        let answered = exchange.await.map_err(|error| self.between_masters(error));
        self.leave_replica(&lane, &answered);
        answered?.map_err(|words| self.refused(words))
    }

    /// Ends a connection to a server that says that it is a replica, where sentinels know which is
    /// none.
    fn leave_replica(&self, lane: &lane::Lane, answered: &lane::Answered) {
        if self.watcher().is_some() && matches!(answered, Ok(Err(words)) if is_of_replica(words)) {
            lane.close("the server is no longer the master");
        }
    }

    /// What a master that does not answer is told as, while the sentinels do: their group is well
    /// enough to find another, or to have this one back. That is outwaited, as an election is.
    fn between_masters(&self, error: LockError) -> LockError {
        let elects = self.watcher().is_some_and(|watcher| watcher.answers());
        match error.kind() {
            ErrorKind::Unavailable { message } if elects && self.is_without_answers(&error) => {
                masterless(message, error.certainty())
            }
            _ => error,
        }
    }

    /// Tells whether a call failed so for want of a server that answers.
    pub(crate) fn is_without_answers(&self, error: &LockError) -> bool {
        self.shared().board.is_without_answers(error.certainty())
    }

    fn refused(&self, words: ServerWords) -> LockError {
        match self.watcher() {
            Some(_) if is_of_replica(&words) => reign::refused_by_replica(&refusal(words)),
            Some(watcher) if words.code == LONELY => {
                watcher.hurry();
                lonely(words)
            }
            _ => refusal(words),
        }
    }

    /// Ends the connections that there are: others are made.
    pub(crate) fn leave(&self) {
        self.shared().board.leave_all_but(None);
    }

    /// Hears a channel until the inbox is dropped, over all connections that come and go. The
    /// messages go to the taker; all else is told by the inbox.
    pub(crate) fn hear(&self, channel: Vec<u8>, taker: Taker) -> Inbox {
        self.shared().hub.open(channel, Some(taker))
    }

    /// Makes this process look like a copy of the one that made the node.
    #[cfg(test)]
    fn pretend_fork(&self) {
        self.shared().process.store(0, Ordering::Relaxed);
    }

    /// The same with the messages in the inbox.
    pub(crate) fn listen(&self, channel: Vec<u8>) -> Inbox {
        self.shared().hub.open(channel, None)
    }

    /// Runs a task where the connection's own tasks run.
    pub(crate) fn spawn(&self, task: Task<()>) {
        self.shared().home.spawn(task);
    }

    /// Draws a number, evenly over all of `u32`.
    pub(crate) fn random(&self) -> u32 {
        self.shared().random()
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    fn limit(&self, asked: Duration) -> Limit {
        Limit { end: self.shared().clock.now().after(asked), asked }
    }

    /// Puts a request on a connection; waits for one.
    async fn put(
        &self,
        request: Request<'_>,
        tie: Tie,
        (run_id, limit): (Option<&str>, Limit),
    ) -> Result<(Arc<lane::Lane>, Exchange), LockError> {
        if std::process::id() != self.shared().process.load(Ordering::Relaxed) {
            let message = "this process was copied by fork: it needs a client of its own";
            return Err(unavailable(message, Certainty::NotApplied));
        }
        // Mostly there is a connection: then what it takes to wait for one is not even made.
        if let Ok(Route::Take(lane)) = self.shared().board.route(tie, None, tie.is_patient())
            && lane.facts().is_of(run_id)
            && let Ok(exchange) = lane.clone().begin(request, tie.affinity().copied(), limit)
        {
            return Ok((lane, exchange));
        }
        Box::pin(self.put_later(request, tie, (run_id, limit))).await
    }

    /// Puts a request on a connection, when one is there that takes it.
    async fn put_later(
        &self,
        request: Request<'_>,
        tie: Tie,
        (run_id, limit): (Option<&str>, Limit),
    ) -> Result<(Arc<lane::Lane>, Exchange), LockError> {
        let mut waiter = Waiter::default();
        loop {
            let lane = self.next_lane(tie, limit, &mut waiter).await?;
            if !lane.facts().is_of(run_id) {
                let message = "the server was started anew, or is another";
                return Err(match self.watcher() {
                    Some(_) => masterless(message, Certainty::NotApplied),
                    None => unavailable(message, Certainty::NotApplied),
                });
            }
            match lane.clone().begin(request, tie.affinity().copied(), limit) {
                Ok(exchange) => return Ok((lane, exchange)),
                // Nothing has left, so another connection may take it.
                Err(NotTaken(_)) if lane.health() == lane::Health::Closed => {}
                Err(NotTaken(error)) => return Err(error),
            }
        }
    }

    /// Finds the connection for a request; waits for one.
    async fn next_lane<'a>(
        &'a self,
        tie: Tie,
        limit: Limit,
        waiter: &mut Waiter<'a>,
    ) -> Result<Arc<lane::Lane>, LockError> {
        let board = &*self.shared().board;
        let mut patient = tie.is_patient();
        loop {
            match board.route(tie, waiter.tries, patient) {
                Ok(Route::Take(lane)) => return Ok(lane),
                Ok(Route::Wait { tries }) => waiter.tries = Some(tries),
                Err(error) => return Err(self.between_masters(error)),
            }
            let Some(parked) = &mut waiter.parked else {
                // What changes from here on is not missed; look once more at what has changed.
                waiter.parked = Some(board.park()?);
                continue;
            };
            tokio::select! {
                biased;
                () = parked.changed() => {}
                () = self.shared().clock.sleep_until(limit.half()), if patient => patient = false,
                () = self.shared().clock.sleep_until(limit.end) => {
                    let error = board.excuse().unwrap_or_else(|| nothing_within(limit.asked));
                    return Err(self.between_masters(error));
                }
            }
        }
    }
}

fn is_of_replica(words: &ServerWords) -> bool {
    matches!(words.code.as_str(), "READONLY" | "MASTERDOWN")
}

/// A request that has no connection yet.
#[derive(Default)]
struct Waiter<'a> {
    parked: Option<board::Parked<'a>>,
    tries: Option<u64>,
}

fn nothing_within(asked: Duration) -> LockError {
    unavailable(format!("no connection to the server within {asked:?}"), Certainty::NotApplied)
}

#[cfg(test)]
mod tests;
