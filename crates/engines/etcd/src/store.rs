//! The state of one engine, which all verbs share, and how they find the key of a lease id.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::sequenced_queue::Contender;
use holdline_core::{
    Capabilities, ClientId, Clock, FencingToken, Hints, Hold, HolderFields, HolderSummary, LeaseId,
    LockError, LockName, Marks, Metadata, Mode, Moment, Record, ShortLeaseId,
};
use holdline_net::executor::Executor;
use holdline_net::fast_path::BusyNames;
use tokio::sync::Mutex;

use crate::client::Client;
use crate::error::{RequestError, protocol};
use crate::keys::{Layout, ParsedKey};
use crate::known_contenders::{KnownContender, KnownContenders};
use crate::ops::{Answers, all_of, get, key_alone};
use crate::proto::{KeyValue, RequestOp, TxnRequest};
use crate::queue::{self, Blockers, ContenderState, OwnKey, QueueEntry, record};
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

    /// Reads the place of the contender whose key was made at the revision `created`, and returns
    /// it with the revision of the read. `None`: there is no such key.
    pub(crate) async fn state(
        &self,
        name: &LockName,
        key: &[u8],
        created: i64,
    ) -> Result<Option<(ContenderState, i64)>, LockError> {
        let mode = self.mode_of(name, key)?;
        let before = queue::nearest_before(&self.layout, name, mode, Some(created));
        let front = queue::front(&self.layout, name);
        let own = key_alone(key.to_vec());
        let mut answers = self.read(vec![get(own), get(front), get(before)]).await?;
        let own = answers.keys()?.pop();
        if own.is_none_or(|own| own.create_revision != created) {
            return Ok(None);
        }
        let own = OwnKey { key, mode, created, is_last: false };
        let state = queue::state_of(&self.layout, name, own, answers.range()?, answers.keys()?)?;
        Ok(Some((state, answers.revision)))
    }

    /// Returns the mode of a contender, which its key contains.
    pub(crate) fn mode_of(&self, name: &LockName, key: &[u8]) -> Result<Mode, LockError> {
        match self.layout.parse_key(name, key) {
            Some(ParsedKey::Ours { mode, .. }) => Ok(mode),
            _ => Err(protocol("a known key has no mode")),
        }
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

    /// Records that a lease id holds its name, or which keys it waits for. `revision` is that of
    /// the read, which a majority has confirmed.
    pub(crate) fn learn(
        &self,
        name: &LockName,
        id: LeaseId,
        state: &ContenderState,
        revision: i64,
    ) -> Result<(), LockError> {
        if state.holds() {
            return self.record_grant(name, id, state.created, revision).map(|_| ());
        }
        self.watcher.retarget(id, self.predecessors(name, &state.blockers, revision));
        let now = self.clock.now();
        self.contenders.update(name, id, |contender| {
            contender.blockers.clone_from(&state.blockers);
            contender.read_at = revision;
            contender.created = state.created;
            contender.written = contender.written.max(state.created);
            contender.confirmed = now;
        });
        Ok(())
    }

    /// Records that a key, which was made at the revision `created`, holds its name.
    pub(crate) fn record_grant(
        &self,
        name: &LockName,
        id: LeaseId,
        created: i64,
        revision: i64,
    ) -> Result<FencingToken, LockError> {
        let token = token_at(created)?;
        // Nothing before it matters any more.
        self.watcher.retarget(id, self.predecessors(name, &Blockers::default(), revision));
        self.contenders.update(name, id, |contender| {
            contender.token = Some(token);
            contender.blockers = Blockers::default();
            contender.created = created;
            contender.written = contender.written.max(created);
            contender.read_at = revision;
        });
        Ok(token)
    }

    /// Returns what to watch before a contender.
    fn predecessors(&self, name: &LockName, blockers: &Blockers, revision: i64) -> Predecessors {
        let queue = self.layout.queue(name);
        Predecessors { queue, blockers: blockers.clone(), from: revision + 1 }
    }

    pub(crate) fn watch(&self, _: &Executor, name: &LockName, id: LeaseId) -> Hints {
        let wanted = self.contenders.find(name, id).map(|contender| WatchedKeys {
            own: (contender.key.clone(), contender.written + 1),
            before: self.predecessors(name, &contender.blockers, contender.read_at),
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
        no_expiry: false,
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
    token_at(entry.kv.create_revision)
}

/// Returns the fencing token of a key that was made at this revision.
pub(crate) fn token_at(created: i64) -> Result<FencingToken, LockError> {
    FencingToken::new(u64::try_from(created).unwrap_or(0))
        .map_err(|_| protocol(format!("the revision {created} is no fencing token")))
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
