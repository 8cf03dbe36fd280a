//! The background work of one client: keeper, queue heartbeat and janitor in one task.
//!
//! Each round takes what is due out of the schedule, under the mutex, and then does it, outside
//! the mutex. What is under way runs side by side: a request that hangs delays no other.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{LostReason, Moment, Purpose, ReleaseRequest, RenewRequest};

use crate::core::{Boxed, Shared};
use crate::keeper::{self, Task};
use crate::queue::{self, Line};
use crate::registry::{Key, Stage};
use crate::{janitor, registry};

/// How many leases one renewal carries, where the engine takes so many.
const BATCH: usize = 128;
/// How many ids are given up side by side in one round.
const LANES: usize = 64;
/// How many entries one round takes, so that a round stays short.
const ROUND: usize = 8192;

type Flights = FuturesUnordered<Boxed<'static, ()>>;

/// Works until no user of the client is left and everything is given up.
pub(crate) async fn work(shared: Arc<Shared>) {
    shared.registry.lock().start_over(shared.clock.now());
    let mut flights = Flights::new();
    let mut watches = Flights::new();
    loop {
        let (round, next, done) = take(&shared);
        if done {
            return;
        }
        let busy = round.taken == ROUND;
        start(&shared, round, &mut flights, &mut watches);
        if busy {
            tokio::task::yield_now().await;
        }
        wait(&shared, next, &mut flights, &mut watches).await;
    }
}

/// What is due.
#[derive(Default)]
struct Round {
    taken: usize,
    tasks: Vec<Task>,
    beats: Vec<(Line, RenewRequest)>,
    undos: Vec<(Key, ReleaseRequest)>,
    over: Vec<Key>,
}

/// Takes what is due out of the schedule. Also returns when to look next, and whether all is done.
fn take(shared: &Shared) -> (Round, Moment, bool) {
    let now = shared.clock.now();
    let expiry = shared.engine.capabilities().expiry;
    let mut round = Round::default();
    let mut registry = shared.registry.lock();
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
                let due = keeper::look(shared, key, keeping, in_flight, now, &mut round.tasks);
                registry.schedule(key, due);
            }
            Stage::Waiting(waiting) => {
                let request = RenewRequest {
                    name: waiting.name.clone(),
                    lease_id: waiting.lease_id,
                    client: shared.client,
                    purpose: Purpose::Wait,
                };
                round.beats.push((Line::new(key, &waiting.cell), request));
                let due = queue::next_look(&mut registry, now, QUEUE_HEARTBEAT);
                registry.schedule(key, due);
            }
            Stage::Undoing(undo) if !*in_flight => {
                match janitor::look(undo, now, abandoned, expiry) {
                    janitor::Due::Ask(request) => {
                        *in_flight = true;
                        round.undos.push((key, request));
                    }
                    janitor::Due::Over => round.over.push(key),
                }
            }
            Stage::Asking | Stage::Undoing(_) => {}
        }
    }
    let next = registry.next_due();
    registry.worker_wakes = next;
    let done = abandoned && registry.undoing == 0;
    (round, next, done)
}

/// Does what is due.
fn start(shared: &Arc<Shared>, round: Round, flights: &mut Flights, watches: &mut Flights) {
    let mut renewals = Vec::new();
    for task in round.tasks {
        match task {
            Task::Lose(grant) => keeper::lose(shared, &grant, LostReason::Expired),
            Task::Warn(grant) => keeper::warn(shared, &grant),
            Task::Watch(key, grant) => {
                watches.push(Box::pin(keeper::watch(shared.clone(), key, grant)));
            }
            Task::Renew(key, grant, line) => renewals.push(((key, grant), line)),
        }
    }
    let size = shared.engine.capabilities().max_batch.clamp(1, BATCH);
    for (lines, batch) in batches(renewals, size) {
        flights.push(Box::pin(keeper::renew(shared.clone(), lines, batch)));
    }
    for (lines, batch) in batches(round.beats, size) {
        flights.push(Box::pin(queue::beat(shared.clone(), lines, batch)));
    }
    let mut undos = round.undos;
    let lane = undos.len().div_ceil(LANES).max(1);
    while !undos.is_empty() {
        let rest = undos.split_off(undos.len().min(lane));
        let lane = std::mem::replace(&mut undos, rest);
        flights.push(Box::pin(janitor::give_up(shared.clone(), lane)));
    }
    for key in round.over {
        janitor::finish(shared, key, false);
    }
}

/// Splits lines into batches of at most `size`.
fn batches<T, U>(lines: Vec<(T, U)>, size: usize) -> impl Iterator<Item = (Vec<T>, Vec<U>)> {
    let mut lines = lines.into_iter().peekable();
    std::iter::from_fn(move || {
        lines.peek()?;
        Some(lines.by_ref().take(size).unzip())
    })
}

/// Waits for the bell, for the next thing that is due, or for an answer.
async fn wait(shared: &Shared, next: Moment, flights: &mut Flights, watches: &mut Flights) {
    let mut bell = pin!(shared.bell.notified());
    let mut sleep = (next != Moment::NEVER).then(|| shared.clock.sleep_until(next));
    poll_fn(|context| {
        let mut landed = false;
        while let Poll::Ready(Some(())) = flights.poll_next_unpin(context) {
            landed = true;
        }
        while let Poll::Ready(Some(())) = watches.poll_next_unpin(context) {}
        if landed || bell.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        match &mut sleep {
            Some(sleep) => sleep.as_mut().poll(context),
            None => Poll::Pending,
        }
    })
    .await;
}
