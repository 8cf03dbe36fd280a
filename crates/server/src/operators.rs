//! What operators do: revoke, remove a waiter, freeze, unfreeze, raise the fence.
//!
//! Each command needs a right, is carried out and recorded (`audit`), and is an event if it has
//! changed something. That is the same whether it comes by the API, from a page beside it or by the
//! engine protocol.

use std::time::Duration;

use axum::extract::State;
use holdline_core::{FencingToken, Operation, OperationReply, ShortLeaseId};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::events::{Event, What};
use crate::identity::Identity;
use crate::input::{Body, Name};
use crate::json::{Json, fencing_token};
use crate::locks::DONE;
use crate::problem::{Problem, ProblemBody};
use crate::rights::Right;
use crate::views::millis;

impl App {
    /// Carries out an operator's command, if they may. If there is nothing to act on, that is a
    /// problem.
    pub(crate) async fn intervene(
        &self,
        identity: &Identity,
        operation: Operation,
    ) -> Result<OperationReply, Problem> {
        check_right(identity, &operation)?;
        let nothing_there = match &operation {
            Operation::Revoke { .. } => Problem::stale_token(),
            Operation::RemoveWaiter { .. } => {
                Problem::not_found("nobody with this id waits for the name")
            }
            Operation::Unfreeze { .. } => Problem::not_found("the name is not frozen"),
            Operation::RevokeHolder { .. }
            | Operation::Freeze { .. }
            | Operation::RaiseFence { .. } => Problem::not_found("there is nothing to act on"),
        };
        match self.operate(identity, operation).await? {
            OperationReply::NothingThere => Err(nothing_there),
            reply => Ok(reply),
        }
    }
}

/// Checks that somebody may carry out a command.
pub(crate) fn check_right(identity: &Identity, operation: &Operation) -> Result<(), Problem> {
    match operation {
        Operation::RaiseFence { .. } => identity.may_on(Right::Admin, ""),
        Operation::Revoke { name, .. }
        | Operation::RevokeHolder { name, .. }
        | Operation::RemoveWaiter { name, .. }
        | Operation::Freeze { name, .. }
        | Operation::Unfreeze { name } => identity.may_on(Right::Operate, name.as_str()),
    }
}

/// Returns the event of a command that has changed something; `None` if it has none.
pub(crate) fn event_of(operation: &Operation) -> Option<Event> {
    match operation {
        Operation::Revoke { name, token, reason, .. } => {
            Some(Event::of(What::Revoked, name).token(*token).reason(reason))
        }
        Operation::RevokeHolder { name, reason, .. } => {
            Some(Event::of(What::Revoked, name).reason(reason))
        }
        Operation::RemoveWaiter { name, waiter, reason } => {
            Some(Event::of(What::Removed, name).waiter(*waiter).reason(reason))
        }
        Operation::Freeze { name, reason, .. } => {
            Some(Event::of(What::Frozen, name).reason(reason))
        }
        Operation::Unfreeze { name } => Some(Event::of(What::Unfrozen, name)),
        Operation::RaiseFence { .. } => None,
    }
}

/// Which grant to take away.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeBody {
    /// The fencing token of the grant; another one changes nothing.
    #[schema(value_type = u64, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    #[serde(deserialize_with = "fencing_token")]
    fencing_token: FencingToken,
    /// Why, at most 512 bytes.
    #[schema(max_length = 512)] // MAX_REASON_BYTES
    #[serde(default)]
    reason: String,
    /// Free the name at once, outside the promise of exclusion. Otherwise the holder is notified,
    /// and keeps the name for the rest of its lease at most.
    #[serde(default)]
    force: bool,
}

/// What became of a revoke.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RevokedBody {
    /// Whether the name is free of this grant already.
    ended: bool,
    /// How long the grant may still last.
    left_ms: Option<u64>,
}

impl RevokedBody {
    fn of(reply: &OperationReply) -> RevokedBody {
        match reply {
            OperationReply::Notified { left } => {
                RevokedBody { ended: false, left_ms: left.map(millis) }
            }
            OperationReply::Done | OperationReply::NothingThere => {
                RevokedBody { ended: true, left_ms: None }
            }
        }
    }
}

/// Revokes a grant.
#[utoipa::path(
    post, path = "/v1/locks/{name}/revoke", tag = "operators", request_body = RevokeBody,
    params(("name" = String, Path, description = "The lock name, percent-encoded")),
    responses(
        (status = 200, body = RevokedBody, description = "The grant is revoked"),
        (status = 409, body = ProblemBody, description = "No holder has this fencing token",
         content_type = "application/problem+json"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn revoke(
    State(app): State<App>,
    identity: Identity,
    Name(name): Name,
    Body(body): Body<RevokeBody>,
) -> Result<Json<RevokedBody>, Problem> {
    let RevokeBody { fencing_token: token, reason, force: now } = body;
    let reply = app.intervene(&identity, Operation::Revoke { name, token, reason, now }).await?;
    Ok(Json(RevokedBody::of(&reply)))
}

/// Which waiter to remove.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoveBody {
    /// The first eight digits of its lease id, as `GET /v1/locks/{name}` shows them.
    #[schema(value_type = String, pattern = "^[0-9a-f]{8}$")]
    lease_id: ShortLeaseId,
    /// Why, at most 480 bytes.
    #[schema(max_length = 480)]
    #[serde(default)]
    reason: String,
}

/// Removes a waiter from the queue. Its request fails with 410, whichever server it waits at.
///
/// A holder is not affected, nor is a waiter to which the lock was just handed over.
#[utoipa::path(
    post, path = "/v1/locks/{name}/remove-waiter", tag = "operators", request_body = RemoveBody,
    params(("name" = String, Path, description = "The lock name, percent-encoded")),
    responses(
        (status = 204, description = "The waiter is removed"),
        (status = 404, body = ProblemBody, description = "Nobody with this id waits",
         content_type = "application/problem+json"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove_waiter(
    State(app): State<App>,
    identity: Identity,
    Name(name): Name,
    Body(body): Body<RemoveBody>,
) -> Result<StatusCode, Problem> {
    let RemoveBody { lease_id: waiter, reason } = body;
    app.intervene(&identity, Operation::RemoveWaiter { name, waiter, reason }).await?;
    Ok(DONE)
}

/// How long to freeze a name.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FreezeRequest {
    /// For how long, from now; at most a year.
    #[schema(minimum = 1, maximum = 31_536_000_000_u64)]
    #[serde(deserialize_with = "crate::json::whole")]
    duration_ms: u64,
    /// Why, at most 512 bytes.
    #[schema(max_length = 512)] // MAX_REASON_BYTES
    #[serde(default)]
    reason: String,
}

/// Keeps everybody from a name for a while.
#[utoipa::path(
    put, path = "/v1/locks/{name}/freeze", tag = "operators", request_body = FreezeRequest,
    params(("name" = String, Path, description = "The lock name, percent-encoded")),
    responses(
        (status = 204, description = "The name is frozen, or will be once its holders are done"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn freeze(
    State(app): State<App>,
    identity: Identity,
    Name(name): Name,
    Body(body): Body<FreezeRequest>,
) -> Result<StatusCode, Problem> {
    let duration = Duration::from_millis(body.duration_ms);
    let reason = body.reason;
    app.intervene(&identity, Operation::Freeze { name, duration, reason }).await?;
    Ok(DONE)
}

/// Ends a freeze.
#[utoipa::path(
    delete, path = "/v1/locks/{name}/freeze", tag = "operators",
    params(("name" = String, Path, description = "The lock name, percent-encoded")),
    responses(
        (status = 204, description = "The freeze is over"),
        (status = 404, body = ProblemBody, description = "The name is not frozen",
         content_type = "application/problem+json"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn unfreeze(
    State(app): State<App>,
    identity: Identity,
    Name(name): Name,
) -> Result<StatusCode, Problem> {
    app.intervene(&identity, Operation::Unfreeze { name }).await?;
    Ok(DONE)
}

/// Above which token all later ones must be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FenceBody {
    /// The largest token that may have been given.
    #[schema(value_type = u64, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    #[serde(deserialize_with = "fencing_token")]
    above: FencingToken,
}

/// Makes all later fencing tokens larger, after a store was restored from an old copy.
#[utoipa::path(
    post, path = "/v1/fence", tag = "operators", request_body = FenceBody,
    responses(
        (status = 204, description = "All later tokens are larger"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn raise_fence(
    State(app): State<App>,
    identity: Identity,
    Body(body): Body<FenceBody>,
) -> Result<StatusCode, Problem> {
    app.intervene(&identity, Operation::RaiseFence { to: body.above }).await?;
    Ok(DONE)
}
