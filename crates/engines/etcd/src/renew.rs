//! Renewal: keepalives for the sessions, and concurrently a read of every key.
//!
//! - R1: a grant is renewed if the keepalive of its session succeeded *and* its key exists: either
//!   may be gone without the other.
//! - R2: a key that was made at another revision, or whose record names another lease id, belongs
//!   to a later request.
//! - R3: a grant may have been moved to another etcd lease by a request whose reply was lost, or by
//!   another process. The lease of the key counts.
//! - R4: the whole queue, a mark or a record is read in a second step, and only if it is needed. A
//!   grant that was not changed does not need it.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{
    Certainty, Hold, LockError, Moment, Purpose, RenewReply, RenewRequest, Renewed,
};
use tokio::join;

use crate::error::{RequestError, unavailable};
use crate::held::Held;
use crate::ops::{all_of, get, key_alone, key_value, put, written_at};
use crate::proto::{KeyValue, TxnRequest};
use crate::queue::{self, Queue, record};
use crate::sessions::{Session, SessionKey};
use crate::store::{self, Store};

/// How many operations a transaction may have: the servers' default.
const PARTS: usize = 128;
/// How often a change of a record is tried while other clients change it.
const ATTEMPTS: usize = 5;

/// What the first read has shown for one request.
enum Observed {
    /// The key, and whether the key that blocks it still exists. The same key may have been made
    /// again since, behind it.
    SessionKey { kv: Option<KeyValue>, blocked: bool },
    /// The lease id was not known to this engine: the whole queue.
    Queue(Result<Queue, LockError>),
}

impl Store {
    pub(crate) async fn renew(&self, requests: &[RenewRequest]) -> Renewed {
        let since = self.clock.now();
        let held: Vec<Option<Held>> = requests
            .iter()
            .map(|request| self.held.find(&request.name, request.lease_id))
            .collect();
        let (observed, kept) = join!(self.observe(requests, &held), self.keep_all(&held));
        let mut answers = Vec::with_capacity(requests.len());
        for ((request, observed), held) in requests.iter().zip(observed?).zip(held) {
            answers.push(self.judge(request, observed, held, &kept, since).await);
        }
        Ok(answers)
    }

    /// Sends one keepalive for each session.
    async fn keep_all(&self, held: &[Option<Held>]) -> HashMap<i64, Result<(), RequestError>> {
        let mut sessions: HashMap<i64, Arc<Session>> = HashMap::new();
        for held in held.iter().flatten() {
            sessions.entry(held.session.lease).or_insert_with(|| held.session.clone());
        }
        let keep =
            async |session: Arc<Session>| (session.lease, self.sessions.keep(&session).await);
        join_all(sessions.into_values().map(keep)).await.into_iter().collect()
    }

    /// Reads the keys of all requests, in as few transactions as possible.
    async fn observe(
        &self,
        requests: &[RenewRequest],
        held: &[Option<Held>],
    ) -> Result<Vec<Observed>, LockError> {
        let mut observed = Vec::with_capacity(requests.len());
        let pairs: Vec<_> = requests.iter().zip(held).collect();
        for pairs in pairs.chunks(PARTS / 2) {
            let parts = pairs.iter().flat_map(|(request, held)| match held {
                Some(held) => {
                    let blocker = held.blocker();
                    let own = get(key_alone(held.key.clone()));
                    vec![Some(own), blocker.map(|key| get(key_alone(key.clone())))]
                }
                None => vec![Some(get(all_of(self.layout.queue(&request.name))))],
            });
            let mut answers = self.read(parts.flatten().collect()).await?;
            for (request, held) in pairs {
                observed.push(match held {
                    Some(held) => {
                        let kv = answers.keys()?.pop();
                        let blocker = match held.blocker() {
                            Some(_) => answers.keys()?.pop(),
                            None => None,
                        };
                        let blocked = kv.as_ref().zip(blocker).is_some_and(|(own, blocker)| {
                            blocker.create_revision < own.create_revision
                        });
                        Observed::SessionKey { kv, blocked }
                    }
                    None => {
                        let kvs = answers.keys()?;
                        Observed::Queue(queue::read(&self.layout, &request.name, kvs))
                    }
                });
            }
        }
        Ok(observed)
    }

    async fn judge(
        &self,
        request: &RenewRequest,
        observed: Observed,
        held: Option<Held>,
        kept: &HashMap<i64, Result<(), RequestError>>,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        let id = request.lease_id;
        // 1. Which key does the request mean? This process knows it, or finds it in the queue and
        //    adopts it: then its session must be kept alive first.
        let (held, kv, blocked) = match (observed, held) {
            (Observed::SessionKey { kv, blocked }, Some(held)) => (held, kv, blocked),
            (Observed::Queue(queue), _) => match queue?.find(id) {
                Some((entry, _)) => {
                    let held = self.adopt(&request.name, id, entry);
                    self.sessions.keep(&held.session).await.or_else(or_gone)?;
                    (held, Some(entry.kv.clone()), false)
                }
                None => return self.missing(request, None).await,
            },
            (Observed::SessionKey { .. }, None) => return self.missing(request, None).await,
        };
        // 2. The key is gone, or another request has made it again (R2).
        let Some(kv) = kv.filter(|kv| held.may_be_made_at(kv.create_revision)) else {
            return self.missing(request, Some(&held)).await;
        };
        // 3. Does the session live (R1)? If the keepalive failed, what is left of it decides.
        let left = held.session.left(since);
        let is_over = match kept.get(&held.session.lease) {
            Some(Err(RequestError::LeaseGone)) => true,
            Some(Err(_)) if left.is_zero() => {
                let message = "the session could not be kept alive";
                return Err(unavailable(message, Certainty::Unknown));
            }
            _ => left.is_zero(),
        };
        // A waiter's key is never moved (R3).
        if is_over && request.purpose == Purpose::Wait {
            return self.missing(request, Some(&held)).await;
        }
        // 4. Another key is ahead: the request still waits.
        if blocked {
            return Ok(RenewReply::Queued { position: None, next_look: QUEUE_HEARTBEAT });
        }
        // 5. No key is ahead any more. A waiter that does not know its token yet reads the queue
        //    (R4), which says whether it holds.
        if held.token.is_none() {
            let (queue, revision) = self.queue(&request.name, (id, &held.key)).await?;
            self.learn(&request.name, id, &queue, revision)?;
            match queue.find(id) {
                None => return self.missing(request, Some(&held)).await,
                Some((_, Some(at))) => {
                    return Ok(RenewReply::Queued {
                        position: Some(at),
                        next_look: QUEUE_HEARTBEAT,
                    });
                }
                Some((_, None)) => {}
            }
        }
        // 6. It holds: a waiter asks for its grant, a holder's grant is kept.
        match request.purpose {
            Purpose::Wait => Ok(RenewReply::Held { left: Some(left) }),
            Purpose::Keep(hold) => self.keep_grant(request, hold, &held, &kv, since).await,
        }
    }

    /// Renews a grant after the keepalive of its session.
    async fn keep_grant(
        &self,
        request: &RenewRequest,
        hold: Hold,
        held: &Held,
        kv: &KeyValue,
        since: Moment,
    ) -> Result<RenewReply, LockError> {
        // The usual case: nobody has written the key since, and the terms stay. The keepalive was
        // the whole renewal.
        let left = held.session.left(since);
        let same = held.terms.is_some_and(|terms| needs_no_move(terms, hold));
        if kv.mod_revision == held.written && same && !left.is_zero() {
            return Ok(RenewReply::Renewed { left: Some(left) });
        }
        // Else the record is read, changed and written, unless somebody writes it meanwhile: then
        // again.
        for _ in 0..ATTEMPTS {
            // 1. The key must still be ours (R2).
            let found = self.client.range(key_value(held.key.clone())).await?.kvs.pop();
            let Some(kv) = found.filter(|kv| held.may_be_made_at(kv.create_revision)) else {
                return self.missing(request, Some(held)).await;
            };
            let mut record = record(&kv.value)?;
            if record.lease_id.is_some_and(|other| other != request.lease_id) {
                return self.missing(request, Some(held)).await;
            }
            // 2. Find the session that carries the key now, which may be another one (R3), and keep
            //    it alive.
            let client = request.client;
            let id = request.lease_id;
            let name = &request.name;
            let session = self.session_at(client, name, id, held, &kv, record.hold).await;
            if session.lease != held.session.lease {
                self.sessions.keep(&session).await.or_else(or_gone)?;
            }
            let left = session.left(since);
            if left.is_zero() {
                return self.missing(request, Some(held)).await;
            }
            // 3. A revocation ends the grant, whatever the session says.
            if let Some(reason) = record.revoked {
                return Ok(RenewReply::Revoked { reason, left: Some(left) });
            }
            // 4. Remember what was read. If the session is as long as the terms ask, that is all.
            self.held.update(&request.name, request.lease_id, |held| {
                held.written = kv.mod_revision;
                held.terms = Some(record.hold);
            });
            if needs_no_move(record.hold, hold) {
                return Ok(RenewReply::Renewed { left: Some(left) });
            }
            // 5. Move the key to a session of the new length, if it is as it was read.
            record.hold = moved(record.hold, hold);
            let key = SessionKey::of(request.client, request.lease_id, record.hold);
            let session = self.sessions.obtain(key).await?;
            self.sessions.keep(&session).await.or_else(or_gone)?;
            let compare = vec![written_at(held.key.clone(), kv.mod_revision)];
            let success = vec![put(held.key.clone(), record.to_bytes(), session.lease)];
            let txn = TxnRequest { compare, success, failure: Vec::new() };
            match self.txn(txn).await {
                Err(RequestError::LeaseGone) => session.end(),
                Err(failure) => return Err(failure.into_error()),
                Ok(answers) if !answers.succeeded => {}
                Ok(answers) => {
                    let left = session.left(since);
                    self.held.update(&request.name, request.lease_id, |held| {
                        held.session = session;
                        held.written = answers.revision;
                        held.terms = Some(record.hold);
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
        request: &RenewRequest,
        seen: Option<&Held>,
    ) -> Result<RenewReply, LockError> {
        if let Some(seen) = seen {
            self.held.forget_seen(&request.name, request.lease_id, seen);
        }
        let marks = self.layout.marks(&request.name, request.lease_id);
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
    use std::collections::HashMap;
    use std::sync::Arc;

    use holdline_conformance::{asking, clock::MachineClock};
    use holdline_core::{AcquireReply, Purpose, RenewReply, RenewRequest};
    use holdline_services::{EtcdConfig, EtcdServer};

    use super::Observed;
    use crate::queue::Queue;
    use crate::{EtcdEngine, EtcdOptions};

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

        let held = store.held.find(name, id).expect("it holds");
        let mut before = held.clone();
        before.in_flight = true;
        before.created = 0;
        before.token = None;
        let client = request.client;
        let purpose = Purpose::Wait;
        let renewal = RenewRequest { name: name.clone(), lease_id: id, client, purpose };
        let seen = [
            (Observed::Queue(Ok(Queue::new(vec![]))), None),
            (Observed::SessionKey { kv: None, blocked: false }, Some(before)),
        ];
        for (observed, before) in seen {
            let now = store.clock.now();
            let reply = store.judge(&renewal, observed, before, &HashMap::new(), now).await;
            assert!(matches!(reply, Ok(RenewReply::Unknown)), "{reply:?}");
            let kept = store.held.find(name, id).map(|held| held.key);
            assert_eq!(kept.as_ref(), Some(&held.key), "the key exists");
        }
        let gone = Observed::SessionKey { kv: None, blocked: false };
        let now = store.clock.now();
        let reply = store.judge(&renewal, gone, Some(held), &HashMap::new(), now).await;
        assert!(matches!(reply, Ok(RenewReply::Unknown)), "{reply:?}");
        assert!(store.held.find(name, id).is_none(), "it is gone");
    }
}
