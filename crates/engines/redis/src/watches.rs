//! Watches: who is to be told that it is worth asking again.
//!
//! A watch holds at most one hint of each kind that was not taken yet, so it never grows. A lease
//! id that we have queued is *expected*: a hint that comes before its watch is open is kept for
//! it (rule G4 of the contract). A message names a lease id by its first digits only, since the
//! whole is a proof; the few that begin alike are all told.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use holdline_core::{Hint, LeaseId};
use parking_lot::Mutex;

/// All watches of one engine.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    by_id: Mutex<BTreeMap<LeaseId, Watch>>,
}

#[derive(Debug, Default)]
struct Watch {
    pending: Arc<Mutex<Pending>>,
    expected: bool,
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
        let pending = watches.by_id.lock().entry(lease_id).or_default().pending.clone();
        WatchStream { lease_id, pending, watches: Arc::downgrade(watches) }
    }

    /// Keeps hints for a lease id from now on, watched or not.
    pub(crate) fn expect(&self, lease_id: LeaseId) {
        self.by_id.lock().entry(lease_id).or_default().expected = true;
    }

    /// Keeps hints for a lease id only while it is watched.
    pub(crate) fn forget(&self, lease_id: LeaseId) {
        let mut by_id = self.by_id.lock();
        if let Some(watch) = by_id.get_mut(&lease_id) {
            watch.expected = false;
            if Arc::strong_count(&watch.pending) == 1 {
                by_id.remove(&lease_id);
            }
        }
    }

    /// Delivers a message of an inbox: the hint's letter and the id's first eight digits. What is
    /// no such message is nobody's.
    pub(crate) fn deliver(&self, message: &[u8]) {
        let Some((letter, digits)) = message.split_first() else { return };
        let hint = match letter {
            b'l' => Hint::LookAgain,
            b'c' => Hint::CheckLease,
            _ => return,
        };
        let bound = |filler: &str| -> Option<LeaseId> {
            let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 8)?;
            format!("{digits}{}", filler.repeat(24)).parse().ok()
        };
        if let (Some(first), Some(last)) = (bound("0"), bound("f")) {
            let by_id = self.by_id.lock();
            let met: Vec<_> =
                by_id.range(first..=last).map(|(_, watch)| watch.pending.clone()).collect();
            drop(by_id);
            met.iter().for_each(|pending| tell(pending, hint));
        }
    }

    /// Tells everybody to look: messages may have been missed.
    pub(crate) fn tell_all(&self) {
        let all: Vec<_> = self.by_id.lock().values().map(|watch| watch.pending.clone()).collect();
        for pending in all {
            tell(&pending, Hint::LookAgain);
            tell(&pending, Hint::CheckLease);
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
        let last = Arc::strong_count(&self.pending) == 2;
        if last && by_id.get(&self.lease_id).is_some_and(|watch| !watch.expected) {
            by_id.remove(&self.lease_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: LeaseId = LeaseId::from_bytes([1; 16]);
    const NEAR: LeaseId = LeaseId::from_bytes([1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    const OTHER: LeaseId = LeaseId::from_bytes([2; 16]);

    fn poll(stream: &mut WatchStream) -> Poll<Option<Hint>> {
        Pin::new(stream).poll_next(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_message_reaches_those_whose_ids_begin_so() {
        let watches = Arc::new(Watches::default());
        let open = |id| Watches::open(&watches, id);
        let (mut one, mut near, mut other) = (open(ID), open(NEAR), open(OTHER));
        watches.deliver(b"l01010101");
        assert_eq!(poll(&mut one), Poll::Ready(Some(Hint::LookAgain)));
        assert_eq!(poll(&mut near), Poll::Ready(Some(Hint::LookAgain)));
        assert_eq!(poll(&mut other), Poll::Pending);
        watches.deliver(b"c02020202");
        assert_eq!(poll(&mut other), Poll::Ready(Some(Hint::CheckLease)));
        for odd in [&b""[..], b"l", b"x02020202", b"l0202020", b"l020202021", b"l\xff2020202"] {
            watches.deliver(odd);
        }
        assert_eq!(poll(&mut other), Poll::Pending);
    }

    #[test]
    fn a_hint_that_comes_before_its_watch_is_kept_if_it_is_expected() {
        let watches = Arc::new(Watches::default());
        watches.deliver(b"l01010101");
        assert_eq!(poll(&mut Watches::open(&watches, ID)), Poll::Pending);
        watches.expect(ID);
        watches.deliver(b"l01010101");
        watches.deliver(b"l01010101");
        let mut stream = Watches::open(&watches, ID);
        assert_eq!(poll(&mut stream), Poll::Ready(Some(Hint::LookAgain)));
        assert_eq!(poll(&mut stream), Poll::Pending);
    }

    #[test]
    fn all_are_told_when_messages_may_have_been_missed() {
        let watches = Arc::new(Watches::default());
        let mut stream = Watches::open(&watches, ID);
        watches.tell_all();
        assert_eq!(poll(&mut stream), Poll::Ready(Some(Hint::LookAgain)));
        assert_eq!(poll(&mut stream), Poll::Ready(Some(Hint::CheckLease)));
        assert_eq!(poll(&mut stream), Poll::Pending);
    }

    #[test]
    fn nothing_is_kept_of_what_nobody_watches_or_expects() {
        let watches = Arc::new(Watches::default());
        let (first, second) = (Watches::open(&watches, ID), Watches::open(&watches, ID));
        drop(first);
        assert_eq!(watches.len(), 1);
        drop(second);
        assert_eq!(watches.len(), 0);
        watches.expect(ID);
        let stream = Watches::open(&watches, ID);
        watches.forget(ID);
        assert_eq!(watches.len(), 1);
        drop(stream);
        assert_eq!(watches.len(), 0);
    }
}
