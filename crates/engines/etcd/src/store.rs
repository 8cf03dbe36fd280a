//! What all verbs of one engine share, and how they find what a lease id stands for.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::sequenced_queue::Contender;
use holdline_core::{
    Capabilities, Clock, FencingToken, Hints, HolderSummary, LeaseId, LockError, LockName, Marks,
    Metadata, Moment, Record, ShortLeaseId,
};
use holdline_net::workplace::Workplace;
use tokio::sync::Mutex;

use crate::client::Client;
use crate::error::{Trouble, foreign, protocol};
use crate::held::{Held, HeldIds};
use crate::keys::{Layout, Stander};
use crate::ops::{Answers, key_value, keys_of};
use crate::proto::{KeyValue, RequestOp, TxnRequest};
use crate::queue::{self, Place, Queue};
use crate::sessions::{Session, Sessions};
use crate::watcher::{Before, Wanted, Watcher};

/// How long the lease of marks is made for, and how much of it a new mark needs.
const GRAVE: Duration = Duration::from_secs(75);
const REST: Duration = Duration::from_secs(32);

/// One engine's state.
pub(crate) struct Store {
    pub(crate) capabilities: Capabilities,
    pub(crate) client: Client,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) layout: Layout,
    pub(crate) sessions: Sessions,
    pub(crate) held: HeldIds,
    pub(crate) watcher: Watcher,
    /// The lease on which marks are left, and until when.
    pub(crate) grave: Mutex<Option<(i64, Moment)>>,
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
    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<Answers, Trouble> {
        Ok(Answers::new(self.client.txn(request).await?))
    }

    /// Reads several things as they stand at one revision.
    pub(crate) async fn read(&self, parts: Vec<RequestOp>) -> Result<Answers, Trouble> {
        self.txn(TxnRequest { success: parts, ..TxnRequest::default() }).await
    }

    /// Reads a name's queue, without values.
    pub(crate) async fn queue(&self, name: &LockName) -> Result<(Queue, i64), LockError> {
        let reply = self.client.range(keys_of(self.layout.queue(name))).await?;
        let revision = reply.header.map_or(0, |header| header.revision);
        Ok((queue::read_keys(&self.layout, name, reply.kvs)?, revision))
    }

    /// Returns what is known of a lease id, here or by the name's queue.
    pub(crate) async fn find(
        &self,
        name: &LockName,
        id: LeaseId,
    ) -> Result<Option<Held>, LockError> {
        if let Some(held) = self.held.find(name, id) {
            return Ok(Some(held));
        }
        let (queue, _) = self.queue(name).await?;
        match queue.find(id) {
            Some((place, _)) => self.adopt(name, id, place).await,
            None => Ok(None),
        }
    }

    /// Notes a lease id that was asked for by another process. `None`: it went meanwhile.
    pub(crate) async fn adopt(
        &self,
        name: &LockName,
        id: LeaseId,
        place: &Place,
    ) -> Result<Option<Held>, LockError> {
        let key = place.kv.key.clone();
        let lease = match place.kv.lease {
            // Newer servers tell it with the value only.
            0 => match self.client.range(key_value(key.clone())).await?.kvs.pop() {
                Some(kv) => kv.lease,
                None => return Ok(None),
            },
            lease => lease,
        };
        let held = Held::new(key, Arc::new(Session::found(lease, Duration::ZERO)));
        self.held.note(name, id, held.clone(), self.clock.now());
        Ok(Some(held))
    }

    /// Notes that a lease id holds its name, or what it waits for.
    pub(crate) fn learn(
        &self,
        name: &LockName,
        id: LeaseId,
        queue: &Queue,
        revision: i64,
    ) -> Result<(), LockError> {
        let Some((place, waits)) = queue.find(id) else { return Ok(()) };
        if waits.is_none() {
            let token = token(place)?;
            self.held.update(name, id, |held| {
                (held.token, held.read_at) = (Some(token), revision);
                held.written = held.written.max(place.kv.create_revision);
                held.blockers.clear();
            });
            return Ok(());
        }
        let keys: Vec<_> = queue.blockers(id).iter().map(|place| place.kv.key.clone()).collect();
        if let Some(before) = self.before(name, &keys, revision) {
            self.watcher.retarget(id, before);
        }
        self.held.update(name, id, |held| {
            (held.blockers, held.read_at) = (keys, revision);
            held.written = held.written.max(place.kv.create_revision);
        });
        Ok(())
    }

    /// What a contender has to hear of what stands before it.
    pub(crate) fn before(
        &self,
        name: &LockName,
        keys: &[Vec<u8>],
        revision: i64,
    ) -> Option<Before> {
        let span = match keys {
            [] => return None,
            [one] => (one.clone(), Vec::new()),
            _ => self.layout.queue(name),
        };
        Some(Before { span, keys: keys.iter().cloned().collect(), from: revision + 1 })
    }

    pub(crate) fn watch(&self, _: &Workplace, name: &LockName, id: LeaseId) -> Hints {
        let wanted = self.held.find(name, id).map(|held| Wanted {
            own: (held.key.clone(), held.written + 1),
            before: self.before(name, &held.blockers, held.read_at),
        });
        Box::pin(self.watcher.open(id, wanted))
    }

    /// Returns how much of a session is left, counted from `since`; asks where nothing is known.
    /// `None` when it is over.
    pub(crate) async fn left(
        &self,
        session: &Session,
        since: Moment,
    ) -> Result<Option<Duration>, LockError> {
        let left = session.left(since);
        if !left.is_zero() {
            return Ok(Some(left));
        }
        let seconds = self.client.time_to_live(session.lease).await?;
        Ok(u64::try_from(seconds).ok().filter(|left| *left > 0).map(Duration::from_secs))
    }

    /// Returns the lease on which a mark lasts long enough.
    pub(crate) async fn grave(&self) -> Result<i64, LockError> {
        let mut grave = self.grave.lock().await;
        let now = self.clock.now();
        if let Some((lease, until)) = *grave
            && now.until(until) >= REST
        {
            return Ok(lease);
        }
        let seconds = i64::try_from(GRAVE.as_secs()).unwrap_or(i64::MAX);
        let reply = self.client.grant(0, seconds).await?;
        *grave = Some((reply.id, now.after(GRAVE)));
        Ok(reply.id)
    }

    /// Forgets the lease of marks: the server has.
    pub(crate) async fn close_grave(&self) {
        *self.grave.lock().await = None;
    }

    /// Describes a holder with what its session has left.
    pub(crate) async fn summary(&self, place: &Place) -> Result<HolderSummary, LockError> {
        let seconds = match self.client.time_to_live(place.kv.lease).await {
            Ok(seconds) => u64::try_from(seconds).unwrap_or(0),
            // How long it lasts is a courtesy.
            Err(_) => 0,
        };
        described(place, Some(Duration::from_secs(seconds)))
    }
}

/// Describes a holder whose key was read with its value, and of whose session so much is left.
pub(crate) fn described(place: &Place, left: Option<Duration>) -> Result<HolderSummary, LockError> {
    let record = record_of(place)?;
    Ok(HolderSummary {
        lease_id: short(place),
        token: Some(token(place)?),
        mode: place.mode(),
        held_for: None,
        left,
        metadata: record.map_or_else(Metadata::default, |record| record.holder),
    })
}

/// Reads what stands at a key of ours.
///
/// # Errors
/// `Foreign`: it is none of our records.
pub(crate) fn record(value: &[u8]) -> Result<Record, LockError> {
    let found = "a key like ours has a value that is none of this version's";
    Record::from_bytes(value).ok_or_else(|| foreign(found))
}

/// The record at a key; `None` for one of Go's, which has none.
pub(crate) fn record_of(place: &Place) -> Result<Option<Record>, LockError> {
    match place.stander {
        Stander::Ours { .. } => record(&place.kv.value).map(Some),
        Stander::Go { .. } => Ok(None),
    }
}

/// The fencing token: the revision at which the key was made.
pub(crate) fn token(place: &Place) -> Result<FencingToken, LockError> {
    let revision = u64::try_from(place.kv.create_revision).unwrap_or(0);
    FencingToken::new(revision)
        .map_err(|_| protocol(format!("the revision {revision} is no fencing token")))
}

/// How a holder is told from others; one of Go's by its lease.
pub(crate) fn short(place: &Place) -> ShortLeaseId {
    match place.stander {
        Stander::Ours { lease_id, .. } => lease_id.short(),
        Stander::Go { lease } => {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&lease.rotate_left(32).to_be_bytes());
            LeaseId::from_bytes(bytes).short()
        }
    }
}
