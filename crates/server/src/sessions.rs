//! Sessions: the leases that one heartbeat of a client renews. `life` has their rules.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::extract::{Path, State};
use holdline_core::lease::{DEFAULT_DRIFT_PPM, DEFAULT_LEASE, MAX_LEASE};
use holdline_core::validity::valid_until;
use holdline_core::{Hold, LeaseId, LockName, Purpose, RenewReply, RenewRequest};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::identity::Identity;
use crate::input::{Body, lease_id, lock_name};
use crate::json::Json;
use crate::kind::Kind;
use crate::life::MOST_LEASES;
use crate::locks::{DONE, release_by_id};
use crate::problem::{Problem, ProblemBody};
use crate::rights::Right;
use crate::views::{millis, valid_from_arrival};

const SHORTEST: Duration = Duration::from_secs(1);

/// What to open.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SessionBody {
    /// How long the leases live without a heartbeat; @default_lease@ unless set.
    #[schema(minimum = 1000, maximum = 86_400_000)] // MAX_LEASE
    #[serde(deserialize_with = "crate::json::maybe")]
    duration_ms: Option<u64>,
    /// Leases to take over: those of a session whose server is gone.
    #[schema(max_items = 1000)]
    #[serde(deserialize_with = "crate::json::objects")]
    leases: Vec<LeaseRef>,
}

/// A lease.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseRef {
    /// The lock name.
    #[schema(
        min_length = 1,
        max_length = 512, // MAX_NAME_BYTES
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"
    )]
    name: String,
    /// The lease id.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    lease_id: String,
}

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionView {
    /// The id, which only its owner uses.
    session: String,
    /// How long the leases live without a heartbeat.
    duration_ms: u64,
    /// How often to send a heartbeat: three fit into the duration.
    heartbeat_ms: u64,
    /// How each lease stands.
    leases: Vec<KeptLease>,
}

/// How a lease of a session stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeptLease {
    /// The lock name.
    name: String,
    /// The lease id.
    lease_id: String,
    state: LeaseState,
    /// How long the holder may believe the lease, counted from when this answer *arrives*; 0 if
    /// this request did not renew it.
    valid_for_ms: u64,
}

/// How a lease stands after a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LeaseState {
    /// Renewed.
    Renewed,
    /// An operator revoked it: release it soon.
    Revoked,
    /// The store does not know it any more.
    Lost,
    /// The store did not answer: the lease is what it was.
    Unknown,
}

/// Opens a session.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions", request_body = SessionBody,
    responses(
        (status = 201, body = SessionView, description = "The session is open"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn open(
    State(app): State<App>,
    identity: Identity,
    Body(body): Body<SessionBody>,
) -> Result<(StatusCode, Json<SessionView>), Problem> {
    identity.may(Right::Lock)?;
    let duration = body.duration_ms.map_or(DEFAULT_LEASE, Duration::from_millis);
    let range = app.engine().capabilities().lease;
    let shortest = range.min.max(SHORTEST);
    let longest = range.max.min(MAX_LEASE);
    if !(shortest..=longest).contains(&duration) {
        let shortest = millis(shortest);
        let longest = millis(longest);
        let detail = format!("must be from {shortest} to {longest} here");
        return Err(Problem::invalid("duration_ms", detail));
    }
    if body.leases.len() > MOST_LEASES {
        return Err(Problem::invalid("leases", format!("may be {MOST_LEASES} at most")));
    }
    let mut leases = BTreeSet::new();
    for lease in &body.leases {
        let name = lock_name(&lease.name)?;
        let id = lease_id("leases.lease_id", &lease.lease_id)?;
        identity.may_on(Right::Lock, name.as_str())?;
        leases.insert((name, id));
    }
    let id = app.draw_session();
    let now = app.client.clock().now();
    let opened = app.life.lock().open(id, identity.name(), duration, leases, now);
    opened.map_err(|refusal| app.refused(refusal, None))?;
    Ok((StatusCode::CREATED, Json(renewed(&app, &identity, id).await?)))
}

/// Renews all leases of a session.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/heartbeat", tag = "sessions",
    params(("session" = String, Path, description = "The id of the session")),
    responses(
        (status = 200, body = SessionView, description = "The session goes on"),
        (status = 404, body = ProblemBody, description = "The session is over",
         content_type = "application/problem+json"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn heartbeat(
    State(app): State<App>,
    identity: Identity,
    Path(id): Path<String>,
) -> Result<Json<SessionView>, Problem> {
    identity.may(Right::Lock)?;
    let id = lease_id("session", &id)?;
    renewed(&app, &identity, id).await.map(Json)
}

/// Closes a session, and releases its leases.
#[utoipa::path(
    delete, path = "/v1/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "The id of the session")),
    responses(
        (status = 204, description = "All leases are released"),
        (status = 404, body = ProblemBody, description = "The session is over",
         content_type = "application/problem+json"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn close(
    State(app): State<App>,
    identity: Identity,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    identity.may(Right::Lock)?;
    let id = lease_id("session", &id)?;
    let now = app.client.clock().now();
    let leases = app.life.lock().close(id, identity.name(), now);
    let leases = leases.map_err(|refusal| app.refused(refusal, Some(id)))?;
    // Nobody lists the leases any more: they are released also if the client does not wait for it.
    let released = tokio::spawn(async move { release_all(&app, &identity, leases).await });
    released.await.unwrap_or_else(|_| Err(Problem::unconfirmed()))?;
    Ok(DONE)
}

async fn release_all(
    app: &App,
    identity: &Identity,
    leases: BTreeSet<(LockName, LeaseId)>,
) -> Result<(), Problem> {
    let mut failure = None;
    for (name, lease) in leases {
        let released = release_by_id(app, identity, &name, lease).await;
        // A lease that was lost is over too.
        failure = failure.or(released.err().filter(|problem| problem.kind() != Kind::Lost));
    }
    failure.map_or(Ok(()), Err)
}

/// Renews the leases of a session, and returns how each one stands.
async fn renewed(app: &App, identity: &Identity, id: LeaseId) -> Result<SessionView, Problem> {
    let sent = app.client.clock().now();
    let beat = app.life.lock().heartbeat(id, identity.name(), sent);
    let (duration, leases) = beat.map_err(|refusal| app.refused(refusal, Some(id)))?;
    let client = app.client.admin().client_id();
    let renewal = |(name, lease_id): &(LockName, LeaseId)| RenewRequest {
        name: name.clone(),
        lease_id: *lease_id,
        client,
        purpose: Purpose::Keep(Hold::Detached(duration)),
    };
    let renewals: Vec<RenewRequest> = leases.iter().map(renewal).collect();
    let replies = app.engine().renew(&renewals).await;
    let mut kept = Vec::with_capacity(leases.len());
    for ((name, lease_id), reply) in leases.into_iter().zip(replies) {
        let (state, valid_for) = match reply {
            Ok(RenewReply::Renewed { left }) => {
                // The session lists it, so its client can know it: it is short no longer.
                app.life.lock().extended(lease_id);
                let left = left.unwrap_or(duration);
                app.keep(lease_id, left, identity);
                let until = valid_until(sent, Some(left), DEFAULT_DRIFT_PPM);
                let remaining = app.client.clock().now().until(until);
                (LeaseState::Renewed, valid_from_arrival(remaining))
            }
            Ok(RenewReply::Revoked { .. }) => (LeaseState::Revoked, Duration::ZERO),
            Ok(_) => (LeaseState::Lost, Duration::ZERO),
            Err(error) => {
                tracing::warn!(%error, "a lease of a session was not renewed");
                (LeaseState::Unknown, Duration::ZERO)
            }
        };
        if state == LeaseState::Lost {
            app.life.lock().unlist(&name, lease_id);
            app.lost(&name, lease_id, identity);
        }
        kept.push(KeptLease {
            name: name.as_str().to_owned(),
            lease_id: lease_id.to_hex(),
            state,
            valid_for_ms: millis(valid_for),
        });
    }
    Ok(SessionView {
        session: id.to_hex(),
        duration_ms: millis(duration),
        heartbeat_ms: millis(duration / 3),
        leases: kept,
    })
}
