//! One connection: the requests on it, their deadlines, and how it ends.
//!
//! - Invariant L1: a request is written down and put into the order under one lock, so that both
//!   have the same order.
//! - Invariant L2: what was put on the connection may have been carried out; what was not, was not.
//! - Invariant L3: after a deadline has passed unanswered, the connection is *suspect*, until a
//!   ping of its own comes back. What is sent meanwhile goes behind that ping, so an answer out
//!   of step shows as a wrong answer to the ping, and is taken for nobody's.
//! - Invariant L4: a connection that ends with something unanswered is reset, not closed.
//! - Invariant L5: nobody is woken under the lock.
//! - Invariant L6: whoever finds nothing written down that waits to leave sees to it that what it
//!   writes down leaves: by its own hand, or by waking the task. The stream is locked before the
//!   state, and nobody but the task waits for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use holdline_core::{Certainty, Clock, LockError, Moment};
use parking_lot::{Mutex, MutexGuard};

use super::pending::{Deadline, Look, Overdue, Pending, Ticket};
use super::request::Request;
use super::resp::{Frame, Reply};
use super::wire::{Broke, Wire};
use super::{Affinity, ServerFacts};
use crate::error::unavailable;

/// How many requests may be unanswered on a connection.
pub(super) const MOST_PENDING: usize = 32_768;
/// How many more may be put behind them once the connection is suspect.
const MOST_BEHIND: usize = 1_024;

/// How long a ping may be unanswered before the connection is suspect, unless it is a slow one.
const GRACE: Duration = Duration::from_millis(250);

/// How many bytes gather at least before whoever adds to them sends them, and which part of all
/// that is unanswered: the server then works on the first while we make the others.
const PORTION: usize = 4 * 1024;
const PART: usize = 4;

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
}

pub(super) struct Lane {
    id: u64,
    facts: Arc<ServerFacts>,
    clock: Arc<dyn Clock>,
    ends: Ends,
    health: AtomicU8,
    /// Nothing new comes here: it ends when it is empty.
    retired: AtomicBool,
    state: Mutex<State>,
    /// `None` once it has ended.
    wire: Mutex<Option<Wire>>,
}

#[derive(Default)]
struct State {
    pending: Pending,
    /// What is to be written next, and how many requests that is.
    out: Vec<u8>,
    gathered: usize,
    /// The deadline that the lane's task sleeps towards.
    armed: Option<Moment>,
    /// A deadline is sooner than that: the task looks anew.
    sooner: bool,
    task: Option<Waker>,
    /// Why it is closed, or is to be.
    end: Option<LockError>,
    /// The task has ended: nothing is answered any more.
    over: bool,
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
        clock: Arc<dyn Clock>,
        ends: Ends,
        wire: Option<Wire>,
    ) -> Lane {
        Lane {
            id,
            facts: Arc::new(facts),
            clock,
            ends,
            health: AtomicU8::new(GOOD),
            retired: AtomicBool::new(false),
            state: Mutex::new(State { room: MOST_PENDING, ..State::default() }),
            wire: Mutex::new(wire),
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
        self.close_for(unavailable(why, Certainty::Unknown));
    }

    fn close_for(&self, error: LockError) {
        let task = {
            let mut state = self.state.lock();
            state.end.get_or_insert(error);
            self.health.store(CLOSED, Ordering::Release);
            state.task.take()
        };
        task.into_iter().for_each(Waker::wake);
    }

    /// Puts a request on the connection. What is returned waits for the answer until the deadline;
    /// dropping it loses the answer only.
    pub(super) fn begin(
        self: Arc<Lane>,
        request: Request<'_>,
        affinity: Option<Affinity>,
        limit: Limit,
    ) -> Result<Exchange, NotTaken> {
        let deadline = Deadline { at: limit.end, hasty: limit.asked < self.grace() };
        let mut state = self.state.lock();
        self.admit(&state)?;
        // A server that has nothing to do is given this at once.
        let first = state.pending.is_empty();
        if request.asks() {
            // Nobody needs that answer: what it says, the one behind it says as well.
            let before = state.pending.add(deadline, None, 0);
            state.pending.leave(before);
        }
        let ticket = state.pending.add(deadline, affinity, request.confirmations());
        // Until the task has taken what is written down, it need not be woken for more.
        let idle = state.out.is_empty();
        request.write(&mut state.out);
        let sooner = state.armed.is_none_or(|armed| limit.end < armed) && !state.sooner;
        state.sooner |= sooner;
        state.gathered += 1;
        let sends =
            first || (state.out.len() >= PORTION && state.gathered >= state.pending.len() / PART);
        let task = if idle || sooner || sends { state.task.clone() } else { None };
        drop(state);
        if let Some(task) = task {
            let sent = sends && self.send(&task);
            if sooner || !sent {
                task.wake();
            }
        }
        Ok(Exchange { lane: self, ticket: Some(ticket), limit })
    }

    /// Sends what is written down, unless the task is at the stream; tells whether all has left.
    fn send(&self, task: &Waker) -> bool {
        let Some(mut wire) = self.wire.try_lock() else { return false };
        let Some(wire) = &mut *wire else { return false };
        // What does not leave now the task will be woken for; how the stream broke it will see.
        self.write(wire, &mut Context::from_waker(task)).is_ok_and(|all| all)
    }

    /// Writes what is written down; tells whether all has left.
    pub(super) fn write(&self, wire: &mut Wire, context: &mut Context<'_>) -> Result<bool, Broke> {
        while wire.idle_out().is_none_or(|out| self.fetch(out)) {
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

    /// Checks whether there is room, under the lock.
    fn admit(&self, state: &State) -> Result<(), NotTaken> {
        if let Some(end) = &state.end {
            return Err(NotTaken(end.clone().with_certainty(Certainty::NotApplied)));
        }
        let unanswered = state.pending.len();
        if unanswered >= state.room {
            let message = format!("{unanswered} requests are unanswered already: no more are sent");
            return Err(NotTaken(unavailable(message, Certainty::NotApplied)));
        }
        Ok(())
    }

    /// Moves what is to be written; false when there is nothing.
    fn fetch(&self, out: &mut Vec<u8>) -> bool {
        let mut state = self.state.lock();
        std::mem::swap(out, &mut state.out);
        state.gathered = 0;
        !out.is_empty()
    }

    /// Gives answers to the requests, in their order; false when one came that nobody asked for.
    pub(super) fn settle(
        &self,
        frames: impl Iterator<Item = Frame>,
        wake: &mut Vec<Waker>,
    ) -> bool {
        let mut state = self.state.lock();
        let mut asked = true;
        for frame in frames {
            match frame {
                Frame::Reply(reply) => asked &= state.pending.answered(reply, wake),
                Frame::Push(parts) => {
                    let kind = parts.first().and_then(super::Value::as_text);
                    if let Some("subscribe" | "unsubscribe") = kind {
                        state.pending.confirmed(wake);
                    }
                }
            }
        }
        let over = state.pending.is_empty() && self.retired.load(Ordering::Acquire);
        drop(state);
        if over {
            self.ends.told.lane_changed();
        }
        asked
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

    /// The connection has ended: its stream may go. Whoever still waits is to be woken.
    pub(super) fn ended(&self, error: LockError, wake: &mut Vec<Waker>) {
        self.close_for(error);
        let mut state = self.state.lock();
        state.over = true;
        state.pending.wake_all(wake);
        self.ends.reset.store(!state.pending.is_empty(), Ordering::Release);
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
pub(super) type Answered = Result<Reply, LockError>;

/// One request under way.
pub(super) struct Exchange {
    lane: Arc<Lane>,
    /// `None` once the answer, or that there is none, was told.
    ticket: Option<Ticket>,
    limit: Limit,
}

impl Future for Exchange {
    type Output = Answered;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        let Exchange { lane, ticket, limit } = self.get_mut();
        let Some(number) = *ticket else { return Poll::Pending };
        let mut state = lane.state.lock();
        let answered = match state.pending.look(number, context.waker()) {
            Look::Answered(reply) => Ok(reply),
            Look::Expired => {
                let message = format!("nothing within {:?}", limit.asked);
                Err(unavailable(message, Certainty::Unknown))
            }
            Look::Wait if !state.over => return Poll::Pending,
            Look::Wait => {
                let broke = || unavailable("the connection broke", Certainty::Unknown);
                Err(state.end.clone().unwrap_or_else(broke))
            }
        };
        *ticket = None;
        Poll::Ready(answered)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            drop(self.lane.state.lock().pending.leave(ticket));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Value;
    use holdline::ManualClock;

    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use tokio::io::{AsyncRead, DuplexStream, ReadBuf};

    struct Nobody;

    impl Told for Nobody {
        fn lane_changed(&self) {}
    }

    fn lane() -> Arc<Lane> {
        let ends = Ends { told: Arc::new(Nobody), reset: Arc::default() };
        Arc::new(Lane::new(1, ServerFacts::default(), Arc::new(ManualClock::new()), ends, None))
    }

    fn begin(lane: &Arc<Lane>) -> Option<Exchange> {
        let limit = Limit { end: Moment::NEVER, asked: Duration::from_secs(1) };
        lane.clone().begin(Request::Ping("1"), None, limit).ok()
    }

    #[test]
    fn the_place_of_whoever_went_away_is_used_again_once_it_is_answered() {
        let lane = lane();
        let first = begin(&lane).expect("room");
        let place = first.ticket;
        drop(first);
        assert_ne!(begin(&lane).expect("room").ticket, place, "it is unanswered");
        let frames = [Frame::Reply(Ok(Value::Nil)), Frame::Reply(Ok(Value::Nil))];
        assert!(lane.settle(frames.into_iter(), &mut Vec::new()));
        let places = [begin(&lane), begin(&lane)].map(|begun| begun.expect("room").ticket);
        assert!(places.contains(&place), "{places:?} {place:?}");
    }

    #[test]
    fn a_suspect_connection_takes_a_little_more_and_all_again_when_it_is_cleared() {
        let lane = lane();
        let _first = begin(&lane);
        assert!(lane.suspect());
        let behind: Vec<_> = std::iter::from_fn(|| begin(&lane)).collect();
        assert_eq!(behind.len(), MOST_BEHIND);
        lane.clear();
        assert_eq!(lane.health(), Health::Good);
        assert!(begin(&lane).is_some());
    }

    /// Counts how often the lane's task is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    const LIMIT: Limit = Limit { end: Moment::from_nanos(1), asked: Duration::from_secs(1) };

    /// A lane whose task sleeps towards its first deadline, and the server's end of its stream.
    fn attended() -> (Arc<Lane>, DuplexStream, Arc<Woken>) {
        let (near, mut far) = tokio::io::duplex(PORTION * 4);
        let ends = Ends { told: Arc::new(Nobody), reset: Arc::default() };
        let (facts, clock) = (ServerFacts::default(), Arc::new(ManualClock::new()));
        let lane = Arc::new(Lane::new(1, facts, clock, ends, Some(Wire::new(Box::new(near)))));
        let woken: Arc<Woken> = Arc::default();
        lane.attend(&Waker::from(woken.clone()));
        drop(ask(&lane));
        lane.arm(None);
        assert!(answer(&lane));
        lane.attend(&Waker::from(woken.clone()));
        assert!(!read(&mut far).is_empty());
        woken.0.store(0, Ordering::SeqCst);
        (lane, far, woken)
    }

    fn ask(lane: &Arc<Lane>) -> Exchange {
        let Ok(exchange) = lane.clone().begin(Request::Ping("1"), None, LIMIT) else {
            panic!("no room")
        };
        exchange
    }

    fn answer(lane: &Lane) -> bool {
        lane.settle([Frame::Reply(Ok(Value::Nil))].into_iter(), &mut Vec::new())
    }

    fn read(far: &mut DuplexStream) -> Vec<u8> {
        let mut room = [0; PORTION * 4];
        let mut read = ReadBuf::new(&mut room);
        let mut context = Context::from_waker(Waker::noop());
        let _ = Pin::new(far).poll_read(&mut context, &mut read);
        read.filled().to_vec()
    }

    #[test]
    fn what_a_server_without_work_is_asked_leaves_at_once_and_wakes_nobody() {
        let (lane, mut far, woken) = attended();
        for _ in 0..3 {
            let _asked = ask(&lane);
            assert_eq!(read(&mut far), b"*2\r\n$4\r\nPING\r\n$1\r\n1\r\n");
            assert!(answer(&lane));
        }
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn what_comes_behind_gathers_for_the_task_or_until_it_is_a_portion() {
        let (lane, mut far, woken) = attended();
        let mut asked = vec![ask(&lane)];
        let one = read(&mut far).len();
        asked.push(ask(&lane));
        assert_eq!(woken.0.load(Ordering::SeqCst), 1, "the task is to send it");
        while asked.len() <= PORTION / one {
            asked.push(ask(&lane));
            assert!(read(&mut far).is_empty(), "{}", asked.len());
        }
        asked.push(ask(&lane));
        assert_eq!(read(&mut far).len(), (PORTION / one + 1) * one);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn while_the_task_is_at_the_stream_it_is_woken_and_nobody_waits() {
        let (lane, mut far, woken) = attended();
        let stream = lane.wire();
        let _asked = ask(&lane);
        drop(stream);
        assert!(read(&mut far).is_empty());
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    }
}
