//! One connection: the requests on it, their deadlines, and how it ends.
//!
//! - Invariant L1: a request is encoded and queued as pending under one lock, so that both have the
//!   same order.
//! - Invariant L2: a request that was put on the connection may have been carried out; one that was
//!   rejected was not.
//! - Invariant L3: when a deadline passes without a reply, the connection is *suspect* until its
//!   own ping is answered. If the deadline was shorter than `grace`, a ping is sent first, and the
//!   connection is suspect if its answer is late. Later requests queue behind the ping. If replies
//!   are out of step, the ping receives a wrong reply, and no request receives another's.
//! - Invariant L4: a connection that ends with unanswered requests is closed with a TCP reset.
//! - Invariant L5: no waker is called under the lock.
//! - Invariant L6: a caller that finds the output buffer empty makes sure that it is sent. It
//!   writes to the stream itself, or wakes the task, or has joined the batch of its thread: then an
//!   earlier request is unanswered, whose reply sends the buffer if the batch has not ended. A
//!   caller without a batch never relies on that of another. The stream is locked before the state,
//!   and only the task blocks on that lock.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use holdline_core::batch::{self, Flush};
use holdline_core::{Certainty, Clock, LockError, Moment};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::health::{AtomicHealth, Health};
use super::pending::{Deadline, Limit, Overdue, Pending, ReplyPoll, Ticket};
use super::request::Request;
use super::resp::Frame;
use super::wire::{Wire, WireError};
use super::{Affinity, ServerFacts};
use crate::error::unavailable;

/// How many requests may be unanswered on a connection. Others wait for room.
pub(super) const MAX_PENDING: usize = 32_768;
/// How many more may be queued behind them once the connection is suspect.
const MAX_QUEUED_WHILE_SUSPECT: usize = 1_024;

/// How long a ping may at least be unanswered before the connection is suspect. Four round trips,
/// if they take longer.
const GRACE: Duration = Duration::from_millis(250);

/// A caller sends the output buffer itself once it holds this many bytes and a quarter of all
/// unanswered requests. So the server works on the first while we encode the others.
const FLUSH_BYTES: usize = 4 * 1024;
const FLUSH_PART: usize = 4;

/// Is notified of changes of a connection.
pub(super) trait ConnectionObserver: Send + Sync {
    /// The health of a connection has changed, or a retired one is empty.
    fn connection_changed(&self);
}

/// What a connection reports to its link.
pub(super) struct ConnectionCallbacks {
    pub(super) observer: Arc<dyn ConnectionObserver>,
    /// Set before the stream is dropped if it is to be reset.
    pub(super) reset: Arc<AtomicBool>,
}

pub(super) struct Connection {
    id: u64,
    facts: Arc<ServerFacts>,
    clock: Arc<dyn Clock>,
    callbacks: ConnectionCallbacks,
    health: AtomicHealth,
    /// Accepts no new requests: it ends when it is empty.
    retired: AtomicBool,
    state: Mutex<ConnectionState>,
    /// `None` once it has ended.
    wire: Mutex<Option<Wire>>,
    /// Wakes the requests that wait for room, in the order in which they came.
    room: Notify,
}

#[derive(Default)]
struct ConnectionState {
    pending: Pending,
    /// Encoded requests that were not handed to the stream yet, and their number.
    out: Vec<u8>,
    buffered: usize,
    /// They are held back until the batch of a thread ends.
    is_held_back: bool,
    /// The deadline that the task sleeps until.
    timer_deadline: Option<Moment>,
    /// A new deadline is earlier than that: the task must set its timer again.
    has_earlier_deadline: bool,
    task: Option<Waker>,
    /// Why it is closed, or is to be.
    close_reason: Option<LockError>,
    /// The task has ended: no reply comes any more.
    finished: bool,
    /// How many may be pending.
    capacity: usize,
    /// How many requests wait for room.
    waiting: usize,
    /// How long the last ping took.
    ping_time: Option<Duration>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("id", &self.id).field("health", &self.health()).finish()
    }
}

/// Why a request was not accepted; nothing of it was sent.
pub(super) enum Rejected {
    /// The connection has ended, or is about to.
    Closed(LockError),
    /// As many requests are unanswered as may be: see [`Connection::room`].
    Full,
}

impl From<Rejected> for LockError {
    fn from(rejected: Rejected) -> LockError {
        match rejected {
            Rejected::Closed(error) => error,
            Rejected::Full => {
                unavailable("too many requests are unanswered", Certainty::NotApplied)
            }
        }
    }
}

/// A request that waits for room on a connection, until the value is dropped.
struct WaitsForRoom<'a>(&'a Connection);

impl Drop for WaitsForRoom<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

impl Connection {
    pub(super) fn new(
        id: u64,
        facts: ServerFacts,
        clock: Arc<dyn Clock>,
        callbacks: ConnectionCallbacks,
        wire: Option<Wire>,
    ) -> Connection {
        Connection {
            id,
            facts: Arc::new(facts),
            clock,
            callbacks,
            health: AtomicHealth::default(),
            retired: AtomicBool::new(false),
            state: Mutex::new(ConnectionState {
                capacity: MAX_PENDING,
                ..ConnectionState::default()
            }),
            wire: Mutex::new(wire),
            room: Notify::new(),
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn facts(&self) -> &Arc<ServerFacts> {
        &self.facts
    }

    pub(super) fn health(&self) -> Health {
        self.health.get()
    }

    /// Returns whether the connection can be used for any request.
    pub(super) fn is_good(&self) -> bool {
        self.health() == Health::Good
    }

    /// How long a reply may take before its absence means anything.
    pub(super) fn grace(&self) -> Duration {
        GRACE.max(self.facts.round_trip.saturating_mul(4))
    }

    /// Returns how long the last ping took, or a round trip of the handshake.
    pub(super) fn round_trip(&self) -> Duration {
        self.state.lock().ping_time.unwrap_or(self.facts.round_trip)
    }

    pub(super) fn note_ping(&self, took: Duration) {
        self.state.lock().ping_time = Some(took);
    }

    /// Returns whether a request of this affinity may be unanswered here.
    pub(super) fn has_unanswered(&self, affinity: &Affinity) -> bool {
        self.health() != Health::Closed && self.state.lock().pending.has_unanswered(affinity)
    }

    /// Accepts no new requests any more; returns whether none is unanswered.
    pub(super) fn retire(&self) -> bool {
        self.retired.store(true, Ordering::Release);
        self.state.lock().pending.is_empty()
    }

    pub(super) fn reinstate(&self) {
        self.retired.store(false, Ordering::Release);
    }

    /// Ends the connection; unanswered requests fail with an unknown outcome.
    pub(super) fn close(&self, why: &str) {
        self.close_for(unavailable(why, Certainty::Unknown));
    }

    fn close_for(&self, error: LockError) {
        let task = {
            let mut state = self.state.lock();
            state.close_reason.get_or_insert(error);
            self.health.set(Health::Closed);
            state.task.take()
        };
        task.into_iter().for_each(Waker::wake);
    }

    /// Puts a request on the connection; the ticket names its reply.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        request: Request<'_>,
        affinity: Option<Affinity>,
        limit: Limit,
    ) -> Result<Ticket, Rejected> {
        let deadline = Deadline { at: limit.end, inconclusive: limit.asked < self.grace() };
        let mut state = self.state.lock();
        self.admit(&state)?;
        // An idle server receives this at once.
        let first = state.pending.is_empty();
        // Else the next reply sends it, if the batch does not end before that.
        let in_batch = !first && batch::join(self);
        if request.has_asking_prefix() {
            // The reply to `ASKING` is not needed: if it is an error, so is the next one.
            let prefix = state.pending.add(deadline, None, 0);
            state.pending.abandon(prefix);
        }
        let ticket = state.pending.add(deadline, affinity, request.confirmations());
        if let Some(confirmation) = request.shard_confirmation() {
            state.pending.expect_shard(ticket, confirmation);
        }
        // While the buffer is not empty, the task was woken for it already, or a batch holds it.
        let is_unsent = state.out.is_empty() || state.is_held_back;
        state.is_held_back = is_unsent && in_batch;
        request.write(&mut state.out);
        let is_earlier = state.timer_deadline.is_none_or(|timer| limit.end < timer)
            && !state.has_earlier_deadline;
        state.has_earlier_deadline |= is_earlier;
        state.buffered += 1;
        let flushes = first
            || (state.out.len() >= FLUSH_BYTES
                && state.buffered >= state.pending.len() / FLUSH_PART);
        let wakes = is_unsent && !in_batch;
        let task = if wakes || is_earlier || flushes { state.task.clone() } else { None };
        drop(state);
        if let Some(task) = task {
            let sent = flushes && self.flush(&task);
            if is_earlier || !sent {
                task.wake();
            }
        }
        Ok(ticket)
    }

    /// Sends the output buffer now, as far as the stream accepts it: nobody waits for the task.
    pub(super) fn flush_now(&self) {
        let Some(task) = self.state.lock().task.clone() else { return };
        if !self.flush(&task) {
            task.wake();
        }
    }

    /// Sends the output buffer unless the task is using the stream; returns whether all was sent.
    fn flush(&self, task: &Waker) -> bool {
        let Some(mut wire) = self.wire.try_lock() else { return false };
        let Some(wire) = &mut *wire else { return false };
        // The task is woken for the rest, and sees an error of the stream.
        self.write(wire, &mut Context::from_waker(task)).is_ok_and(|all| all)
    }

    /// Writes the output buffer to the stream; returns whether all was sent.
    pub(super) fn write(
        &self,
        wire: &mut Wire,
        context: &mut Context<'_>,
    ) -> Result<bool, WireError> {
        while wire.idle_out().is_none_or(|out| self.take_output(out)) {
            if wire.poll_write(context)?.is_pending() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The stream, for the task.
    pub(super) fn wire(&self) -> MutexGuard<'_, Option<Wire>> {
        self.wire.lock()
    }

    /// Checks whether one more request is accepted; called under the lock.
    fn admit(&self, state: &ConnectionState) -> Result<(), Rejected> {
        if let Some(reason) = &state.close_reason {
            return Err(Rejected::Closed(reason.clone().with_certainty(Certainty::NotApplied)));
        }
        if state.pending.len() >= state.capacity {
            return Err(Rejected::Full);
        }
        Ok(())
    }

    /// Resolves when there may be room for another request, or when the connection has ended.
    pub(super) async fn room(&self) {
        let mut room = pin!(self.room.notified());
        // From here on no notification is missed.
        room.as_mut().enable();
        {
            let mut state = self.state.lock();
            if !matches!(self.admit(&state), Err(Rejected::Full)) {
                return;
            }
            state.waiting += 1;
        }
        let _waits = WaitsForRoom(self);
        room.await;
    }

    fn make_room(&self, requests: usize) {
        for _ in 0..requests {
            self.room.notify_one();
        }
    }

    /// Moves the output buffer to `out`; false when it is empty.
    fn take_output(&self, out: &mut Vec<u8>) -> bool {
        let mut state = self.state.lock();
        std::mem::swap(out, &mut state.out);
        state.buffered = 0;
        state.is_held_back = false;
        !out.is_empty()
    }

    /// Polls for a reply. When the connection has ended without one, returns why.
    pub(super) fn poll_reply(&self, ticket: Ticket, waker: &Waker) -> Result<ReplyPoll, LockError> {
        let mut state = self.state.lock();
        match state.pending.poll_reply(ticket, waker) {
            ReplyPoll::Pending if state.finished => {
                let broke = || unavailable("the connection broke", Certainty::Unknown);
                Err(state.close_reason.clone().unwrap_or_else(broke))
            }
            polled => Ok(polled),
        }
    }

    /// Notes that the caller of a request went away.
    pub(super) fn abandon(&self, ticket: Ticket) {
        drop(self.state.lock().pending.abandon(ticket));
    }

    /// Hands the replies to the requests, in their order; false when one came without a request.
    pub(super) fn dispatch(
        &self,
        frames: impl Iterator<Item = Frame>,
        wake: &mut Vec<Waker>,
    ) -> bool {
        let mut state = self.state.lock();
        let mut all_expected = true;
        let unanswered = state.pending.len();
        for frame in frames {
            match frame {
                Frame::Reply(reply) => all_expected &= state.pending.complete_next(reply, wake),
                Frame::Push(parts) => {
                    let kind = parts.first().and_then(super::Value::as_text);
                    match kind {
                        Some("subscribe" | "unsubscribe") => state.pending.confirm_next(wake),
                        Some(kind @ ("ssubscribe" | "sunsubscribe")) => {
                            let channel = parts.get(1).and_then(super::Value::as_bytes);
                            state.pending.confirm_shard(kind, channel.unwrap_or_default(), wake);
                        }
                        _ => {}
                    }
                }
            }
        }
        let drained = state.pending.is_empty() && self.retired.load(Ordering::Acquire);
        let answered = unanswered - state.pending.len();
        let woken = answered.min(state.waiting);
        drop(state);
        self.make_room(woken);
        if drained {
            self.callbacks.observer.connection_changed();
        }
        all_expected
    }

    /// The ping was answered, and replies are in step.
    pub(super) fn mark_good(&self) {
        let mut state = self.state.lock();
        if self.health() == Health::Suspect {
            self.health.set(Health::Good);
            state.capacity = MAX_PENDING;
            let woken = MAX_PENDING.saturating_sub(state.pending.len()).min(state.waiting);
            drop(state);
            self.make_room(woken);
            self.callbacks.observer.connection_changed();
        }
    }

    /// Makes the connection suspect; returns whether it was good before.
    pub(super) fn mark_suspect(&self) -> bool {
        let mut state = self.state.lock();
        if self.health() != Health::Good {
            return false;
        }
        self.health.set(Health::Suspect);
        state.capacity = state.pending.len() + MAX_QUEUED_WHILE_SUSPECT;
        drop(state);
        tracing::debug!(
            connection = self.id,
            "no reply within a deadline: the connection is suspect"
        );
        self.callbacks.observer.connection_changed();
        true
    }

    /// Registers the waker of the connection's task; returns whether an earlier deadline was added.
    pub(super) fn register_task(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        match &mut state.task {
            Some(task) => task.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        std::mem::take(&mut state.has_earlier_deadline)
    }

    /// Wakes the connection's task.
    pub(super) fn wake_task(&self) {
        let task = self.state.lock().task.clone();
        task.into_iter().for_each(Waker::wake);
    }

    /// Expires the requests whose deadline has passed; `wake` receives the wakers of their callers.
    pub(super) fn expire(&self, now: Moment, wake: &mut Vec<Waker>) -> Overdue {
        self.state.lock().pending.expire(now, wake)
    }

    /// Stores and returns the time of the task's next wake-up: the earliest deadline, or `also`.
    pub(super) fn arm(&self, also: Option<Moment>) -> Option<Moment> {
        let mut state = self.state.lock();
        let soonest = state.pending.soonest().into_iter().chain(also).min();
        state.timer_deadline = soonest.filter(|at| *at < Moment::NEVER);
        state.timer_deadline
    }

    /// Ends the connection: its stream may be dropped. `wake` receives the wakers of all callers.
    pub(super) fn finish(&self, error: LockError, wake: &mut Vec<Waker>) {
        self.close_for(error);
        let mut state = self.state.lock();
        state.finished = true;
        state.pending.wake_all(wake);
        self.callbacks.reset.store(!state.pending.is_empty(), Ordering::Release);
        drop(state);
        self.room.notify_waiters();
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(super) fn notify_observer(&self) {
        self.callbacks.observer.connection_changed();
    }
}

impl Flush for Connection {
    fn flush(&self) {
        self.flush_now();
    }
}

#[cfg(test)]
mod tests;
