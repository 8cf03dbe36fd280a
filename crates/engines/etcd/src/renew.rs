//! Renewal: keepalives for the sessions, and concurrently a read of every key.
//!
//! - R1: a grant is renewed if the keepalive of its session succeeded *and* its key exists: either
//!   may be gone without the other.
//! - R2: a key that was made at another revision, or whose record names another lease id, belongs
//!   to a later request.
//! - R3: a grant may have been moved to another etcd lease by a request whose reply was lost, or by
//!   another process. The lease of the key counts.
//! - R4: the queue, a mark or a record is read in a second step, and only if it is needed. A grant
//!   that was not changed does not need it.
//! - R5: the heartbeat of a waiter reads its key and those that block it from one member, without a
//!   round of the cluster. While these block it, it waits: keys that are gone do not come back at
//!   their revision. So a member that lags behind can only delay the news that one is gone. A
//!   majority confirms that the waiter waits at least each [`CONFIRM`], and anything else that a
//!   member shows.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{
    Certainty, Hold, LockError, Moment, Purpose, RenewReply, RenewRequest, Renewed,
};
use tokio::join;

use crate::error::{RequestError, unavailable};
use crate::known_contenders::KnownContender;
use crate::ops::{all_of, get, key_alone, key_value, put, written_at};
use crate::proto::{KeyValue, RangeRequest, TxnRequest};
use crate::queue::{self, Queue, record};
use crate::sessions::{EtcdSession, EtcdSessionKey};
use crate::store::{self, Store};

/// How many operations a transaction may have: the servers' default.
const PARTS: usize = 128;
/// For how long the heartbeats of a waiter may read from one member (R5). A member that has a
/// leader and lags behind nevertheless is noticed after this time.
const CONFIRM: Duration = Duration::from_secs(5);
/// How often a change of a record is tried while other clients change it.
const ATTEMPTS: usize = 5;

/// What the first read has shown for one renewal.
enum ObservedKeys {
    /// The key, and whether the keys that block it still do. The same key may have been made again
    /// since, behind it.
    OwnKey { kv: Option<KeyValue>, blocked: bool },
    /// The lease id was not known to this engine: the whole queue.
    Queue(Result<Queue, LockError>),
}

impl ObservedKeys {
    /// Returns what these keys show about a contender.
    fn of(contender: &KnownContender, found: &HashMap<Vec<u8>, KeyValue>) -> ObservedKeys {
        let kv = found.get(&contender.key).cloned();
        let created = kv.as_ref().map_or(0, |own| own.create_revision);
        let exists = |key: &Vec<u8>| found.get(key).is_some_and(|kv| kv.create_revision <= created);
        let is_own = kv.is_some() && contender.may_be_made_at(created);
        let blocked = is_own && contender.is_blocked() && contender.blockers.block(exists);
        ObservedKeys::OwnKey { kv, blocked }
    }

    /// Returns whether the contender still waits.
    fn shows_a_waiter(&self) -> bool {
        matches!(self, ObservedKeys::OwnKey { blocked: true, .. })
    }
}

impl Store {
    pub(crate) async fn renew(&self, renewals: &[RenewRequest]) -> Renewed {
        let since = self.clock.now();
        let contenders: Vec<Option<KnownContender>> = renewals
            .iter()
            .map(|renewal| self.contenders.find(&renewal.name, renewal.lease_id))
            .collect();
        let (observed, kept) =
            join!(self.observe(renewals, &contenders, since), self.keep_all(&contenders));
        let mut answers = Vec::with_capacity(renewals.len());
        for ((renewal, observed), contender) in renewals.iter().zip(observed?).zip(contenders) {
            answers.push(self.judge(renewal, observed, contender, &kept, since).await);
        }
        Ok(answers)
    }

    /// Sends one keepalive for each session.
    async fn keep_all(
        &self,
        contenders: &[Option<KnownContender>],
    ) -> HashMap<i64, Result<(), RequestError>> {
        let mut sessions: HashMap<i64, Arc<EtcdSession>> = HashMap::new();
        for contender in contenders.iter().flatten() {
            sessions.entry(contender.session.lease).or_insert_with(|| contender.session.clone());
        }
        let keep =
            async |session: Arc<EtcdSession>| (session.lease, self.sessions.keep(&session).await);
        join_all(sessions.into_values().map(keep)).await.into_iter().collect()
    }

    /// Reads the keys of all renewals: those of waiters from one member, if that is enough (R5).
    async fn observe(
        &self,
        renewals: &[RenewRequest],
        contenders: &[Option<KnownContender>],
        now: Moment,
    ) -> Result<Vec<ObservedKeys>, LockError> {
        let mut may_read_one_member = true;
        for (renewal, contender) in renewals.iter().zip(contenders) {
            let was_confirmed = |known: &KnownContender| known.confirmed.until(now) < CONFIRM;
            may_read_one_member &= renewal.purpose == Purpose::Wait
                && contender
                    .as_ref()
                    .is_some_and(|known| known.is_blocked() && was_confirmed(known));
        }
        if may_read_one_member {
            let observed = self.read_keys(renewals, contenders, true).await?;
            if observed.iter().all(ObservedKeys::shows_a_waiter) {
                return Ok(observed);
            }
        }
        let observed = self.read_keys(renewals, contenders, false).await?;
        for (renewal, keys) in renewals.iter().zip(&observed) {
            if keys.shows_a_waiter() {
                self.contenders
                    .update(&renewal.name, renewal.lease_id, |contender| contender.confirmed = now);
            }
        }
        Ok(observed)
    }

    /// Reads each key once, however many renewals are about it, in as few transactions as possible.
    async fn read_keys(
        &self,
        renewals: &[RenewRequest],
        contenders: &[Option<KnownContender>],
        from_one_member: bool,
    ) -> Result<Vec<ObservedKeys>, LockError> {
        let known = || contenders.iter().flatten();
        let wanted: BTreeSet<&Vec<u8>> =
            known().flat_map(|known| known.blockers.keys().chain([&known.key])).collect();
        let wanted: Vec<_> = wanted.into_iter().collect();
        let read = |key: &&Vec<u8>| {
            let range = key_alone(key.to_vec());
            get(RangeRequest { serializable: from_one_member, ..range })
        };
        let reads = wanted.chunks(PARTS).map(|keys| self.read(keys.iter().map(read).collect()));
        let mut found = HashMap::new();
        for (keys, answers) in wanted.chunks(PARTS).zip(try_join_all(reads).await?) {
            let mut answers = answers;
            for _ in keys {
                found.extend(answers.keys()?.into_iter().map(|kv| (kv.key.clone(), kv)));
            }
        }
        let mut observed = Vec::with_capacity(renewals.len());
        for (renewal, contender) in renewals.iter().zip(contenders) {
            observed.push(match contender {
                Some(contender) => ObservedKeys::of(contender, &found),
                None => {
                    let reply = self.client.range(all_of(self.layout.queue(&renewal.name))).await?;
                    ObservedKeys::Queue(queue::read(&self.layout, &renewal.name, reply.kvs))
                }
            });
        }
        Ok(observed)
    }

    async fn judge(
        &self,
        renewal: &RenewRequest,
        observed: ObservedKeys,
        contender: Option<KnownContender>,
        kept: &HashMap<i64, Result<(), RequestError>>,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let id = renewal.lease_id;
        // 1. Which key does the renewal mean? This process knows it, or finds it in the queue and
        //    adopts it: then its session must be kept alive first.
        let (contender, kv, blocked) = match (observed, contender) {
            (ObservedKeys::OwnKey { kv, blocked }, Some(contender)) => (contender, kv, blocked),
            (ObservedKeys::Queue(queue), _) => match queue?.find(id) {
                Some((entry, _)) => {
                    let contender = self.adopt(&renewal.name, id, entry);
                    self.sessions.keep(&contender.session).await.or_else(or_gone)?;
                    (contender, Some(entry.kv.clone()), false)
                }
                None => return self.missing(renewal, None).await,
            },
            (ObservedKeys::OwnKey { .. }, None) => return self.missing(renewal, None).await,
        };
        // 2. The key is gone, or another request has made it again (R2).
        let Some(kv) = kv.filter(|kv| contender.may_be_made_at(kv.create_revision)) else {
            return self.missing(renewal, Some(&contender)).await;
        };
        // 3. Does the session live (R1)? If the keepalive failed, what is left of it decides.
        let left = contender.session.left(since);
        let is_over = match kept.get(&contender.session.lease) {
            Some(Err(RequestError::LeaseGone)) => true,
            Some(Err(_)) if left.is_zero() => {
                let message = "the session could not be kept alive";
                return Err(unavailable(message, Certainty::Unknown));
            }
            _ => left.is_zero(),
        };
        // A waiter's key is never moved (R3).
        if is_over && renewal.purpose == Purpose::Wait {
            return self.missing(renewal, Some(&contender)).await;
        }
        // 4. Another key is ahead: the renewal still waits.
        if blocked {
            return Ok(RenewReply::Queued { position: None, next_look: QUEUE_HEARTBEAT });
        }
        // 5. A key that blocked it is gone. A waiter that does not know its token yet reads the
        //    queue (R4), which says whether it holds.
        if contender.token.is_none() {
            let read = self.state(&renewal.name, &contender.key, kv.create_revision).await?;
            let Some((state, revision)) = read else {
                return self.missing(renewal, Some(&contender)).await;
            };
            self.learn(&renewal.name, id, &state, revision)?;
            if !state.holds() {
                let position = state.position;
                return Ok(RenewReply::Queued { position, next_look: QUEUE_HEARTBEAT });
            }
        }
        // 6. It holds: a waiter asks for its grant, a holder's grant is kept.
        match renewal.purpose {
            Purpose::Wait => Ok(RenewReply::Held { left: Some(left) }),
            Purpose::Keep(hold) => self.keep_grant(renewal, hold, &contender, &kv, since).await,
        }
    }

    /// Renews a grant after the keepalive of its session.
    async fn keep_grant(
        &self,
        renewal: &RenewRequest,
        hold: Hold,
        contender: &KnownContender,
        kv: &KeyValue,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        // The usual case: nobody has written the key since, and the terms stay. The keepalive was
        // the whole renewal.
        let left = contender.session.left(since);
        let same = contender.terms.is_some_and(|terms| needs_no_move(terms, hold));
        if kv.mod_revision == contender.written && same && !left.is_zero() {
            return Ok(RenewReply::Renewed { left: Some(left) });
        }
        // Else the record is read, changed and written, unless somebody writes it meanwhile: then
        // again.
        for _ in 0..ATTEMPTS {
            // 1. The key must still be ours (R2).
            let found = self.client.range(key_value(contender.key.clone())).await?.kvs.pop();
            let Some(kv) = found.filter(|kv| contender.may_be_made_at(kv.create_revision)) else {
                return self.missing(renewal, Some(contender)).await;
            };
            let mut record = record(&kv.value)?;
            if record.lease_id.is_some_and(|other| other != renewal.lease_id) {
                return self.missing(renewal, Some(contender)).await;
            }
            // 2. Find the session that carries the key now, which may be another one (R3), and keep
            //    it alive.
            let client = renewal.client;
            let id = renewal.lease_id;
            let name = &renewal.name;
            let session = self.session_at(client, name, id, contender, &kv, record.hold).await;
            if session.lease != contender.session.lease {
                self.sessions.keep(&session).await.or_else(or_gone)?;
            }
            let left = session.left(since);
            if left.is_zero() {
                return self.missing(renewal, Some(contender)).await;
            }
            // 3. A revocation ends the grant, whatever the session says.
            if let Some(reason) = record.revoked {
                return Ok(RenewReply::Revoked { reason, left: Some(left) });
            }
            // 4. Remember what was read. If the session is as long as the terms ask, that is all.
            self.contenders.update(&renewal.name, renewal.lease_id, |contender| {
                contender.written = kv.mod_revision;
                contender.terms = Some(record.hold);
            });
            if needs_no_move(record.hold, hold) {
                return Ok(RenewReply::Renewed { left: Some(left) });
            }
            // 5. Move the key to a session of the new length, if it is as it was read.
            record.hold = moved(record.hold, hold);
            let key = EtcdSessionKey::of(renewal.client, renewal.lease_id, record.hold);
            let session = self.sessions.obtain(key).await?;
            self.sessions.keep(&session).await.or_else(or_gone)?;
            let compare = vec![written_at(contender.key.clone(), kv.mod_revision)];
            let success = vec![put(contender.key.clone(), record.to_bytes(), session.lease)];
            let txn = TxnRequest { compare, success, failure: Vec::new() };
            match self.txn(txn).await {
                Err(RequestError::LeaseGone) => session.end(),
                Err(failure) => return Err(failure.into_error()),
                Ok(answers) if !answers.succeeded => {}
                Ok(answers) => {
                    let left = session.left(since);
                    self.contenders.update(&renewal.name, renewal.lease_id, |contender| {
                        contender.session = session;
                        contender.written = answers.revision;
                        contender.terms = Some(record.hold);
                    });
                    return Ok(RenewReply::Renewed { left: Some(left) });
                }
            }
        }
        Err(unavailable("other clients keep changing the grant's record", Certainty::NotApplied))
    }

    /// Returns why a lease id has no key. `seen`: what was known before the read that shows it.
    async fn missing(
        &self,
        renewal: &RenewRequest,
        seen: Option<&KnownContender>,
    ) -> Result<RenewReply, LockError> {
        if let Some(seen) = seen {
            self.contenders.forget_seen(&renewal.name, renewal.lease_id, seen);
        }
        let marks = self.layout.marks(&renewal.name, renewal.lease_id);
        let reply = self.client.range(all_of(marks)).await?;
        Ok(store::marks(&reply.kvs).into_renew_reply())
    }
}

/// An expired session is no error here: its remaining time shows it.
fn or_gone(failure: RequestError) -> Result<(), LockError> {
    match failure {
        RequestError::LeaseGone => Ok(()),
        other => Err(other.into_error()),
    }
}

fn is_detached(hold: Hold) -> bool {
    matches!(hold, Hold::Detached(_))
}

/// Returns whether a grant with the hold `has` needs no change for a renewal to `asked`.
fn needs_no_move(has: Hold, asked: Hold) -> bool {
    is_detached(has) == is_detached(asked) && asked.duration() <= has.duration()
}

/// Returns the hold after a renewal: never a shorter one.
fn moved(has: Hold, asked: Hold) -> Hold {
    let duration = has.duration().max(asked.duration()).unwrap_or_default();
    if is_detached(asked) { Hold::Detached(duration) } else { Hold::Leased(duration) }
}

#[cfg(test)]
mod tests {
    use holdline_conformance::clock::{MachineClock, ManualClock};
    use holdline_conformance::{ManualTime, asking};
    use holdline_core::{AcquireReply, AcquireRequest, Clock};
    use holdline_services::{EtcdConfig, EtcdServer};

    use super::*;
    use crate::queue::Queue;
    use crate::{EtcdEngine, EtcdOptions};

    fn heartbeat(request: &AcquireRequest) -> RenewRequest {
        RenewRequest {
            name: request.name.clone(),
            lease_id: request.lease_id,
            client: request.client,
            purpose: Purpose::Wait,
        }
    }

    /// A member that lags behind serves heartbeats for a few seconds at most (R5).
    #[tokio::test]
    async fn a_majority_confirms_every_few_seconds_that_a_waiter_waits() {
        let server = EtcdServer::start(EtcdConfig::default());
        let options = EtcdOptions::from_url(&server.url()).expect("a good URL");
        let clock = ManualClock::new();
        let engine =
            EtcdEngine::connect(&options, Arc::new(clock.clone())).await.expect("connected");
        let store = engine.store();
        let [holder, waiter] = ["a", "a"].map(asking::request);
        for request in [&holder, &waiter] {
            store.acquire(request).await.expect("an answer");
        }
        let contender = || store.contenders.find(&waiter.name, waiter.lease_id);
        let confirmed = || contender().expect("it waits").confirmed;
        let enqueued = confirmed();
        assert_eq!(enqueued, clock.now());
        let beat = async || {
            let replies = store.renew(&[heartbeat(&waiter)]).await.expect("an answer");
            let is_queued = matches!(replies.as_slice(), [Ok(RenewReply::Queued { .. })]);
            assert!(is_queued, "{replies:?}");
        };
        for _ in 0..4 {
            clock.advance(Duration::from_secs(1));
            beat().await;
            assert_eq!(confirmed(), enqueued, "one member is enough");
        }
        clock.advance(Duration::from_secs(1));
        beat().await;
        assert_eq!(confirmed(), clock.now());
    }

    /// Whatever else one member shows is no answer: it may lag behind (R5).
    #[tokio::test]
    async fn one_member_can_only_show_that_a_waiter_waits() {
        let server = EtcdServer::start(EtcdConfig::default());
        let options = EtcdOptions::from_url(&server.url()).expect("a good URL");
        let clock = Arc::new(MachineClock);
        let engine = EtcdEngine::connect(&options, clock).await.expect("connected");
        let store = engine.store();
        let [holder, waiter] = ["a", "a"].map(asking::request);
        for request in [&holder, &waiter] {
            store.acquire(request).await.expect("an answer");
        }
        let key_of = |request: &AcquireRequest| {
            store.contenders.find(&request.name, request.lease_id).expect("known").key
        };
        let contender = store.contenders.find(&waiter.name, waiter.lease_id).expect("it waits");
        let own = key_of(&waiter);
        let before = key_of(&holder);
        let created = contender.created;
        let shows = |keys: &[(&Vec<u8>, i64)]| {
            let kv = |(key, create_revision): &(&Vec<u8>, i64)| {
                let key = (*key).clone();
                let create_revision = *create_revision;
                (key.clone(), KeyValue { key, create_revision, ..KeyValue::default() })
            };
            ObservedKeys::of(&contender, &keys.iter().map(kv).collect()).shows_a_waiter()
        };
        assert!(shows(&[(&own, created), (&before, created - 1)]));
        for keys in [
            &[][..],
            &[(&before, created - 1)],
            &[(&own, created)],
            &[(&own, created), (&before, created + 1)],
            &[(&own, created + 2), (&before, created - 1)],
        ] {
            assert!(!shows(keys), "{keys:?}");
        }
    }

    /// A renewal waits for its keepalives after it has read. A request of the same lease id may be
    /// applied and answered in between: then its key is not free.
    #[tokio::test]
    async fn a_renewal_that_read_before_a_request_forgets_nothing_of_it() {
        let server = EtcdServer::start(EtcdConfig::default());
        let options = EtcdOptions::from_url(&server.url()).expect("a good URL");
        let engine =
            EtcdEngine::connect(&options, Arc::new(MachineClock)).await.expect("connected");
        let store = engine.store();
        let request = asking::request("a");
        let name = &request.name;
        let id = request.lease_id;
        let reply = store.acquire(&request).await;
        assert!(matches!(reply, Ok(AcquireReply::Granted { .. })), "{reply:?}");

        let contender = store.contenders.find(name, id).expect("it holds");
        let mut before = contender.clone();
        before.in_flight = true;
        before.created = 0;
        before.token = None;
        let renewal = heartbeat(&request);
        let seen = [
            (ObservedKeys::Queue(Ok(Queue::new(vec![]))), None),
            (ObservedKeys::OwnKey { kv: None, blocked: false }, Some(before)),
        ];
        for (observed, before) in seen {
            let now = store.clock.now();
            let reply = store.judge(&renewal, observed, before, &HashMap::new(), now).await;
            assert!(matches!(reply, Ok(RenewReply::Unknown)), "{reply:?}");
            let kept = store.contenders.find(name, id).map(|contender| contender.key);
            assert_eq!(kept.as_ref(), Some(&contender.key), "the key exists");
        }
        let gone = ObservedKeys::OwnKey { kv: None, blocked: false };
        let now = store.clock.now();
        let reply = store.judge(&renewal, gone, Some(contender), &HashMap::new(), now).await;
        assert!(matches!(reply, Ok(RenewReply::Unknown)), "{reply:?}");
        assert!(store.contenders.find(name, id).is_none(), "it is gone");
    }
}
