//! Snapshots as JSON.

use std::time::Duration;

use holdline_core::{
    FencingToken, FreezeView, GrantState, HolderSummary, HolderView, LeaseId, ListPage, LockName,
    Metadata, Mode, ShortLeaseId, Snapshot, WaiterView,
};
use serde::{Deserialize, Serialize};

/// A [`HolderSummary`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Holder {
    lease_id: String,
    token: Option<FencingToken>,
    mode: Mode,
    held_for: Option<Duration>,
    left: Option<Duration>,
    metadata: String,
}

impl Holder {
    /// Writes a summary.
    pub fn of(summary: &HolderSummary) -> Holder {
        Holder {
            lease_id: summary.lease_id.to_string(),
            token: summary.token,
            mode: summary.mode,
            held_for: summary.held_for,
            left: summary.left,
            metadata: summary.metadata.as_encoded().to_owned(),
        }
    }

    /// Reads the summary.
    pub fn into_summary(self) -> HolderSummary {
        HolderSummary {
            lease_id: short(&self.lease_id),
            token: self.token,
            mode: self.mode,
            held_for: self.held_for,
            left: self.left,
            metadata: metadata(&self.metadata),
        }
    }
}

/// Reads the first digits of a lease id; a text that is none is shown as zeros, and decides
/// nothing.
fn short(digits: &str) -> ShortLeaseId {
    let whole = format!("{digits:0<32}");
    whole.parse().unwrap_or(LeaseId::from_bytes([0; 16])).short()
}

/// Metadata that is too long is left out: it decides nothing.
fn metadata(text: &str) -> Metadata {
    Metadata::from_encoded(text).unwrap_or_default()
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct HolderMessage {
    #[serde(flatten)]
    summary: Holder,
    state: GrantStateMessage,
    detached: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GrantStateMessage {
    Held,
    Handed,
    Revoked(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Waiter {
    lease_id: String,
    mode: Mode,
    waited: Option<Duration>,
    metadata: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Freeze {
    reason: String,
    left: Duration,
    active: bool,
    token: Option<FencingToken>,
}

/// A [`Snapshot`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapshotMessage {
    name: LockName,
    holders: Vec<HolderMessage>,
    holder_count: usize,
    queue: Vec<Waiter>,
    queue_length: usize,
    permits_of: Option<u32>,
    freeze: Option<Freeze>,
}

impl SnapshotMessage {
    /// Writes a snapshot. A live grant of the server's own machine is shown as one that is not
    /// detached; its processes are not shown to other machines.
    pub fn of(snapshot: &Snapshot) -> SnapshotMessage {
        SnapshotMessage {
            name: snapshot.name.clone(),
            holders: snapshot.holders.iter().map(held).collect(),
            holder_count: snapshot.holder_count,
            queue: snapshot.queue.iter().map(waiter).collect(),
            queue_length: snapshot.queue_length,
            permits_of: snapshot.permits_of,
            freeze: snapshot.freeze.as_ref().map(|freeze| Freeze {
                reason: freeze.reason.clone(),
                left: freeze.left,
                active: freeze.active,
                token: freeze.token,
            }),
        }
    }

    /// Reads the snapshot.
    pub fn into_snapshot(self) -> Snapshot {
        Snapshot {
            name: self.name,
            holders: self.holders.into_iter().map(holder_view).collect(),
            holder_count: self.holder_count,
            queue: self.queue.into_iter().map(waiter_view).collect(),
            queue_length: self.queue_length,
            permits_of: self.permits_of,
            freeze: self.freeze.map(|freeze| FreezeView {
                reason: freeze.reason,
                left: freeze.left,
                active: freeze.active,
                token: freeze.token,
            }),
        }
    }
}

fn held(view: &HolderView) -> HolderMessage {
    let state = match &view.state {
        GrantState::Held => GrantStateMessage::Held,
        GrantState::Handed => GrantStateMessage::Handed,
        GrantState::Revoked(reason) => GrantStateMessage::Revoked(reason.clone()),
    };
    HolderMessage { summary: Holder::of(&view.summary), state, detached: view.detached }
}

fn holder_view(held: HolderMessage) -> HolderView {
    let state = match held.state {
        GrantStateMessage::Held => GrantState::Held,
        GrantStateMessage::Handed => GrantState::Handed,
        GrantStateMessage::Revoked(reason) => GrantState::Revoked(reason),
    };
    let summary = held.summary.into_summary();
    HolderView { summary, state, detached: held.detached, live: false, pids: Vec::new() }
}

fn waiter(view: &WaiterView) -> Waiter {
    Waiter {
        lease_id: view.lease_id.to_string(),
        mode: view.mode,
        waited: view.waited,
        metadata: view.metadata.as_encoded().to_owned(),
    }
}

fn waiter_view(waiter: Waiter) -> WaiterView {
    let Waiter { lease_id, mode, waited, metadata: text } = waiter;
    WaiterView { lease_id: short(&lease_id), mode, waited, metadata: metadata(&text) }
}

/// A [`ListPage`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Page {
    names: Vec<SnapshotMessage>,
    after: Option<LockName>,
}

impl Page {
    /// Writes a page.
    pub fn of(page: &ListPage) -> Page {
        let names = page.names.iter().map(SnapshotMessage::of).collect();
        Page { names, after: page.after.clone() }
    }

    /// Reads the page.
    pub fn into_page(self) -> ListPage {
        let names = self.names.into_iter().map(SnapshotMessage::into_snapshot).collect();
        ListPage { names, after: self.after }
    }
}
