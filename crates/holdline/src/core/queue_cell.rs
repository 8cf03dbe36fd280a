//! What the queue heartbeat reports to the waiter of a queue entry.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdline_core::{LockError, Moment};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::final_errors::is_final;

/// What the worker reports to a waiter.
#[derive(Default)]
pub(crate) struct QueueCell {
    news: Mutex<QueueNews>,
    changed: Notify,
    failing_since: Mutex<Option<Moment>>,
    /// When the last request was sent that the store answered as queued, in nanoseconds and one
    /// more; 0 before. Until then, `Unknown` proves nothing: the request may still be in transit.
    queued_at: AtomicU64,
}

/// News for a waiter.
#[derive(Default)]
pub(crate) struct QueueNews {
    /// The name is granted to its id: repeat the request to read the grant.
    pub(crate) held: bool,
    /// This client has just released the name: it may be handed to its id.
    pub(crate) may_be_next: bool,
    /// The store no longer has the id.
    pub(crate) dropped: bool,
    /// Heartbeats have failed for so long that the entry may be gone: ask the store.
    pub(crate) doubtful: bool,
    /// How many entries are ahead, if the engine reports that.
    pub(crate) position: Option<usize>,
    /// Waiting is useless.
    pub(crate) refused: Option<LockError>,
}

impl QueueCell {
    /// Reports news to the waiter.
    pub(crate) fn update(&self, update: impl FnOnce(&mut QueueNews)) {
        update(&mut self.news.lock());
        self.changed.notify_one();
    }

    /// Wakes the waiter, since the name may be handed to its id.
    pub(crate) fn look(&self) {
        self.update(|news| news.may_be_next = true);
    }

    /// Resolves with the next news.
    pub(crate) async fn news(&self) -> QueueNews {
        self.changed.notified().await;
        std::mem::take(&mut *self.news.lock())
    }

    /// Records that the store has answered a request sent at `sent` as queued.
    pub(crate) fn mark_queued(&self, sent: Moment) {
        self.queued_at.fetch_max(sent.as_nanos().saturating_add(1), Ordering::AcqRel);
        self.record_success();
    }

    /// Returns when the last request was sent that was answered as queued: a hand-off is later.
    pub(crate) fn queued_at(&self) -> Option<Moment> {
        self.queued_at.load(Ordering::Acquire).checked_sub(1).map(Moment::from_nanos)
    }

    /// Records that a heartbeat was answered.
    pub(crate) fn record_success(&self) {
        *self.failing_since.lock() = None;
        self.news.lock().doubtful = false;
    }

    /// Records a failed heartbeat. After the silence limit of the store, the queue entry may be
    /// gone.
    pub(crate) fn record_failure(
        &self,
        now: Moment,
        silence_limit: Duration,
        error: Option<&LockError>,
    ) {
        if let Some(error) = error.filter(|error| is_final(error)) {
            return self.update(|news| news.refused = Some(error.clone()));
        }
        let since = *self.failing_since.lock().get_or_insert(now);
        if since.until(now) >= silence_limit && self.queued_at().is_some() {
            self.update(|news| news.doubtful = true);
        }
    }

    /// Returns the news that the waiter has not taken.
    #[cfg(test)]
    pub(crate) fn pending(&self) -> parking_lot::MutexGuard<'_, QueueNews> {
        self.news.lock()
    }
}
