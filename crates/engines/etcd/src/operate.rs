//! What an operator may do: take a grant away, politely or now.

use std::time::Duration;

use holdline_core::{
    Certainty, FencingToken, LeaseId, LockError, LockName, Operation, OperationReply,
};

use crate::error::{ENGINE, Trouble, unavailable};
use crate::keys::Stander;
use crate::ops::{all_of, delete, made_at, put, rewrite, written_at};
use crate::proto::TxnRequest;
use crate::queue::{self, Place};
use crate::store::{Store, record_of};

/// How often a change is tried while others change the same key.
const ATTEMPTS: usize = 5;

impl Store {
    pub(crate) async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        match operation {
            Operation::Revoke { name, token, reason, now } => {
                self.revoke(name, *token, reason, *now).await
            }
            Operation::Freeze { .. } | Operation::Unfreeze { .. } => {
                Err(self.capabilities.lacks("freeze: the newest key stands last in its queue"))
            }
            Operation::RaiseFence { .. } => Err(self.capabilities.lacks(
                "raising the fence: restore with etcdutl's --bump-revision and --mark-compacted",
            )),
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
            let Some(place) = found else { return Ok(OperationReply::NothingThere) };
            let done = match place.stander {
                Stander::Ours { lease_id, .. } => {
                    self.revoke_ours(name, lease_id, place, reason, now).await
                }
                Stander::Go { .. } if now => self.delete_go(place).await,
                Stander::Go { .. } => {
                    let lacks = "polite revoke of a lock that is not ours: it must be forced";
                    return Err(LockError::unsupported(ENGINE, lacks));
                }
            };
            match done {
                Ok(Some(reply)) => return Ok(reply),
                // It has changed since it was read.
                Ok(None) => {}
                Err(Trouble::LeaseGone) => self.close_grave().await,
                Err(trouble) => return Err(trouble.into_error()),
            }
        }
        Err(unavailable("others change the grant again and again", Certainty::NotApplied))
    }

    async fn revoke_ours(
        &self,
        name: &LockName,
        id: LeaseId,
        place: &Place,
        reason: &str,
        now: bool,
    ) -> Result<Option<OperationReply>, Trouble> {
        let key = place.kv.key.clone();
        let grave = self.grave().await?;
        let mark = put(self.layout.revoked(name, id), reason.as_bytes().to_vec(), grave);
        let act = match now {
            true => delete(key.clone()),
            false => {
                let mut record = match record_of(place)? {
                    Some(record) => record,
                    None => return Ok(None),
                };
                record.revoked = Some(reason.to_owned());
                rewrite(key.clone(), record.to_bytes())
            }
        };
        let compare = vec![
            made_at(key.clone(), place.kv.create_revision),
            written_at(key, place.kv.mod_revision),
        ];
        let txn = TxnRequest { compare, success: vec![act, mark], failure: Vec::new() };
        if !self.txn(txn).await?.succeeded {
            return Ok(None);
        }
        if now {
            return Ok(Some(OperationReply::Done));
        }
        let seconds = self.client.time_to_live(place.kv.lease).await.unwrap_or(0);
        let left = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        Ok(Some(OperationReply::Told { left: Some(left) }))
    }

    async fn delete_go(&self, place: &Place) -> Result<Option<OperationReply>, Trouble> {
        let key = place.kv.key.clone();
        let compare = vec![made_at(key.clone(), place.kv.create_revision)];
        let txn = TxnRequest { compare, success: vec![delete(key)], failure: Vec::new() };
        Ok(self.txn(txn).await?.succeeded.then_some(OperationReply::Done))
    }
}
