//! Replies of the scripts become typed values. Those that all dialects share are parsed by
//! `native`.

use std::collections::BTreeMap;
use std::time::Duration;

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{
    AcquireReply, AcquireRequest, FencingToken, GrantState, HolderFields, HolderSummary,
    HolderView, LeaseId, LockError, LockName, Metadata, Mode, Snapshot, WaiterView,
};

use super::owner::{JavaOwner, lease_of};
use crate::error::{ENGINE, protocol};
use crate::link::Value;
use crate::native::{self, replies::ScriptReply};

/// The program of a holder that is not ours.
const FOREIGN: &str = "a Redisson client";

/// A holder, as a script reports it.
#[derive(Debug)]
pub(super) struct RedissonHolder {
    pub(super) view: HolderView,
    /// The owner of a lock, or empty for a permit.
    pub(super) owner: String,
    /// Known for a holder of ours.
    pub(super) lease_id: Option<LeaseId>,
}

/// The record of a grant of ours.
struct Record {
    token: Option<FencingToken>,
    since_us: Option<u64>,
    detached: bool,
    metadata: Metadata,
}

impl Record {
    fn read(text: &str, fencing: bool) -> Option<Record> {
        let mut fields = text.splitn(4, ':');
        let token = fields.next()?.parse().ok().filter(|_| fencing);
        let since_us = fields.next()?.parse().ok();
        let detached = fields.next()?.starts_with('d');
        // Metadata that is too long is not ours.
        let metadata = Metadata::from_encoded(fields.next()?).unwrap_or_default();
        Some(Record { token, since_us, detached, metadata })
    }
}

/// Reads the reply to an acquire; `max_waiters` is the longest queue.
pub(super) fn acquired(
    value: &Value,
    request: &AcquireRequest,
    fencing: bool,
    max_waiters: usize,
) -> Result<AcquireReply, LockError> {
    let status = value.as_array().and_then(|parts| parts.first()?.as_text());
    if !matches!(status, Some("busy" | "queued" | "total")) {
        return native::acquired(value, request, max_waiters);
    }
    let reply = ScriptReply::of(value)?;
    if reply.status == "total" {
        let message = format!("the semaphore has {} permits, not {}", reply.text(0)?, request.mode);
        return Err(LockError::invalid(ENGINE, "mode", message));
    }
    let left = reply.optional_millis(1)?;
    let holder = blocker(&reply, request, left, fencing)?;
    if reply.status == "queued" {
        let position = usize::try_from(reply.number(5)?).ok();
        return Ok(AcquireReply::Queued { position, holder, next_look: reply.millis(6)? });
    }
    let soonest = match reply.parts.get(5) {
        Some(_) => reply.optional_millis(5)?,
        None => left,
    };
    Ok(AcquireReply::Busy {
        holder,
        at_most: left,
        next_look: soonest.unwrap_or(QUEUE_HEARTBEAT).min(QUEUE_HEARTBEAT),
    })
}

/// Reads the holder that blocks a request, or who is in front of it.
fn blocker(
    reply: &ScriptReply<'_>,
    request: &AcquireRequest,
    left: Option<Duration>,
    fencing: bool,
) -> Result<Option<Box<HolderSummary>>, LockError> {
    let now_us = reply.number(0)?;
    let form = match request.mode {
        Mode::Permits { of, .. } => Form::Permits { of },
        Mode::Exclusive if request.kind.is_mutex() => Form::Lock,
        Mode::Exclusive | Mode::Shared => Form::ReadWrite,
    };
    // A read/write lock may outlast this holder.
    let holder_left = left.filter(|_| form == Form::Lock);
    match reply.part(2)? {
        Value::Nil => Ok(None),
        _ => {
            let mut held = held(form, now_us, &reply.parts[2..], holder_left, fencing)?;
            held.view.summary.no_expiry = form == Form::Lock && left.is_none();
            Ok(Some(Box::new(held.view.summary)))
        }
    }
}

/// Which object a holder is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Lock,
    ReadWrite,
    Permits { of: u32 },
}

/// Reads a holder: its field or id, its count, and its record.
fn held(
    form: Form,
    now_us: u64,
    parts: &[Value],
    left: Option<Duration>,
    fencing: bool,
) -> Result<RedissonHolder, LockError> {
    let [field, count, record, ..] = parts else {
        return Err(protocol("a holder does not have three parts"));
    };
    let field = field.as_bytes().ok_or_else(|| protocol("a holder has no owner"))?;
    let count = count.as_text().ok_or_else(|| protocol("a holder has no count"))?;
    let record = record.as_text().and_then(|text| Record::read(text, fencing));
    let (id, mode, foreign) = match form {
        Form::Permits { of } => {
            let bytes: [u8; 16] =
                field.try_into().map_err(|_| protocol("a permit has an invalid id"))?;
            let count = count.parse().unwrap_or(1);
            (LeaseId::from_bytes(bytes), Mode::Permits { count, of }, BTreeMap::new())
        }
        Form::Lock | Form::ReadWrite => {
            let text = std::str::from_utf8(field).map_err(|_| protocol("an owner is no text"))?;
            let writes = text.strip_suffix(":write");
            let reads = form == Form::ReadWrite && writes.is_none();
            let mode = if reads { Mode::Shared } else { Mode::Exclusive };
            let id = lease_of(writes.unwrap_or(text));
            (id.unwrap_or_else(|| beginning(text)), mode, labels_of(text, count))
        }
    };
    let ours = record.is_some();
    let record = record.unwrap_or_else(|| {
        let fields =
            HolderFields { program: FOREIGN.into(), labels: foreign, ..HolderFields::default() };
        let metadata = Metadata::new(&fields).unwrap_or_default();
        Record { token: None, since_us: None, detached: false, metadata }
    });
    let held_for = record.since_us.map(|since| Duration::from_micros(now_us.saturating_sub(since)));
    let summary = HolderSummary {
        lease_id: id.short(),
        token: record.token,
        mode,
        held_for,
        left,
        no_expiry: false,
        metadata: record.metadata,
    };
    let view = HolderView {
        summary,
        state: GrantState::Held,
        detached: record.detached,
        live: false,
        pids: Vec::new(),
    };
    let owner = match form {
        Form::Permits { .. } => String::new(),
        Form::Lock | Form::ReadWrite => String::from_utf8_lossy(field).into_owned(),
    };
    Ok(RedissonHolder { view, owner, lease_id: ours.then_some(id) })
}

impl RedissonHolder {
    /// Returns whether an operator means this holder: by the id that is shown of it, or as Redisson
    /// writes it, `uuid:thread`.
    pub(super) fn has_id(&self, id: &str) -> bool {
        let owner = self.owner.strip_suffix(":write").unwrap_or(&self.owner);
        !id.is_empty() && (owner == id || self.view.summary.lease_id.to_string() == id)
    }
}

/// Returns what is known of a holder of Redisson's: its client, its thread, how often it holds.
fn labels_of(field: &str, count: &str) -> BTreeMap<String, String> {
    let Some(owner) = JavaOwner::parse(field) else { return BTreeMap::new() };
    BTreeMap::from([
        ("client".to_owned(), owner.uuid.to_owned()),
        ("thread".to_owned(), owner.thread.to_owned()),
        ("holds".to_owned(), count.to_owned()),
    ])
}

/// Returns an id that begins as the client's UUID does, so that people can distinguish holders.
fn beginning(field: &str) -> LeaseId {
    let digits: String = field.chars().filter(|digit| *digit != '-').take(8).collect();
    format!("{digits:0<32}").parse().unwrap_or(LeaseId::from_bytes([0; 16]))
}

/// The state of a name: its holders and, for a semaphore, the total.
pub(super) struct NameState {
    pub(super) holders: Vec<RedissonHolder>,
    holder_count: usize,
    permits_of: Option<u32>,
    queue: Vec<WaiterView>,
    queue_length: usize,
}

/// Reads the reply to an inspection; `None` if the name is free.
pub(super) fn state(value: &Value, fencing: bool) -> Result<Option<NameState>, LockError> {
    let reply = ScriptReply::of(value)?;
    match reply.status {
        "free" => return Ok(None),
        "held" => {}
        _ => return Err(reply.unknown_status()),
    }
    let now_us = reply.number(0)?;
    let kind = reply.text(1)?;
    let total = reply.part(2)?.as_integer().and_then(|total| u32::try_from(total).ok());
    let form = match kind {
        "permits" => Form::Permits { of: total.unwrap_or_default() },
        "lock" => Form::Lock,
        _ => Form::ReadWrite,
    };
    let holder_count = usize::try_from(reply.number(3)?).unwrap_or(usize::MAX);
    let views = reply.part(4)?.as_array().ok_or_else(|| reply.unexpected(4))?;
    let mut holders = Vec::with_capacity(views.len());
    for view in views {
        let Some([field, count, left, record]) = view.as_array() else {
            return Err(reply.unexpected(4));
        };
        let ms = left.as_integer().and_then(|left| u64::try_from(left).ok());
        let parts = [field.clone(), count.clone(), record.clone()];
        let mut held = held(form, now_us, &parts, ms.map(Duration::from_millis), fencing)?;
        held.view.summary.no_expiry = ms.is_none();
        holders.push(held);
    }
    // With fencing, each grant of an `RFencedLock` draws a token, so its holder drew the last one.
    let last = reply.part(5)?.as_text().and_then(|last| last.parse().ok());
    for held in holders.iter_mut().filter(|held| held.lease_id.is_none() && form == Form::Lock) {
        held.view.summary.token = last;
    }
    holders.sort_by_key(|held| std::cmp::Reverse(held.view.summary.held_for));
    let permits_of = total.filter(|_| kind == "permits");
    let queue_length = usize::try_from(reply.number(6)?).unwrap_or(usize::MAX);
    let owners = reply.part(7)?.as_array().ok_or_else(|| reply.unexpected(7))?;
    let queue =
        owners.iter().map(|owner| Ok(waiter(owner.as_text().ok_or_else(|| reply.unexpected(7))?)));
    let queue = queue.collect::<Result<_, LockError>>()?;
    Ok(Some(NameState { holders, holder_count, permits_of, queue, queue_length }))
}

/// Shows a waiter for a fair lock, of whom only the owner is stored.
fn waiter(owner: &str) -> WaiterView {
    let lease_id = lease_of(owner);
    let labels = match lease_id {
        Some(_) => BTreeMap::new(),
        None => labels_of(owner, "0"),
    };
    let program = if lease_id.is_some() { String::new() } else { FOREIGN.to_owned() };
    let fields = HolderFields { program, labels, ..HolderFields::default() };
    WaiterView {
        lease_id: lease_id.unwrap_or_else(|| beginning(owner)).short(),
        mode: Mode::Exclusive,
        waited: None,
        metadata: Metadata::new(&fields).unwrap_or_default(),
    }
}

/// Makes a snapshot of a state.
pub(super) fn snapshot(state: Option<NameState>, name: &LockName) -> Snapshot {
    let mut snapshot = Snapshot::free(name.clone());
    if let Some(state) = state {
        snapshot.holders = state.holders.into_iter().map(|held| held.view).collect();
        snapshot.holder_count = state.holder_count;
        snapshot.permits_of = state.permits_of;
        snapshot.queue = state.queue;
        snapshot.queue_length = state.queue_length;
    }
    snapshot
}
