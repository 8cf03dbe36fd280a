//! Leases of etcd: one for each client and duration, and a separate one for each detached lock
//! lease.
//!
//! - S1: the time that a session is known to have left counts from before the keepalive was sent.
//! - S2: a session numbers its keys (H2 of `crate::known_contenders`).
//! - S3: there is no keepalive task. An acquire or a renewal sends the keepalive, at most once in a
//!   tenth of the session's time. So a client that holds nothing sends none.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdline_core::{ClientId, Clock, Hold, LeaseId, LockName, Moment};
use parking_lot::Mutex;

use crate::client::Client;
use crate::error::RequestError;

/// A session is fresh for this part of its time after a keepalive: no other one is sent.
const FRESH: u32 = 10;
/// With so many marks, a session is used for no new request.
const MANY_MARKS: u32 = 1_000;
/// At this number of sessions, those that have expired are dropped.
const SWEEP: usize = 64;

/// Identifies a session by its owner and its duration in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EtcdSessionKey {
    Client(ClientId, u64),
    Lease(LeaseId, u64),
}

/// An etcd lease.
#[derive(Debug)]
pub(crate) struct EtcdSession {
    pub(crate) lease: i64,
    ttl: Duration,
    until: Mutex<Moment>,
    keeping: tokio::sync::Mutex<()>,
    /// The numbers that its keys use, for each name (H2 of `crate::known_contenders`).
    numbers: Mutex<HashMap<LockName, BTreeSet<u32>>>,
    /// The number of marks on this etcd lease (H3).
    marks: AtomicU32,
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<EtcdSession>>>>;

/// The sessions of one engine.
pub(crate) struct EtcdSessions {
    client: Client,
    clock: Arc<dyn Clock>,
    slots: Mutex<HashMap<EtcdSessionKey, Slot>>,
}

impl EtcdSessionKey {
    pub(crate) fn of(client: ClientId, lease_id: LeaseId, hold: Hold) -> EtcdSessionKey {
        match hold {
            Hold::Detached(_) => EtcdSessionKey::Lease(lease_id, seconds(hold)),
            Hold::Leased(_) | Hold::Live => EtcdSessionKey::Client(client, seconds(hold)),
        }
    }

    fn seconds(self) -> u64 {
        match self {
            EtcdSessionKey::Client(_, seconds) | EtcdSessionKey::Lease(_, seconds) => seconds,
        }
    }

    /// Returns the id of the etcd lease. 0: the server chooses it. The id for a detached lease is
    /// made from the lock's lease id, so every process that knows that id finds the same etcd
    /// lease.
    fn number(self) -> i64 {
        match self {
            EtcdSessionKey::Client(..) => 0,
            EtcdSessionKey::Lease(id, seconds) => {
                let bytes = id.as_bytes();
                let half: [u8; 8] = std::array::from_fn(|at| bytes[at] ^ bytes[at + 8]);
                let seconds = i64::try_from(seconds).unwrap_or(0) << 1;
                (i64::from_le_bytes(half) ^ seconds) & i64::MAX | 1
            }
        }
    }
}

/// Rounds up to whole seconds, the unit of etcd.
fn seconds(hold: Hold) -> u64 {
    let duration = hold.duration().unwrap_or_default();
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

impl EtcdSession {
    /// Makes a session of an etcd lease that exists.
    pub(crate) fn found(lease: i64, ttl: Duration) -> EtcdSession {
        let keeping = tokio::sync::Mutex::default();
        let numbers = Mutex::default();
        let until = Mutex::new(Moment::ORIGIN);
        let marks = AtomicU32::new(0);
        EtcdSession { lease, ttl, until, keeping, numbers, marks }
    }

    /// Takes the smallest number that no key of this name uses.
    pub(crate) fn take_number(&self, name: &LockName) -> u32 {
        let mut numbers = self.numbers.lock();
        let used = numbers.entry(name.clone()).or_default();
        let number = (0..).find(|number| !used.contains(number)).unwrap_or(u32::MAX);
        used.insert(number);
        number
    }

    /// Makes a number free to be used again.
    pub(crate) fn free_number(&self, name: &LockName, number: u32) {
        let mut numbers = self.numbers.lock();
        if let Some(used) = numbers.get_mut(name) {
            used.remove(&number);
            if used.is_empty() {
                numbers.remove(name);
            }
        }
    }

    /// Counts a mark on this etcd lease.
    pub(crate) fn count_mark(&self) {
        self.marks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether a new request may use it. With many marks it may not: the session then ends
    /// with its last hold, and the marks with it.
    fn is_usable(&self, now: Moment) -> bool {
        self.marks.load(Ordering::Relaxed) < MANY_MARKS && !self.left(now).is_zero()
    }

    /// Returns the time that is known to be left at `now`.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        now.until(*self.until.lock())
    }

    /// Records that the session has expired on the server.
    pub(crate) fn end(&self) {
        self.set(Moment::ORIGIN);
    }

    fn set(&self, until: Moment) {
        *self.until.lock() = until;
    }

    fn is_fresh(&self, now: Moment) -> bool {
        !self.ttl.is_zero() && self.left(now) >= self.ttl - self.ttl / FRESH
    }
}

impl EtcdSessions {
    pub(crate) fn new(client: Client, clock: Arc<dyn Clock>) -> EtcdSessions {
        EtcdSessions { client, clock, slots: Mutex::default() }
    }

    /// Returns the session, which is known to be alive; creates it if there is none.
    pub(crate) async fn obtain(
        &self,
        key: EtcdSessionKey,
    ) -> Result<Arc<EtcdSession>, RequestError> {
        let slot = self.slot(key);
        let mut slot = slot.lock().await;
        if let Some(session) = slot.as_ref()
            && session.is_usable(self.clock.now())
        {
            return Ok(session.clone());
        }
        let session = Arc::new(self.make(key).await?);
        *slot = Some(session.clone());
        Ok(session)
    }

    /// Returns the session, if there is one; it may have expired.
    pub(crate) async fn known(&self, key: EtcdSessionKey) -> Option<Arc<EtcdSession>> {
        self.slot(key).lock().await.clone()
    }

    async fn make(&self, key: EtcdSessionKey) -> Result<EtcdSession, RequestError> {
        let before = self.clock.now();
        let ttl = i64::try_from(key.seconds()).unwrap_or(i64::MAX);
        match self.client.grant(key.number(), ttl).await {
            Ok(reply) => {
                let ttl = duration(reply.ttl);
                let session = EtcdSession::found(reply.id, ttl);
                session.set(before.after(ttl));
                Ok(session)
            }
            // Another process that knows the lease id created it, or an earlier request whose
            // answer was lost.
            Err(RequestError::LeaseExists) => {
                let session = EtcdSession::found(key.number(), Duration::from_secs(key.seconds()));
                self.keep(&session).await?;
                Ok(session)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Sends a keepalive, unless the session is fresh.
    ///
    /// # Errors
    /// [`RequestError::LeaseGone`]: the session has expired.
    pub(crate) async fn keep(&self, session: &EtcdSession) -> Result<(), RequestError> {
        let _alone = session.keeping.lock().await;
        let before = self.clock.now();
        if session.is_fresh(before) {
            return Ok(());
        }
        let ttl = self.client.keep_alive(session.lease).await?;
        if ttl <= 0 {
            session.end();
            return Err(RequestError::LeaseGone);
        }
        session.set(before.after(duration(ttl)));
        Ok(())
    }

    fn slot(&self, key: EtcdSessionKey) -> Slot {
        let mut slots = self.slots.lock();
        if slots.len() >= SWEEP && !slots.contains_key(&key) {
            let now = self.clock.now();
            slots.retain(|_, slot| match slot.try_lock() {
                Ok(slot) => slot.as_ref().is_some_and(|known| !known.left(now).is_zero()),
                Err(_) => true,
            });
        }
        slots.entry(key).or_default().clone()
    }
}

fn duration(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_for_a_client_and_whole_seconds() {
        let client = ClientId::from_u64(7);
        let id = LeaseId::from_bytes([3; 16]);
        let leased = |ms| EtcdSessionKey::of(client, id, Hold::Leased(Duration::from_millis(ms)));
        assert_eq!(leased(1_001), leased(2_000));
        assert_ne!(leased(2_000), leased(2_001));
        assert_ne!(
            leased(2_000),
            EtcdSessionKey::of(client, id, Hold::Detached(Duration::from_secs(2)))
        );
        assert_eq!(leased(2_000).number(), 0);
    }

    #[test]
    fn a_session_uses_the_smallest_free_number_for_each_name() {
        let session = EtcdSession::found(7, Duration::from_secs(1));
        let [a, b] = ["a", "b"].map(|name| LockName::new(name).expect("a name"));
        let taken = [&a, &a, &b, &a].map(|name| session.take_number(name));
        assert_eq!(taken, [0, 1, 0, 2]);
        session.free_number(&a, 1);
        session.free_number(&b, 0);
        assert_eq!([&a, &a, &b].map(|name| session.take_number(name)), [1, 3, 0]);
        for number in 0..4 {
            session.free_number(&a, number);
        }
        session.free_number(&b, 0);
        assert!(session.numbers.lock().is_empty());
    }

    #[test]
    fn a_session_with_many_marks_is_used_for_no_new_request() {
        let session = EtcdSession::found(7, Duration::from_secs(1));
        session.set(Moment::ORIGIN.after(Duration::from_secs(1)));
        for _ in 0..MANY_MARKS {
            assert!(session.is_usable(Moment::ORIGIN));
            session.count_mark();
        }
        assert!(!session.is_usable(Moment::ORIGIN) && !session.left(Moment::ORIGIN).is_zero());
    }

    #[test]
    fn a_detached_lease_has_a_number_of_its_own_that_etcd_takes() {
        let number = |byte, seconds| {
            EtcdSessionKey::Lease(LeaseId::from_bytes([byte; 16]), seconds).number()
        };
        let id = LeaseId::from_bytes(*b"0123456789abcdef");
        assert!(
            EtcdSessionKey::Lease(id, 30).number() > 0 && number(0xff, 1) > 0 && number(0, 0) > 0
        );
        assert_ne!(EtcdSessionKey::Lease(id, 30).number(), EtcdSessionKey::Lease(id, 31).number());
    }
}
