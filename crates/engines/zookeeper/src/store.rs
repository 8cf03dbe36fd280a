//! What all verbs of one engine share, and the marks about lease ids whose grant was revoked.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::sequenced_queue::Contender;
use holdline_core::{
    Capabilities, Clock, FencingToken, HolderSummary, LeaseId, LockError, LockName, Marks,
    Metadata, Record,
};
use tokio::sync::Mutex;

use crate::error::{Trouble, foreign, protocol};
use crate::held::{Held, HeldIds};
use crate::keys::Layout;
use crate::queue::{Place, Queue};
use crate::seen::Seen;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::wire::Wire;

/// How long a mark lasts at least: longer than the longest lease.
const MARK_MS: i64 = 75_000;
/// How many old marks one new one takes along at most.
const SWEEP: usize = 32;

/// One engine's state.
pub(crate) struct Store {
    pub(crate) capabilities: Capabilities,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) layout: Layout,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) held: Arc<HeldIds>,
    pub(crate) seen: Seen,
    pub(crate) watches: Arc<Watches>,
    /// The session for all that hangs on none, and how long it lasts.
    pub(crate) main: Mutex<Option<Arc<Session>>>,
    pub(crate) main_time: Duration,
}

impl Store {
    /// The way to the servers for what hangs on no session.
    pub(crate) async fn wire(&self) -> Result<Wire, LockError> {
        let mut main = self.main.lock().await;
        // Servers that were restored from an old copy do not take back a client that has seen more:
        // a new one they do.
        if let Some(session) = main.as_ref()
            && let Ok(wire) = session.wire()
            && wire.is_connected()
        {
            return Ok(wire);
        }
        let session = self.sessions.open(self.main_time).await?;
        let wire = session.wire()?;
        *main = Some(session);
        Ok(wire)
    }

    /// Reads what is known about a lease id that has no node: given up here, or revoked.
    pub(crate) async fn marks(&self, wire: &Wire, id: LeaseId) -> Result<Marks, Trouble> {
        let revoked = wire.data(&self.layout.revoked(id)).await?;
        let revoked = revoked.map(|(reason, _)| String::from_utf8_lossy(&reason).into_owned());
        Ok(Marks { gone: self.held.was_given_up(id, self.clock.now()), revoked })
    }

    /// Reads a name's queue.
    pub(crate) async fn queue(&self, wire: &Wire, name: &LockName) -> Result<Queue, Trouble> {
        let found = wire.counted_children(&self.layout.queue(name)).await?;
        let (children, next) = found.unwrap_or_default();
        Ok(Queue::read(children)?.counted(next))
    }

    /// Deletes marks that have done their duty. Both times are the servers'.
    pub(crate) async fn sweep(&self, wire: &Wire, now_ms: i64) -> Result<(), Trouble> {
        let marks = wire.children(&self.layout.marks()).await?.unwrap_or_default();
        // Another part each time, so that none is left for ever behind those that are young.
        let begin = usize::try_from(now_ms.unsigned_abs()).unwrap_or(0) % marks.len().max(1);
        for mark in marks.iter().cycle().skip(begin).take(SWEEP.min(marks.len())) {
            let path = format!("{}/{mark}", self.layout.marks());
            let old = wire.stat(&path).await?;
            if old.is_some_and(|stat| stat.ctime.saturating_add(MARK_MS) < now_ms) {
                wire.delete(&path, None).await?;
            }
        }
        Ok(())
    }

    /// Notes that a lease id holds its name, or what it waits for.
    pub(crate) fn learn(
        &self,
        name: &LockName,
        id: LeaseId,
        queue: &Queue,
    ) -> Result<(), LockError> {
        let Some((place, waits)) = queue.find(id) else { return Ok(()) };
        let child = place.child.clone();
        let blockers: Vec<_> = queue.blockers(id).iter().map(|place| place.child.clone()).collect();
        let mut bad = None;
        self.held.update(name, id, |held| {
            held.child = Some(child);
            if waits.is_none() {
                match token(held.czxid) {
                    Ok(token) => held.token = Some(token),
                    Err(error) => bad = Some(error),
                }
                held.blockers.clear();
            } else if held.blockers != blockers {
                held.blockers = blockers;
                held.changed.notify_one();
            }
        });
        bad.map_or(Ok(()), Err)
    }

    /// The path of a lease id's node, where it is known.
    pub(crate) fn path(&self, name: &LockName, held: &Held) -> Option<String> {
        Some(self.layout.child(name, held.child.as_ref()?))
    }

    /// Describes who stands at a place; `None` when it went meanwhile.
    pub(crate) async fn describe(
        &self,
        wire: &Wire,
        name: &LockName,
        place: &Place,
    ) -> Result<Option<(HolderSummary, Option<Record>)>, Trouble> {
        let path = self.layout.child(name, &place.child);
        let Some((data, stat)) = wire.data(&path).await? else { return Ok(None) };
        let record = record_of(place, &data)?;
        let summary = HolderSummary {
            lease_id: place.stander.id.short(),
            token: Some(token(stat.czxid)?),
            mode: place.mode(),
            held_for: None,
            // The servers tell nobody how long a session lasts yet; of our own we know.
            left: self.lasts(name, place),
            metadata: record.as_ref().map_or_else(Metadata::default, |one| one.holder.clone()),
        };
        Ok(Some((summary, record)))
    }

    /// Describes the first who holds a name.
    pub(crate) async fn first(
        &self,
        wire: &Wire,
        name: &LockName,
        queue: &Queue,
    ) -> Result<Option<(Box<HolderSummary>, Option<Record>)>, Trouble> {
        let Some(place) = queue.holders().first() else { return Ok(None) };
        let described = self.describe(wire, name, place).await?;
        Ok(described.map(|(summary, record)| (Box::new(summary), record)))
    }

    /// Returns how long what stands at a place lasts if nobody keeps it, as far as this process
    /// knows.
    pub(crate) fn lasts(&self, name: &LockName, place: &Place) -> Option<Duration> {
        let held = self.held.find(name, place.stander.id).filter(|_| place.stander.ours)?;
        Some(held.lasts(self.clock.now()))
    }
}

/// Reads what stands at a node of ours.
///
/// # Errors
/// `Foreign`: it is none of our records.
pub(crate) fn record(value: &[u8]) -> Result<Record, LockError> {
    let found = "a node like ours has a value that is none of this version's";
    Record::from_bytes(value).ok_or_else(|| foreign(found))
}

/// The record at a node; `None` for one of Curator's, which has none.
pub(crate) fn record_of(place: &Place, data: &[u8]) -> Result<Option<Record>, LockError> {
    match place.stander.ours {
        true => record(data).map(Some),
        false => Ok(None),
    }
}

/// The fencing token: where the making of the node stands in the order of all changes.
pub(crate) fn token(czxid: i64) -> Result<FencingToken, LockError> {
    let number = u64::try_from(czxid).unwrap_or(0);
    FencingToken::new(number)
        .map_err(|_| protocol(format!("the transaction {czxid} is no fencing token")))
}
