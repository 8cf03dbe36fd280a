//! What operators do: revoke, remove a waiter, freeze, unfreeze, raise the fence.

use std::time::Duration;

use axum::extract::State;
use holdline_core::{FencingToken, LockName, Operation, OperationReply, ShortLeaseId};
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
    pub(crate) ended: bool,
    /// How long the grant may still last.
    pub(crate) left_ms: Option<u64>,
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
    let RevokeBody { fencing_token, reason, force } = body;
    let revoked = app.revoke(&identity, &name, fencing_token, reason, force).await?;
    Ok(Json(revoked))
}

impl App {
    /// Revokes the grant with this token.
    pub(crate) async fn revoke(
        &self,
        identity: &Identity,
        name: &LockName,
        token: FencingToken,
        reason: String,
        now: bool,
    ) -> Result<RevokedBody, Problem> {
        identity.may_on(Right::Operate, name.as_str())?;
        let operation =
            Operation::Revoke { name: name.clone(), token, reason: reason.clone(), now };
        let reply = self.operate(identity, operation).await?;
        let revoked = match reply {
            OperationReply::Done => RevokedBody { ended: true, left_ms: None },
            OperationReply::Notified { left } => {
                RevokedBody { ended: false, left_ms: left.map(millis) }
            }
            OperationReply::NothingThere
            | OperationReply::Latch(_)
            | OperationReply::Counting(_)
            | OperationReply::Audit(_) => {
                return Err(Problem::stale_token());
            }
        };
        let event = Event::of(What::Revoked, name).by(identity);
        self.events.publish(event.token(token).reason(&reason));
        Ok(revoked)
    }

    /// Removes a waiter from the queue of a name.
    pub(crate) async fn remove_waiter(
        &self,
        identity: &Identity,
        name: &LockName,
        waiter: ShortLeaseId,
        reason: String,
    ) -> Result<(), Problem> {
        identity.may_on(Right::Operate, name.as_str())?;
        let operation =
            Operation::RemoveWaiter { name: name.clone(), waiter, reason: reason.clone() };
        match self.operate(identity, operation).await? {
            OperationReply::NothingThere => {
                Err(Problem::not_found("nobody with this id waits for the name"))
            }
            _ => {
                let event = Event::of(What::Removed, name).by(identity);
                self.events.publish(event.waiter(waiter).reason(&reason));
                Ok(())
            }
        }
    }

    /// Keeps everybody from a name for a while.
    pub(crate) async fn freeze(
        &self,
        identity: &Identity,
        name: &LockName,
        duration: Duration,
        reason: String,
    ) -> Result<(), Problem> {
        identity.may_on(Right::Operate, name.as_str())?;
        let operation = Operation::Freeze { name: name.clone(), duration, reason: reason.clone() };
        self.operate(identity, operation).await?;
        let event = Event::of(What::Frozen, name).by(identity);
        self.events.publish(event.reason(&reason));
        Ok(())
    }

    /// Ends a freeze.
    pub(crate) async fn unfreeze(
        &self,
        identity: &Identity,
        name: &LockName,
    ) -> Result<(), Problem> {
        identity.may_on(Right::Operate, name.as_str())?;
        match self.operate(identity, Operation::Unfreeze { name: name.clone() }).await? {
            OperationReply::NothingThere => Err(Problem::not_found("the name is not frozen")),
            _ => {
                self.events.publish(Event::of(What::Unfrozen, name).by(identity));
                Ok(())
            }
        }
    }
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
    app.remove_waiter(&identity, &name, body.lease_id, body.reason).await?;
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
    app.freeze(&identity, &name, duration, body.reason).await?;
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
    app.unfreeze(&identity, &name).await?;
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
    identity.may_on(Right::Admin, "")?;
    app.operate(&identity, Operation::RaiseFence { to: body.above }).await?;
    Ok(DONE)
}
