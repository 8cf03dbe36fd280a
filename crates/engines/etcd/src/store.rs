//! The state of one engine, which all verbs share, and how they find the key of a lease id.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::sequenced_queue::Contender;
use holdline_core::{
    Capabilities, ClientId, Clock, FencingToken, Hints, Hold, HolderFields, HolderSummary, LeaseId,
    LockError, LockName, Marks, Metadata, Moment, Record, ShortLeaseId,
};
use holdline_net::executor::Executor;
use holdline_net::fast_path::BusyNames;
use tokio::sync::Mutex;

use crate::client::Client;
use crate::error::{RequestError, protocol};
use crate::keys::{Layout, ParsedKey};
use crate::known_contenders::{KnownContender, KnownContenders};
use crate::ops::{Answers, all_of, keys_of};
use crate::proto::{KeyValue, RequestOp, TxnRequest};
use crate::queue::{self, OwnKey, Queue, QueueEntry, record};
use crate::sessions::{EtcdSession, EtcdSessionKey, EtcdSessions};
use crate::watcher::{Predecessors, WatchedKeys, Watcher};

/// The duration of the etcd lease for marks, and how long a new mark must last.
const MARKS_LEASE: Duration = Duration::from_secs(75);
const MARK_TIME: Duration = Duration::from_secs(32);

/// One engine's state.
pub(crate) struct Store {
    pub(crate) capabilities: Capabilities,
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) layout: Layout,
    pub(crate) sessions: EtcdSessions,
    pub(crate) contenders: KnownContenders,
    pub(crate) busy: BusyNames,
    pub(crate) watcher: Watcher,
    /// The etcd lease of the marks, and until when it lasts.
    pub(crate) marks_lease: Mutex<Option<(i64, Moment)>>,
}

/// Reads the marks about a lease id.
pub(crate) fn marks(kvs: &[KeyValue]) -> Marks {
    let revoked = kvs.iter().find(|kv| kv.key.ends_with(b"/revoked"));
    Marks {
        gone: kvs.iter().any(|kv| kv.key.ends_with(b"/gone")),
        revoked: revoked.map(|kv| String::from_utf8_lossy(&kv.value).into_owned()),
    }
}

impl Store {
    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<Answers, RequestError> {
        Ok(Answers::new(self.client.txn(request).await?))
    }

    /// Carries out several reads at one revision.
    pub(crate) async fn read(&self, parts: Vec<RequestOp>) -> Result<Answers, RequestError> {
        self.txn(TxnRequest { success: parts, ..TxnRequest::default() }).await
    }

    /// Reads a name's queue, without values. It can find this lease id.
    pub(crate) async fn queue(
        &self,
        name: &LockName,
        own: OwnKey<'_>,
    ) -> Result<(Queue, i64), LockError> {
        let reply = self.client.range(keys_of(self.layout.queue(name))).await?;
        let revision = reply.header.map_or(0, |header| header.revision);
        Ok((queue::read_keys(&self.layout, name, reply.kvs, Some(own))?, revision))
    }

    /// Returns what is known about a lease id, from this engine or from the name's queue.
    pub(crate) async fn find(
        &self,
        name: &LockName,
        id: LeaseId,
    ) -> Result<Option<KnownContender>, LockError> {
        if let Some(contender) = self.contenders.find(name, id) {
            return Ok(Some(contender));
        }
        let reply = self.client.range(all_of(self.layout.queue(name))).await?;
        let queue = queue::read(&self.layout, name, reply.kvs)?;
        Ok(queue.find(id).map(|(entry, _)| self.adopt(name, id, entry)))
    }

    /// Records a lease id that another process asked for. Its key was read with its value.
    pub(crate) fn adopt(&self, name: &LockName, id: LeaseId, entry: &QueueEntry) -> KnownContender {
        let session = Arc::new(EtcdSession::found(entry.kv.lease, Duration::ZERO));
        let mut contender = KnownContender::new(entry.kv.key.clone(), session);
        contender.created = entry.kv.create_revision;
        self.contenders.adopt(name, id, contender, self.clock.now())
    }

    /// Returns the session of a key that was read with its value. The key may have been moved to
    /// another etcd lease: by a request whose reply was lost, or by another process.
    pub(crate) async fn session_at(
        &self,
        client: ClientId,
        name: &LockName,
        id: LeaseId,
        contender: &KnownContender,
        kv: &KeyValue,
        hold: Hold,
    ) -> Arc<EtcdSession> {
        if kv.lease == contender.session.lease {
            return contender.session.clone();
        }
        let own = self.sessions.known(EtcdSessionKey::of(client, id, hold)).await;
        let session = match own.filter(|own| own.lease == kv.lease) {
            Some(own) => own,
            None => Arc::new(EtcdSession::found(kv.lease, Duration::ZERO)),
        };
        self.contenders.update(name, id, |contender| contender.session = session.clone());
        session
    }

    /// Records that a lease id holds its name, or which keys it waits for.
    pub(crate) fn learn(
        &self,
        name: &LockName,
        id: LeaseId,
        queue: &Queue,
        revision: i64,
    ) -> Result<(), LockError> {
        let Some((entry, waits)) = queue.find(id) else { return Ok(()) };
        if waits.is_none() {
            let token = token(entry)?;
            self.contenders.update(name, id, |contender| {
                contender.token = Some(token);
                contender.read_at = revision;
                contender.created = entry.kv.create_revision;
                contender.written = contender.written.max(entry.kv.create_revision);
                contender.blockers.clear();
            });
            return Ok(());
        }
        let keys: Vec<_> = queue.blockers(id).iter().map(|entry| entry.kv.key.clone()).collect();
        if let Some(before) = self.before(name, &keys, revision) {
            self.watcher.retarget(id, before);
        }
        self.contenders.update(name, id, |contender| {
            contender.blockers = keys;
            contender.read_at = revision;
            contender.created = entry.kv.create_revision;
            contender.written = contender.written.max(entry.kv.create_revision);
        });
        Ok(())
    }

    /// Returns what to watch before a contender.
    pub(crate) fn before(
        &self,
        name: &LockName,
        keys: &[Vec<u8>],
        revision: i64,
    ) -> Option<Predecessors> {
        let span = match keys {
            [] => return None,
            [one] => (one.clone(), Vec::new()),
            _ => self.layout.queue(name),
        };
        Some(Predecessors { span, keys: keys.iter().cloned().collect(), from: revision + 1 })
    }

    pub(crate) fn watch(&self, _: &Executor, name: &LockName, id: LeaseId) -> Hints {
        let wanted = self.contenders.find(name, id).map(|contender| WatchedKeys {
            own: (contender.key.clone(), contender.written + 1),
            before: self.before(name, &contender.blockers, contender.read_at),
        });
        Box::pin(self.watcher.open(id, wanted))
    }

    /// Returns how much of a session is left, counted from `since`; asks the server if it is not
    /// known. `None`: it has expired.
    pub(crate) async fn left(
        &self,
        session: &EtcdSession,
        since: Moment,
    ) -> Result<Option<Duration>, LockError> {
        let left = session.left(since);
        if !left.is_zero() {
            return Ok(Some(left));
        }
        let seconds = self.client.time_to_live(session.lease).await?;
        Ok(u64::try_from(seconds).ok().filter(|left| *left > 0).map(Duration::from_secs))
    }

    /// Returns an etcd lease that lasts long enough for a mark.
    pub(crate) async fn marks_lease(&self) -> Result<i64, LockError> {
        let mut marks_lease = self.marks_lease.lock().await;
        let now = self.clock.now();
        if let Some((lease, until)) = *marks_lease
            && now.until(until) >= MARK_TIME
        {
            return Ok(lease);
        }
        let seconds = i64::try_from(MARKS_LEASE.as_secs()).unwrap_or(i64::MAX);
        let reply = self.client.grant(0, seconds).await?;
        *marks_lease = Some((reply.id, now.after(MARKS_LEASE)));
        Ok(reply.id)
    }

    /// Forgets the lease of the marks, which has expired on the server.
    pub(crate) async fn forget_marks_lease(&self) {
        *self.marks_lease.lock().await = None;
    }

    /// Describes a holder, with the time that its session has left.
    pub(crate) async fn summary(&self, entry: &QueueEntry) -> Result<HolderSummary, LockError> {
        let seconds = match self.client.time_to_live(entry.kv.lease).await {
            Ok(seconds) => u64::try_from(seconds).unwrap_or(0),
            // The remaining time is only informative.
            Err(_) => 0,
        };
        described(entry, Some(Duration::from_secs(seconds)))
    }
}

/// Describes a holder whose key was read with its value. `left` is what its session has left.
pub(crate) fn described(
    entry: &QueueEntry,
    left: Option<Duration>,
) -> Result<HolderSummary, LockError> {
    let record = record_of(entry)?;
    Ok(HolderSummary {
        lease_id: short(entry),
        token: Some(token(entry)?),
        mode: entry.mode(),
        held_for: None,
        left,
        metadata: metadata_of(entry, record),
    })
}

/// Returns the record at a key; `None` for Go's, which have none.
pub(crate) fn record_of(entry: &QueueEntry) -> Result<Option<Record>, LockError> {
    match entry.parsed {
        ParsedKey::Ours { .. } => record(&entry.kv.value).map(Some),
        ParsedKey::Go { .. } => Ok(None),
    }
}

/// Returns what the contender of a key reports about itself. A candidate of Go's
/// `concurrency.Election` has a key of the same form as a contender of Go's mutex, with its
/// proposal as the value; one that is no text, or too long, is not shown.
pub(crate) fn metadata_of(entry: &QueueEntry, record: Option<Record>) -> Metadata {
    match record {
        Some(record) => record.holder,
        None => {
            let value = String::from_utf8(entry.kv.value.clone()).unwrap_or_default();
            Metadata::new(&HolderFields { value, ..HolderFields::default() }).unwrap_or_default()
        }
    }
}

/// Returns the fencing token: the create revision of the key.
pub(crate) fn token(entry: &QueueEntry) -> Result<FencingToken, LockError> {
    let revision = u64::try_from(entry.kv.create_revision).unwrap_or(0);
    FencingToken::new(revision)
        .map_err(|_| protocol(format!("the revision {revision} is no fencing token")))
}

/// Returns the short id that identifies a contender; Go's are identified by their etcd lease.
pub(crate) fn short(entry: &QueueEntry) -> ShortLeaseId {
    match entry.parsed {
        // Each read with values has the lease id.
        ParsedKey::Ours { lease_id, .. } => {
            lease_id.unwrap_or(LeaseId::from_bytes([0; 16])).short()
        }
        ParsedKey::Go { lease } => {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&lease.rotate_left(32).to_be_bytes());
            LeaseId::from_bytes(bytes).short()
        }
    }
}
