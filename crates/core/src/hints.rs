//! Who is to be told: the open watches of one engine, for those who write engines.
//!
//! An engine tells a lease id; whoever watches it wakes. Nothing here asks a store or a clock.
//! - W1: a watch holds at most one hint of each kind that was not taken yet, so it never grows.
//! - W2: two watches of one lease id both hear everything: neither takes the other's hints.
//! - W3: hints for a lease id that is *expected* wait for its watch (rule G4 of [`crate::engine`]).
//!
//! Read next: [`crate::table::Table::pending_hint`], for engines that look when a watch opens.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::contract::Hint;
use crate::lease_id::LeaseId;

/// How many digits of a lease id a message has.
const DIGITS: usize = 8;

/// All watches of one engine.
#[derive(Debug, Default)]
pub struct Watches {
    by_id: Mutex<BTreeMap<LeaseId, Watched>>,
}

/// One lease id that is watched, or expected to be.
#[derive(Debug, Default)]
struct Watched {
    expected: bool,
    /// What came while nobody watched.
    kept: Untaken,
    open: Vec<Arc<Mutex<Pending>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Untaken {
    look_again: bool,
    check_lease: bool,
}

#[derive(Debug, Default)]
struct Pending {
    untaken: Untaken,
    waker: Option<Waker>,
}

impl Untaken {
    fn add(&mut self, hint: Hint) {
        match hint {
            Hint::LookAgain => self.look_again = true,
            Hint::CheckLease => self.check_lease = true,
        }
    }

    fn take(&mut self) -> Option<Hint> {
        if std::mem::take(&mut self.look_again) {
            return Some(Hint::LookAgain);
        }
        std::mem::take(&mut self.check_lease).then_some(Hint::CheckLease)
    }
}

impl Watches {
    /// Opens a watch of a lease id, which begins with what was kept for it.
    pub fn open(watches: &Arc<Watches>, lease_id: LeaseId) -> WatchStream {
        let mut by_id = lock(&watches.by_id);
        let watched = by_id.entry(lease_id).or_default();
        let untaken = std::mem::take(&mut watched.kept);
        let pending = Arc::new(Mutex::new(Pending { untaken, waker: None }));
        watched.open.push(pending.clone());
        WatchStream { lease_id, pending, watches: Arc::downgrade(watches) }
    }

    /// Opens a watch as [`open`](Watches::open). If nothing was kept for the lease id since the
    /// last answer about it, whoever watches is told to ask (rule G4 of [`crate::engine`]).
    pub fn open_or_ask(watches: &Arc<Watches>, lease_id: LeaseId) -> WatchStream {
        let expected = watches.expects(lease_id);
        let stream = Watches::open(watches, lease_id);
        if !expected {
            watches.tell(lease_id, Hint::CheckLease);
        }
        stream
    }

    /// Keeps hints for a lease id from now on, watched or not, until it is forgotten.
    pub fn expect(&self, lease_id: LeaseId) {
        lock(&self.by_id).entry(lease_id).or_default().expected = true;
    }

    /// Tells whether hints for a lease id are kept.
    pub fn expects(&self, lease_id: LeaseId) -> bool {
        lock(&self.by_id).get(&lease_id).is_some_and(|watched| watched.expected)
    }

    /// Keeps hints for a lease id only while it is watched.
    pub fn forget(&self, lease_id: LeaseId) {
        let mut by_id = lock(&self.by_id);
        if let Some(watched) = by_id.get_mut(&lease_id) {
            (watched.expected, watched.kept) = (false, Untaken::default());
            if watched.open.is_empty() {
                by_id.remove(&lease_id);
            }
        }
    }

    /// Tells the watches of a lease id, or keeps the hint for one that is expected; returns
    /// whether either was there.
    pub fn tell(&self, lease_id: LeaseId, hint: Hint) -> bool {
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
                pending.untaken.add(hint);
                pending.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        true
    }

    /// Returns the lease ids of a range that are watched or expected: a message that is no proof
    /// names an id by its first digits only.
    pub fn ids_in(&self, range: RangeInclusive<LeaseId>) -> Vec<LeaseId> {
        lock(&self.by_id).range(range).map(|(id, _)| *id).collect()
    }

    /// Tells whom a message of a store concerns. It has one letter, `l` to look again or `c` to
    /// check the lease, and the first eight digits of a lease id: the whole id is a proof, and
    /// whoever may subscribe could read it. The few ids that begin alike are all told, since a hint
    /// too many costs one question. What is no such message is nobody's.
    pub fn deliver(&self, message: &[u8]) {
        let Some((letter, digits)) = message.split_first() else { return };
        let hint = match letter {
            b'l' => Hint::LookAgain,
            b'c' => Hint::CheckLease,
            _ => return,
        };
        let Some(range) = ids_that_begin(digits) else { return };
        for id in self.ids_in(range) {
            self.tell(id, hint);
        }
    }

    /// Tells everybody to look: messages may have been missed.
    pub fn tell_all(&self) {
        let all = LeaseId::from_bytes([0; 16])..=LeaseId::from_bytes([0xff; 16]);
        for id in self.ids_in(all) {
            self.tell(id, Hint::LookAgain);
            self.tell(id, Hint::CheckLease);
        }
    }

    /// Returns how many lease ids are watched or expected.
    pub fn len(&self) -> usize {
        lock(&self.by_id).len()
    }

    /// Tells whether nothing is watched or expected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn ids_that_begin(digits: &[u8]) -> Option<RangeInclusive<LeaseId>> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == DIGITS)?;
    let filled = |filler: &str| format!("{digits}{}", filler.repeat(32 - DIGITS)).parse().ok();
    Some(filled("0")?..=filled("f")?)
}

/// Nobody panics while holding one of these, and what they guard is whole at any time.
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
        if let Some(hint) = pending.untaken.take() {
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
            // A watch that is opened again misses nothing of what this one did not take.
            let untaken = lock(&self.pending).untaken;
            watched.kept = untaken;
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
        assert!(!watches.tell(ID, Hint::LookAgain) && !watches.expects(ID));
        watches.expect(ID);
        assert!(watches.expects(ID));
        assert!(watches.tell(ID, Hint::LookAgain) && watches.tell(ID, Hint::LookAgain));
        let mut stream = Watches::open(&watches, ID);
        assert_eq!(poll(&mut stream), Poll::Ready(Some(Hint::LookAgain)));
        assert_eq!(poll(&mut stream), Poll::Pending);
        watches.tell(ID, Hint::CheckLease);
        drop(stream);
        let mut again = Watches::open(&watches, ID);
        assert_eq!(poll(&mut again), Poll::Ready(Some(Hint::CheckLease)));
        assert_eq!(poll(&mut again), Poll::Pending);
    }

    #[test]
    fn two_watches_of_one_lease_id_are_both_woken_and_both_told() {
        let watches = Arc::new(Watches::default());
        let counts: [Arc<Count>; 2] = Default::default();
        let mut both = [Watches::open(&watches, ID), Watches::open(&watches, ID)];
        for (stream, count) in both.iter_mut().zip(&counts) {
            let waker = Waker::from(count.clone());
            let polled = Pin::new(stream).poll_next(&mut Context::from_waker(&waker));
            assert_eq!(polled, Poll::Pending);
        }
        assert!(watches.tell(ID, Hint::CheckLease));
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
    fn nothing_is_kept_of_what_nobody_watches_or_expects() {
        let watches = Arc::new(Watches::default());
        let (first, second) = (Watches::open(&watches, ID), Watches::open(&watches, ID));
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
        watches.tell(ID, Hint::LookAgain);
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
    fn all_are_told_when_messages_may_have_been_missed() {
        let watches = Arc::new(Watches::default());
        let mut stream = Watches::open(&watches, ID);
        watches.tell_all();
        assert_eq!(poll(&mut stream), Poll::Ready(Some(Hint::LookAgain)));
        assert_eq!(poll(&mut stream), Poll::Ready(Some(Hint::CheckLease)));
        assert_eq!(poll(&mut stream), Poll::Pending);
    }
}
