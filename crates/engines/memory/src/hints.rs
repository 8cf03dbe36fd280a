//! Watches: who is to be told that it is worth asking again.
//!
//! A watch holds at most one hint of each kind that was not taken yet, so it never grows.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use holdline_core::{Hint, LeaseId};
use parking_lot::Mutex;

/// All watches of one engine.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    by_id: Mutex<HashMap<LeaseId, Arc<Mutex<Pending>>>>,
}

#[derive(Debug, Default)]
struct Pending {
    look_again: bool,
    check_lease: bool,
    waker: Option<Waker>,
}

impl Watches {
    /// Opens the watch of a lease id; one that is open already shares its hints.
    pub(crate) fn open(watches: &Arc<Watches>, lease_id: LeaseId) -> WatchStream {
        let pending = watches.by_id.lock().entry(lease_id).or_default().clone();
        WatchStream { lease_id, pending, watches: Arc::downgrade(watches) }
    }

    /// Tells the watch of a lease id, if there is one.
    pub(crate) fn tell(&self, lease_id: LeaseId, hint: Hint) {
        let pending = self.by_id.lock().get(&lease_id).cloned();
        if let Some(pending) = pending {
            tell(&pending, hint);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_id.lock().len()
    }
}

fn tell(pending: &Mutex<Pending>, hint: Hint) {
    let waker = {
        let mut pending = pending.lock();
        match hint {
            Hint::LookAgain => pending.look_again = true,
            Hint::CheckLease => pending.check_lease = true,
        }
        pending.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The hints of one watch. It never ends by itself.
#[derive(Debug)]
pub(crate) struct WatchStream {
    lease_id: LeaseId,
    pending: Arc<Mutex<Pending>>,
    watches: Weak<Watches>,
}

impl WatchStream {
    pub(crate) fn tell(&self, hint: Hint) {
        tell(&self.pending, hint);
    }
}

impl Stream for WatchStream {
    type Item = Hint;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        let mut pending = self.pending.lock();
        if std::mem::take(&mut pending.look_again) {
            return Poll::Ready(Some(Hint::LookAgain));
        }
        if std::mem::take(&mut pending.check_lease) {
            return Poll::Ready(Some(Hint::CheckLease));
        }
        pending.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let Some(watches) = self.watches.upgrade() else { return };
        let mut by_id = watches.by_id.lock();
        // Two references are the map's and ours: no other stream watches this id.
        if Arc::strong_count(&self.pending) == 2 {
            by_id.remove(&self.lease_id);
        }
    }
}
