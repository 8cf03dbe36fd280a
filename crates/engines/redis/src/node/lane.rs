//! One connection: the requests on it, their deadlines, and how it ends.
//!
//! The client crate writes requests in the order in which they are handed to it and matches
//! answers to them by that order. A request whose taker went away keeps its place: its answer is
//! read and thrown away, so a late answer is never taken for another's.
//!
//! - Invariant L1: requests enter the table and the client's queue under one lock, so that both
//!   have the same order.
//! - Invariant L2: what was handed to the client may have been carried out; what was not, was not.
//! - Invariant L3: after a deadline has passed unanswered, the connection is *suspect*, until a
//!   ping of its own comes back. What is sent meanwhile goes behind that ping, so an answer out
//!   of step shows as a wrong answer to the ping, and is taken for nobody's.
//! - Invariant L4: a connection that ends with something unanswered is reset, not closed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use holdline_core::{Certainty, Clock, LockError, Moment};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value as Wire};

use super::pending::{Deadline, Overdue, Pending, Ticket};
use super::value::{Value, words_in};
use super::watched::Trouble;
use super::{Affinity, ServerFacts};
use crate::error::{ServerWords, protocol, unavailable};
use crate::surroundings::Task;

/// How many requests may be unanswered on a connection.
pub(super) const MOST_PENDING: usize = 32_768;
/// How many more may be put behind them once the connection is suspect.
const MOST_BEHIND: usize = 1_024;

/// How long a ping may be unanswered before the connection is suspect, unless it is a slow one.
const GRACE: Duration = Duration::from_millis(250);

/// What is handed to the client crate.
pub(super) enum Request {
    Command(Arc<redis::Cmd>),
    Subscribe(Vec<Vec<u8>>),
    Unsubscribe(Vec<Vec<u8>>),
}

impl Request {
    fn send(self, mut connection: MultiplexedConnection) -> Task<RedisResult<Wire>> {
        match self {
            Request::Command(command) => {
                Box::pin(async move { connection.send_packed_command(&command).await })
            }
            Request::Subscribe(channels) => {
                Box::pin(async move { connection.subscribe(channels).await.map(|()| Wire::Okay) })
            }
            Request::Unsubscribe(channels) => {
                Box::pin(async move { connection.unsubscribe(channels).await.map(|()| Wire::Okay) })
            }
        }
    }
}

/// What a lane tells those who look after it.
pub(super) trait Told: Send + Sync {
    /// Something about a lane has changed.
    fn lane_changed(&self);
}

/// How trustworthy a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Good,
    /// Unanswered for too long.
    Suspect,
    Closed,
}

const GOOD: u8 = 0;
const SUSPECT: u8 = 1;
const CLOSED: u8 = 2;

/// What a connection's life and end concern.
pub(super) struct Ends {
    pub(super) told: Arc<dyn Told>,
    /// Set before the stream is dropped if it is to be reset.
    pub(super) reset: Arc<AtomicBool>,
    /// What broke the stream.
    pub(super) trouble: Trouble,
}

pub(super) struct Lane {
    id: u64,
    facts: Arc<ServerFacts>,
    connection: MultiplexedConnection,
    clock: Arc<dyn Clock>,
    ends: Ends,
    health: AtomicU8,
    /// Nothing new comes here: it ends when it is empty.
    retired: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pending: Pending,
    /// The deadline that the lane's task sleeps towards.
    armed: Option<Moment>,
    /// A deadline is sooner than that: the task looks anew.
    sooner: bool,
    task: Option<Waker>,
    /// Why it is closed, or is to be.
    end: Option<String>,
    /// How many may be pending now.
    room: usize,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("id", &self.id).field("health", &self.health()).finish()
    }
}

/// Why a request was not taken: nothing of it has left.
pub(super) struct NotTaken(pub(super) LockError);

impl Lane {
    pub(super) fn new(
        id: u64,
        facts: ServerFacts,
        connection: MultiplexedConnection,
        clock: Arc<dyn Clock>,
        ends: Ends,
    ) -> Lane {
        Lane {
            id,
            facts: Arc::new(facts),
            connection,
            clock,
            ends,
            health: AtomicU8::new(GOOD),
            retired: AtomicBool::new(false),
            state: Mutex::new(State { room: MOST_PENDING, ..State::default() }),
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn facts(&self) -> &Arc<ServerFacts> {
        &self.facts
    }

    pub(super) fn health(&self) -> Health {
        match self.health.load(Ordering::Acquire) {
            GOOD => Health::Good,
            SUSPECT => Health::Suspect,
            _ => Health::Closed,
        }
    }

    /// How long a silence means nothing yet.
    pub(super) fn grace(&self) -> Duration {
        GRACE.max(self.facts.round_trip.saturating_mul(4))
    }

    /// Tells whether a request of this affinity may be unanswered here.
    pub(super) fn owes(&self, affinity: &Affinity) -> bool {
        self.health() != Health::Closed && self.state.lock().pending.has(affinity)
    }

    /// Sends nothing new here any more; tells whether nothing is left.
    pub(super) fn retire(&self) -> bool {
        self.retired.store(true, Ordering::Release);
        self.state.lock().pending.is_empty()
    }

    pub(super) fn revive(&self) {
        self.retired.store(false, Ordering::Release);
    }

    /// Ends the connection; what is unanswered fails as unknown.
    pub(super) fn close(&self, why: &str) {
        let task = {
            let mut state = self.state.lock();
            state.end.get_or_insert_with(|| why.to_owned());
            self.health.store(CLOSED, Ordering::Release);
            state.task.take()
        };
        task.into_iter().for_each(Waker::wake);
    }

    /// Puts a request on the connection and waits for its answer until the deadline.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only, once it was polled.
    pub(super) async fn exchange(
        self: Arc<Lane>,
        request: Request,
        affinity: Option<Affinity>,
        limit: Limit,
    ) -> Result<Answered, NotTaken> {
        let mut request = Some(request);
        let enqueue = |context: &mut Context<'_>| {
            let Some(request) = request.take() else { return Poll::Pending };
            Poll::Ready(Exchange::begin(self.clone(), request, affinity, limit, context))
        };
        let begun = std::future::poll_fn(enqueue).await?;
        Ok(begun.await)
    }

    /// Checks whether there is room, under the lock.
    fn admit(&self, state: &State) -> Result<(), NotTaken> {
        let refuse = |message: String| Err(NotTaken(unavailable(message, Certainty::NotApplied)));
        if let Some(end) = &state.end {
            return refuse(end.clone());
        }
        if state.pending.len() >= state.room {
            return refuse(format!(
                "{} requests are unanswered already: no more are sent",
                state.pending.len()
            ));
        }
        Ok(())
    }

    /// An answer was seen.
    fn answered(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        state.pending.answered(ticket);
        let over = state.pending.is_empty() && self.retired.load(Ordering::Acquire);
        drop(state);
        if over {
            self.ends.told.lane_changed();
        }
    }

    /// The connection was tried, and is in step.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        if self.health() == Health::Suspect {
            self.health.store(GOOD, Ordering::Release);
            state.room = MOST_PENDING;
            drop(state);
            self.ends.told.lane_changed();
        }
    }

    /// Makes the connection suspect; tells whether it was good before.
    pub(super) fn suspect(&self) -> bool {
        let mut state = self.state.lock();
        if self.health() != Health::Good {
            return false;
        }
        self.health.store(SUSPECT, Ordering::Release);
        state.room = state.pending.len() + MOST_BEHIND;
        drop(state);
        tracing::debug!(lane = self.id, "nothing within a deadline: the connection is suspect");
        self.ends.told.lane_changed();
        true
    }

    /// Registers the lane's task; tells whether a sooner deadline came.
    pub(super) fn attend(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        match &mut state.task {
            Some(task) => task.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        std::mem::take(&mut state.sooner)
    }

    /// Wakes the lane's task.
    pub(super) fn wake_task(&self) {
        let task = self.state.lock().task.clone();
        task.into_iter().for_each(Waker::wake);
    }

    /// Marks what waited in vain until now; whoever waited is to be woken.
    pub(super) fn expire(&self, now: Moment, wake: &mut Vec<Waker>) -> Overdue {
        self.state.lock().pending.expire(now, wake)
    }

    /// Notes what the task sleeps towards: the soonest deadline, or `also`.
    pub(super) fn arm(&self, also: Option<Moment>) -> Option<Moment> {
        let mut state = self.state.lock();
        let soonest = state.pending.soonest().into_iter().chain(also).min();
        state.armed = soonest.filter(|at| *at < Moment::NEVER);
        state.armed
    }

    /// The connection has ended: its stream may go.
    pub(super) fn ended(&self, why: &str) {
        match self.ends.trouble.take() {
            Some(trouble) => self.close(&format!("{why}: {trouble}")),
            None => self.close(why),
        }
        let unanswered = !self.state.lock().pending.is_empty();
        self.ends.reset.store(unanswered, Ordering::Release);
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(super) fn tell(&self) {
        self.ends.told.lane_changed();
    }
}

/// Until when an answer is waited for; `asked` is what the caller gave, for messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) end: Moment,
    pub(super) asked: Duration,
}

impl Limit {
    /// When half of the time is over.
    pub(super) fn half(&self) -> Moment {
        self.end.before(self.asked / 2)
    }
}

/// The server's reply, or its refusal; or no reply.
pub(super) type Answered = Result<Result<Value, ServerWords>, LockError>;

/// One request under way.
struct Exchange {
    lane: Arc<Lane>,
    ticket: Ticket,
    limit: Limit,
    reply: Option<Task<RedisResult<Wire>>>,
    /// The first poll, which put the request into the client's queue, had the answer already.
    early: Option<RedisResult<Wire>>,
}

impl Exchange {
    fn begin(
        lane: Arc<Lane>,
        request: Request,
        affinity: Option<Affinity>,
        limit: Limit,
        context: &mut Context<'_>,
    ) -> Result<Exchange, NotTaken> {
        let reply = request.send(lane.connection.clone());
        // A task that has used up its share must still put the request into the queue now.
        let mut reply: Task<RedisResult<Wire>> = Box::pin(tokio::task::unconstrained(reply));
        let mut state = lane.state.lock();
        lane.admit(&state)?;
        let deadline = Deadline { at: limit.end, hasty: limit.asked < lane.grace() };
        let ticket = state.pending.add(deadline, affinity, context.waker().clone());
        let early = match reply.as_mut().poll(context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        };
        // The client crate wakes the task for a request, but not while it cannot write.
        let sooner = state.armed.is_none_or(|armed| limit.end < armed) && !state.sooner;
        state.sooner |= sooner;
        let task = if sooner { state.task.clone() } else { None };
        drop(state);
        task.into_iter().for_each(Waker::wake);
        Ok(Exchange { lane, ticket, limit, reply: Some(reply), early })
    }

    fn finish(&mut self, answer: RedisResult<Wire>) -> Answered {
        self.reply = None;
        match answer {
            Ok(wire) => {
                self.lane.answered(self.ticket);
                Ok(Value::from_wire(wire))
            }
            Err(error) => match words_in(&error) {
                Some(words) => {
                    self.lane.answered(self.ticket);
                    Ok(Err(words))
                }
                None => Err(self.broken(&error)),
            },
        }
    }

    fn broken(&self, error: &redis::RedisError) -> LockError {
        if error.kind() == redis::ErrorKind::Parse {
            return protocol(format!("the server does not speak its protocol: {error}"));
        }
        let end = self.lane.state.lock().end.clone();
        let why = end.unwrap_or_else(|| format!("the connection broke: {error}"));
        unavailable(why, Certainty::Unknown)
    }
}

impl Future for Exchange {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        if let Some(early) = self.early.take() {
            return Poll::Ready(self.finish(early));
        }
        let polled = self.reply.as_mut().map(|reply| reply.as_mut().poll(context));
        if let Some(Poll::Ready(answer)) = polled {
            return Poll::Ready(self.finish(answer));
        }
        if self.lane.state.lock().pending.look(self.ticket, context.waker()) {
            self.reply = None;
            let message = format!("nothing within {:?}", self.limit.asked);
            return Poll::Ready(Err(unavailable(message, Certainty::Unknown)));
        }
        Poll::Pending
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.reply.is_some() {
            self.lane.state.lock().pending.leave(self.ticket);
        }
    }
}
