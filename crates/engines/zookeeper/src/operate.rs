//! Operator commands: revoking a grant, politely or at once.

use holdline_core::sequenced_queue::unsupported;
use holdline_core::{Certainty, FencingToken, LockError, LockName, Operation, OperationReply};

use crate::connection::{Connection, NodeContent};
use crate::error::{ENGINE, RequestError, unavailable};
use crate::known_contenders::KnownContender;
use crate::queue::QueueEntry;
use crate::store::{Store, record_of};

/// How often a change is tried while other clients change the same node.
const ATTEMPTS: usize = 5;
const RAISE_FENCE: &str = "raising the fence: the ensemble counts its transactions by itself, and \
                           anew after a restore";

/// The grant that is revoked: its place in the queue, and its node as it was read.
struct FoundGrant<'q> {
    entry: &'q QueueEntry,
    path: String,
    node: NodeContent,
}

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
        let connection = self.connection().await?;
        for _ in 0..ATTEMPTS {
            connection.catch_up(&self.layout.queue(name)).await?;
            let queue = self.queue(&connection, name).await?;
            let mut found = None;
            for entry in queue.holders() {
                let path = self.layout.child(name, &entry.child);
                let Some(node) = connection.data(&path).await? else { continue };
                if crate::queue::token(node.stat.czxid)? == token {
                    found = Some(FoundGrant { entry, path, node });
                    break;
                }
            }
            let Some(found) = found else { return Ok(OperationReply::NothingThere) };
            match self.revoke_found(&connection, name, &found, reason, now).await {
                Ok(reply) => return Ok(reply),
                // It was changed after it was read.
                Err(RequestError::BadVersion | RequestError::NoNode) => {}
                Err(failure) => return Err(failure.into_error()),
            }
        }
        Err(unavailable("other clients keep changing the grant", Certainty::NotApplied))
    }

    async fn revoke_found(
        &self,
        connection: &Connection,
        name: &LockName,
        found: &FoundGrant<'_>,
        reason: &str,
        now: bool,
    ) -> Result<OperationReply, RequestError> {
        let FoundGrant { entry, path, node } = found;
        let version = node.stat.version;
        let Some(mut record) = record_of(entry, &node.data)? else {
            if now {
                connection.delete(path, Some(version)).await?;
                return Ok(OperationReply::Done);
            }
            let lacks = "polite revoke of another client's lock: it must be forced";
            return Err(LockError::unsupported(ENGINE, lacks).into());
        };
        record.revoked = Some(reason.to_owned());
        let bytes = record.to_bytes();
        let changed = (!now).then_some(bytes.as_slice());
        let mark = self.layout.revoked(entry.parsed.id);
        connection.make_container(&self.layout.marks()).await?;
        let reason = reason.as_bytes();
        match connection.mark_and_change(&mark, reason, path, version, changed).await {
            // It was revoked politely before: the newest reason replaces the older one.
            Err(RequestError::NodeExists) => {
                connection.delete(&mark, None).await?;
                connection.mark_and_change(&mark, reason, path, version, changed).await?;
            }
            other => other?,
        }
        if now {
            self.contenders.update(name, entry.parsed.id, KnownContender::doubt);
        }
        if let Some(stat) = connection.stat(&mark).await? {
            self.sweep(connection, stat.ctime).await?;
        }
        let left = self.lasts(name, entry).or(record.hold.duration());
        Ok(if now { OperationReply::Done } else { OperationReply::Notified { left } })
    }
}
