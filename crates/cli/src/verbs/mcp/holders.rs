//! Who holds what a target needs, as an agent reads it.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::try_join_all;
use holdline::Client;
use holdline::lease::ShortLeaseId;
use holdline_core::snapshot::coarse;
use holdline_core::{
    Escaped, HolderFields, HolderView, ListRequest, LockError, LockName, Mode, Snapshot,
};
use serde_json::{Value, json};

use super::targets::Targets;
use crate::view::moment;

/// The label by which a holder states its targets.
pub(super) const TARGETS_LABEL: &str = "targets";

/// The label by which a holder states how long it holds unless it renews. The store knows only its
/// own lease, which the keeper renews.
pub(super) const SECONDS_LABEL: &str = "lease_seconds";

/// The label with the time of the request, in seconds since 1970, for stores that do not know since
/// when a lock is held.
pub(super) const ASKED_LABEL: &str = "asked_at";

/// How many holders an answer shows.
const SHOWN: usize = 50;

/// How many pages of names are read for all holders of a repository.
const MAX_PAGES: usize = 10;

/// What prevents a lock.
#[derive(Debug, Default)]
pub(super) struct Blockers {
    /// Holders and freezes, each once.
    pub(super) held_by: Vec<Value>,
    /// Those who wait for the same.
    pub(super) waiting: Vec<Value>,
    /// The first holder in a sentence.
    pub(super) first: Option<String>,
    /// Each holder has a grant for every name that it needs. It is shown once.
    seen: BTreeSet<String>,
}

impl Blockers {
    /// Finds what prevents these targets now. `own` names a lease of this server.
    pub(super) async fn of(
        targets: &Targets,
        client: &Client,
        own: impl Fn(ShortLeaseId) -> Option<String>,
    ) -> Result<Blockers, LockError> {
        let inspections = targets.needs.keys().map(|name| client.admin().inspect(name));
        let snapshots = try_join_all(inspections).await?;
        let mut blockers = Blockers::default();
        for (snapshot, need) in snapshots.iter().zip(targets.needs.values()) {
            let blocks = |mode: Mode| [*need, mode].contains(&Mode::Exclusive);
            blockers.add(snapshot, blocks, &own);
        }
        Ok(blockers)
    }

    /// Finds everything that is locked in a repository.
    pub(super) async fn of_repository(
        prefix: String,
        client: &Client,
        own: impl Fn(ShortLeaseId) -> Option<String>,
    ) -> Result<Blockers, LockError> {
        let mut blockers = Blockers::default();
        let mut request = ListRequest { prefix, after: None, limit: 1_000 };
        for _ in 0..MAX_PAGES {
            let page = client.admin().list(&request).await?;
            for snapshot in &page.names {
                // Each target is held exclusively, and the directories above it shared.
                blockers.add(snapshot, |mode| mode == Mode::Exclusive, &own);
            }
            match page.after {
                Some(after) if blockers.held_by.len() < SHOWN => request.after = Some(after),
                _ => break,
            }
        }
        Ok(blockers)
    }

    /// Returns whether nothing is held.
    pub(super) fn is_free(&self) -> bool {
        self.held_by.is_empty()
    }

    fn add(
        &mut self,
        snapshot: &Snapshot,
        blocks: impl Fn(Mode) -> bool,
        own: impl Fn(ShortLeaseId) -> Option<String>,
    ) {
        if let Some(freeze) = snapshot.freeze.as_ref().filter(|freeze| freeze.active) {
            let text = format!("{} is frozen: {}", snapshot.name, Escaped(&freeze.reason));
            self.first.get_or_insert(text);
            let seconds = freeze.left.as_secs();
            self.held_by.push(json!({"frozen": freeze.reason, "seconds_left": seconds}));
        }
        for holder in snapshot.holders.iter().filter(|holder| blocks(holder.summary.mode)) {
            let fields = holder.summary.metadata.fields();
            if !self.is_new("held", &fields, &snapshot.name) {
                continue;
            }
            let own = own(holder.summary.lease_id);
            self.first.get_or_insert_with(|| sentence(holder, &fields, &snapshot.name, &own));
            let mut object = fields_of(&fields, &snapshot.name);
            object["held_for_seconds"] = holder.summary.held_for.map(|held| held.as_secs()).into();
            let left = left(holder, &fields);
            object["seconds_left"] = left.map(|left| left.as_secs()).into();
            object["until"] = left.map(|left| moment(SystemTime::now() + left)).into();
            if let Some(own) = own {
                object["your_lease"] = own.into();
            }
            push(&mut self.held_by, object);
        }
        for waiter in snapshot.queue.iter().filter(|waiter| blocks(waiter.mode)) {
            let fields = waiter.metadata.fields();
            if self.is_new("waits", &fields, &snapshot.name) {
                push(&mut self.waiting, fields_of(&fields, &snapshot.name));
            }
        }
    }

    fn is_new(&mut self, state: &str, fields: &HolderFields, name: &LockName) -> bool {
        let targets = fields.labels.get(TARGETS_LABEL).map_or(name.as_str(), String::as_str);
        let HolderFields { host, pid, program, reason, .. } = fields;
        self.seen.insert(format!("{state} {host} {pid:?} {program} {reason} {targets}"))
    }
}

fn push(list: &mut Vec<Value>, object: Value) {
    if list.len() < SHOWN {
        list.push(object);
    }
}

fn fields_of(fields: &HolderFields, name: &LockName) -> Value {
    json!({
        "targets": fields.labels.get(TARGETS_LABEL).map_or(name.as_str(), String::as_str),
        "agent": fields.program,
        "purpose": fields.reason,
        "user": fields.user,
        "host": fields.host,
        "pid": fields.pid,
    })
}

/// Returns for how long a holder holds unless it renews; `None` if it has renewed, or if that is
/// not known.
fn left(holder: &HolderView, fields: &HolderFields) -> Option<Duration> {
    let label = |label| fields.labels.get(label).and_then(|text: &String| text.parse().ok());
    if !fields.labels.contains_key(SECONDS_LABEL) {
        return holder.summary.left;
    }
    let since_asked = || now().checked_sub(Duration::from_secs(label(ASKED_LABEL)?));
    let held_for = holder.summary.held_for.or_else(since_asked)?;
    Duration::from_secs(label(SECONDS_LABEL)?).checked_sub(held_for)
}

/// Returns the time of day, since 1970. No rule depends on it.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn sentence(
    holder: &HolderView,
    fields: &HolderFields,
    name: &LockName,
    own: &Option<String>,
) -> String {
    let targets = fields.labels.get(TARGETS_LABEL).map_or(name.as_str(), String::as_str);
    let targets = Escaped(targets);
    let program = Escaped(&fields.program);
    let mut text = format!("{targets:.200} is held by {program:.64}");
    if let Some(own) = own {
        text += &format!(" (this is your own {own})");
    }
    if let Some(left) = left(holder, fields) {
        let until = moment(SystemTime::now() + left);
        text += &format!(" until {until}, in {}, unless renewed", coarse(left));
    }
    text + &format!(". Purpose: {:.200}", Escaped(&fields.reason))
}
