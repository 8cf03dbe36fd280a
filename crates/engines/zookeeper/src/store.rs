//! The state of one engine, which all verbs share, and the marks about revoked grants.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::sequenced_queue::Contender;
use holdline_core::{
    Capabilities, Clock, HolderSummary, LeaseId, LockError, LockName, Marks, Metadata, Record,
};

use crate::connection::Connection;
use crate::error::{RequestError, foreign};
use crate::keys::Layout;
use crate::known_contenders::{KnownContender, KnownContenders};
use crate::name_cache::NameCache;
use crate::queue::{Queue, QueueEntry, token};
use crate::sessions::ZooKeeperSessions;

/// How long a mark lasts at least: longer than the longest lease.
const MARK_MS: i64 = 75_000;
/// How many old marks are deleted with each new one, at most.
const SWEEP: usize = 32;

/// One engine's state.
pub(crate) struct Store {
    pub(crate) capabilities: Capabilities,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) layout: Layout,
    pub(crate) sessions: Arc<ZooKeeperSessions>,
    pub(crate) contenders: Arc<KnownContenders>,
    pub(crate) names: NameCache,
    pub(crate) watches: Arc<Watches>,
}

impl Store {
    /// Returns the connection for requests of no contender.
    pub(crate) async fn connection(&self) -> Result<Connection, LockError> {
        self.sessions.main_connection().await
    }

    /// Reads the marks about a lease id: given up by this process, or revoked.
    pub(crate) async fn marks(
        &self,
        connection: &Connection,
        id: LeaseId,
    ) -> Result<Marks, RequestError> {
        let revoked = connection.data(&self.layout.revoked(id)).await?;
        let revoked = revoked.map(|node| String::from_utf8_lossy(&node.data).into_owned());
        Ok(Marks { gone: self.contenders.was_given_up(id, self.clock.now()), revoked })
    }

    /// Reads the marks about a lease id that a fresh request brings.
    ///
    /// An operator marks the lease id of a contender, and only the process of the contender uses
    /// its lease id (H2 of `known_contenders`). So there is none about an id that this process has
    /// not asked for before, and nothing is read.
    pub(crate) async fn new_marks(
        &self,
        connection: &Connection,
        id: LeaseId,
    ) -> Result<Marks, RequestError> {
        if self.contenders.was_ours(id) {
            self.marks(connection, id).await
        } else {
            let gone = self.contenders.was_given_up(id, self.clock.now());
            Ok(Marks { gone, revoked: None })
        }
    }

    /// Reads a name's queue.
    pub(crate) async fn queue(
        &self,
        connection: &Connection,
        name: &LockName,
    ) -> Result<Queue, RequestError> {
        match connection.counted_children(&self.layout.queue(name)).await? {
            Some((children, next)) => Ok(Queue::read(children)?.counted(next)),
            None => Ok(Queue::without_node()),
        }
    }

    /// Deletes old marks. Both times are the servers'.
    pub(crate) async fn sweep(
        &self,
        connection: &Connection,
        now_ms: i64,
    ) -> Result<(), RequestError> {
        let marks = connection.children(&self.layout.marks()).await?.unwrap_or_default();
        // It starts at another mark each time, so that every old one is reached.
        let begin = usize::try_from(now_ms.unsigned_abs()).unwrap_or(0) % marks.len().max(1);
        for mark in marks.iter().cycle().skip(begin).take(SWEEP.min(marks.len())) {
            let path = format!("{}/{mark}", self.layout.marks());
            let old = connection.stat(&path).await?;
            if old.is_some_and(|stat| stat.ctime.saturating_add(MARK_MS) < now_ms) {
                connection.delete(&path, None).await?;
            }
        }
        Ok(())
    }

    /// Records that a lease id holds its name, or which nodes it waits for.
    pub(crate) fn learn(
        &self,
        name: &LockName,
        id: LeaseId,
        queue: &Queue,
    ) -> Result<(), LockError> {
        self.contenders.learn(name, id, queue, self.clock.now())
    }

    /// Returns the path of a lease id's node, if it is known.
    pub(crate) fn path(&self, name: &LockName, contender: &KnownContender) -> Option<String> {
        Some(self.layout.child(name, contender.child.as_ref()?))
    }

    /// Describes a contender; `None` if its node was deleted meanwhile.
    pub(crate) async fn describe(
        &self,
        connection: &Connection,
        name: &LockName,
        entry: &QueueEntry,
    ) -> Result<Option<(HolderSummary, Option<Record>)>, RequestError> {
        let path = self.layout.child(name, &entry.child);
        let Some(node) = connection.data(&path).await? else { return Ok(None) };
        let record = record_of(entry, &node.data)?;
        let summary = HolderSummary {
            lease_id: entry.parsed.id.short(),
            token: Some(token(node.stat.czxid)?),
            mode: entry.mode(),
            held_for: None,
            // The servers do not report how long a session has left. For own sessions it is known.
            left: self.lasts(name, entry),
            no_expiry: false,
            metadata: record.as_ref().map_or_else(Metadata::default, |one| one.holder.clone()),
        };
        Ok(Some((summary, record)))
    }

    /// Describes a contender of this process, without a request; `None` for any other.
    pub(crate) fn describe_own(
        &self,
        name: &LockName,
        entry: &QueueEntry,
    ) -> Option<HolderSummary> {
        let contender =
            self.contenders.find(name, entry.parsed.id).filter(|_| entry.parsed.ours)?;
        if contender.child.as_ref() != Some(&entry.child) {
            return None;
        }
        Some(HolderSummary {
            lease_id: entry.parsed.id.short(),
            token: Some(token(contender.czxid).ok()?),
            mode: entry.mode(),
            held_for: None,
            left: Some(contender.lasts(self.clock.now())),
            no_expiry: false,
            metadata: contender.metadata,
        })
    }

    /// Describes the first holder of a name.
    pub(crate) async fn first(
        &self,
        connection: &Connection,
        name: &LockName,
        queue: &Queue,
    ) -> Result<Option<(Box<HolderSummary>, Option<Record>)>, RequestError> {
        let Some(entry) = queue.holders().first() else { return Ok(None) };
        let described = self.describe(connection, name, entry).await?;
        Ok(described.map(|(summary, record)| (Box::new(summary), record)))
    }

    /// Returns how long a contender lasts if it is not renewed; `None` for another process.
    pub(crate) fn lasts(&self, name: &LockName, entry: &QueueEntry) -> Option<Duration> {
        let contender =
            self.contenders.find(name, entry.parsed.id).filter(|_| entry.parsed.ours)?;
        Some(contender.lasts(self.clock.now()))
    }
}

/// Reads the record at a node.
///
/// # Errors
/// `Foreign`: the value is no record.
pub(crate) fn record(value: &[u8]) -> Result<Record, LockError> {
    let found = "a node of the form that Holdline uses has a value that this version cannot read";
    Record::from_bytes(value).ok_or_else(|| foreign(found))
}

/// Returns the record at a node; `None` for other libraries, which have none.
pub(crate) fn record_of(entry: &QueueEntry, data: &[u8]) -> Result<Option<Record>, LockError> {
    if entry.parsed.ours { record(data).map(Some) } else { Ok(None) }
}
