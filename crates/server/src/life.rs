//! The life of sessions, attempts and grants at this server, as a state machine without I/O.
//!
//! ```text
//! attempt   begin ── waits ── granted ── answered ──> the client's, under its lease id
//!                      |         |          |
//!                      |         |          +─ a long lease: kept short until the answer was read
//!                      |         +─ left unanswered: released
//!                      +─ left, or its session ended: nothing is granted any more
//! session   open ── heartbeats ── closed: its leases are released, its attempts end
//!                       +─ silence: forgotten, its attempts end
//! ```
//!
//! - L1: every grant has an owner that was answered, an open session that lists it, or an attempt
//!   that will answer it or release it. If a client chose the lease id, it knows the grant by it.
//! - L2: a grant is listed by its session in the same step in which the attempt has it. A session
//!   that has ended is granted nothing: the attempt releases instead. An attempt for several names
//!   gets all of its grants in one step, and releases all of them or none.
//! - L3: the end of a session ends its attempts. Closing it releases its leases; silence releases
//!   nothing, since the client may have gone on at another server under the same ids (N1).
//! - L4: no grant lasts longer than [`MAX_FIRST_LEASE`] unless its answer was read: the client used
//!   the lease, or the connection has not broken for a while after the answer. So what this
//!   server's death leaves without an owner is over after that time.
//! - L5: a lease that this server has answered is released only by a request that says so. A
//!   connection that breaks after the answer proves nothing: such a lease is merely not extended.
//! - N1: only a heartbeat of the client renews the leases of a session.
//! - N2: a session without a heartbeat for its duration is forgotten. Its leases have the same
//!   duration at most, so they end in the store by then.
//! - N3: a lease is listed by one session.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::{LeaseId, LockName, Moment};
use tokio_util::sync::CancellationToken;

#[cfg(test)]
mod model;

/// How many leases one session has at most.
pub(crate) const MOST_LEASES: usize = 1_000;
/// A client that has left its answer unread resets the connection within this time after it closed
/// it: a round trip.
const RESET_WITHIN: Duration = Duration::from_secs(1);
/// After this time without an acknowledgement of the answer the system breaks the connection off.
pub(crate) const ACKNOWLEDGEMENT: Duration = Duration::from_secs(15);
/// If a client has not acknowledged its answer, its connection is broken by then.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(20);

/// How a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PeerState {
    Open,
    /// The client closed it in order, so long ago.
    Left(Duration),
    /// It was reset, or what was sent was not acknowledged in time.
    Broken,
}

/// A lease and its name.
pub(crate) type NamedLease = (LockName, LeaseId);

/// The sessions, attempts and answered grants of one store. `P` is the other end of a connection.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Life<P> {
    most: MostSessions,
    sessions: BTreeMap<LeaseId, ClientSession>,
    /// How many of them each owner has.
    by_owner: BTreeMap<String, usize>,
    /// The session that lists a lease.
    by_lease: BTreeMap<LeaseId, LeaseId>,
    attempts: BTreeMap<AttemptId, AttemptState>,
    next_attempt: AttemptId,
    /// Grants that were answered and are not extended yet.
    short: BTreeMap<LeaseId, ShortLease<P>>,
}

/// How many sessions there may be.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct MostSessions {
    pub(crate) total: usize,
    pub(crate) per_owner: usize,
}

/// Names an attempt of this server.
pub(crate) type AttemptId = u64;

#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
struct ClientSession {
    owner: String,
    duration: Duration,
    last_heartbeat: Moment,
    leases: BTreeSet<NamedLease>,
    /// How many leases each attempt may still add.
    attempts: BTreeMap<AttemptId, usize>,
}

impl ClientSession {
    fn is_over(&self, now: Moment) -> bool {
        now.since(self.last_heartbeat) >= self.duration
    }

    fn has_room(&self, count: usize) -> bool {
        let expected: usize = self.attempts.values().sum();
        self.leases.len() + expected + count <= MOST_LEASES
    }
}

#[derive(Clone, Debug)]
struct AttemptState {
    session: Option<LeaseId>,
    /// The name and the lease id that the client chose. Only the client gives it up.
    key: Option<NamedLease>,
    lease: Duration,
    stage: AttemptStage,
    ended: CancellationToken,
}

/// The token of the attempt is no part of its state.
#[cfg(test)]
impl std::hash::Hash for AttemptState {
    fn hash<H: std::hash::Hasher>(&self, to: &mut H) {
        self.session.hash(to);
        self.key.hash(to);
        self.lease.hash(to);
        self.stage.hash(to);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
enum AttemptStage {
    Waiting,
    /// Its session has ended: nothing is granted to it.
    Ended(SessionEnd),
    Granted(Vec<NamedLease>),
}

#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
struct ShortLease<P> {
    name: LockName,
    session: Option<LeaseId>,
    lease: Duration,
    answered: Moment,
    peer: Option<P>,
}

/// How a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum SessionEnd {
    /// The client closed it: what its attempts get is released, also under an id of the client.
    Closed,
    /// No heartbeat came.
    Silent,
}

/// Why something is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoSession,
    TooManyLeases,
    TooManySessions,
    TooManySessionsOfOwner,
}

/// What to acquire, and for whom.
pub(crate) struct Begin<'a> {
    /// How many names it may be granted.
    pub(crate) count: usize,
    pub(crate) session: Option<LeaseId>,
    pub(crate) owner: &'a str,
    /// The name and the lease id that the client chose.
    pub(crate) key: Option<NamedLease>,
    /// The whole lease; that of a session is its duration.
    pub(crate) lease: Duration,
}

/// An attempt that has begun.
pub(crate) struct Begun {
    pub(crate) id: AttemptId,
    pub(crate) lease: Duration,
    /// Cancelled when the session ends.
    pub(crate) ended: CancellationToken,
}

impl<P> Life<P> {
    pub(crate) fn new(most: MostSessions) -> Life<P> {
        Life {
            most,
            sessions: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            by_lease: BTreeMap::new(),
            attempts: BTreeMap::new(),
            next_attempt: 0,
            short: BTreeMap::new(),
        }
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Opens a session that takes these leases over.
    pub(crate) fn open(
        &mut self,
        id: LeaseId,
        owner: &str,
        duration: Duration,
        leases: BTreeSet<NamedLease>,
        now: Moment,
    ) -> Result<(), Refusal> {
        if self.sessions.len() >= self.most.total {
            return Err(Refusal::TooManySessions);
        }
        let of_owner = self.by_owner.get(owner).copied().unwrap_or_default();
        if of_owner >= self.most.per_owner {
            return Err(Refusal::TooManySessionsOfOwner);
        }
        self.by_owner.insert(owner.to_owned(), of_owner + 1);
        for (name, lease) in &leases {
            self.unlist(name, *lease);
            self.by_lease.insert(*lease, id);
        }
        let session = ClientSession {
            owner: owner.to_owned(),
            duration,
            last_heartbeat: now,
            leases,
            attempts: BTreeMap::new(),
        };
        self.sessions.insert(id, session);
        Ok(())
    }

    /// Returns an open session of this owner.
    fn session(
        &mut self,
        id: LeaseId,
        owner: &str,
        now: Moment,
    ) -> Result<&mut ClientSession, Refusal> {
        let session = self.sessions.get_mut(&id).filter(|session| session.owner == owner);
        session.filter(|session| !session.is_over(now)).ok_or(Refusal::NoSession)
    }

    /// A heartbeat has come: returns the duration of the session and the leases to renew.
    pub(crate) fn heartbeat(
        &mut self,
        id: LeaseId,
        owner: &str,
        now: Moment,
    ) -> Result<(Duration, BTreeSet<NamedLease>), Refusal> {
        let session = self.session(id, owner, now)?;
        session.last_heartbeat = now;
        Ok((session.duration, session.leases.clone()))
    }

    /// Closes a session: its attempts end, and its leases are the caller's to release.
    pub(crate) fn close(
        &mut self,
        id: LeaseId,
        owner: &str,
        now: Moment,
    ) -> Result<BTreeSet<NamedLease>, Refusal> {
        self.session(id, owner, now)?;
        let Some(session) = self.remove(id, SessionEnd::Closed) else {
            return Err(Refusal::NoSession);
        };
        for (_, lease) in &session.leases {
            self.short.remove(lease);
        }
        Ok(session.leases)
    }

    /// Forgets the sessions that are over; returns how many.
    pub(crate) fn sweep(&mut self, now: Moment) -> usize {
        let over = |(id, session): (&LeaseId, &ClientSession)| session.is_over(now).then_some(*id);
        let over: Vec<LeaseId> = self.sessions.iter().filter_map(over).collect();
        for id in &over {
            self.remove(*id, SessionEnd::Silent);
        }
        over.len()
    }

    fn remove(&mut self, id: LeaseId, end: SessionEnd) -> Option<ClientSession> {
        let session = self.sessions.remove(&id)?;
        if let Some(count) = self.by_owner.get_mut(&session.owner) {
            *count -= 1;
            if *count == 0 {
                self.by_owner.remove(&session.owner);
            }
        }
        for (_, lease) in &session.leases {
            self.by_lease.remove(lease);
        }
        for attempt in session.attempts.keys() {
            let Some(attempt) = self.attempts.get_mut(attempt) else { continue };
            match (&attempt.stage, end) {
                // Silence takes nothing from somebody who is about to be answered.
                (AttemptStage::Granted(_), SessionEnd::Silent) => {
                    attempt.session = None;
                    attempt.lease = attempt.lease.min(MAX_FIRST_LEASE);
                }
                // Its leases are among those that are released.
                _ => {
                    attempt.stage = AttemptStage::Ended(end);
                    attempt.ended.cancel();
                }
            }
        }
        Some(session)
    }

    /// Lists a lease no longer: it was released or is lost.
    pub(crate) fn unlist(&mut self, name: &LockName, lease: LeaseId) {
        self.short.remove(&lease);
        let Some(id) = self.by_lease.remove(&lease) else { return };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.leases.remove(&(name.clone(), lease));
        }
    }

    /// An attempt begins.
    pub(crate) fn begin(&mut self, begin: &Begin<'_>, now: Moment) -> Result<Begun, Refusal> {
        let id = self.next_attempt;
        let mut lease = begin.lease;
        if let Some(session) = begin.session {
            let session = self.session(session, begin.owner, now)?;
            if !session.has_room(begin.count) {
                return Err(Refusal::TooManyLeases);
            }
            lease = session.duration;
            session.attempts.insert(id, begin.count);
        }
        self.next_attempt += 1;
        let ended = CancellationToken::new();
        let attempt = AttemptState {
            session: begin.session,
            key: begin.key.clone(),
            lease,
            stage: AttemptStage::Waiting,
            ended: ended.clone(),
        };
        self.attempts.insert(id, attempt);
        Ok(Begun { id, lease, ended })
    }

    /// The store has granted the lock, or all locks of an attempt for several: its session lists
    /// them from now on. An error: the session has ended, and the caller releases the grants.
    pub(crate) fn granted(
        &mut self,
        id: AttemptId,
        grants: Vec<NamedLease>,
        now: Moment,
    ) -> Result<(), SessionEnd> {
        let Some(attempt) = self.attempts.get_mut(&id) else { return Err(SessionEnd::Closed) };
        if let AttemptStage::Ended(end) = attempt.stage {
            return Err(end);
        }
        if let Some(session) = attempt.session {
            let open = self.sessions.get_mut(&session).filter(|session| !session.is_over(now));
            let Some(open) = open else {
                attempt.stage = AttemptStage::Ended(SessionEnd::Silent);
                return Err(SessionEnd::Silent);
            };
            for grant in &grants {
                open.leases.insert(grant.clone());
                self.by_lease.insert(grant.1, session);
            }
            open.attempts.insert(id, 0);
        }
        attempt.stage = AttemptStage::Granted(grants);
        Ok(())
    }

    /// The answer with the grants is on its way to the client.
    pub(crate) fn answered(&mut self, id: AttemptId, peer: Option<&P>, now: Moment)
    where
        P: Clone,
    {
        let Some(attempt) = self.end_attempt(id) else { return };
        let AttemptStage::Granted(grants) = attempt.stage else { return };
        if !is_long(attempt.lease) {
            return;
        }
        for (name, lease) in grants {
            let short = ShortLease {
                name,
                session: attempt.session,
                lease: attempt.lease,
                answered: now,
                peer: peer.cloned(),
            };
            self.short.insert(lease, short);
        }
    }

    /// The attempt ends without an answer. Returns the grants that nobody will know of, or the id
    /// that the client gave up when it closed its session: the caller releases them.
    pub(crate) fn left(&mut self, id: AttemptId) -> Vec<NamedLease> {
        let Some(attempt) = self.end_attempt(id) else { return Vec::new() };
        let left = match (attempt.stage, attempt.key) {
            (AttemptStage::Granted(grants), None) => grants,
            // The store may have granted it a moment ago.
            (AttemptStage::Ended(SessionEnd::Closed), Some(key)) => vec![key],
            _ => Vec::new(),
        };
        for (name, lease) in &left {
            self.unlist(name, *lease);
        }
        left
    }

    fn end_attempt(&mut self, id: AttemptId) -> Option<AttemptState> {
        let attempt = self.attempts.remove(&id)?;
        let session = attempt.session.and_then(|session| self.sessions.get_mut(&session));
        if let Some(session) = session {
            session.attempts.remove(&id);
        }
        Some(attempt)
    }

    /// Returns the whole lease of a grant that has only the first one yet. A client that uses it
    /// has read its answer.
    pub(crate) fn whole(&self, lease: LeaseId) -> Option<Duration> {
        self.short.get(&lease).map(|short| short.lease)
    }

    /// A grant has its whole lease, or is over.
    pub(crate) fn extended(&mut self, lease: LeaseId) {
        self.short.remove(&lease);
    }

    /// Returns the grants whose answers were read, to be extended; forgets those that will not be.
    /// `look` returns how a connection stands.
    pub(crate) fn read(&mut self, now: Moment, look: impl Fn(&P) -> PeerState) -> Vec<Extension> {
        let mut read = Vec::new();
        let sessions = &self.sessions;
        self.short.retain(|lease_id, short| {
            let has_ended = short.session.is_some_and(|session| !sessions.contains_key(&session));
            let age = now.since(short.answered);
            let state = short.peer.as_ref().map_or(PeerState::Open, &look);
            if has_ended || age >= MAX_FIRST_LEASE || state == PeerState::Broken {
                return false;
            }
            if is_read(age, state) {
                let name = short.name.clone();
                let lease_id = *lease_id;
                read.push(Extension { name, lease_id, lease: short.lease });
            }
            true
        });
        read
    }

    /// Returns every grant that has only its first lease and whose connection is not broken: the
    /// server stops.
    pub(crate) fn read_at_stop(&mut self, look: impl Fn(&P) -> PeerState) -> Vec<Extension> {
        let short = std::mem::take(&mut self.short);
        let stands = |short: &ShortLease<P>| {
            short.peer.as_ref().is_none_or(|peer| look(peer) != PeerState::Broken)
        };
        let stand = short.into_iter().filter(|(_, short)| stands(short));
        stand
            .map(|(lease_id, ShortLease { name, lease, .. })| Extension { name, lease_id, lease })
            .collect()
    }
}

/// A grant that is extended to its whole lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extension {
    pub(crate) name: LockName,
    pub(crate) lease_id: LeaseId,
    pub(crate) lease: Duration,
}

/// Returns whether a lease begins short.
pub(crate) fn is_long(lease: Duration) -> bool {
    lease > MAX_FIRST_LEASE
}

/// Returns whether an answer of this age was read, if its connection is in this state.
fn is_read(age: Duration, state: PeerState) -> bool {
    match state {
        PeerState::Open => age >= ACKNOWLEDGED_WITHIN,
        PeerState::Left(since) => since >= RESET_WITHIN && age >= RESET_WITHIN,
        PeerState::Broken => false,
    }
}
