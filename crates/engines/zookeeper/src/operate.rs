//! What an operator may do: take a grant away, politely or now.

use holdline_core::{Certainty, FencingToken, LockError, LockName, Operation, OperationReply};

use crate::error::{ENGINE, Trouble, unavailable};
use crate::queue::Place;
use crate::store::{Store, record_of};
use crate::wire::Wire;

/// How often a change is tried while others change the same node.
const ATTEMPTS: usize = 5;

impl Store {
    pub(crate) async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        match operation {
            Operation::Revoke { name, token, reason, now } => {
                self.revoke(name, *token, reason, *now).await
            }
            Operation::Freeze { .. } | Operation::Unfreeze { .. } => {
                Err(self.capabilities.lacks("freeze: the newest node stands last in its queue"))
            }
            Operation::RaiseFence { .. } => Err(self.capabilities.lacks(
                "raising the fence: the ensemble counts its changes by itself, and anew after a \
                 restore",
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
        let wire = self.wire().await?;
        for _ in 0..ATTEMPTS {
            wire.catch_up(&self.layout.queue(name)).await?;
            let queue = self.queue(&wire, name).await?;
            let mut found = None;
            for place in queue.holders() {
                let path = self.layout.child(name, &place.child);
                let Some((data, stat)) = wire.data(&path).await? else { continue };
                if crate::store::token(stat.czxid)? == token {
                    found = Some((place, path, data, stat.version));
                    break;
                }
            }
            let Some((place, path, data, version)) = found else {
                return Ok(OperationReply::NothingThere);
            };
            match self
                .revoke_place(&wire, (name, place), (&path, &data, version), reason, now)
                .await
            {
                Ok(reply) => return Ok(reply),
                // It has changed since it was read.
                Err(Trouble::BadVersion | Trouble::NoNode) => {}
                Err(trouble) => return Err(trouble.into_error()),
            }
        }
        Err(unavailable("others change the grant again and again", Certainty::NotApplied))
    }

    async fn revoke_place(
        &self,
        wire: &Wire,
        (name, place): (&LockName, &Place),
        (path, data, version): (&str, &[u8], i32),
        reason: &str,
        now: bool,
    ) -> Result<OperationReply, Trouble> {
        let Some(mut record) = record_of(place, data)? else {
            if now {
                wire.delete(path, Some(version)).await?;
                return Ok(OperationReply::Done);
            }
            let lacks = "polite revoke of a lock that is not ours: it must be forced";
            return Err(LockError::unsupported(ENGINE, lacks).into());
        };
        record.revoked = Some(reason.to_owned());
        let bytes = record.to_bytes();
        let changed = (!now).then_some(bytes.as_slice());
        let mark = self.layout.revoked(place.stander.id);
        wire.make_container(&self.layout.marks()).await?;
        let said = (mark.as_str(), reason.as_bytes());
        match wire.mark_and_change(said, (path, version), changed).await {
            // It was revoked before, politely: the newest words stand.
            Err(Trouble::NodeExists) => {
                wire.delete(&mark, None).await?;
                wire.mark_and_change(said, (path, version), changed).await?;
            }
            other => other?,
        }
        if let Some(stat) = wire.stat(&mark).await? {
            self.sweep(wire, stat.ctime).await?;
        }
        let left = self.lasts(name, place).or(record.hold.duration());
        Ok(if now { OperationReply::Done } else { OperationReply::Told { left } })
    }
}
