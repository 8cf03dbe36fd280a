//! Counts what one acquisition of several names has left to the janitor, so that it can wait until
//! the store has none of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use holdline_core::Clock;

/// How many lease ids of one acquisition are being released.
#[derive(Default)]
pub(crate) struct Leftovers {
    count: AtomicUsize,
    gone: Notify,
}

/// One lease id that is being released, until this is dropped.
pub(crate) struct Leftover(Arc<Leftovers>);

impl Leftovers {
    /// Counts one more.
    pub(crate) fn one(self: &Arc<Leftovers>) -> Leftover {
        self.count.fetch_add(1, Ordering::AcqRel);
        Leftover(self.clone())
    }

    /// Waits until none is left, or `limit` has passed; then the janitor continues alone.
    pub(crate) async fn gone(&self, clock: &dyn Clock, limit: Duration) {
        let end = clock.sleep_until(clock.now().after(limit));
        let gone = async {
            loop {
                let mut gone = std::pin::pin!(self.gone.notified());
                gone.as_mut().enable();
                if self.count.load(Ordering::Acquire) == 0 {
                    return;
                }
                gone.await;
            }
        };
        futures_util::future::select(std::pin::pin!(gone), end).await;
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.gone.notify_waiters();
        }
    }
}
