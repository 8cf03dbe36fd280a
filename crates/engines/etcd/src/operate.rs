//! Operator commands: revoking a grant, politely or at once.

use std::time::Duration;

use holdline_core::sequenced_queue::unsupported;
use holdline_core::{
    Certainty, FencingToken, LeaseId, LockError, LockName, Operation, OperationReply,
};

use crate::error::{ENGINE, RequestError, unavailable};
use crate::keys::ParsedKey;
use crate::ops::{all_of, delete, made_at, put, rewrite, written_at};
use crate::proto::TxnRequest;
use crate::queue::{self, QueueEntry};
use crate::store::{Store, record_of};

/// How often a change is tried while other clients change the same key.
const ATTEMPTS: usize = 5;
const RAISE_FENCE: &str =
    "raising the fence: restore with etcdutl's --bump-revision and --mark-compacted";

impl Store {
    pub(crate) async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        match operation {
            Operation::Revoke { name, token, reason, now } => {
                self.revoke(name, *token, reason, *now).await
            }
            other => Err(unsupported(other, &self.capabilities, RAISE_FENCE)),
        }
    }

    async fn revoke(
        &self,
        name: &LockName,
        token: FencingToken,
        reason: &str,
        now: bool,
    ) -> Result<OperationReply, LockError> {
        for _ in 0..ATTEMPTS {
            let reply = self.client.range(all_of(self.layout.queue(name))).await?;
            let queue = queue::read(&self.layout, name, reply.kvs)?;
            let revision = i64::try_from(token.get()).unwrap_or(i64::MAX);
            let found = queue.holders().iter().find(|one| one.kv.create_revision == revision);
            let Some(entry) = found else { return Ok(OperationReply::NothingThere) };
            let done = match entry.parsed {
                ParsedKey::Ours { lease_id: None, .. } => Ok(None),
                ParsedKey::Ours { lease_id: Some(lease_id), .. } => {
                    self.revoke_ours(name, lease_id, entry, reason, now).await
                }
                ParsedKey::Go { .. } if now => self.delete_go(entry).await,
                ParsedKey::Go { .. } => {
                    let lacks = "polite revoke of another client's lock: it must be forced";
                    return Err(LockError::unsupported(ENGINE, lacks));
                }
            };
            match done {
                Ok(Some(reply)) => return Ok(reply),
                // It was changed after it was read.
                Ok(None) => {}
                Err(RequestError::LeaseGone) => self.forget_marks_lease().await,
                Err(failure) => return Err(failure.into_error()),
            }
        }
        Err(unavailable("other clients keep changing the grant", Certainty::NotApplied))
    }

    async fn revoke_ours(
        &self,
        name: &LockName,
        id: LeaseId,
        entry: &QueueEntry,
        reason: &str,
        now: bool,
    ) -> Result<Option<OperationReply>, RequestError> {
        let key = entry.kv.key.clone();
        let marks_lease = self.marks_lease().await?;
        let mark = put(self.layout.revoked(name, id), reason.as_bytes().to_vec(), marks_lease);
        let act = if now {
            delete(key.clone())
        } else {
            let mut record = match record_of(entry)? {
                Some(record) => record,
                None => return Ok(None),
            };
            record.revoked = Some(reason.to_owned());
            rewrite(key.clone(), record.to_bytes())
        };
        let compare = vec![
            made_at(key.clone(), entry.kv.create_revision),
            written_at(key, entry.kv.mod_revision),
        ];
        let txn = TxnRequest { compare, success: vec![act, mark], failure: Vec::new() };
        if !self.txn(txn).await?.succeeded {
            return Ok(None);
        }
        if now {
            return Ok(Some(OperationReply::Done));
        }
        let seconds = self.client.time_to_live(entry.kv.lease).await.unwrap_or(0);
        let left = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        Ok(Some(OperationReply::Notified { left: Some(left) }))
    }

    async fn delete_go(&self, entry: &QueueEntry) -> Result<Option<OperationReply>, RequestError> {
        let key = entry.kv.key.clone();
        let compare = vec![made_at(key.clone(), entry.kv.create_revision)];
        let txn = TxnRequest { compare, success: vec![delete(key)], failure: Vec::new() };
        Ok(self.txn(txn).await?.succeeded.then_some(OperationReply::Done))
    }
}
