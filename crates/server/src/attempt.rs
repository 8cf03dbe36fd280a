//! An attempt to acquire for a client: checked, and waited for.
//!
//! - W1: a wait goes on while the store does not answer, until its limit: unlike a client that
//!   starts, a server knows that its store exists.
//! - W2: `valid_for_ms` counts from when the client sent the request, so it includes the wait.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::extract::FromRequestParts;
use holdline::{Guard, Keep, Lease, LockOptions};
use holdline_core::lease::{DEFAULT_DRIFT_PPM, DEFAULT_LEASE, MAX_FIRST_LEASE};
use holdline_core::{Certainty, ErrorKind, LeaseId, LockError, LockName, Mode, Moment};
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::access::Identity;
use crate::app::App;
use crate::input::lease_id;
use crate::problem::Problem;
use crate::views::{AboutBody, LeaseBody, ModeBody, millis};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
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

/// The header `Idempotency-Key` as it was sent. A request is not asked for all of its headers: they
/// would be copied.
pub(crate) struct Key(Option<HeaderValue>);

impl FromRequestParts<App> for Key {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Key, Infallible> {
        Ok(Key(parts.headers.get(&KEY).cloned()))
    }
}

/// A checked request to acquire.
pub(crate) struct Wanted {
    pub(crate) name: LockName,
    mode: Mode,
    /// The lease id of the client, who alone gives it up.
    pub(crate) key: Option<LeaseId>,
    lease: Duration,
    pub(crate) wait: Duration,
    session: Option<LeaseId>,
    options: LockOptions,
}

impl Wanted {
    pub(crate) fn of(
        app: &App,
        identity: &Identity,
        name: LockName,
        Key(key): Key,
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
        let key = key.map(|key| {
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
pub(crate) async fn granted(
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
        fencing_token: lease.fencing_token(),
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
