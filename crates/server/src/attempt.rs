//! A request to acquire: checked, and waited for.
//!
//! - W1: a wait goes on while the store does not answer, until its limit: unlike a client that
//!   starts, a server knows that its store exists.
//! - W2: a wait ends when its client is gone, its session has ended, its sender may no longer lock,
//!   or the server stops. What it gets then is released (`life`).
//! - W3: the store grants the first lease only; `life` extends it.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::FromRequestParts;
use holdline::{Guard, Keep, Lease, LockOptions, by_mode};
use holdline_core::lease::{DEFAULT_DRIFT_PPM, DEFAULT_LEASE, LeaseTerms, MAX_FIRST_LEASE};
use holdline_core::{Certainty, Hold, LeaseId, LockError, LockName, Mode, Moment};
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::access::Right;
use crate::app::App;
use crate::grant::{Attempt, Listed};
use crate::input::lease_id;
use crate::open_access::OpenAccess;
use crate::problem::Problem;
use crate::views::{AboutBody, LeaseBody, ModeBody, millis, valid_from_arrival};

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
    /// Without a session; a session has a duration of its own.
    pub(crate) lease: Duration,
    pub(crate) wait: Duration,
    pub(crate) session: Option<LeaseId>,
    options: LockOptions,
}

impl Wanted {
    pub(crate) fn of(
        app: &App,
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
            (_, lease) => lease.map_or(DEFAULT_LEASE, Duration::from_millis),
        };
        LeaseTerms::new(lease, None, DEFAULT_DRIFT_PPM)
            .map_err(|error| Problem::invalid("lease_duration_ms", error.to_string()))?;
        app.engine().capabilities().check(mode, Hold::Detached(lease))?;
        let mut options = LockOptions::default()
            .with_keep(Keep::Detached)
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
    access: &OpenAccess,
    wanted: &mut Wanted,
    attempt: &mut Attempt,
) -> Result<(LeaseBody, Lease), Problem> {
    let first = attempt.lease().min(MAX_FIRST_LEASE);
    wanted.options = std::mem::take(&mut wanted.options).with_lease_duration(first);
    let name = wanted.name.clone();
    let waited = take(app, wanted, attempt.began());
    let guard = tokio::select! {
        biased;
        outcome = waited => outcome?,
        () = app.stopping.cancelled() => return Err(Problem::stopping(Certainty::Unknown)),
        () = attempt.session_ended() => return Err(Problem::session_ended()),
        () = attempt.client_gone() => return Err(Problem::client_gone()),
        () = access.ended(Right::Lock, name.as_str()) => {
            return Err(Problem::unauthenticated().certain(Certainty::Unknown));
        }
    };
    let Listed { lease, remaining } = attempt.take_over(guard).await?;
    let waited = attempt.began().until(app.client.clock().now());
    let body = LeaseBody {
        name: wanted.name.as_str().to_owned(),
        lease_id: lease.lease_id().to_hex(),
        fencing_token: lease.fencing_token(),
        mode: ModeBody::of(wanted.mode),
        lease_duration_ms: millis(attempt.lease()),
        valid_for_ms: millis(valid_from_arrival(remaining)),
        waited_ms: millis(waited),
        session: wanted.session.map(LeaseId::to_hex),
    };
    Ok((body, lease))
}

/// Gets the lock, and waits up to the limit for a store that does not answer.
async fn take(app: &App, wanted: &mut Wanted, began: Moment) -> Result<Guard, LockError> {
    let mut certainty = Certainty::NotApplied;
    loop {
        let error = match ask(app, wanted).await {
            Ok(guard) => return Ok(guard),
            Err(error) => error,
        };
        if error.certainty() != Certainty::NotApplied {
            certainty = error.certainty();
        }
        let is_outage = error.is_unavailable();
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

async fn ask(app: &App, wanted: &Wanted) -> Result<Guard, LockError> {
    let client = &app.client;
    let name = wanted.name.as_str();
    if wanted.wait.is_zero() {
        by_mode::try_lock(client, name, wanted.mode, &wanted.options).await
    } else {
        by_mode::lock(client, name, wanted.mode, &wanted.options).await
    }
}
