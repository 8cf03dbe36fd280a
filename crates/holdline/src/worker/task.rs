//! The background work of one client: keeper, queue heartbeat and janitor in one task.
//!
//! Each round takes the due entries out of the schedule under the mutex, and handles them outside
//! of it. Requests run concurrently: one that hangs delays no other.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_core::future::BoxFuture;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{LostReason, Moment, Purpose, ReleaseRequest, RenewRequest};

use super::heartbeat::{self, HeartbeatEntry};
use super::janitor;
use super::keeper::{self, Task};
use crate::core::ClientState;
use crate::core::registry::{self, Key, Stage};

/// How many leases one renewal batch contains, if the engine accepts that many.
const BATCH: usize = 128;
/// How many releases run concurrently in one round.
const MAX_RELEASE_TASKS: usize = 64;
/// How many entries one round handles, so that a round stays short.
const ROUND: usize = 8192;

type InFlight = FuturesUnordered<BoxFuture<'static, ()>>;

/// Runs until no user of the client is left and everything is released.
pub(crate) async fn work(state: Arc<ClientState>) {
    state.registry.lock().restart(state.clock.now());
    let mut in_flight_requests = InFlight::new();
    let mut watches = InFlight::new();
    loop {
        in_flight_requests.extend(state.background.lock().drain(..));
        let round = take(&state);
        if round.is_last {
            return;
        }
        let busy = round.taken == ROUND;
        let next = round.next;
        start(&state, round, &mut in_flight_requests, &mut watches);
        if busy {
            tokio::task::yield_now().await;
        }
        wait(&state, next, &mut in_flight_requests, &mut watches).await;
    }
}

/// The work of one round.
#[derive(Default)]
struct Round {
    taken: usize,
    tasks: Vec<Task>,
    heartbeats: Vec<(HeartbeatEntry, RenewRequest)>,
    releases: Vec<(Key, (ReleaseRequest, bool))>,
    over: Vec<Key>,
    /// When the next round begins.
    next: Moment,
    /// All is done.
    is_last: bool,
}

/// Takes the due entries out of the schedule.
fn take(state: &ClientState) -> Round {
    let now = state.clock.now();
    let expiry = state.engine.capabilities().expiry;
    let mut round = Round::default();
    let mut registry = state.registry.lock();
    let abandoned = registry.abandoned;
    while round.taken < ROUND
        && let Some(due) = registry.pop_due(now)
    {
        round.taken += 1;
        let Some(key) = due else { continue };
        let Some(entry) = registry.get(key) else { continue };
        let registry::Entry { stage, in_flight, .. } = entry;
        match stage {
            Stage::Held(keeping) => {
                let due =
                    keeper::check_lease(state, key, keeping, in_flight, now, &mut round.tasks);
                registry.schedule(key, due);
            }
            Stage::Queued(waiting) => {
                let request = RenewRequest {
                    name: waiting.name.clone(),
                    lease_id: waiting.lease_id,
                    client: state.client,
                    purpose: Purpose::Wait,
                };
                round.heartbeats.push((HeartbeatEntry::new(key, &waiting.cell), request));
                let due = heartbeat::next_look(&mut registry, now, QUEUE_HEARTBEAT);
                registry.schedule(key, due);
            }
            Stage::Releasing(pending) if !*in_flight => {
                match janitor::next_step(pending, now, abandoned, expiry) {
                    janitor::NextStep::Ask(request, frees) => {
                        *in_flight = true;
                        round.releases.push((key, (request, frees)));
                    }
                    janitor::NextStep::Over => round.over.push(key),
                }
            }
            Stage::Requested | Stage::Releasing(_) => {}
        }
    }
    round.next = registry.next_due();
    registry.worker_wakes = round.next;
    round.is_last = abandoned && registry.releasing == 0;
    round
}

/// Starts the work of a round.
fn start(
    state: &Arc<ClientState>,
    round: Round,
    in_flight_requests: &mut InFlight,
    watches: &mut InFlight,
) {
    let mut renewals = Vec::new();
    for task in round.tasks {
        match task {
            Task::Lose(grant) => keeper::report_lost(state, &grant, LostReason::Expired),
            Task::Warn(grant) => keeper::report_at_risk(state, &grant),
            Task::Watch(key, grant) => {
                watches.push(Box::pin(keeper::watch(state.clone(), key, grant)));
            }
            Task::Renew(key, grant, renewal) => renewals.push(((key, grant), renewal)),
        }
    }
    let size = state.engine.capabilities().max_batch.clamp(1, BATCH);
    for group in keeper::by_urgency(renewals, state.clock.now()) {
        for (entries, batch) in batches(group, size) {
            in_flight_requests.push(Box::pin(keeper::renew(state.clone(), entries, batch)));
        }
    }
    for (entries, batch) in batches(round.heartbeats, size) {
        in_flight_requests.push(Box::pin(heartbeat::send_heartbeat(state.clone(), entries, batch)));
    }
    let mut releases = round.releases;
    let share = releases.len().div_ceil(MAX_RELEASE_TASKS).max(1);
    while !releases.is_empty() {
        let rest = releases.split_off(releases.len().min(share));
        let share = std::mem::replace(&mut releases, rest);
        in_flight_requests.push(Box::pin(janitor::give_up(state.clone(), share)));
    }
    for key in round.over {
        janitor::finish(state, key, false);
    }
}

/// Splits entries into batches of at most `size`.
fn batches<T, U>(entries: Vec<(T, U)>, size: usize) -> impl Iterator<Item = (Vec<T>, Vec<U>)> {
    let mut entries = entries.into_iter().peekable();
    std::iter::from_fn(move || {
        entries.peek()?;
        Some(entries.by_ref().take(size).unzip())
    })
}

/// Waits for a wake-up, for the next due entry, or for an answer.
async fn wait(
    state: &ClientState,
    next: Moment,
    in_flight_requests: &mut InFlight,
    watches: &mut InFlight,
) {
    let mut wakeup = pin!(state.wakeup.notified());
    let mut sleep = (next != Moment::NEVER).then(|| state.clock.sleep_until(next));
    poll_fn(|context| {
        let mut answered = false;
        while let Poll::Ready(Some(())) = in_flight_requests.poll_next_unpin(context) {
            answered = true;
        }
        while let Poll::Ready(Some(())) = watches.poll_next_unpin(context) {}
        if answered || wakeup.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        match &mut sleep {
            Some(sleep) => sleep.as_mut().poll(context),
            None => Poll::Pending,
        }
    })
    .await;
}
