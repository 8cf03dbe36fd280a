//! The queue heartbeat: everything that this client has queued is heard in one batch a second.
//!
//! The heartbeat is the poll: its answers say how each entry stands. It never claims: whoever
//! waits is woken and asks again.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::contract::{QUEUE_HEARTBEAT, QUEUE_SILENCE};
use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::renewal::MIN_RETRY;
use holdline_core::{ErrorKind, Expiry, LockError, Moment, Purpose, RenewReply, RenewRequest};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::core::Shared;
use crate::registry::{Key, Registry, Stage};

/// What the worker tells one who waits.
#[derive(Default)]
pub(crate) struct WaitCell {
    news: Mutex<News>,
    bell: Notify,
    failing_since: Mutex<Option<Moment>>,
}

/// News for one who waits.
#[derive(Default)]
pub(crate) struct News {
    /// The name is held under its id: ask again to claim it.
    pub(crate) handed: bool,
    /// The store does not know the id any more.
    pub(crate) dropped: bool,
    /// How many stand before it, if the engine tells.
    pub(crate) position: Option<usize>,
    /// Waiting on cannot help.
    pub(crate) refused: Option<LockError>,
}

impl WaitCell {
    fn tell(&self, tell: impl FnOnce(&mut News)) {
        tell(&mut self.news.lock());
        self.bell.notify_one();
    }

    /// Resolves with the next news.
    pub(crate) async fn news(&self) -> News {
        self.bell.notified().await;
        std::mem::take(&mut *self.news.lock())
    }

    /// Takes note of a heartbeat that failed: after as long as the store keeps silent entries, the
    /// place in the queue is gone.
    fn note_failure(&self, now: Moment, silence: Duration, error: Option<&LockError>) {
        if let Some(error) = error.filter(|error| is_final(error)) {
            return self.tell(|news| news.refused = Some(error.clone()));
        }
        let since = *self.failing_since.lock().get_or_insert(now);
        if since.until(now) >= silence {
            self.tell(|news| news.dropped = true);
        }
    }
}

/// How long the store keeps the entries of a client that it does not hear: where they hang on a
/// session, as long as one may last.
fn silence(expiry: Expiry) -> Duration {
    match expiry {
        Expiry::Session => MAX_FIRST_LEASE,
        _ => QUEUE_SILENCE,
    }
}

/// Tells whether waiting on cannot help.
fn is_final(error: &LockError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Invalid { .. }
            | ErrorKind::Unsupported { .. }
            | ErrorKind::Foreign { .. }
            | ErrorKind::Refused { .. }
            | ErrorKind::Protocol { .. }
            | ErrorKind::NotInitialised
    )
}

/// Returns when an entry is looked at next: with the others, or sooner if the store says so.
pub(crate) fn next_look(registry: &mut Registry, now: Moment, next_look: Duration) -> Moment {
    if registry.next_beat <= now {
        registry.next_beat = now.after(QUEUE_HEARTBEAT);
    }
    registry.next_beat.min(now.after(next_look.max(MIN_RETRY)))
}

/// One line of the heartbeat, and whom to tell.
pub(crate) struct Line {
    pub(crate) key: Key,
    pub(crate) cell: Arc<WaitCell>,
}

/// Sends one heartbeat for all these entries and tells each how it stands.
pub(crate) async fn beat(shared: Arc<Shared>, lines: Vec<Line>, batch: Vec<RenewRequest>) {
    debug_assert!(batch.iter().all(|line| line.purpose == Purpose::Wait));
    let limit = shared.clock.now().after(QUEUE_HEARTBEAT);
    let replies = shared.answered(shared.engine.renew(&batch), limit).await;
    let mut replies = replies.unwrap_or_default().into_iter();
    let now = shared.clock.now();
    let mut ring = false;
    let silence = silence(shared.engine.capabilities().expiry);
    for line in lines {
        let look = heed(&line.cell, now, silence, replies.next());
        let mut registry = shared.registry.lock();
        let due = match look {
            Some(look) => next_look(&mut registry, now, look),
            None => Moment::NEVER,
        };
        if let Some(entry) = registry.get(line.key)
            && matches!(entry.stage, Stage::Waiting(_))
        {
            entry.in_flight = false;
            ring |= registry.schedule(line.key, due);
        }
    }
    shared.ring(ring);
}

/// Tells one who waits, and returns when to look again; never, once its id is dead.
fn heed(
    cell: &WaitCell,
    now: Moment,
    silence: Duration,
    reply: Option<Result<RenewReply, LockError>>,
) -> Option<Duration> {
    match reply {
        Some(Ok(reply)) => {
            *cell.failing_since.lock() = None;
            match reply {
                RenewReply::Queued { position, next_look } => {
                    cell.tell(|news| news.position = position);
                    return Some(next_look);
                }
                RenewReply::Handed { .. } | RenewReply::Renewed { .. } => {
                    cell.tell(|news| news.handed = true);
                }
                RenewReply::Unknown | RenewReply::Revoked { .. } => {
                    cell.tell(|news| news.dropped = true);
                    return None;
                }
            }
        }
        Some(Err(error)) => cell.note_failure(now, silence, Some(&error)),
        None => cell.note_failure(now, silence, None),
    }
    Some(QUEUE_HEARTBEAT)
}
