//! Acquiring: a fresh request, a repeated request, and the answers for each state of the queue.
//!
//! ```text
//! fresh:
//!   obtain an etcd lease for the client and the length of the lease
//!   one transaction: if the name has no key and this lease id no mark,
//!     put a key below the name, in that lease
//!                               -> granted; the token is the revision that made the key
//!   else, if the request may queue, or its mode fits the keys that are there:
//!     put the key, and read the queue
//!                               -> granted or queued, by the keys before it
//!   otherwise                   -> busy; the transaction has put nothing
//! repeated:
//!   the key exists              -> by the keys before it: granted or queued
//!   no key, a mark              -> cancelled or revoked
//!   neither                     -> unknown, or a fresh request
//! a waiter watches the key before its own; when that is deleted, it reads the queue again
//! a wait ends with its limit, with the caller, or with the etcd lease
//! ```

use std::sync::Arc;
use std::time::Duration;

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::sequenced_queue::Contender;
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, ErrorKind, Hold, LeaseId, LockError, LockName, Mode,
    Moment, Record,
};
use tokio::join;

use crate::error::{ENGINE, RequestError, protocol, unavailable};
use crate::keys::KeyEnd;
use crate::known_contenders::KnownContender;
use crate::ops::{
    Answers, absent, all_of, delete, empty, first_of, get, key_value, keys_of, made_at, nested,
    none_since, put,
};
use crate::proto::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest};
use crate::queue::{self, Queue, record};
use crate::sessions::{EtcdSession, EtcdSessionKey};
use crate::store::{self, Store, described, token};

/// How often a request for permits is tried while other clients take permits in between.
const ATTEMPTS: usize = 8;

/// The outcome of the transaction of a fresh request.
enum Entered {
    /// The key exists: the queue with it, and the first key of the queue with its record.
    There { queue: Queue, first: Vec<KeyValue>, revision: i64 },
    /// The name was free, and no contender waits.
    Alone { revision: i64 },
    /// The key was not put.
    Refused(AcquireReply),
    /// The key existed before: the request is a repetition.
    Repeated,
}

impl Store {
    pub(crate) async fn acquire(
        &self,
        request: &AcquireRequest,
    ) -> Result<AcquireReply, LockError> {
        let name = &request.name;
        let id = request.lease_id;
        // Another process may have asked under this id: a detached lease belongs to no process, and
        // any process that knows the id may ask for it again.
        let anywhere = request.known || matches!(request.hold, Hold::Detached(_));
        self.finish_deletion(name, id).await?;
        let known = match self.contenders.find(name, id) {
            None if anywhere => self.find(name, id).await?,
            contender => contender,
        };
        if let (Some(contender), Mode::Exclusive, true) = (&known, request.mode, request.known)
            && let Some(reply) = self.claim(request, contender).await?
        {
            return Ok(reply);
        }
        if (known.is_some() || request.known)
            && let Some(reply) = self.ask_again(request, known).await?
        {
            return Ok(reply);
        }
        self.ask_fresh(request).await
    }

    /// The usual claim, which reads one key: the first key of the queue is this contender's.
    /// `None`: it is not, or this request differs from the one before.
    ///
    /// The first claim of a waiter is a serializable read: the member answers from what it has
    /// applied, without a round of the cluster. At each revision at which the own key is the first,
    /// it holds the name, and it stays the holder for as long as it exists, because new keys are
    /// made behind it. Only the end of its lease, or force, can have deleted it since, as with any
    /// holder. So the lease must be known to last, which the leader has confirmed before, and no
    /// other process may have the lease id: that one could have released it. And the key must be
    /// the one that was made for this request, which its create revision shows: a member that lags
    /// may show the same key from when another request had it.
    async fn claim(
        &self,
        request: &AcquireRequest,
        contender: &KnownContender,
    ) -> Result<Option<AcquireReply>, LockError> {
        let since = self.clock.now();
        let name = &request.name;
        let id = request.lease_id;
        if contender.asked != Some(request.hold) {
            return Ok(None);
        }
        let left = contender.session.left(since);
        if left.is_zero() {
            return Ok(None);
        }
        let first = first_of(self.layout.queue(name), 1);
        let serializable = contender.token.is_none() && !matches!(request.hold, Hold::Detached(_));
        let first = RangeRequest { keys_only: true, serializable, ..first };
        let reply = self.client.range(first).await?;
        let revision = reply.header.map_or(0, |header| header.revision);
        let queue = queue::read_keys(&self.layout, name, reply.kvs, Some((id, &contender.key)))?;
        let Some((entry, None)) = queue.find(id) else { return Ok(None) };
        if entry.mode() != request.mode || entry.kv.create_revision != contender.created {
            return Ok(None);
        }
        self.learn(name, id, &queue, revision)?;
        let token = token(entry)?;
        Ok(Some(AcquireReply::Granted { token, left: Some(left), anchor: None }))
    }

    /// Answers for a lease id that was asked for before. `None`: the store does not know it, and
    /// the request does not claim that it does.
    async fn ask_again(
        &self,
        request: &AcquireRequest,
        contender: Option<KnownContender>,
    ) -> Result<Option<AcquireReply>, LockError> {
        let since = self.clock.now();
        let name = &request.name;
        let id = request.lease_id;
        let mut parts = vec![
            get(all_of(self.layout.marks(name, id))),
            get(first_of(self.layout.queue(name), 1)),
            get(keys_of(self.layout.queue(name))),
        ];
        parts.extend(contender.as_ref().map(|contender| get(key_value(contender.key.clone()))));
        let mut answers = self.read(parts).await?;
        let marks = store::marks(&answers.keys()?);
        let first = answers.keys()?;
        let own = contender.as_ref().map(|contender| (id, contender.key.as_slice()));
        let queue = queue::read_keys(&self.layout, name, answers.keys()?, own)?;
        let own = if contender.is_some() { answers.keys()?.pop() } else { None };
        let own = own.map(|kv| Ok::<_, LockError>((record(&kv.value)?, kv))).transpose()?;
        // The key of another lease id is as good as none.
        let own = own.filter(|(record, _)| record.lease_id.is_none_or(|other| other == id));
        let (contender, (record, own)) = match (contender, own) {
            (Some(contender), Some(own)) => (contender, own),
            (contender, _) => {
                if let Some(contender) = contender {
                    self.contenders.forget_seen(name, id, &contender);
                }
                marks.check(ENGINE)?;
                return Ok(request.known.then_some(AcquireReply::Unknown));
            }
        };
        let asked = record.asked;
        let mode = queue.find(id).map(|(entry, _)| entry.mode());
        if (mode, asked) != (Some(request.mode), request.hold) {
            let message = "was asked before with another mode or lease; draw a new lease id";
            return Err(LockError::invalid(ENGINE, "lease_id", message));
        }
        self.contenders.update(name, id, |contender| contender.asked = Some(asked));
        self.learn(name, id, &queue, answers.revision)?;
        let session =
            self.session_at(request.client, name, id, &contender, &own, record.hold).await;
        match self.left(&session, since).await? {
            Some(left) => self.reply_for(request, &queue, first, left).map(Some),
            None => Ok(Some(AcquireReply::Unknown)),
        }
    }

    /// Makes the key. If an earlier request under this lease id had no reply, it is the same key as
    /// long as the session is (H3 of [`crate::known_contenders`]).
    async fn ask_fresh(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let name = &request.name;
        let id = request.lease_id;
        let key = EtcdSessionKey::of(request.client, id, request.hold);
        for _ in 0..ATTEMPTS {
            let since = self.clock.now();
            let earlier = self.contenders.find(name, id);
            let session = self.session_for(key, earlier.as_ref()).await?;
            let repeated = earlier.is_some();
            let number = match (key, earlier.and_then(|contender| contender.number)) {
                (EtcdSessionKey::Lease(..), _) => None,
                (_, Some((number, of))) if Arc::ptr_eq(&of, &session) => Some(number),
                _ => Some(session.take_number(name)),
            };
            let end = number.map_or(KeyEnd::LeaseId(id), KeyEnd::Number);
            let own = self.layout.contender(name, end, request.mode, session.lease);
            let mut contender = KnownContender::new(own.clone(), session.clone());
            contender.number = number.map(|number| (number, session.clone()));
            contender.in_flight = true;
            contender.repeated = repeated;
            contender.asked = Some(request.hold);
            contender.terms = Some(request.hold);
            self.contenders.note(name, id, contender, since);
            let entering = self.enter(request, &own, session.lease);
            let (entered, kept) = join!(entering, self.sessions.keep(&session));
            match (entered, kept) {
                (Err(RequestError::LeaseGone), _) => {
                    // The request was refused, so no key exists. The next attempt uses a new lease.
                    self.contenders.forget_for_good(name, id);
                    session.end();
                }
                (Err(failure), _) => {
                    let error = failure.into_error();
                    if error.certainty() == Certainty::NotApplied {
                        self.contenders.answered(name, id);
                        self.contenders.forget(name, id);
                    }
                    return Err(error);
                }
                (Ok(Entered::Refused(reply)), _) => {
                    self.contenders.answered(name, id);
                    self.contenders.forget(name, id);
                    return Ok(reply);
                }
                (Ok(_), Err(RequestError::LeaseGone)) => return Err(ended_on_the_way()),
                // The time that the session is known to have left is still valid.
                (Ok(entered), _) => {
                    self.contenders.answered(name, id);
                    return self.entered(request, entered, since).await;
                }
            }
        }
        Err(unavailable("the session ends again and again", Certainty::NotApplied))
    }

    /// Returns the session for a request: that of an earlier request without a reply, unless etcd
    /// says that it has ended. By our clock alone it may only seem so, and then the late request
    /// could make a key in it (H3).
    async fn session_for(
        &self,
        key: EtcdSessionKey,
        earlier: Option<&KnownContender>,
    ) -> Result<Arc<EtcdSession>, RequestError> {
        let in_flight = earlier.filter(|contender| contender.in_flight);
        if let Some((_, session)) = in_flight.and_then(|contender| contender.number.as_ref()) {
            match self.sessions.keep(session).await {
                Ok(()) => return Ok(session.clone()),
                Err(RequestError::LeaseGone) => {}
                Err(failure) => return Err(failure),
            }
        }
        self.sessions.obtain(key).await
    }

    /// Answers for a key that exists now.
    async fn entered(
        &self,
        request: &AcquireRequest,
        entered: Entered,
        since: Moment,
    ) -> Result<AcquireReply, LockError> {
        let name = &request.name;
        let id = request.lease_id;
        let Some(contender) = self.contenders.find(name, id) else {
            return Err(ended_on_the_way());
        };
        let left = contender.session.left(since);
        if left.is_zero() {
            return Err(ended_on_the_way());
        }
        match entered {
            Entered::Alone { revision } => {
                let number = u64::try_from(revision).unwrap_or(0);
                let token = holdline_core::FencingToken::new(number)
                    .map_err(|_| protocol(format!("the revision {revision} is no token")))?;
                self.contenders.update(name, id, |contender| {
                    contender.token = Some(token);
                    contender.created = revision;
                    contender.written = revision;
                    contender.read_at = revision;
                });
                Ok(AcquireReply::Granted { token, left: Some(left), anchor: None })
            }
            Entered::There { queue, first, revision } => {
                let limit = self.capabilities.max_waiters;
                if queue.find(id).is_some_and(|(_, waits)| waits.is_some_and(|at| at >= limit)) {
                    let certainty = self.take_back(name, id, contender.key, revision).await;
                    let kind = ErrorKind::TooManyWaiters { limit };
                    return Err(LockError::new(ENGINE, kind, certainty));
                }
                self.learn(&request.name, id, &queue, revision)?;
                match self.reply_for(request, &queue, first, left) {
                    Err(error) if matches!(error.kind(), ErrorKind::Foreign { .. }) => {
                        // The first key of the queue is foreign, which only its value has shown.
                        let certainty = self.take_back(name, id, contender.key, revision).await;
                        Err(error.with_certainty(certainty))
                    }
                    reply => reply,
                }
            }
            Entered::Repeated => match self.ask_again(request, Some(contender)).await? {
                Some(reply) => Ok(reply),
                None => Err(ended_on_the_way()),
            },
            Entered::Refused(reply) => Ok(reply),
        }
    }

    /// Returns the state of a lease id that has a key.
    fn reply_for(
        &self,
        request: &AcquireRequest,
        queue: &Queue,
        first: Vec<KeyValue>,
        left: Duration,
    ) -> Result<AcquireReply, LockError> {
        let Some((entry, waits)) = queue.find(request.lease_id) else {
            return Ok(AcquireReply::Unknown);
        };
        match waits {
            None => {
                let token = token(entry)?;
                Ok(AcquireReply::Granted { token, left: Some(left), anchor: None })
            }
            Some(at) => {
                let first = queue::read(&self.layout, &request.name, first)?;
                let first = first.holders().first();
                let holder = first.map(|first| described(first, None)).transpose()?.map(Box::new);
                let next_look = QUEUE_HEARTBEAT;
                Ok(AcquireReply::Queued { position: Some(at), holder, next_look })
            }
        }
    }

    /// Puts the key if the name allows it. An empty queue allows every mode, and needs no reads: if
    /// the name was free lately, the first transaction has no more than that.
    async fn enter(
        &self,
        request: &AcquireRequest,
        own: &[u8],
        lease: i64,
    ) -> Result<Entered, RequestError> {
        let name = &request.name;
        let mut record = Record::new(request.hold, &request.metadata);
        let is_numbered = !matches!(request.hold, Hold::Detached(_));
        record.lease_id = is_numbered.then_some(request.lease_id);
        let put = put(own.to_vec(), record.to_bytes(), lease);
        let free =
            vec![empty(self.layout.queue(name)), empty(self.layout.marks(name, request.lease_id))];
        if !self.busy.is_busy(name) {
            let compare = free.clone();
            let success = vec![put.clone()];
            let txn = TxnRequest { compare, success, failure: Vec::new() };
            let mut answers = self.txn(txn).await?;
            if answers.succeeded {
                answers.done()?;
                return Ok(Entered::Alone { revision: answers.revision });
            }
        }
        let mut conditions = self.conditions(request, None);
        for _ in 0..ATTEMPTS {
            let reads = self.reads(request, own);
            let behind_others = conditions.map(|mut compare| {
                compare.push(absent(own.to_vec()));
                compare.push(empty(self.layout.marks(name, request.lease_id)));
                let queue = self.layout.queue(name);
                let success =
                    vec![put.clone(), get(keys_of(queue.clone())), get(first_of(queue, 1))];
                vec![nested(TxnRequest { compare, success, failure: reads.clone() })]
            });
            let is_nested = behind_others.is_some();
            let compare = free.clone();
            let success = vec![put.clone()];
            let failure = behind_others.unwrap_or(reads);
            let mut answers = self.txn(TxnRequest { compare, success, failure }).await?;
            self.busy.note(name, !answers.succeeded);
            if answers.succeeded {
                answers.done()?;
                return Ok(Entered::Alone { revision: answers.revision });
            }
            if is_nested {
                answers = answers.nested()?;
            }
            if answers.succeeded {
                return self.put_done(request, own, answers).await;
            }
            match self.refused(request, &mut answers).await? {
                Some(entered) => return Ok(entered),
                // The name allows it, but the conditions were stricter.
                None => conditions = self.conditions(request, Some(answers.revision)),
            }
        }
        let busy = AcquireReply::Busy { holder: None, at_most: None, next_look: QUEUE_HEARTBEAT };
        Ok(Entered::Refused(busy))
    }

    /// Returns the conditions for putting the key behind others; `None`: the queue must be empty.
    /// `allowed_at`: the name allowed it at this revision.
    fn conditions(
        &self,
        request: &AcquireRequest,
        allowed_at: Option<i64>,
    ) -> Option<Vec<Compare>> {
        let name = &request.name;
        let mode = request.mode;
        let other_kinds = || self.layout.other_kinds(name, mode).into_iter().map(empty);
        match (request.queue, mode, allowed_at) {
            (true, ..) => Some(other_kinds().collect()),
            (false, Mode::Shared, _) => {
                Some(other_kinds().chain([empty(self.layout.exclusive(name))]).collect())
            }
            (false, Mode::Permits { .. }, Some(revision)) => {
                Some(vec![none_since(self.layout.queue(name), revision)])
            }
            (false, ..) => None,
        }
    }

    /// Returns the reads for the case that the key is not put.
    fn reads(&self, request: &AcquireRequest, own: &[u8]) -> Vec<RequestOp> {
        vec![
            get(key_value(own.to_vec())),
            get(all_of(self.layout.marks(&request.name, request.lease_id))),
            get(first_of(self.layout.queue(&request.name), 1)),
            get(keys_of(self.layout.queue(&request.name))),
        ]
    }

    async fn put_done(
        &self,
        request: &AcquireRequest,
        own: &[u8],
        mut answers: Answers,
    ) -> Result<Entered, RequestError> {
        answers.done()?;
        let revision = answers.revision;
        let own_key = Some((request.lease_id, own));
        match queue::read_keys(&self.layout, &request.name, answers.keys()?, own_key) {
            Ok(queue) => Ok(Entered::There { queue, first: answers.keys()?, revision }),
            Err(foreign) => {
                let name = &request.name;
                let id = request.lease_id;
                let certainty = self.take_back(name, id, own.to_vec(), revision).await;
                Err(RequestError::Error(foreign.with_certainty(certainty)))
            }
        }
    }

    /// Deletes a key that must not stay, and that was made at this revision: a deletion that is
    /// late must not delete what is made later. Returns whether the key may still exist; then the
    /// next request under the lease id repeats the deletion before it does anything else (H5 of
    /// [`crate::known_contenders`]).
    async fn take_back(
        &self,
        name: &LockName,
        id: LeaseId,
        key: Vec<u8>,
        revision: i64,
    ) -> Certainty {
        let compare = vec![made_at(key.clone(), revision)];
        let txn = TxnRequest { compare, success: vec![delete(key)], failure: Vec::new() };
        // The request that made the key has its reply.
        self.contenders.answered(name, id);
        self.contenders.update(name, id, |contender| contender.deleting = Some(revision));
        match self.txn(txn).await {
            Ok(_) => {
                self.contenders.update(name, id, |contender| contender.deleting = None);
                self.contenders.forget(name, id);
                Certainty::NotApplied
            }
            Err(failure) => {
                let error = failure.into_error();
                tracing::debug!(%error, "a key could not be deleted again");
                Certainty::Unknown
            }
        }
    }

    /// Repeats a deletion that had no reply (H5 of [`crate::known_contenders`]).
    async fn finish_deletion(&self, name: &LockName, id: LeaseId) -> Result<(), LockError> {
        let Some(contender) = self.contenders.find(name, id) else { return Ok(()) };
        let Some(revision) = contender.deleting else { return Ok(()) };
        match self.take_back(name, id, contender.key, revision).await {
            Certainty::NotApplied => Ok(()),
            certainty => {
                let message = "a key of an earlier request could not be deleted yet";
                Err(unavailable(message, certainty))
            }
        }
    }

    /// Returns why the key was not put; `None` if it may be tried again.
    async fn refused(
        &self,
        request: &AcquireRequest,
        answers: &mut Answers,
    ) -> Result<Option<Entered>, LockError> {
        if !answers.keys()?.is_empty() {
            return Ok(Some(Entered::Repeated));
        }
        store::marks(&answers.keys()?).check(ENGINE)?;
        let first = queue::read(&self.layout, &request.name, answers.keys()?)?;
        let queue = queue::read_keys(&self.layout, &request.name, answers.keys()?, None)?;
        let Some(holder) = first.holders().first() else { return Ok(None) };
        queue.check_mode(ENGINE, request.mode)?;
        if request.queue || queue.admits(request.mode) {
            return Ok(None);
        }
        let holder = self.summary(holder).await?;
        let at_most = if queue.holders().len() == 1 { holder.left } else { None };
        let busy = AcquireReply::Busy {
            holder: Some(Box::new(holder)),
            at_most,
            next_look: QUEUE_HEARTBEAT,
        };
        Ok(Some(Entered::Refused(busy)))
    }
}

fn ended_on_the_way() -> LockError {
    unavailable("the session ended while the name was asked for", Certainty::Unknown)
}
