//! The queue heartbeat: everything that this client has queued is heard in one batch a second.
//!
//! The heartbeat is the poll: its answers say how each entry stands. It never claims: whoever
//! waits is woken and asks again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdline_core::contract::{QUEUE_HEARTBEAT, QUEUE_SILENCE};
use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::renewal::MIN_RETRY;
use holdline_core::{Expiry, LockError, Moment, Purpose, RenewReply, RenewRequest};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::core::Shared;
use crate::janitor::is_final;
use crate::registry::{Key, Registry, Stage};

/// What the worker tells one who waits.
#[derive(Default)]
pub(crate) struct WaitCell {
    news: Mutex<News>,
    bell: Notify,
    failing_since: Mutex<Option<Moment>>,
    /// The store has answered that it stands in the queue. Before, `Unknown` proves nothing: the
    /// request may be on its way yet.
    queued: AtomicBool,
}

/// News for one who waits.
#[derive(Default)]
pub(crate) struct News {
    /// The name is held under its id: ask again to claim it.
    pub(crate) handed: bool,
    /// The store does not know the id any more.
    pub(crate) dropped: bool,
    /// Heartbeats have failed for so long that the place may be gone: ask the store.
    pub(crate) doubtful: bool,
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

    /// Notes that the store has just answered that it stands in the queue.
    pub(crate) fn is_queued(&self) {
        self.queued.store(true, Ordering::Release);
        self.note_success();
    }

    fn note_success(&self) {
        *self.failing_since.lock() = None;
        self.news.lock().doubtful = false;
    }

    /// Takes note of a heartbeat that failed: after as long as the store keeps silent entries, the
    /// place in the queue may be gone.
    fn note_failure(&self, now: Moment, silence: Duration, error: Option<&LockError>) {
        if let Some(error) = error.filter(|error| is_final(error)) {
            return self.tell(|news| news.refused = Some(error.clone()));
        }
        let since = *self.failing_since.lock().get_or_insert(now);
        if since.until(now) >= silence && self.queued.load(Ordering::Acquire) {
            self.tell(|news| news.doubtful = true);
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
    /// The store had said that it stands in the queue when this heartbeat left.
    queued: bool,
}

impl Line {
    pub(crate) fn new(key: Key, cell: &Arc<WaitCell>) -> Line {
        Line { key, cell: cell.clone(), queued: cell.queued.load(Ordering::Acquire) }
    }
}

/// Sends one heartbeat for all these entries and reports to each how it stands. The next one leaves
/// a second later, whether this one was answered or not: the store must hear from each entry more
/// often than an answer may take.
pub(crate) async fn beat(shared: Arc<Shared>, lines: Vec<Line>, batch: Vec<RenewRequest>) {
    debug_assert!(batch.iter().all(|line| line.purpose == Purpose::Wait));
    let replies = shared.answered(shared.engine.renew(&batch), shared.limit()).await;
    let mut replies = replies.unwrap_or_default().into_iter();
    let now = shared.clock.now();
    let mut ring = false;
    let silence = silence(shared.engine.capabilities().expiry);
    for line in lines {
        let look = heed(&line, now, silence, replies.next());
        let mut registry = shared.registry.lock();
        if registry.get(line.key).is_some_and(|entry| matches!(entry.stage, Stage::Waiting(_))) {
            // The next heartbeat is planned already: an answer that comes late delays none.
            ring |= match look {
                Some(look) => registry.bring_forward(line.key, now.after(look.max(MIN_RETRY))),
                None => registry.schedule(line.key, Moment::NEVER),
            };
        }
    }
    shared.ring(ring);
}

/// Tells one who waits, and returns when to look again; never, once its id is dead.
fn heed(
    line: &Line,
    now: Moment,
    silence: Duration,
    reply: Option<Result<RenewReply, LockError>>,
) -> Option<Duration> {
    let cell = &line.cell;
    match reply {
        Some(Ok(reply)) => {
            cell.note_success();
            match reply {
                RenewReply::Queued { position, next_look } => {
                    cell.tell(|news| (news.position, news.dropped) = (position, false));
                    return Some(next_look);
                }
                RenewReply::Handed { .. } | RenewReply::Renewed { .. } => {
                    cell.tell(|news| news.handed = true);
                }
                RenewReply::Unknown if !line.queued => {}
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

#[cfg(test)]
mod tests {
    use holdline_core::Certainty;

    use super::*;

    const SILENCE: Duration = Duration::from_secs(4);

    fn at(seconds: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs(seconds))
    }

    fn gone() -> Option<Result<RenewReply, LockError>> {
        let kind = holdline_core::ErrorKind::Unavailable { message: "gone".to_owned() };
        Some(Err(LockError::new("e", kind, Certainty::Unknown)))
    }

    fn good() -> Option<Result<RenewReply, LockError>> {
        Some(Ok(RenewReply::Queued { position: Some(1), next_look: QUEUE_HEARTBEAT }))
    }

    #[test]
    fn a_doubt_does_not_outlive_a_good_heartbeat() {
        let cell = Arc::new(WaitCell::default());
        cell.is_queued();
        let line = Line::new(Key::NONE, &cell);
        for second in 0..=4 {
            assert_eq!(heed(&line, at(second), SILENCE, gone()), Some(QUEUE_HEARTBEAT));
            assert_eq!(cell.news.lock().doubtful, second == 4);
        }
        assert!(!cell.news.lock().dropped, "failures alone prove nothing");
        heed(&line, at(5), SILENCE, good());
        assert!(!cell.news.lock().doubtful);
        heed(&line, at(6), SILENCE, None);
        assert!(!cell.news.lock().doubtful, "it counts from the first failure since");
    }

    #[test]
    fn unknown_proves_nothing_before_the_store_has_queued_the_id() {
        let cell = Arc::new(WaitCell::default());
        let early = Line::new(Key::NONE, &cell);
        cell.is_queued();
        let late = Line::new(Key::NONE, &cell);
        let unknown = || Some(Ok(RenewReply::Unknown));
        assert_eq!(heed(&early, at(1), SILENCE, unknown()), Some(QUEUE_HEARTBEAT));
        assert!(!cell.news.lock().dropped);
        assert_eq!(heed(&late, at(1), SILENCE, unknown()), None);
        assert!(cell.news.lock().dropped);
    }
}
