//! Snapshots as JSON, for every face that shows them: the command line, the server and Python.
//!
//! `docs/json.md` describes the fields. Keys are only ever added. The command line and Python write
//! the fields of `about` beside the others, and add what only this machine may see. Programs of
//! ours send each other the [`Snapshot`] itself, which loses nothing.

use serde::{Deserialize, Serialize};

use crate::lease_id::ShortLeaseId;
use crate::metadata::{HolderFields, Metadata};
use crate::mode::Mode;
use crate::moment::whole_millis;
use crate::name::LockName;
use crate::snapshot::{
    FreezeView, GrantState, HolderSummary, HolderView, ServerHolds, Snapshot, WaiterView,
};
use crate::token::FencingToken;

/// How a lock is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ModeBody))]
#[serde(rename_all = "snake_case")]
pub enum ModeJson {
    /// Alone.
    #[default]
    Exclusive,
    /// Together with other shared holders.
    Shared,
    /// With some permits of a semaphore.
    Permits,
}

impl From<Mode> for ModeJson {
    fn from(mode: Mode) -> ModeJson {
        match mode {
            Mode::Exclusive => ModeJson::Exclusive,
            Mode::Shared => ModeJson::Shared,
            Mode::Permits { .. } => ModeJson::Permits,
        }
    }
}

/// A holder.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = HolderBody))]
pub struct HolderJson {
    /// The first eight digits of the lease id, which prove nothing.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    lease_id: ShortLeaseId,
    /// The fencing token.
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = Option<u64>, minimum = 1, maximum = 9_007_199_254_740_991_u64)
    )]
    fencing_token: Option<FencingToken>,
    mode: ModeJson,
    /// The number of permits.
    permits: Option<u32>,
    /// `held` or `revoked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    /// The operator's reason for a revoke.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoke_reason: Option<String>,
    /// The time since the grant.
    held_for_ms: Option<u64>,
    /// The time until the store ends the grant.
    left_ms: Option<u64>,
    /// The store never ends the grant by itself, such as a key of another library without an
    /// expiry.
    no_expiry: bool,
    #[cfg_attr(feature = "openapi", schema(schema_with = about_schema))]
    about: HolderFields,
}

impl From<&HolderSummary> for HolderJson {
    fn from(summary: &HolderSummary) -> HolderJson {
        HolderJson {
            lease_id: summary.lease_id,
            fencing_token: summary.token,
            mode: summary.mode.into(),
            permits: summary.mode.permit_count(),
            state: None,
            revoke_reason: None,
            held_for_ms: summary.held_for.map(whole_millis),
            left_ms: summary.left.map(whole_millis),
            no_expiry: summary.no_expiry,
            about: about(&summary.metadata),
        }
    }
}

impl From<&HolderView> for HolderJson {
    fn from(view: &HolderView) -> HolderJson {
        let mut holder = HolderJson::from(&view.summary);
        holder.state = Some(match &view.state {
            GrantState::Held => "held",
            GrantState::Revoked(_) => "revoked",
        });
        if let GrantState::Revoked(reason) = &view.state {
            holder.revoke_reason = Some(reason.clone());
        }
        holder
    }
}

/// A contender in the queue.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WaiterBody))]
pub struct WaiterJson {
    /// The first eight digits of the lease id.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    lease_id: ShortLeaseId,
    mode: ModeJson,
    /// The number of permits.
    permits: Option<u32>,
    /// How long it has waited.
    waited_ms: Option<u64>,
    #[cfg_attr(feature = "openapi", schema(schema_with = about_schema))]
    about: HolderFields,
}

impl From<&WaiterView> for WaiterJson {
    fn from(view: &WaiterView) -> WaiterJson {
        WaiterJson {
            lease_id: view.lease_id,
            mode: view.mode.into(),
            permits: view.mode.permit_count(),
            waited_ms: view.waited.map(whole_millis),
            about: about(&view.metadata),
        }
    }
}

/// Returns what a holder or a waiter reports about itself. The lease that it asked for is for the
/// program that renews it.
fn about(metadata: &Metadata) -> HolderFields {
    HolderFields { lease_duration_ms: None, ..metadata.fields() }
}

/// These are the fields that a request to the server has, and it describes them there.
#[cfg(feature = "openapi")]
fn about_schema() -> utoipa::openapi::Ref {
    utoipa::openapi::Ref::from_schema_name("AboutBody")
}

/// An operator's freeze.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = FreezeBody))]
pub struct FreezeJson {
    /// Whether the freeze has the name; otherwise it waits for the holders.
    active: bool,
    /// The operator's reason.
    reason: String,
    /// The time until it ends.
    left_ms: u64,
    /// The fencing token of the freeze.
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = Option<u64>, minimum = 1, maximum = 9_007_199_254_740_991_u64)
    )]
    fencing_token: Option<FencingToken>,
}

impl From<&FreezeView> for FreezeJson {
    fn from(view: &FreezeView) -> FreezeJson {
        FreezeJson {
            active: view.active,
            reason: view.reason.clone(),
            left_ms: whole_millis(view.left),
            fencing_token: view.token,
        }
    }
}

/// How a lock stands. It is old when it arrives.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LockBody))]
pub struct LockJson {
    /// The lock name.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub name: LockName,
    /// Whether the lock is held or frozen.
    held: bool,
    /// The number of holders.
    holder_count: usize,
    /// The holders, oldest first, at most 1000.
    pub holders: Vec<HolderJson>,
    /// The number of waiters.
    queue_length: usize,
    /// The waiters, head first, at most 1000.
    pub queue: Vec<WaiterJson>,
    /// The total of permits, if the name is a semaphore.
    permits_of: Option<u32>,
    freeze: Option<FreezeJson>,
    /// What the servers of a quorum have under the name; `null` on any other store, and while it
    /// is not in use.
    servers: Option<ServersJson>,
}

/// What the servers of a quorum have under a name.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ServersBody))]
pub struct ServersJson {
    /// How many servers the quorum has.
    count: usize,
    /// Each holder that some server shows, the one on most servers first.
    holds: Vec<ServerHoldJson>,
}

/// A holder that servers of a quorum show. Only one on a majority has the name.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ServerHoldBody))]
pub struct ServerHoldJson {
    /// The first eight digits of the lease id.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    lease_id: ShortLeaseId,
    /// How many servers show it.
    servers: usize,
    /// On how many of these it never ends.
    without_expiry: usize,
}

impl From<&ServerHolds> for ServersJson {
    fn from(servers: &ServerHolds) -> ServersJson {
        let holds = servers.holds.iter().map(|hold| ServerHoldJson {
            lease_id: hold.lease_id,
            servers: hold.servers,
            without_expiry: hold.without_expiry,
        });
        ServersJson { count: servers.servers, holds: holds.collect() }
    }
}

impl From<&Snapshot> for LockJson {
    fn from(snapshot: &Snapshot) -> LockJson {
        LockJson {
            name: snapshot.name.clone(),
            held: snapshot.is_held(),
            holder_count: snapshot.holder_count,
            holders: snapshot.holders.iter().map(HolderJson::from).collect(),
            queue_length: snapshot.queue_length,
            queue: snapshot.queue.iter().map(WaiterJson::from).collect(),
            permits_of: snapshot.permits_of,
            freeze: snapshot.freeze.as_ref().map(FreezeJson::from),
            servers: snapshot.servers.as_ref().map(ServersJson::from),
        }
    }
}
