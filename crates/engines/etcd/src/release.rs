//! Releasing: a grant or a place in the queue. The queue itself hands over the name.

use holdline_core::{Certainty, LeaseId, LockError, LockName, ReleaseReply, ReleaseRequest};

use crate::error::{RequestError, protocol, unavailable};
use crate::known_contenders::KnownContender;
use crate::ops::{
    Answers, all_of, delete, get, key_value, keys_of, made_at, made_before, present, put,
    written_at,
};
use crate::proto::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest};
use crate::queue::{self, MOST_WATCHES, OwnKey, record};
use crate::store::{self, Store};

/// How often a release is tried while an operator changes the grant's record.
const ATTEMPTS: usize = 8;

impl Store {
    pub(crate) async fn release(
        &self,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply, LockError> {
        let name = &request.name;
        let id = request.lease_id;
        let for_good = request.ending.for_good;
        let mut contender = self.contenders.find(name, id);
        if contender.is_none() {
            if for_good {
                // The mark is put first: then no request in flight can put a key any more.
                self.mark_gone(name, id).await?;
            }
            contender = self.find(name, id).await?;
        }
        // An etcd lease may have expired: that of the marks is replaced, and in an expired session
        // no late request can put a key.
        let in_flight = contender.as_ref().filter(|contender| contender.in_flight);
        let mut session = in_flight.map(|contender| match &contender.number {
            Some((_, session)) => session,
            None => &contender.session,
        });
        for attempt in 0..3 {
            let mut marks = Vec::new();
            if for_good {
                marks.push(put(self.layout.gone(name, id), Vec::new(), self.marks_lease().await?));
                let of_session = session.map(|session| session.lease);
                let key = || self.layout.gone_in_flight(name, id);
                marks.extend(of_session.map(|lease| put(key(), Vec::new(), lease)));
            }
            match self.end(name, id, contender.as_ref(), &marks).await {
                Err(RequestError::LeaseGone) if attempt == 0 => self.forget_marks_lease().await,
                Err(RequestError::LeaseGone) => session = None,
                Err(failure) => return Err(failure.into_error()),
                Ok(reply) => {
                    session.filter(|_| for_good).inspect(|session| session.count_mark());
                    if for_good {
                        self.contenders.forget_for_good(name, id);
                    } else {
                        self.contenders.forget(name, id);
                    }
                    return Ok(reply);
                }
            }
        }
        Err(protocol("the lease of the marks expires at once"))
    }

    async fn mark_gone(&self, name: &LockName, id: LeaseId) -> Result<(), LockError> {
        for _ in 0..2 {
            let marks_lease = self.marks_lease().await?;
            match self.read(vec![put(self.layout.gone(name, id), Vec::new(), marks_lease)]).await {
                Err(RequestError::LeaseGone) => self.forget_marks_lease().await,
                Err(failure) => return Err(failure.into_error()),
                Ok(_) => return Ok(()),
            }
        }
        Err(protocol("the lease of the marks expires at once"))
    }

    async fn end(
        &self,
        name: &LockName,
        id: LeaseId,
        contender: Option<&KnownContender>,
        marks: &[RequestOp],
    ) -> Result<ReleaseReply, RequestError> {
        let read_marks = get(all_of(self.layout.marks(name, id)));
        let Some(contender) = contender else {
            let mut answers = self.read([&[read_marks], marks].concat()).await?;
            return Ok(ReleaseReply::NotHeld { revoked: store::marks(&answers.keys()?).revoked });
        };
        let key = contender.key.clone();
        let revision = contender.token.and_then(|token| i64::try_from(token.get()).ok());
        let is_there = match revision {
            Some(revision) => made_at(key.clone(), revision),
            None => present(key.clone()),
        };
        // Without a token it may wait or hold. It waits if all keys that blocked it are there; else
        // the keys before it say which, before it is deleted.
        let mut blocked = blocked(contender);
        let reads_before = revision.is_none();
        let before = if reads_before { Some(get(self.before(name, contender)?)) } else { None };
        let deletion = [&[delete(key.clone())], marks].concat();
        let reading_deletion: Vec<_> = before.into_iter().chain(deletion.clone()).collect();
        let failure = [&[get(key_value(key.clone())), read_marks], marks].concat();
        let mut written = contender.written;
        for _ in 0..ATTEMPTS {
            // A key that was last written at its creation is the one that was made then.
            let mut compare = vec![written_at(key.clone(), written)];
            if revision != Some(written) {
                compare.push(is_there.clone());
            }
            // The usual release is short: a request of up to 256 bytes is one write to the socket.
            let reads_later = marks.is_empty();
            let reads = if reads_later { Vec::new() } else { failure.clone() };
            let is_blocked = !blocked.is_empty();
            compare.append(&mut blocked);
            let success = if is_blocked { deletion.clone() } else { reading_deletion.clone() };
            let txn = TxnRequest { compare, success, failure: reads };
            let mut answers = self.txn(txn).await?;
            if answers.succeeded {
                if is_blocked {
                    return Ok(ReleaseReply::Withdrawn);
                }
                if reads_before && self.waited(name, contender, answers)? {
                    return Ok(ReleaseReply::Withdrawn);
                }
                return Ok(ReleaseReply::Released { held_for: None });
            }
            if reads_later {
                answers = self.read(failure.clone()).await?;
            }
            let found = answers.keys()?.pop();
            let revoked = store::marks(&answers.keys()?).revoked;
            let same = |kv: &KeyValue| revision.is_none_or(|at| kv.create_revision == at);
            let Some(found) = found.filter(same) else {
                return Ok(ReleaseReply::NotHeld { revoked });
            };
            // An operator writes our record; another program's value is foreign, and stays. So does
            // the key of another lease id.
            if record(&found.value)?.lease_id.is_some_and(|other| other != id) {
                return Ok(ReleaseReply::NotHeld { revoked });
            }
            written = found.mod_revision;
        }
        let message = "other clients keep changing the grant's record";
        Err(unavailable(message, Certainty::NotApplied).into())
    }

    /// Returns the read of the keys before a contender. If it is not known at which revision its
    /// key was made, since that reply was lost, these are all keys of the queue.
    fn before(
        &self,
        name: &LockName,
        contender: &KnownContender,
    ) -> Result<RangeRequest, LockError> {
        if contender.created == 0 {
            return Ok(keys_of(self.layout.queue(name)));
        }
        let mode = self.mode_of(name, &contender.key)?;
        Ok(queue::nearest_before(&self.layout, name, mode, Some(contender.created)))
    }

    /// Returns whether a contender waited when its key was deleted, by the keys before it.
    fn waited(
        &self,
        name: &LockName,
        contender: &KnownContender,
        mut answers: Answers,
    ) -> Result<bool, LockError> {
        let before = answers.keys()?;
        let key = contender.key.as_slice();
        let own = before.iter().find(|kv| kv.key == key);
        let created = own.map_or(contender.created, |own| own.create_revision);
        let mode = self.mode_of(name, key)?;
        let own = OwnKey { key, mode, created, is_last: false };
        // Foreign keys were not touched, so they are no error here.
        let blockers = queue::blockers_of(&self.layout, name, own, before);
        Ok(blockers.is_ok_and(|blockers| !blockers.is_empty()))
    }
}

/// Returns the conditions under which a contender certainly waits; none if nothing is known to
/// block it, or too much for one request.
fn blocked(contender: &KnownContender) -> Vec<Compare> {
    let keys = contender.blockers.keys().take(MOST_WATCHES + 1).cloned();
    let conditions: Vec<Compare> =
        keys.flat_map(|key| made_before(key, contender.created)).collect();
    if !contender.is_blocked() || conditions.len() > 2 * MOST_WATCHES {
        return Vec::new();
    }
    conditions
}
