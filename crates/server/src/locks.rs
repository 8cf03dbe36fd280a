//! Acquire, renew, release, look.
//!
//! - K1: a lease id of the client (`Idempotency-Key`) is asked of the store, and never given up
//!   here: the same id may be on its way through another server. A place in the queue that nobody
//!   keeps lapses within seconds, a grant with its lease. The client gives it up for good.
//! - K2: without a key the library draws the ids. Nobody knows one before the answer, so the end of
//!   the connection gives it up at once; after the answer only the client does (L5 of `life`).

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use holdline::ReleaseOutcome;
use holdline_core::json::LockJson;
use holdline_core::lease::DEFAULT_LEASE;
use holdline_core::{LeaseId, ListRequest, LockName};
use http::StatusCode;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::attempt::{AcquireBody, Key, Requester, Wanted, carry_out};
use crate::identity::Identity;
use crate::input::{Body, LeaseOf, Name, Parameters};
use crate::json::Json;
use crate::kind::Kind;
use crate::problem::{Problem, ProblemBody};
use crate::rights::Right;
use crate::views::{LeaseBody, PageBody, ReleasedBody, RenewedBody, millis, valid_from_arrival};

const MOST_NAMES: usize = 1_000;

/// Acquires a lock, or waits for it.
///
/// With an `Idempotency-Key` the request may be repeated, also at another server: it returns the
/// same grant. Without one, closing the connection gives up the place in the queue.
#[utoipa::path(
    post, path = "/v1/locks/{name}", tag = "locks", request_body = AcquireBody,
    params(
        ("name" = String, Path, description = "The lock name, percent-encoded"),
        ("Idempotency-Key" = Option<String>, Header,
         description = "The lease id to ask under: 32 lower-case hexadecimal digits, random"),
    ),
    responses(
        (status = 200, body = LeaseBody, description = "The lock is held", headers(
            ("Holdline-Fencing-Token" = u64, description = "The fencing token")
        )),
        (status = 423, body = ProblemBody, description = "The lock is held by somebody else \
         (`busy`), or was so until the wait ran out (`timed_out`)",
         content_type = "application/problem+json"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn acquire(
    State(app): State<App>,
    from: Requester,
    Name(name): Name,
    key: Key,
    Body(body): Body<AcquireBody>,
) -> Result<Response, Problem> {
    let wanted = Wanted::of(&app, name, key, body)?;
    carry_out(&app, from, wanted, |mut leases| leases.pop()).await
}

/// How to renew.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RenewBody {
    /// How long the store keeps the lease from now on; @default_lease@ unless set.
    #[schema(minimum = 50, maximum = 86_400_000)] // MAX_LEASE
    #[serde(deserialize_with = "crate::json::maybe")]
    lease_duration_ms: Option<u64>,
}

/// Renews a lease. A renewal never shortens it.
#[utoipa::path(
    put, path = "/v1/locks/{name}/leases/{lease_id}", tag = "locks", request_body = RenewBody,
    params(
        ("name" = String, Path, description = "The lock name, percent-encoded"),
        ("lease_id" = String, Path, description = "The lease id of the grant"),
    ),
    responses(
        (status = 200, body = RenewedBody, description = "The lease is renewed"),
        (status = 410, body = ProblemBody, description = "The lease is lost",
         content_type = "application/problem+json"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn renew(
    State(app): State<App>,
    identity: Identity,
    LeaseOf(name, id): LeaseOf,
    Body(body): Body<RenewBody>,
) -> Result<Json<RenewedBody>, Problem> {
    identity.may_on(Right::Lock, name.as_str())?;
    let lease = body.lease_duration_ms.map_or(DEFAULT_LEASE, Duration::from_millis);
    // A client that renews has read its answer: it gets the whole lease, whatever else it asks for.
    let whole = app.life.lock().whole(id).unwrap_or_default();
    let lease = lease.max(whole);
    match app.client.leases().renew_by_id(&name, id, lease).await {
        Ok(valid_for) => {
            app.life.lock().extended(id);
            app.keep(id, valid_for, &identity);
            Ok(Json(RenewedBody { valid_for_ms: millis(valid_from_arrival(valid_for)) }))
        }
        Err(error) => {
            let problem = Problem::from(error);
            if problem.kind() == Kind::Lost {
                app.lost(&name, id, &identity);
            }
            Err(problem)
        }
    }
}

/// Releases a lease, or gives up the place in the queue.
#[utoipa::path(
    delete, path = "/v1/locks/{name}/leases/{lease_id}", tag = "locks",
    params(
        ("name" = String, Path, description = "The lock name, percent-encoded"),
        ("lease_id" = String, Path, description = "The lease id of the grant or of the attempt"),
    ),
    responses(
        (status = 200, body = ReleasedBody, description = "The lease is released"),
        (status = 410, body = ProblemBody, description = "The lease was lost before",
         content_type = "application/problem+json"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn release(
    State(app): State<App>,
    identity: Identity,
    LeaseOf(name, id): LeaseOf,
) -> Result<Json<ReleasedBody>, Problem> {
    identity.may_on(Right::Lock, name.as_str())?;
    app.life.lock().unlist(&name, id);
    release_by_id(&app, &identity, &name, id).await?;
    Ok(Json(ReleasedBody { outcome: "released" }))
}

/// Releases whatever stands under a lease id.
pub(crate) async fn release_by_id(
    app: &App,
    identity: &Identity,
    name: &LockName,
    id: LeaseId,
) -> Result<(), Problem> {
    // A request under the id may still be on its way, through a proxy or another server.
    match app.client.leases().give_up_by_id(name, id).await? {
        ReleaseOutcome::Released { confirmed: true, .. } | ReleaseOutcome::Nested { .. } => {
            app.released(name, id, identity);
            Ok(())
        }
        ReleaseOutcome::Lost { reason } => {
            app.held.end(id);
            Err(Problem::lost(&reason))
        }
        _ => Err(Problem::unconfirmed()),
    }
}

/// Shows how a lock stands.
#[utoipa::path(
    get, path = "/v1/locks/{name}", tag = "locks",
    params(("name" = String, Path, description = "The lock name, percent-encoded")),
    responses(
        (status = 200, body = LockJson, description = "How the lock stands; a free one too"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn inspect(
    State(app): State<App>,
    identity: Identity,
    Name(name): Name,
) -> Result<Json<LockJson>, Problem> {
    identity.may_on(Right::View, name.as_str())?;
    Ok(Json(LockJson::from(&app.client.admin().inspect(&name).await?)))
}

/// Which locks to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParameters {
    /// Only names that begin with this text.
    #[serde(default)]
    prefix: String,
    /// Where the last page ended.
    cursor: Option<String>,
    /// How many names to return at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Lists the locks that are held or waited for, by name.
#[utoipa::path(
    get, path = "/v1/locks", tag = "locks", operation_id = "list_locks", params(ListParameters),
    responses(
        (status = 200, body = PageBody, description = "One page"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    identity: Identity,
    Parameters(parameters): Parameters<ListParameters>,
) -> Result<Json<PageBody>, Problem> {
    identity.may_on(Right::View, &parameters.prefix)?;
    let after = parameters.cursor.as_deref().filter(|cursor| !cursor.is_empty());
    let after = after.map(|text| {
        LockName::new(text).map_err(|error| Problem::invalid("cursor", error.to_string()))
    });
    let after = after.transpose()?;
    let limit = parameters.limit.unwrap_or(MOST_NAMES);
    if !(1..=MOST_NAMES).contains(&limit) {
        return Err(Problem::invalid("limit", format!("must be from 1 to {MOST_NAMES}")));
    }
    let request = ListRequest { prefix: parameters.prefix, after, limit };
    let page = app.client.admin().list(&request).await?;
    Ok(Json(PageBody::of(&page)))
}

/// The status of an answer without a body.
pub(crate) const DONE: StatusCode = StatusCode::NO_CONTENT;
