//! Acquiring: a fresh request, a repeated request, and the answers for each state of the queue.
//!
//! ```text
//! fresh:
//!   obtain an etcd lease for the client and the length of the lease
//!   one transaction: if the name has no key and this lease id no mark,
//!     put a key below the name, in that lease
//!                               -> granted; the token is the revision that made the key
//!   else, if the request may queue, or its mode fits the keys that are there:
//!     put the key, and read the front of the queue and the keys directly before the own one
//!                               -> granted or queued, by the keys before it
//!   otherwise                   -> busy; the transaction has put nothing
//! repeated:
//!   the key exists              -> by the keys before it: granted or queued
//!   no key, a mark              -> cancelled or revoked
//!   neither                     -> unknown, or a fresh request
//! a waiter watches the keys that block it; when one is deleted, it reads the keys before it again
//! a wait ends with its limit, with the caller, or with the etcd lease
//! ```

use std::sync::Arc;
use std::time::Duration;

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, ErrorKind, Hold, LeaseId, LockError, LockName, Mode,
    Moment, Record,
};
use tokio::join;

use crate::error::{ENGINE, RequestError, unavailable};
use crate::keys::KeyEnd;
use crate::known_contenders::KnownContender;
use crate::ops::{
    Answers, absent, all_of, delete, empty, get, key_value, keys_of, made_at, none_since, put,
};
use crate::proto::{Compare, RangeRequest, RequestOp, TxnRequest};
use crate::queue::{self, ContenderState, OwnKey, QueueEntry, record};
use crate::sessions::{EtcdSession, EtcdSessionKey};
use crate::store::{self, Store, described, token_at};

/// How often a request for permits is tried while other clients take permits in between.
const ATTEMPTS: usize = 8;

/// The outcome of the transaction of a fresh request.
enum Entered {
    /// The key exists.
    There { state: ContenderState, revision: i64 },
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
        if let (Some(contender), true) = (&known, request.known)
            && let Some(reply) = self.read_turn(request, contender).await?
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

    /// The usual request of a waiter, which reads its own key and those that may block it: none of
    /// them does.
    /// `None`: one does, or this request differs from the one before.
    ///
    /// The first read of a waiter is serializable: the member answers from what it has
    /// applied, without a round of the cluster. At each revision at which no key blocks the own
    /// one, it holds the name, and it stays a holder for as long as it exists, because new keys are
    /// made behind it. Only the end of its lease, or force, can have deleted it since, as with any
    /// holder. So the lease must be known to last, which the leader has confirmed before, and no
    /// other process may have the lease id: that one could have released it. And the key must be
    /// the one that was made for this request, which its create revision shows: a member that lags
    /// may show the same key from when another request had it.
    async fn read_turn(
        &self,
        request: &AcquireRequest,
        contender: &KnownContender,
    ) -> Result<Option<AcquireReply>, LockError> {
        let since = self.clock.now();
        let name = &request.name;
        let id = request.lease_id;
        let key = contender.key.as_slice();
        let mode = self.mode_of(name, key)?;
        let created = contender.created;
        // A shared contender does not read its own key beside those that may block it.
        let is_usual = (mode, contender.asked) == (request.mode, Some(request.hold))
            && mode != Mode::Shared
            && created > 0;
        let left = contender.session.left(since);
        if !is_usual || left.is_zero() {
            return Ok(None);
        }
        let before = queue::nearest_before(&self.layout, name, mode, Some(created));
        let serializable = contender.token.is_none() && !matches!(request.hold, Hold::Detached(_));
        let reply = self.client.range(RangeRequest { serializable, ..before }).await?;
        let exists = reply.kvs.iter().any(|kv| kv.key == key && kv.create_revision == created);
        let own = OwnKey { key, mode, created, is_last: false };
        let blockers = queue::blockers_of(&self.layout, name, own, reply.kvs)?;
        if !exists || !blockers.is_empty() {
            return Ok(None);
        }
        let revision = reply.header.map_or(0, |header| header.revision);
        let token = self.record_grant(name, id, created, revision)?;
        Ok(Some(AcquireReply::Granted { token, left: Some(left), anchor: None }))
    }

    /// Answers for a lease id that was asked for before. `None`: the store does not know it, and
    /// the request does not say that it does.
    async fn ask_again(
        &self,
        request: &AcquireRequest,
        contender: Option<KnownContender>,
    ) -> Result<Option<AcquireReply>, LockError> {
        let since = self.clock.now();
        let name = &request.name;
        let id = request.lease_id;
        let Some(contender) = contender else {
            let marks = self.client.range(all_of(self.layout.marks(name, id))).await?;
            store::marks(&marks.kvs).check(ENGINE)?;
            return Ok(request.known.then_some(AcquireReply::Unknown));
        };
        let mode = self.mode_of(name, &contender.key)?;
        let mut created = contender.created;
        for _ in 0..ATTEMPTS {
            let before = queue::nearest_before(&self.layout, name, mode, Some(created));
            let parts = vec![
                get(all_of(self.layout.marks(name, id))),
                get(key_value(contender.key.clone())),
                get(queue::front(&self.layout, name)),
                get(before),
            ];
            let mut answers = self.read(parts).await?;
            let marks = store::marks(&answers.keys()?);
            let own = answers.keys()?.pop();
            let own = own.map(|kv| Ok::<_, LockError>((record(&kv.value)?, kv))).transpose()?;
            // The key of another lease id is as good as none.
            let own = own.filter(|(record, _)| record.lease_id.is_none_or(|other| other == id));
            let Some((record, own)) = own else {
                self.contenders.forget_seen(name, id, &contender);
                marks.check(ENGINE)?;
                return Ok(request.known.then_some(AcquireReply::Unknown));
            };
            if own.create_revision != created {
                // The reply that would have said at which revision the key was made was lost.
                created = own.create_revision;
                continue;
            }
            if (mode, record.asked) != (request.mode, request.hold) {
                let message = "was asked before with another mode or lease; draw a new lease id";
                return Err(LockError::invalid(ENGINE, "lease_id", message));
            }
            let key = &contender.key;
            let own_key = OwnKey { key, mode, created, is_last: false };
            let front = answers.range()?;
            let before = answers.keys()?;
            let state = queue::state_of(&self.layout, name, own_key, front, before)?;
            self.contenders.update(name, id, |contender| contender.asked = Some(record.asked));
            self.learn(name, id, &state, answers.revision)?;
            let client = request.client;
            let session = self.session_at(client, name, id, &contender, &own, record.hold).await;
            return match self.left(&session, since).await? {
                Some(left) => self.reply_for(name, &state, left).map(Some),
                None => Ok(Some(AcquireReply::Unknown)),
            };
        }
        Err(unavailable("the key is made again and again", Certainty::NotApplied))
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
                let token = self.record_grant(name, id, revision, revision)?;
                Ok(AcquireReply::Granted { token, left: Some(left), anchor: None })
            }
            Entered::There { state, revision } => {
                let limit = self.capabilities.max_waiters;
                if self.waits_behind(limit, name, &state).await? {
                    let certainty = self.take_back(name, id, contender.key, revision).await;
                    let kind = ErrorKind::TooManyWaiters { limit };
                    return Err(LockError::new(ENGINE, kind, certainty));
                }
                self.learn(&request.name, id, &state, revision)?;
                match self.reply_for(name, &state, left) {
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

    /// Returns whether a contender waits behind at least so many others.
    async fn waits_behind(
        &self,
        limit: usize,
        name: &LockName,
        state: &ContenderState,
    ) -> Result<bool, LockError> {
        if state.holds() || state.most_before < limit {
            return Ok(false);
        }
        if let Some(position) = state.position {
            return Ok(position >= limit);
        }
        // More hold the name than are read at the front: this is rare, and the whole queue is read.
        let reply = self.client.range(keys_of(self.layout.queue(name))).await?;
        let queue = queue::read_keys(&self.layout, name, reply.kvs)?;
        let before = |entry: &&QueueEntry| entry.kv.create_revision < state.created;
        Ok(queue.waiting().iter().filter(before).count() >= limit)
    }

    /// Returns the reply to a lease id that has a key.
    fn reply_for(
        &self,
        name: &LockName,
        state: &ContenderState,
        left: Duration,
    ) -> Result<AcquireReply, LockError> {
        if state.holds() {
            let token = token_at(state.created)?;
            return Ok(AcquireReply::Granted { token, left: Some(left), anchor: None });
        }
        let first = queue::read(&self.layout, name, state.first.iter().cloned().collect())?;
        let first = first.holders().first();
        let holder = first.map(|first| described(first, None)).transpose()?.map(Box::new);
        let next_look = QUEUE_HEARTBEAT;
        Ok(AcquireReply::Queued { position: state.position, holder, next_look })
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
            let mut compare = conditions;
            compare.push(absent(own.to_vec()));
            compare.push(empty(self.layout.marks(name, request.lease_id)));
            let before = queue::nearest_before(&self.layout, name, request.mode, None);
            let front = queue::front(&self.layout, name);
            let success = vec![put.clone(), get(front), get(before)];
            let failure = self.reads(request, own);
            let mut answers = self.txn(TxnRequest { compare, success, failure }).await?;
            if answers.succeeded {
                return self.put_done(request, own, answers).await;
            }
            self.busy.note(name, true);
            match self.refused(request, &mut answers).await? {
                Some(entered) => return Ok(entered),
                // The name allows it, but the conditions were stricter.
                None => conditions = self.conditions(request, Some(answers.revision)),
            }
        }
        let busy = AcquireReply::Busy { holder: None, at_most: None, next_look: QUEUE_HEARTBEAT };
        Ok(Entered::Refused(busy))
    }

    /// Returns the conditions for putting the key. An empty queue fulfils all of them.
    /// `allowed_at`: the name allowed it at this revision.
    fn conditions(&self, request: &AcquireRequest, allowed_at: Option<i64>) -> Vec<Compare> {
        let name = &request.name;
        let mode = request.mode;
        let other_kinds = || self.layout.other_kinds(name, mode).into_iter().map(empty);
        match (request.queue, mode, allowed_at) {
            (true, ..) => other_kinds().collect(),
            (false, Mode::Shared, _) => {
                other_kinds().chain([empty(self.layout.exclusive(name))]).collect()
            }
            (false, Mode::Permits { .. }, Some(revision)) => {
                vec![none_since(self.layout.queue(name), revision)]
            }
            (false, ..) => vec![empty(self.layout.queue(name))],
        }
    }

    /// Returns the reads for the case that the key is not put.
    fn reads(&self, request: &AcquireRequest, own: &[u8]) -> Vec<RequestOp> {
        let name = &request.name;
        let mut reads = vec![
            get(key_value(own.to_vec())),
            get(all_of(self.layout.marks(name, request.lease_id))),
            get(queue::front(&self.layout, name)),
        ];
        if needs_whole_queue(request) {
            reads.push(get(keys_of(self.layout.queue(name))));
        }
        reads
    }

    async fn put_done(
        &self,
        request: &AcquireRequest,
        own: &[u8],
        mut answers: Answers,
    ) -> Result<Entered, RequestError> {
        answers.done()?;
        let revision = answers.revision;
        let name = &request.name;
        let front = answers.range()?;
        self.busy.note(name, front.count > 1);
        let own_key = OwnKey { key: own, mode: request.mode, created: revision, is_last: true };
        match queue::state_of(&self.layout, name, own_key, front, answers.keys()?) {
            Ok(state) => Ok(Entered::There { state, revision }),
            Err(foreign) => {
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
        let front = answers.keys()?;
        let first = front.first().cloned();
        let first = queue::read(&self.layout, &request.name, first.into_iter().collect())?;
        let queue = if needs_whole_queue(request) { answers.keys()? } else { front };
        let queue = queue::read_keys(&self.layout, &request.name, queue)?;
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

/// Returns whether the front of the queue is not enough to decide about a request. A request that
/// does not queue for a mode that holders may share fits only if all contenders hold.
fn needs_whole_queue(request: &AcquireRequest) -> bool {
    !request.queue && request.mode != Mode::Exclusive
}

fn ended_on_the_way() -> LockError {
    unavailable("the session ended while the name was asked for", Certainty::Unknown)
}
