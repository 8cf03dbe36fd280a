//! Releasing: a grant or a place in the queue. The queue itself hands over the name.

use holdline_core::{LeaseId, LockError, LockName, ReleaseReply, ReleaseRequest};

use crate::error::{RequestError, protocol};
use crate::held::Held;
use crate::ops::{all_of, delete, get, keys_of, made_at, present, put};
use crate::proto::{RequestOp, TxnRequest};
use crate::queue;
use crate::store::{self, Store};

impl Store {
    pub(crate) async fn release(
        &self,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply, LockError> {
        let (name, id) = (&request.name, request.lease_id);
        let for_good = request.ending.for_good;
        let mut held = self.held.find(name, id);
        if held.is_none() {
            if for_good {
                // The mark is put first: then no request in flight can put a key any more.
                self.mark_gone(name, id).await?;
            }
            held = self.find(name, id).await?;
        }
        // The lease of the marks may have expired: try once more, with a new one.
        for _ in 0..2 {
            let mark = match for_good {
                true => {
                    Some(put(self.layout.gone(name, id), Vec::new(), self.marks_lease().await?))
                }
                false => None,
            };
            match self.end(name, id, held.as_ref(), mark).await {
                Err(RequestError::LeaseGone) => self.forget_marks_lease().await,
                Err(failure) => return Err(failure.into_error()),
                Ok(reply) => {
                    self.held.forget(name, id);
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
        held: Option<&Held>,
        mark: Option<RequestOp>,
    ) -> Result<ReleaseReply, RequestError> {
        let read_marks = get(all_of(self.layout.marks(name, id)));
        let Some(held) = held else {
            let mut answers =
                self.read([Some(read_marks), mark].into_iter().flatten().collect()).await?;
            return Ok(ReleaseReply::NotHeld { revoked: store::marks(&answers.keys()?).revoked });
        };
        let key = held.key.clone();
        let revision = held.token.and_then(|token| i64::try_from(token.get()).ok());
        let (compare, before) = match revision {
            Some(revision) => (made_at(key.clone(), revision), None),
            None => (present(key.clone()), Some(get(keys_of(self.layout.queue(name))))),
        };
        let reads_queue = before.is_some();
        let success = before.into_iter().chain([delete(key)]).chain(mark.clone()).collect();
        let failure = [Some(read_marks), mark].into_iter().flatten().collect();
        let mut answers = self.txn(TxnRequest { compare: vec![compare], success, failure }).await?;
        if !answers.succeeded {
            return Ok(ReleaseReply::NotHeld { revoked: store::marks(&answers.keys()?).revoked });
        }
        let waited = reads_queue && {
            // Foreign keys were not touched, so they are no error here.
            let queue = queue::read_keys(&self.layout, name, answers.keys()?);
            queue.is_ok_and(|queue| queue.find(id).is_some_and(|(_, waits)| waits.is_some()))
        };
        Ok(match waited {
            true => ReleaseReply::Withdrawn,
            false => ReleaseReply::Released { held_for: None },
        })
    }
}
