//! The state of a name, for people and tools.
//!
//! A snapshot is outdated when it arrives. No rule depends on one. The engine `http` and a server
//! send each other these types as they are serialized here; what people and tools read is `json`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::escape::Escaped;
use crate::lease_id::ShortLeaseId;
use crate::metadata::{Metadata, as_text};
use crate::mode::Mode;
use crate::name::LockName;
use crate::token::FencingToken;

/// A holder, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderSummary {
    /// The first digits of its lease id.
    pub lease_id: ShortLeaseId,
    /// Its fencing token; `None` for a holder that is not ours.
    pub token: Option<FencingToken>,
    /// How it holds the name.
    pub mode: Mode,
    /// For how long it has held the name, where the engine knows.
    pub held_for: Option<Duration>,
    /// How long the store keeps the grant from now; `None` for a live grant, and in the reply to an
    /// acquire if the engine would have to ask the store once more.
    pub left: Option<Duration>,
    /// The store never ends the grant by itself, and no process keeps it alive: a lock key of
    /// another library without an expiry.
    #[serde(default)]
    pub no_expiry: bool,
    /// What it states about itself.
    #[serde(with = "as_text")]
    pub metadata: Metadata,
}

impl fmt::Display for HolderSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.metadata.fields();
        let program = if fields.program.is_empty() { "another" } else { &fields.program };
        write!(f, "{:.80}", Escaped(program))?;
        match (fields.pid, fields.host.is_empty()) {
            (Some(pid), false) => write!(f, " (pid {pid} on {:.64})", Escaped(&fields.host))?,
            (Some(pid), true) => write!(f, " (pid {pid})")?,
            (None, false) => write!(f, " (on {:.64})", Escaped(&fields.host))?,
            (None, true) => {}
        }
        if let Some(held_for) = self.held_for {
            write!(f, " for {}", coarse(held_for))?;
        }
        if self.no_expiry {
            f.write_str(", without an expiry")?;
        }
        if fields.reason.is_empty() {
            return Ok(());
        }
        write!(f, ": {:.200}", Escaped(&fields.reason))
    }
}

/// Writes a duration as people read it: two units at most.
pub fn coarse(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The state of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantState {
    /// Held.
    Held,
    /// Held, but an operator has revoked it for this reason.
    Revoked(String),
}

/// A holder, in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderView {
    /// Who it is.
    #[serde(flatten)]
    pub summary: HolderSummary,
    /// The state of its grant.
    pub state: GrantState,
    /// Whether the grant belongs to no process.
    pub detached: bool,
    /// Whether the grant lasts as long as its processes. Not for other machines.
    #[serde(skip)]
    pub live: bool,
    /// The processes that keep a live grant, where the engine knows. Not for other machines.
    #[serde(skip)]
    pub pids: Vec<u32>,
}

/// A contender in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaiterView {
    /// The first digits of its lease id.
    pub lease_id: ShortLeaseId,
    /// How it wants to hold the name.
    pub mode: Mode,
    /// For how long it has waited, where the engine knows.
    pub waited: Option<Duration>,
    /// What it states about itself.
    #[serde(with = "as_text")]
    pub metadata: Metadata,
}

/// An operator's freeze.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeView {
    /// The operator's reason.
    pub reason: String,
    /// How long it lasts from now.
    pub left: Duration,
    /// Whether the freeze has the name; otherwise it waits until the holders are gone.
    pub active: bool,
    /// The token of the freeze's own grant, once active.
    pub token: Option<FencingToken>,
}

/// What the servers of a quorum have under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerHolds {
    /// How many servers the quorum has.
    pub servers: usize,
    /// Each holder that some server shows, the one on most servers first.
    pub holds: Vec<ServerHold>,
}

/// A holder that servers of a quorum show. Only one on a majority has the name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerHold {
    /// The first digits of its lease id.
    pub lease_id: ShortLeaseId,
    /// How many servers show it.
    pub servers: usize,
    /// On how many of these it never ends.
    pub without_expiry: usize,
}

/// The state of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The lock name.
    pub name: LockName,
    /// The holders, oldest first, at most [`MAX_VIEWS`].
    pub holders: Vec<HolderView>,
    /// How many holders there are.
    pub holder_count: usize,
    /// The queue, head first, at most [`MAX_VIEWS`].
    pub queue: Vec<WaiterView>,
    /// How many contenders wait.
    pub queue_length: usize,
    /// The semaphore's total, when the name is one.
    pub permits_of: Option<u32>,
    /// The freeze, if there is one.
    pub freeze: Option<FreezeView>,
    /// What the servers of a quorum have; `None` elsewhere, and while the name is not in use.
    #[serde(default)]
    pub servers: Option<ServerHolds>,
}

/// How many holders and how many waiters a snapshot shows at most.
pub const MAX_VIEWS: usize = 1_000;
/// How many names a page of a listing has at most.
pub const MAX_PAGE: usize = 1_000;

impl Snapshot {
    /// Makes the snapshot of a name without holders and waiters.
    pub fn free(name: LockName) -> Snapshot {
        Snapshot {
            name,
            holders: Vec::new(),
            holder_count: 0,
            queue: Vec::new(),
            queue_length: 0,
            permits_of: None,
            freeze: None,
            servers: None,
        }
    }

    /// Returns whether the name is held, also by a freeze.
    pub fn is_held(&self) -> bool {
        self.holder_count > 0 || self.freeze.as_ref().is_some_and(|freeze| freeze.active)
    }

    /// Returns whether a listing shows the name: it is held, waited for, or frozen, or some server
    /// of a quorum has a key that never ends.
    pub fn is_used(&self) -> bool {
        let waits = self.queue_length > 0 || self.freeze.is_some();
        self.is_held() || waits || self.holds_without_expiry().next().is_some()
    }

    /// Returns the holders that some servers of a quorum keep for ever.
    pub fn holds_without_expiry(&self) -> impl Iterator<Item = &ServerHold> {
        let holds = self.servers.iter().flat_map(|servers| &servers.holds);
        holds.filter(|hold| hold.without_expiry > 0)
    }
}

/// Asks for names that are held or waited for. The default asks for the first whole page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRequest {
    /// Only names that begin with this text.
    pub prefix: String,
    /// Where the last page ended; `None` for the first page.
    pub after: Option<LockName>,
    /// How many names to return at most; [`MAX_PAGE`] if it is more.
    pub limit: usize,
}

impl Default for ListRequest {
    fn default() -> ListRequest {
        ListRequest { prefix: String::new(), after: None, limit: MAX_PAGE }
    }
}

impl ListRequest {
    /// Returns how many names a page may have.
    pub fn limit(&self) -> usize {
        self.limit.clamp(1, MAX_PAGE)
    }

    /// Returns whether the request is for this name, apart from the limit.
    pub fn covers(&self, name: &LockName) -> bool {
        name.as_str().starts_with(&self.prefix)
            && self.after.as_ref().is_none_or(|after| name > after)
    }
}

/// One page of names, in byte order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPage {
    /// The names.
    pub names: Vec<Snapshot>,
    /// Where to go on; `None` when this was the last page.
    pub after: Option<LockName>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_people_read_them() {
        for (duration, text) in [
            (Duration::from_millis(7), "7ms"),
            (Duration::from_secs(59), "59s"),
            (Duration::from_secs(61), "1m01s"),
            (Duration::from_secs(3_600), "1h00m"),
            (Duration::from_secs(90_000), "1d01h"),
        ] {
            assert_eq!(coarse(duration), text);
        }
    }
}
