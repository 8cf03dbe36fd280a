//! One attempt to acquire a name: request, wait, repeat, and end with a guard or with nothing.
//!
//! Invariant A1: a request is repeated under its lease id only while the ticket is armed. After the
//! id was given up, the next request has a new id.
//! Invariant A2: validity counts from the clock as read before the request that was granted, or,
//! by the message of a hand-off, before the last request that was answered as queued.
//! Invariant A3: the ticket is responsible for the lease id until the attempt ends, however it
//! ends.
//! Invariant A4: an attempt waits through an outage of the store until its limit, and then reports
//! the last error.
//! Read next: `queued`, the wait in the queue; `unqueued`, the wait where there is none.

mod progress;
mod queued;
mod unqueued;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use holdline_core::contract::{QUEUE_HEARTBEAT, hand_off_lease};
use holdline_core::renewal::MIN_RETRY;
use holdline_core::{
    AcquireReply, AcquireRequest, Answer, Backoff, Certainty, ErrorKind, Hints, HolderSummary,
    LeaseId, LockError, Metadata, Moment,
};
use tracing::Instrument;

use crate::core::local_queues::Turn;
use crate::core::{ClientState, Core};
use crate::grant::Granted;
use crate::guard::Guard;
use crate::guard::ticket::Ticket;
use crate::observer::Subject;
use crate::plan::Plan;
use crate::spans;
use progress::Progress;
use queued::QueuePlace;

/// How often an unanswered request is repeated under its id, where outages are not waited for.
const MAX_REPEATS: u32 = 3;
/// The ceiling of the first pause before a repeated request, and of the longest. Each pause is
/// drawn between zero and its ceiling.
const REPEAT_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// The ceiling of the first pause between two requests to an engine without a queue, and of the
/// longest. Each pause is drawn between zero and its ceiling.
const POLL_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How long a request that is in flight at the wait limit may still take.
const LAST_ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// How long an attempt waits for a name that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all: a busy name is `Busy`.
    Try,
    /// Without a limit.
    Forever,
    /// From one moment until another. Reported waits count from the same moment, so that none is
    /// shorter than the wait that was requested.
    Limited { since: Moment, until: Moment },
}

impl Wait {
    /// Returns the wait of a plan, starting now.
    pub(crate) fn of(core: &Core, plan: &Plan) -> Wait {
        match plan.wait {
            Some(limit) => Wait::within(core, limit),
            None => Wait::Forever,
        }
    }

    /// Returns a wait of this limit, starting now.
    pub(crate) fn within(core: &Core, limit: Duration) -> Wait {
        let since = core.state.clock.now();
        Wait::Limited { since, until: since.after(limit) }
    }

    /// Returns the start of the wait of an attempt whose first request was sent at `sent`.
    fn since(self, sent: Moment) -> Moment {
        match self {
            Wait::Try | Wait::Forever => sent,
            Wait::Limited { since, .. } => since,
        }
    }

    fn deadline(self) -> Moment {
        match self {
            // It never waits, so its deadline is already over.
            Wait::Try => Moment::ORIGIN,
            Wait::Forever => Moment::NEVER,
            Wait::Limited { until, .. } => until,
        }
    }

    /// Returns the deadline for the answer to a request sent at `sent`.
    fn limit(self, state: &ClientState, sent: Moment) -> Moment {
        let limit = sent.after(state.answer_within);
        match self {
            Wait::Try | Wait::Forever => limit,
            Wait::Limited { until, .. } => limit.min(until.max(sent.after(LAST_ANSWER_LIMIT))),
        }
    }
}

type Reply = Option<Result<AcquireReply, LockError>>;

/// Acquires the name. On an uncontended engine without I/O this neither waits nor wakes a task.
pub(crate) async fn acquire(
    core: &Arc<Core>,
    plan: &Arc<Plan>,
    wait: Wait,
) -> Result<Guard, LockError> {
    core.open()?;
    let state = &*core.state;
    let lease_id = plan.lease_id.unwrap_or_else(|| state.entropy.lease_id());
    let queue = wait != Wait::Try && plan.queues;
    let began = state.clock.now();
    let mut progress = Progress::new(state, plan, lease_id, wait.since(began));
    let turn = unqueued::join(state, plan, wait);
    let mut reported_wait = false;
    if let Some(turn) = &turn {
        let subject = plan.subject(lease_id);
        let wait_behind = unqueued::wait_behind_others(state, &progress, subject, turn, wait);
        reported_wait = Box::pin(wait_behind).await;
    }
    let request = new_request(state, plan, lease_id, queue, spans::metadata(plan));
    let mut ticket = Ticket::new(state, plan, lease_id);
    let sent = if reported_wait { state.clock.now() } else { began };
    let reply = {
        let mut answer = state.engine.try_acquire(&request);
        if let Some(granted) = granted_at_once(&mut answer, lease_id, sent) {
            let token = granted.token;
            let guard = Guard::granted(core, ticket, plan, granted);
            state.observe_acquired(&guard.grant, Duration::ZERO);
            drop(answer);
            progress.finish(Ok(token));
            return Ok(unqueued::held(turn, guard.with_name(request.name)));
        }
        match answer {
            Answer::Ready(reply) => reply,
            _ if !state.is_own_process() => return Err(state.no_answer().with_name(&plan.name)),
            Answer::Later(later) => {
                ticket.register();
                ticket.unsettled = true;
                let answer = state.await_answer_here(later, wait.limit(state, sent));
                let answer = await_answer(&mut ticket, queue, answer, sent);
                let reply = answer.instrument(progress.span().clone()).await;
                ticket.unsettled = reply.is_none();
                reply
            }
        }
    };
    let attempt = Attempt {
        core,
        plan,
        state,
        request,
        ticket,
        wait,
        started: wait.since(began),
        holder: None,
        looked: sent,
        repeats: 0,
        outage: None,
        repeat_pause: Backoff::new(REPEAT_PAUSE.0, REPEAT_PAUSE.1),
        poll_pause: Backoff::new(POLL_PAUSE.0, POLL_PAUSE.1),
        place: None,
        unqueued_hints: None,
        reported_wait,
        turn,
        progress: &progress,
    };
    let outcome = Box::pin(attempt.resume(sent, reply)).await;
    progress.finish(outcome.as_ref().map(Guard::fencing_token));
    outcome
}

/// Takes the grant of an answer that has not waited.
fn granted_at_once(
    answer: &mut Answer<'_, Result<AcquireReply, LockError>>,
    lease_id: LeaseId,
    sent: Moment,
) -> Option<Granted> {
    let Answer::Ready(Some(Ok(AcquireReply::Granted { token, left, anchor }))) = answer else {
        return None;
    };
    Some(Granted {
        lease_id,
        token: *token,
        sent,
        since: sent,
        left: *left,
        handed: false,
        anchor: anchor.take(),
        unsettled: false,
    })
}

/// Makes the request of a new attempt.
fn new_request(
    state: &ClientState,
    plan: &Plan,
    lease_id: LeaseId,
    queue: bool,
    metadata: Metadata,
) -> AcquireRequest {
    AcquireRequest {
        name: plan.name.clone(),
        lease_id,
        client: state.client,
        mode: plan.mode,
        kind: plan.kind,
        hold: plan.hold.first(),
        queue,
        known: false,
        hand_off_lease: hand_off_lease(plan.hold),
        metadata,
    }
}

/// Waits for the answer to a request that was sent at `sent`.
///
/// The store may have queued the request and be slow to answer. When the answer takes longer than a
/// heartbeat interval, heartbeats for the queue entry start.
async fn await_answer(
    ticket: &mut Ticket<'_>,
    queue: bool,
    answer: impl Future<Output = Reply>,
    sent: Moment,
) -> Reply {
    let state = ticket.state();
    let answer = pin!(answer);
    if !queue {
        return answer.await;
    }
    match select(answer, state.clock.sleep_until(sent.after(QUEUE_HEARTBEAT))).await {
        Either::Left((reply, _)) => reply,
        Either::Right(((), answer)) => {
            ticket.enqueue(Duration::ZERO);
            answer.await
        }
    }
}

/// An attempt whose first answer was no grant.
struct Attempt<'a> {
    core: &'a Arc<Core>,
    plan: &'a Arc<Plan>,
    state: &'a ClientState,
    request: AcquireRequest,
    ticket: Ticket<'a>,
    wait: Wait,
    started: Moment,
    /// The holder by the last answer.
    holder: Option<Box<HolderSummary>>,
    looked: Moment,
    repeats: u32,
    /// Why the store served nobody, by the last answer.
    outage: Option<LockError>,
    repeat_pause: Backoff,
    poll_pause: Backoff,
    place: Option<QueuePlace>,
    /// The hints for a busy name of an engine without a queue.
    unqueued_hints: Option<Hints>,
    /// The observer was notified that this attempt waits without a queue.
    reported_wait: bool,
    /// Its turn among the attempts of this process, if the engine has no queue.
    turn: Option<Turn>,
    progress: &'a Progress<'a>,
}

/// What an attempt does next.
enum Next {
    Ask,
    /// The message of a hand-off has granted the name.
    Begin(Granted),
    /// After a pause since the last request.
    NewId,
    /// Without a pause: a hint says that the answer may be another by now.
    NewIdAtOnce,
    Fail(LockError),
    TimedOut,
}

impl Attempt<'_> {
    async fn resume(mut self, sent: Moment, reply: Reply) -> Result<Guard, LockError> {
        let plan = self.plan;
        let state = self.state;
        let span = self.progress.span().clone();
        let lease_id = self.ticket.lease_id;
        let wait = async move {
            match self.run(sent, reply).await {
                Ok(granted) => Ok((self, granted)),
                Err(next) => Err(self.fail(next).await),
            }
        };
        // The hold begins outside of the span of the wait.
        let granted = wait.instrument(span).await;
        let outcome = granted.and_then(|(attempt, granted)| attempt.finish(granted));
        let outcome = outcome.map_err(|error| error.with_name(&plan.name));
        if let Err(error) = &outcome {
            let subject = plan.subject(lease_id);
            state.observe(|observer| observer.failed(subject, error));
        }
        outcome
    }

    /// Requests and waits until the name is granted or the attempt must end.
    async fn run(&mut self, mut sent: Moment, mut reply: Reply) -> Result<Granted, Next> {
        loop {
            let early = self.place.as_mut().is_some_and(QueuePlace::asked_early);
            let next = match reply {
                Some(Ok(AcquireReply::Granted { token, left, anchor })) => {
                    let sent = self.state.validity_start(sent);
                    return Ok(Granted {
                        lease_id: self.ticket.lease_id,
                        token,
                        sent,
                        since: sent,
                        left,
                        handed: self.is_hand_off(left),
                        anchor,
                        unsettled: self.ticket.unsettled,
                    });
                }
                Some(Ok(AcquireReply::Queued { position, holder, next_look })) => {
                    self.record_holder(holder);
                    self.end_outage(position);
                    self.wait_in_queue(sent, position, next_look).await
                }
                Some(Ok(AcquireReply::Busy { holder, next_look, .. })) => {
                    let held = holder.is_some();
                    self.record_holder(holder);
                    self.outage = None;
                    self.wait_unqueued(next_look, held).await
                }
                Some(Ok(AcquireReply::Unknown)) => {
                    self.state.observe(|observer| observer.requeued(self.subject()));
                    Next::NewId
                }
                None if early => self.wait_on(Certainty::Unknown).await,
                Some(Err(error)) if early && error.is_transient() => {
                    self.wait_on(error.certainty()).await
                }
                Some(Err(error)) if self.waits_through(&error) => self.await_store(error).await,
                Some(Err(error)) if self.may_be_outdated(&error) => self.repeat(error).await,
                Some(Err(error)) if error.certainty() == Certainty::Unknown => {
                    self.ticket.unsettled = true;
                    self.repeat(error).await
                }
                // Only the store can say that a queue entry is gone, and the outage may not be over
                // yet.
                Some(Err(error)) if self.is_worth_repeating(&error) => self.repeat(error).await,
                Some(Err(error)) => Next::Fail(error),
                None => {
                    // The remaining wait may be shorter than the time that an answer may take.
                    let waited = sent.until(self.state.clock.now());
                    // The last answer says more than the fact that this one timed out.
                    let error = match self.outage.clone() {
                        Some(error) => error.with_certainty(Certainty::Unknown),
                        None => self.state.no_answer_within(waited),
                    };
                    if self.waits_through(&error) {
                        self.await_store(error).await
                    } else {
                        self.repeat(error).await
                    }
                }
            };
            match next {
                Next::Ask => {}
                Next::Begin(granted) => return Ok(granted),
                Next::NewIdAtOnce => self.restart()?,
                Next::NewId => {
                    self.restart()?;
                    // A store that keeps losing its data must not be asked without a pause.
                    self.state.clock.sleep_until(sent.after(MIN_RETRY)).await;
                }
                end => return Err(end),
            }
            (sent, reply) = self.ask().await;
        }
    }

    /// Returns whether what is left of a grant is the short lease of a hand-off, not the lease that
    /// was requested.
    fn is_hand_off(&self, left: Option<Duration>) -> bool {
        let first = self.request.hold.duration();
        let is_short = left <= Some(self.request.hand_off_lease) && left < first;
        left.is_some() && is_short && self.state.engine.capabilities().queue
    }

    async fn ask(&mut self) -> (Moment, Reply) {
        let state = self.state;
        let before = self.ticket.unsettled;
        let sent = state.clock.now();
        let limit = self.wait.limit(state, sent);
        self.ticket.register();
        self.ticket.unsettled = true;
        let reply = match state.engine.try_acquire(&self.request) {
            Answer::Ready(reply) => reply,
            Answer::Later(_) if !state.is_own_process() => None,
            Answer::Later(later) => {
                let answer = state.await_answer_here(later, limit);
                await_answer(&mut self.ticket, self.request.queue, answer, sent).await
            }
        };
        self.ticket.unsettled = before || reply.is_none();
        (sent, reply)
    }

    fn record_holder(&mut self, holder: Option<Box<HolderSummary>>) {
        if let Some(holder) = holder {
            let before = self.holder.as_ref().map(|before| before.lease_id);
            if before != Some(holder.lease_id) {
                spans::blocked_by(self.progress.span(), &holder);
            }
            self.holder = Some(holder);
            self.looked = self.state.clock.now();
        }
    }

    /// Returns the holder of the last answer with its present age. With the old age it would look
    /// as if the holder had just changed.
    fn holder_now(&mut self) -> Option<Box<HolderSummary>> {
        let since = self.looked.until(self.state.clock.now());
        let mut holder = self.holder.take()?;
        holder.held_for = holder.held_for.map(|held_for| held_for.saturating_add(since));
        holder.left = holder.left.map(|left| left.saturating_sub(since));
        Some(holder)
    }

    fn subject(&self) -> Subject<'_> {
        self.plan.subject(self.ticket.lease_id)
    }

    /// Returns whether the caller's own lease id is used up: an engine that accepts no id twice has
    /// refused it.
    fn is_spent(&self) -> bool {
        self.plan.lease_id.is_some() && !self.state.engine.capabilities().repeat
    }

    /// Returns whether the attempt waits through this error: the store may serve it before its
    /// limit.
    fn waits_through(&self, error: &LockError) -> bool {
        let is_away = error.is_unavailable();
        let fails = is_away && self.plan.fails_in_outage;
        self.wait != Wait::Try && !fails && error.is_transient()
    }

    /// Returns whether the request may have used an outdated view of the nodes. Then one more
    /// request is enough, without a wait.
    fn may_be_outdated(&self, error: &LockError) -> bool {
        let few = matches!(error.kind(), ErrorKind::NoQuorum { .. });
        few && self.state.engine.capabilities().splits && !self.is_spent()
    }

    /// Waits for the store, up to the limit, and then repeats the request.
    async fn await_store(&mut self, error: LockError) -> Next {
        self.ticket.unsettled |= error.certainty() == Certainty::Unknown;
        self.repeats = 0;
        let now = self.state.clock.now();
        let deadline = self.wait.deadline();
        if now >= deadline || self.is_spent() {
            return Next::Fail(error);
        }
        match self.outage {
            None => tracing::warn!(%error, "waits for the store"),
            Some(_) => tracing::debug!(%error, "waits for the store"),
        }
        self.progress.wait();
        self.state.observe(|observer| observer.without_store(self.subject(), &error));
        self.outage = Some(error);
        let pause = self.repeat_pause.next_pause(self.state.entropy.number());
        self.state.clock.sleep_until(now.after(pause).min(deadline)).await;
        if self.state.engine.capabilities().repeat { Next::Ask } else { Next::NewId }
    }

    /// Reports the queue position again after an outage, since the last report was the outage.
    fn end_outage(&mut self, position: Option<usize>) {
        if self.outage.take().is_some() && self.place.is_some() {
            let holder = self.holder.as_deref();
            self.state.observe(|observer| observer.queued(self.subject(), position, holder));
        }
    }

    /// Returns whether a request that was not applied is repeated; a first one is not.
    fn is_worth_repeating(&self, error: &LockError) -> bool {
        error.is_transient() && (self.place.is_some() || self.outage.is_some())
    }

    /// Repeats an unanswered request a few times, under the same id if the engine accepts that.
    async fn repeat(&mut self, error: LockError) -> Next {
        self.repeats += 1;
        let now = self.state.clock.now();
        let max_repeats = if self.wait == Wait::Try { 1 } else { MAX_REPEATS };
        if self.repeats > max_repeats || (self.wait != Wait::Try && now >= self.wait.deadline()) {
            return Next::Fail(error);
        }
        if matches!(error.kind(), ErrorKind::Invalid { .. }) || self.is_spent() {
            return Next::Fail(error);
        }
        let pause = self.repeat_pause.next_pause(self.state.entropy.number());
        self.state.clock.sleep_until(now.after(pause)).await;
        if self.state.engine.capabilities().repeat { Next::Ask } else { Next::NewId }
    }

    /// Continues under a new lease id, or under the same if only the caller gives it up.
    fn restart(&mut self) -> Result<(), Next> {
        if self.plan.keeps_id {
            self.restart_under_kept_id();
        } else {
            self.restart_with_new_id()?;
        }
        Ok(())
    }

    /// Gives the lease id up, so that nothing is granted under it, and continues with a new one.
    fn restart_with_new_id(&mut self) -> Result<(), Next> {
        if self.plan.lease_id.is_some() {
            // The queue entry, if there is one, is given up with the attempt.
            return Err(Next::Fail(self.state.error(ErrorKind::Cancelled, Certainty::NotApplied)));
        }
        let left_nothing = self.place.take().is_none() && !self.ticket.unsettled;
        let lease_id = self.state.entropy.lease_id();
        let new = Ticket::new(self.state, self.plan, lease_id);
        let old = std::mem::replace(&mut self.ticket, new);
        if left_nothing {
            old.forget();
        }
        // The trace in which the name was requested stays the same.
        let metadata = self.request.metadata.clone();
        self.request = new_request(self.state, self.plan, lease_id, self.request.queue, metadata);
        Ok(())
    }

    /// Continues under an id that only the caller gives up, though the store has dropped its queue
    /// entry: if the caller gave it up, the store refuses it.
    fn restart_under_kept_id(&mut self) {
        self.place = None;
        self.request.known = false;
        let mut new = Ticket::new(self.state, self.plan, self.ticket.lease_id);
        new.unsettled = self.ticket.unsettled;
        std::mem::replace(&mut self.ticket, new).forget();
    }

    /// Makes the guard.
    fn finish(mut self, granted: Granted) -> Result<Guard, LockError> {
        let state = self.state;
        self.place = None;
        let started = self.started;
        let guard = Guard::granted(self.core, self.ticket, self.plan, granted);
        let guard = unqueued::held(self.turn.take(), guard);
        let now = state.clock.now();
        if !guard.is_valid() {
            // The answer took longer than the lease. Dropping the guard releases it.
            let message = "the lease had expired when its answer arrived".to_owned();
            return Err(state.error(ErrorKind::Unavailable { message }, Certainty::Unknown));
        }
        state.observe_acquired(&guard.grant, started.until(now));
        Ok(guard)
    }

    /// Ends without the name, and leaves nothing in the store.
    async fn fail(mut self, next: Next) -> LockError {
        let state = self.state;
        // From here on another attempt of this client is next.
        self.place.iter_mut().for_each(QueuePlace::leave);
        let waited = self.started.until(state.clock.now());
        match next {
            Next::Fail(error) if error.certainty() == Certainty::NotApplied => {
                if self.ticket.unsettled || self.place.is_some() {
                    let known = self.ticket.give_up().await.is_some();
                    let certainty = if known { Certainty::NotApplied } else { Certainty::Unknown };
                    return error.with_certainty(certainty);
                }
                self.ticket.forget();
                error
            }
            Next::Fail(error) => error,
            Next::Ask | Next::Begin(_) | Next::NewId | Next::NewIdAtOnce | Next::TimedOut => {
                let holder = self.holder_now();
                let given_up = self.ticket.give_up().await.is_some();
                let certainty = if given_up { Certainty::NotApplied } else { Certainty::Unknown };
                state.error(ErrorKind::TimedOut { waited, holder }, certainty)
            }
        }
    }
}
