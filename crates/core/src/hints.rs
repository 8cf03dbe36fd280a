//! The open watches of one engine, for those who write engines.
//!
//! An engine notifies a lease id, and the tasks that watch it wake. Nothing here asks a store or
//! a clock.
//! - W1: a watch buffers at most one hint of each kind, so it never grows.
//! - W2: two watches of one lease id both receive every hint.
//! - W3: hints for a lease id that is *expected* are kept for its watch (rule G4 of
//!   [`crate::engine`]).
//!
//! Read next: [`crate::table::Table::pending_hint`], for engines that look when a watch opens.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::contract::{AcquireReply, Hint, RenewReply, RenewRequest};
use crate::error::{Certainty, LockError};
use crate::lease_id::LeaseId;
use crate::token::FencingToken;

/// How many digits of a lease id a hint has, and how many a grant. A hint for another id costs a
/// request; a grant must be for the right one, and the rest of the id stays the holder's secret.
const HINT_DIGITS: usize = 8;
const GRANT_DIGITS: usize = 16;

/// All watches of one engine.
#[derive(Debug, Default)]
pub struct Watches {
    by_id: Mutex<BTreeMap<LeaseId, Watched>>,
}

/// A lease id that is watched, or expected to be.
#[derive(Debug, Default)]
struct Watched {
    expected: bool,
    /// The hints that came while no watch was open.
    kept: Unread,
    open: Vec<Arc<Mutex<Pending>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Unread {
    granted: Option<FencingToken>,
    look_again: bool,
    check_lease: bool,
}

#[derive(Debug, Default)]
struct Pending {
    unread: Unread,
    waker: Option<Waker>,
}

impl Unread {
    fn add(&mut self, hint: Hint) {
        match hint {
            Hint::Granted { token } => self.granted = Some(token),
            Hint::LookAgain => self.look_again = true,
            Hint::CheckLease => self.check_lease = true,
        }
    }

    fn take(&mut self) -> Option<Hint> {
        if let Some(token) = self.granted.take() {
            return Some(Hint::Granted { token });
        }
        if std::mem::take(&mut self.look_again) {
            return Some(Hint::LookAgain);
        }
        std::mem::take(&mut self.check_lease).then_some(Hint::CheckLease)
    }
}

impl Watches {
    /// Opens a watch of a lease id. It begins with the hints that were kept for it.
    pub fn open(watches: &Arc<Watches>, lease_id: LeaseId) -> WatchStream {
        let mut by_id = lock(&watches.by_id);
        let watched = by_id.entry(lease_id).or_default();
        let unread = std::mem::take(&mut watched.kept);
        let pending = Arc::new(Mutex::new(Pending { unread, waker: None }));
        watched.open.push(pending.clone());
        WatchStream { lease_id, pending, watches: Arc::downgrade(watches) }
    }

    /// Opens a watch as [`open`](Watches::open). If hints were not kept since the last reply about
    /// the lease id, the watch begins with a hint to ask (rule G4 of [`crate::engine`]).
    pub fn open_or_ask(watches: &Arc<Watches>, lease_id: LeaseId) -> WatchStream {
        let expected = watches.expects(lease_id);
        let stream = Watches::open(watches, lease_id);
        if !expected {
            watches.notify(lease_id, Hint::CheckLease);
        }
        stream
    }

    /// Keeps hints for a lease id from now on, watched or not, until it is forgotten.
    pub fn expect(&self, lease_id: LeaseId) {
        lock(&self.by_id).entry(lease_id).or_default().expected = true;
    }

    /// Returns whether hints for a lease id are kept.
    pub fn expects(&self, lease_id: LeaseId) -> bool {
        lock(&self.by_id).get(&lease_id).is_some_and(|watched| watched.expected)
    }

    /// Keeps hints for a lease id only while it is watched.
    pub fn forget(&self, lease_id: LeaseId) {
        let mut by_id = lock(&self.by_id);
        if let Some(watched) = by_id.get_mut(&lease_id) {
            watched.expected = false;
            watched.kept = Unread::default();
            if watched.open.is_empty() {
                by_id.remove(&lease_id);
            }
        }
    }

    /// Forgets a lease id after the reply to its acquire, unless hints for it may still arrive: the
    /// request waits in the queue, or whether it took effect is unknown.
    pub fn acquired(&self, lease_id: LeaseId, reply: &Result<AcquireReply, LockError>) {
        let hints_may_arrive = match reply {
            Ok(reply) => matches!(reply, AcquireReply::Queued { .. }),
            Err(error) => error.certainty() == Certainty::Unknown,
        };
        if !hints_may_arrive {
            self.forget(lease_id);
        }
    }

    /// Forgets the lease ids that are over by these replies to a batch of renewals.
    pub fn renewed<'a>(
        &self,
        batch: impl IntoIterator<Item = &'a RenewRequest>,
        replies: &[Result<RenewReply, LockError>],
    ) {
        for (renewal, reply) in batch.into_iter().zip(replies) {
            if reply.as_ref().is_ok_and(RenewReply::is_over) {
                self.forget(renewal.lease_id);
            }
        }
    }

    /// Notifies the watches of a lease id, or keeps the hint if the id is expected. Returns whether
    /// the id was watched or expected.
    pub fn notify(&self, lease_id: LeaseId, hint: Hint) -> bool {
        let open = {
            let mut by_id = lock(&self.by_id);
            let Some(watched) = by_id.get_mut(&lease_id) else { return false };
            if watched.open.is_empty() {
                watched.kept.add(hint);
            }
            watched.open.clone()
        };
        for pending in open {
            let waker = {
                let mut pending = lock(&pending);
                pending.unread.add(hint);
                pending.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        true
    }

    /// Returns the lease ids of a range that are watched or expected. Messages name an id by its
    /// first digits only, because the whole id is the proof of a grant.
    pub fn ids_in(&self, range: RangeInclusive<LeaseId>) -> Vec<LeaseId> {
        lock(&self.by_id).range(range).map(|(id, _)| *id).collect()
    }

    /// Handles a store's notification, which notifies all ids that begin with its digits:
    /// - `l` to look again or `c` to check the lease, and the first 8 digits of a lease id;
    /// - `g` for a grant, the first 16 digits of its lease id, and the token in 16 digits.
    ///
    /// A message of another form is ignored.
    pub fn deliver(&self, message: &[u8]) {
        let Some((digits, hint)) = read_message(message) else { return };
        let Some(range) = ids_with_prefix(digits) else { return };
        for id in self.ids_in(range) {
            self.notify(id, hint);
        }
    }

    /// Handles a notification as [`deliver`](Watches::deliver) does, for a store whose word alone
    /// is no grant: a grant becomes a hint to look again.
    pub fn deliver_hint(&self, message: &[u8]) {
        match message {
            [b'g', rest @ ..] => {
                let digits = &rest[..rest.len().min(HINT_DIGITS)];
                self.deliver(&[b"l", digits].concat());
            }
            _ => self.deliver(message),
        }
    }

    /// Notifies every watch, because notifications may have been missed.
    pub fn notify_all(&self) {
        let all = LeaseId::from_bytes([0; 16])..=LeaseId::from_bytes([0xff; 16]);
        for id in self.ids_in(all) {
            self.notify(id, Hint::LookAgain);
            self.notify(id, Hint::CheckLease);
        }
    }

    /// Returns how many lease ids are watched or expected.
    pub fn len(&self) -> usize {
        lock(&self.by_id).len()
    }

    /// Returns whether no lease id is watched or expected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns the digits of a lease id and the hint for it.
fn read_message(message: &[u8]) -> Option<(&str, Hint)> {
    let text = std::str::from_utf8(message).ok()?;
    let letter = text.get(..1)?;
    let rest = text.get(1..)?;
    let hint = match letter {
        "l" => Hint::LookAgain,
        "c" => Hint::CheckLease,
        "g" => {
            let token = rest.get(GRANT_DIGITS..)?.parse().ok()?;
            return Some((rest.get(..GRANT_DIGITS)?, Hint::Granted { token }));
        }
        _ => return None,
    };
    (rest.len() == HINT_DIGITS).then_some((rest, hint))
}

fn ids_with_prefix(digits: &str) -> Option<RangeInclusive<LeaseId>> {
    let filled =
        |filler: &str| format!("{digits}{}", filler.repeat(32 - digits.len())).parse().ok();
    Some(filled("0")?..=filled("f")?)
}

/// Locks a mutex. A poisoned one is usable: its data is consistent at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The hints of one watch. It never ends by itself.
#[derive(Debug)]
pub struct WatchStream {
    lease_id: LeaseId,
    pending: Arc<Mutex<Pending>>,
    watches: Weak<Watches>,
}

impl Stream for WatchStream {
    type Item = Hint;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        let mut pending = lock(&self.pending);
        if let Some(hint) = pending.unread.take() {
            return Poll::Ready(Some(hint));
        }
        match &mut pending.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let Some(watches) = self.watches.upgrade() else { return };
        let mut by_id = lock(&watches.by_id);
        let Some(watched) = by_id.get_mut(&self.lease_id) else { return };
        watched.open.retain(|open| !Arc::ptr_eq(open, &self.pending));
        if !watched.open.is_empty() {
            return;
        }
        if watched.expected {
            // The next watch of this lease id gets the hints that this one did not read.
            let unread = lock(&self.pending).unread;
            watched.kept = unread;
        } else {
            by_id.remove(&self.lease_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    const ID: LeaseId = LeaseId::from_bytes([1; 16]);
    const NEAR: LeaseId = LeaseId::from_bytes([1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    const OTHER: LeaseId = LeaseId::from_bytes([2; 16]);

    fn poll(stream: &mut WatchStream) -> Poll<Option<Hint>> {
        Pin::new(stream).poll_next(&mut Context::from_waker(Waker::noop()))
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_hint_that_comes_before_its_watch_is_kept_if_it_is_expected() {
        let watches = Arc::new(Watches::default());
        assert!(!watches.notify(ID, Hint::LookAgain) && !watches.expects(ID));
        watches.expect(ID);
        assert!(watches.expects(ID));
        assert!(watches.notify(ID, Hint::LookAgain) && watches.notify(ID, Hint::LookAgain));
        let mut stream = Watches::open(&watches, ID);
        assert_eq!(poll(&mut stream), Poll::Ready(Some(Hint::LookAgain)));
        assert_eq!(poll(&mut stream), Poll::Pending);
        watches.notify(ID, Hint::CheckLease);
        drop(stream);
        let mut again = Watches::open(&watches, ID);
        assert_eq!(poll(&mut again), Poll::Ready(Some(Hint::CheckLease)));
        assert_eq!(poll(&mut again), Poll::Pending);
    }

    #[test]
    fn two_watches_of_one_lease_id_are_both_woken_and_receive_every_hint() {
        let watches = Arc::new(Watches::default());
        let counts: [Arc<Count>; 2] = Default::default();
        let mut both = [Watches::open(&watches, ID), Watches::open(&watches, ID)];
        for (stream, count) in both.iter_mut().zip(&counts) {
            let waker = Waker::from(count.clone());
            let polled = Pin::new(stream).poll_next(&mut Context::from_waker(&waker));
            assert_eq!(polled, Poll::Pending);
        }
        assert!(watches.notify(ID, Hint::CheckLease));
        assert_eq!(counts.map(|count| count.0.load(Ordering::SeqCst)), [1, 1]);
        for stream in &mut both {
            assert_eq!(poll(stream), Poll::Ready(Some(Hint::CheckLease)));
            assert_eq!(poll(stream), Poll::Pending);
        }
    }

    #[test]
    fn the_ids_of_a_range_are_found() {
        let watches = Arc::new(Watches::default());
        let id = |byte| LeaseId::from_bytes([byte; 16]);
        watches.expect(id(1));
        watches.expect(id(3));
        let _open = Watches::open(&watches, id(2));
        assert_eq!(watches.ids_in(id(1)..=id(2)), [id(1), id(2)]);
        assert_eq!(watches.ids_in(id(4)..=id(5)), []);
    }

    #[test]
    fn hints_for_an_id_that_is_neither_watched_nor_expected_are_dropped() {
        let watches = Arc::new(Watches::default());
        let first = Watches::open(&watches, ID);
        let second = Watches::open(&watches, ID);
        drop(first);
        assert_eq!(watches.len(), 1);
        drop(second);
        assert!(watches.is_empty());
        watches.expect(ID);
        drop(Watches::open(&watches, ID));
        assert_eq!(watches.len(), 1);
        watches.forget(ID);
        assert!(watches.is_empty());
        watches.expect(ID);
        watches.notify(ID, Hint::LookAgain);
        watches.forget(ID);
        let mut stream = Watches::open(&watches, ID);
        assert_eq!(poll(&mut stream), Poll::Pending);
        watches.expect(ID);
        watches.forget(ID);
        assert_eq!(watches.len(), 1);
        drop(stream);
        assert!(watches.is_empty());
    }

    #[test]
    fn a_notification_reaches_every_id_with_its_prefix() {
        let watches = Arc::new(Watches::default());
        let open = |id| Watches::open(&watches, id);
        let mut one = open(ID);
        let mut near = open(NEAR);
        let mut other = open(OTHER);
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
    fn every_watch_is_notified_when_messages_may_have_been_missed() {
        let watches = Arc::new(Watches::default());
        let mut stream = Watches::open(&watches, ID);
        watches.notify_all();
        assert_eq!(poll(&mut stream), Poll::Ready(Some(Hint::LookAgain)));
        assert_eq!(poll(&mut stream), Poll::Ready(Some(Hint::CheckLease)));
        assert_eq!(poll(&mut stream), Poll::Pending);
    }
}
