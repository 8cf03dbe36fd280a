//! Acquire, renew, release, look.
//!
//! - K1: a lease id of the client (`Idempotency-Key`) is asked of the store, and never given up
//!   here: the same id may be on its way through another server. A place in the queue that nobody
//!   keeps lapses within seconds, a grant with its lease. The client gives it up for good.
//! - K2: without a key the library draws the ids. Nobody knows one before the answer, so the end of
//!   the connection gives it up at once.
//! - K3: a wait goes on while the store does not answer, until its limit: unlike a client that
//!   starts, a server knows that its store exists.
//! - K4: `valid_for_ms` counts from when the client sent the request, so it includes the wait.

use std::future::Future;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use holdline::{Guard, Keep, Lease, LockOptions, ReleaseOutcome};
use holdline_core::lease::{DEFAULT_DRIFT_PPM, DEFAULT_LEASE, MAX_FIRST_LEASE};
use holdline_core::{
    Certainty, ErrorKind, LeaseId, ListRequest, LockError, LockName, Mode, Moment,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::access::{Identity, Right};
use crate::app::App;
use crate::events::{Event, What};
use crate::input::{Body, LeaseOf, Name, Parameters, lease_id};
use crate::json::Json;
use crate::problem::{Problem, ProblemBody};
use crate::views::{
    AboutBody, LeaseBody, LockBody, ModeBody, PageBody, ReleasedBody, RenewedBody, millis,
};

/// The header of the fencing token, as resources expect it.
const TOKEN: HeaderName = HeaderName::from_static("holdline-fencing-token");
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const MOST_NAMES: usize = 1_000;
/// The pause before a wait goes on that the library has ended, because the store does not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// What to acquire.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AcquireBody {
    mode: ModeBody,
    /// How many permits, for the mode `permits`.
    #[schema(minimum = 1)]
    #[serde(deserialize_with = "crate::json::maybe")]
    permits: Option<u32>,
    /// How many permits the semaphore has, for the mode `permits`.
    #[schema(minimum = 1)]
    #[serde(deserialize_with = "crate::json::maybe")]
    permits_of: Option<u32>,
    /// How long to wait for the lock; 0 does not wait.
    #[schema(minimum = 0, maximum = 86_400_000)]
    #[serde(deserialize_with = "crate::json::whole")]
    wait_ms: u64,
    /// How long the store keeps the lease without a renewal; @default_lease@ unless set.
    #[schema(minimum = 50, maximum = 86_400_000)]
    #[serde(deserialize_with = "crate::json::maybe")]
    lease_duration_ms: Option<u64>,
    /// The session whose heartbeats renew the lease; then its duration is the session's.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    session: Option<String>,
    /// What the holder reports about itself.
    #[serde(deserialize_with = "crate::json::object")]
    about: AboutBody,
}

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
            ("Holdline-Fencing-Token" = String, description = "The fencing token")
        )),
        (status = 423, body = ProblemBody, description = "The lock is held by somebody else",
         content_type = "application/problem+json"),
        (status = 408, body = ProblemBody, description = "The wait ran out",
         content_type = "application/problem+json"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn acquire(
    State(app): State<App>,
    identity: Identity,
    Name(name): Name,
    headers: HeaderMap,
    Body(body): Body<AcquireBody>,
) -> Result<Response, Problem> {
    identity.may_on(Right::Lock, name.as_str())?;
    let began = app.client.clock().now();
    let mut wanted = Wanted::of(&app, &identity, name, &headers, body)?;
    let waiter = match wanted.wait.is_zero() {
        true => None,
        false => Some(app.limits.waiter(identity.name())?),
    };
    let outcome = granted(&app, &identity, &mut wanted, began).await;
    drop(waiter);
    let waited = began.until(app.client.clock().now());
    let word = outcome.as_ref().map_or_else(Problem::kind, |_| "acquired");
    app.metrics.acquired(&app.store, word, waited);
    match outcome {
        Ok((body, lease)) => {
            let token = lease.fencing_token();
            let event = Event::of(What::Granted, &wanted.name).by(identity.name());
            app.events.publish(event.lease(lease.lease_id()).token(token));
            let mut response = Json(body).into_response();
            response.headers_mut().insert(TOKEN, HeaderValue::from(token.get()));
            Ok(response)
        }
        Err(problem) => {
            let event = Event::of(What::Refused, &wanted.name).by(identity.name());
            let event = event.kind(problem.kind());
            app.events.publish(match wanted.key {
                Some(id) => event.lease(id),
                None => event,
            });
            Err(problem)
        }
    }
}

/// A checked request to acquire.
struct Wanted {
    name: LockName,
    mode: Mode,
    /// The lease id of the client, who alone gives it up.
    key: Option<LeaseId>,
    lease: Duration,
    wait: Duration,
    session: Option<LeaseId>,
    options: LockOptions,
}

impl Wanted {
    fn of(
        app: &App,
        identity: &Identity,
        name: LockName,
        headers: &HeaderMap,
        body: AcquireBody,
    ) -> Result<Wanted, Problem> {
        let mode = mode_of(&body)?;
        let wait = Duration::from_millis(body.wait_ms);
        let longest = app.limits.config.max_wait();
        if wait > longest {
            let detail = format!("may be {} at most here", longest.as_millis());
            return Err(Problem::invalid("wait_ms", detail));
        }
        let session = body.session.as_deref().map(|id| lease_id("session", id)).transpose()?;
        let lease = match (session, body.lease_duration_ms) {
            (Some(_), Some(_)) => {
                let detail = "is the session's: leave it out";
                return Err(Problem::invalid("lease_duration_ms", detail));
            }
            (Some(id), None) => app.sessions.duration(id, identity.name())?,
            (None, lease) => lease.map_or(DEFAULT_LEASE, Duration::from_millis),
        };
        let mut options = LockOptions::default()
            .with_keep(Keep::Detached)
            .with_lease_duration(lease)
            .with_value(body.about.value.clone().unwrap_or_default())
            .with_holder(body.about.into_fields());
        if !wait.is_zero() {
            options = options.with_wait(wait);
        }
        let key = headers.get(&KEY).map(|key| {
            let id = lease_id("Idempotency-Key", key.to_str().unwrap_or_default())?;
            match app.engine().capabilities().repeat {
                true => Ok(id),
                false => Err(Problem::no_keys()),
            }
        });
        let key = key.transpose()?;
        if let Some(id) = key {
            options = options.with_kept_lease_id(id);
        }
        Ok(Wanted { name, mode, key, lease, wait, session, options })
    }
}

fn mode_of(body: &AcquireBody) -> Result<Mode, Problem> {
    match (body.mode, body.permits, body.permits_of) {
        (ModeBody::Exclusive, None, None) => Ok(Mode::Exclusive),
        (ModeBody::Shared, None, None) => Ok(Mode::Shared),
        (ModeBody::Permits, count, Some(of)) => Mode::permits(count.unwrap_or(1), of)
            .map_err(|error| Problem::invalid("permits", error.to_string())),
        (ModeBody::Permits, _, None) => {
            Err(Problem::invalid("permits_of", "is missing: how many permits are there?"))
        }
        _ => Err(Problem::invalid("permits", "needs the mode `permits`")),
    }
}

/// Gets the lock, and gives the lease out of this process.
async fn granted(
    app: &App,
    identity: &Identity,
    wanted: &mut Wanted,
    began: Moment,
) -> Result<(LeaseBody, Lease), Problem> {
    let attempt = async {
        let guard = take(app, wanted, began).await?;
        let remaining = match guard.remaining() {
            // A longer lease begins with this: ask for the whole one, under the guard.
            _ if wanted.lease > MAX_FIRST_LEASE => guard.renew().await?,
            remaining => remaining,
        };
        Ok::<(Guard, Duration), LockError>((guard, remaining))
    };
    let (guard, remaining) = while_allowed(app, identity, attempt).await??;
    let (believed_at, lease_id) = (app.client.clock().now(), guard.lease_id());
    let lease = guard.detach().await.map_err(|error| Problem::from(error.error().clone()))?;
    if let Some(session) = wanted.session
        && let Err(problem) = app.sessions.keep(session, &wanted.name, lease_id)
    {
        // The session ended while the request waited: nobody would renew the lease.
        return Err(problem.certain(Certainty::Applied));
    }
    let waited = began.until(believed_at);
    let drift = waited / 1_000_000 * DEFAULT_DRIFT_PPM;
    let valid_for = waited.saturating_sub(drift).saturating_add(remaining);
    let body = LeaseBody {
        name: wanted.name.as_str().to_owned(),
        lease_id: lease_id.to_hex(),
        fencing_token: lease.fencing_token().to_string(),
        mode: ModeBody::of(wanted.mode),
        lease_duration_ms: millis(wanted.lease),
        valid_for_ms: millis(valid_for),
        waited_ms: millis(waited),
        session: wanted.session.map(LeaseId::to_hex),
    };
    Ok((body, lease))
}

/// Waits for an attempt while the token is good and the server goes on.
async fn while_allowed<T>(
    app: &App,
    identity: &Identity,
    attempt: impl Future<Output = T>,
) -> Result<T, Problem> {
    let expired = async {
        match identity.expires_in() {
            Some(left) => tokio::time::sleep(left).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        outcome = attempt => Ok(outcome),
        () = app.stopping.cancelled() => Err(Problem::stopping(Certainty::Unknown)),
        () = expired => Err(Problem::unauthenticated().certain(Certainty::Unknown)),
    }
}

/// Gets the lock, and waits up to the limit for a store that does not answer.
async fn take(app: &App, wanted: &mut Wanted, began: Moment) -> Result<Guard, LockError> {
    let mut certainty = Certainty::NotApplied;
    loop {
        let error = match attempt(app, wanted).await {
            Ok(guard) => return Ok(guard),
            Err(error) => error,
        };
        if error.certainty() != Certainty::NotApplied {
            certainty = error.certainty();
        }
        let is_outage = matches!(error.kind(), ErrorKind::Unavailable { .. });
        let left = || wanted.wait.saturating_sub(began.until(app.client.clock().now()));
        if is_outage {
            tokio::time::sleep(PAUSE.min(left())).await;
        }
        let left = left();
        if left.is_zero() || !is_outage {
            return Err(error.with_certainty(certainty));
        }
        tracing::debug!(name = %wanted.name, %error, "a wait goes on");
        wanted.options = std::mem::take(&mut wanted.options).with_wait(left);
    }
}

async fn attempt(app: &App, wanted: &Wanted) -> Result<Guard, LockError> {
    let (client, name, options) = (&app.client, wanted.name.as_str(), &wanted.options);
    let only_try = wanted.wait.is_zero();
    match (wanted.mode, only_try) {
        (Mode::Exclusive, true) => client.mutex_with(name, options)?.try_lock().await,
        (Mode::Exclusive, false) => client.mutex_with(name, options)?.lock().await,
        (Mode::Shared, true) => client.rwlock_with(name, options)?.try_read().await,
        (Mode::Shared, false) => client.rwlock_with(name, options)?.read().await,
        (Mode::Permits { count, of }, true) => {
            client.semaphore_with(name, of, options)?.try_acquire_many(count).await
        }
        (Mode::Permits { count, of }, false) => {
            client.semaphore_with(name, of, options)?.acquire_many(count).await
        }
    }
}

/// How to renew.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RenewBody {
    /// How long the store keeps the lease from now on; @default_lease@ unless set.
    #[schema(minimum = 50, maximum = 86_400_000)]
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
    match app.client.renew_by_id(&name, id, lease).await {
        Ok(valid_for) => Ok(Json(RenewedBody { valid_for_ms: millis(valid_for) })),
        Err(error) => {
            let problem = Problem::from(error);
            if problem.kind() == "lost" {
                app.metrics.lost(&app.store);
                app.events.publish(Event::of(What::Lost, &name).lease(id).by(identity.name()));
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
    app.sessions.forget(&name, id);
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
    match app.client.give_up_by_id(name, id).await? {
        ReleaseOutcome::Released { confirmed: true, .. } | ReleaseOutcome::Nested { .. } => {
            app.events.publish(Event::of(What::Released, name).lease(id).by(identity.name()));
            Ok(())
        }
        ReleaseOutcome::Lost { reason } => Err(Problem::lost(&reason)),
        _ => Err(Problem::unconfirmed()),
    }
}

/// Shows how a lock stands.
#[utoipa::path(
    get, path = "/v1/locks/{name}", tag = "locks",
    params(("name" = String, Path, description = "The lock name, percent-encoded")),
    responses(
        (status = 200, body = LockBody, description = "How the lock stands; a free one too"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn inspect(
    State(app): State<App>,
    identity: Identity,
    Name(name): Name,
) -> Result<Json<LockBody>, Problem> {
    identity.may_on(Right::View, name.as_str())?;
    Ok(Json(LockBody::of(&app.client.inspect(&name).await?)))
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
    get, path = "/v1/locks", tag = "locks", params(ListParameters),
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
    let page = app.client.list(&request).await?;
    Ok(Json(PageBody {
        locks: page.names.iter().map(LockBody::of).collect(),
        cursor: page.after.map(|name| name.as_str().to_owned()),
    }))
}

/// The status of an answer without a body.
pub(crate) const DONE: StatusCode = StatusCode::NO_CONTENT;
