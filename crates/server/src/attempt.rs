//! A request to acquire one lock, or several together: checked, and waited for.
//!
//! - W1: a wait goes on while the store does not answer, until its limit: unlike a client that
//!   starts, a server knows that its store exists.
//! - W2: a wait ends when its client is gone, its session has ended, its sender may no longer lock,
//!   or the server stops. What it gets then is released (`life`).
//! - W3: the store grants the first lease only; `life` extends it. While a request for several
//!   names waits for the next one, the names that it has are renewed for the first lease.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::response::Response;
use futures_util::future::select_all;
use holdline::{Guard, Keep, LockOptions, by_mode};
use holdline_core::json::ModeJson;
use holdline_core::lease::{DEFAULT_DRIFT_PPM, DEFAULT_LEASE, LeaseTerms, MAX_FIRST_LEASE};
use holdline_core::{Certainty, Hold, LeaseId, LockError, LockName, Mode, Moment};
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::grant::{Attempt, AttemptOf, ListedGrant};
use crate::identity::Identity;
use crate::input::lease_id;
use crate::metrics::Waited;
use crate::open_access::OpenAccess;
use crate::peer::Peer;
use crate::problem::Problem;
use crate::rights::Right;
use crate::views::{AboutBody, LeaseBody, millis, valid_from_arrival};

/// The header of the fencing token, as resources expect it.
const TOKEN: HeaderName = HeaderName::from_static("holdline-fencing-token");
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The pause before a wait goes on that the library has ended, because the store does not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// What to acquire.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AcquireBody {
    mode: ModeJson,
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
    #[schema(minimum = 50, maximum = 86_400_000)] // MAX_LEASE
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

/// What a request asks for, besides the locks.
pub(crate) struct Terms {
    pub(crate) wait_ms: u64,
    pub(crate) lease_duration_ms: Option<u64>,
    pub(crate) session: Option<String>,
    pub(crate) about: AboutBody,
}

/// Which locks to acquire.
pub(crate) enum Locks {
    One(Mode),
    /// So many of several names, exclusively.
    Together(usize),
}

/// Who sends a request, and over which connection.
pub(crate) struct Requester {
    identity: Identity,
    access: OpenAccess,
    peer: Option<Arc<Peer>>,
}

impl FromRequestParts<App> for Requester {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Requester, Problem> {
        let identity = Identity::from_request_parts(parts, app).await?;
        let access = OpenAccess::from_request_parts(parts, app).await?;
        let peer = parts.extensions.get::<Arc<Peer>>().cloned();
        Ok(Requester { identity, access, peer })
    }
}

/// A checked request to acquire.
pub(crate) struct Wanted {
    pub(crate) names: Vec<LockName>,
    locks: Locks,
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
        let AcquireBody { wait_ms, lease_duration_ms, session, about, .. } = body;
        let terms = Terms { wait_ms, lease_duration_ms, session, about };
        let mut wanted = Wanted::checked(app, vec![name], Locks::One(mode), terms)?;
        let key = key.map(|key| {
            let id = lease_id("Idempotency-Key", key.to_str().unwrap_or_default())?;
            if app.engine().capabilities().repeat { Ok(id) } else { Err(Problem::no_keys()) }
        });
        wanted.key = key.transpose()?;
        if let Some(id) = wanted.key {
            wanted.options = wanted.options.with_kept_lease_id(id);
        }
        Ok(wanted)
    }

    /// Several names together have no lease id of the client.
    pub(crate) fn together(
        app: &App,
        names: Vec<LockName>,
        count: usize,
        Key(key): Key,
        terms: Terms,
    ) -> Result<Wanted, Problem> {
        if key.is_some() {
            let detail = "cannot be used for several names: each has a lease id of its own";
            return Err(Problem::invalid("Idempotency-Key", detail));
        }
        Wanted::checked(app, names, Locks::Together(count), terms)
    }

    fn checked(
        app: &App,
        names: Vec<LockName>,
        locks: Locks,
        terms: Terms,
    ) -> Result<Wanted, Problem> {
        let wait = Duration::from_millis(terms.wait_ms);
        let longest = app.limits.config.max_wait();
        if wait > longest {
            let detail = format!("may be {} at most here", longest.as_millis());
            return Err(Problem::invalid("wait_ms", detail));
        }
        let session = terms.session.as_deref().map(|id| lease_id("session", id)).transpose()?;
        let lease = match (session, terms.lease_duration_ms) {
            (Some(_), Some(_)) => {
                let detail = "is the session's: leave it out";
                return Err(Problem::invalid("lease_duration_ms", detail));
            }
            (_, lease) => lease.map_or(DEFAULT_LEASE, Duration::from_millis),
        };
        LeaseTerms::new(lease, None, DEFAULT_DRIFT_PPM)
            .map_err(|error| Problem::invalid("lease_duration_ms", error.to_string()))?;
        app.engine().capabilities().check(locks.mode(), Hold::Detached(lease))?;
        let mut options = LockOptions::default()
            .with_keep(locks.keep())
            .with_value(terms.about.value.clone().unwrap_or_default())
            .with_holder(terms.about.into_fields());
        if !wait.is_zero() {
            options = options.with_wait(wait);
        }
        Ok(Wanted { names, locks, key: None, lease, wait, session, options })
    }

    /// Returns how many of the names are asked for.
    pub(crate) fn count(&self) -> usize {
        match self.locks {
            Locks::One(_) => 1,
            Locks::Together(count) => count,
        }
    }
}

impl Locks {
    fn mode(&self) -> Mode {
        match self {
            Locks::One(mode) => *mode,
            Locks::Together(_) => Mode::Exclusive,
        }
    }

    /// A wait for several names can outlast a first lease of those that it has.
    fn keep(&self) -> Keep {
        match self {
            Locks::One(_) => Keep::Detached,
            Locks::Together(_) => Keep::Renewed,
        }
    }
}

fn mode_of(body: &AcquireBody) -> Result<Mode, Problem> {
    match (body.mode, body.permits, body.permits_of) {
        (ModeJson::Exclusive, None, None) => Ok(Mode::Exclusive),
        (ModeJson::Shared, None, None) => Ok(Mode::Shared),
        (ModeJson::Permits, count, Some(of)) => Mode::permits(count.unwrap_or(1), of)
            .map_err(|error| Problem::invalid("permits", error.to_string())),
        (ModeJson::Permits, _, None) => {
            Err(Problem::invalid("permits_of", "is missing: how many permits are there?"))
        }
        _ => Err(Problem::invalid("permits", "needs the mode `permits`")),
    }
}

/// Carries a request to acquire out, from its attempt to its answer. `body` makes the answer's body
/// of the leases.
pub(crate) async fn carry_out<B: Serialize>(
    app: &App,
    from: Requester,
    mut wanted: Wanted,
    body: impl FnOnce(Vec<LeaseBody>) -> Option<B>,
) -> Result<Response, Problem> {
    let Requester { identity, access, peer } = from;
    for name in &wanted.names {
        identity.may_on(Right::Lock, name.as_str())?;
    }
    let may_wait = !wanted.wait.is_zero();
    let mut waiters = Vec::new();
    if may_wait {
        // It queues for so many names at once.
        for _ in 0..=wanted.names.len() - wanted.count() {
            waiters.push(app.limits.waiter(identity.name())?);
        }
    }
    let of = AttemptOf {
        names: &wanted.names,
        count: wanted.count(),
        key: wanted.key,
        session: wanted.session,
        lease: wanted.lease,
    };
    let mut attempt = Attempt::begin(app, &identity, peer, &of)?;
    let outcome = granted(app, &access, &mut wanted, &mut attempt).await;
    drop(waiters);
    let outcome = outcome.and_then(|listed| {
        let now = app.client.clock().now();
        let leases = listed.iter().map(|listed| wanted.lease_body(listed, &attempt, now));
        let body = body(leases.collect()).ok_or_else(Problem::unconfirmed)?;
        Ok((listed, body))
    });
    match outcome {
        Ok((listed, body)) => {
            let mut response = attempt.answer(&listed, body);
            if let [ListedGrant { lease, .. }] = listed.as_slice() {
                let token = HeaderValue::from(lease.fencing_token().get());
                response.headers_mut().insert(TOKEN, token);
            }
            if may_wait {
                response.extensions_mut().insert(Waited);
            }
            Ok(response)
        }
        Err(problem) => {
            let problem = problem.of_acquire();
            attempt.refused(&problem);
            let problem = if may_wait { problem.after_wait() } else { problem };
            let mut names = wanted.names.iter();
            if names.any(|name| identity.may_on(Right::View, name.as_str()).is_err()) {
                return Err(problem.without_holder());
            }
            Err(problem)
        }
    }
}

impl Wanted {
    fn lease_body(&self, listed: &ListedGrant, attempt: &Attempt, now: Moment) -> LeaseBody {
        let ListedGrant { lease, valid_until } = listed;
        LeaseBody {
            name: lease.name().as_str().to_owned(),
            lease_id: lease.lease_id().to_hex(),
            fencing_token: lease.fencing_token(),
            mode: self.locks.mode().into(),
            lease_duration_ms: millis(attempt.lease()),
            valid_for_ms: millis(valid_from_arrival(now.until(*valid_until))),
            waited_ms: millis(attempt.began().until(now)),
            session: self.session.map(LeaseId::to_hex),
        }
    }
}

/// Gets the locks, and gives their leases out of this process.
async fn granted(
    app: &App,
    access: &OpenAccess,
    wanted: &mut Wanted,
    attempt: &mut Attempt,
) -> Result<Vec<ListedGrant>, Problem> {
    let first = attempt.lease().min(MAX_FIRST_LEASE);
    wanted.options = std::mem::take(&mut wanted.options).with_lease_duration(first);
    let names = wanted.names.clone();
    let waited = take(app, wanted, attempt.began());
    let guards = tokio::select! {
        biased;
        outcome = waited => outcome?,
        () = app.stopping.cancelled() => return Err(Problem::stopping(Certainty::Unknown)),
        () = attempt.session_ended() => return Err(Problem::session_ended()),
        () = attempt.client_gone() => return Err(Problem::client_gone()),
        () = right_ended(access, &names) => {
            return Err(Problem::unauthenticated().certain(Certainty::Unknown));
        }
    };
    for guard in guards.iter().filter(|guard| guard.is_partial()) {
        guard.renew().await?;
    }
    attempt.take_over(guards).await
}

/// Resolves when the sender may no longer lock one of the names.
async fn right_ended(access: &OpenAccess, names: &[LockName]) {
    let ended = names.iter().map(|name| Box::pin(access.ended(Right::Lock, name.as_str())));
    select_all(ended).await;
}

/// Gets the locks, and waits up to the limit for a store that does not answer.
async fn take(app: &App, wanted: &mut Wanted, began: Moment) -> Result<Vec<Guard>, LockError> {
    let mut certainty = Certainty::NotApplied;
    loop {
        let error = match ask(app, wanted).await {
            Ok(guards) => return Ok(guards),
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
        tracing::debug!(names = ?wanted.names, %error, "a wait goes on");
        wanted.options = std::mem::take(&mut wanted.options).with_wait(left);
    }
}

async fn ask(app: &App, wanted: &Wanted) -> Result<Vec<Guard>, LockError> {
    let only_try = wanted.wait.is_zero();
    match (&wanted.locks, wanted.names.as_slice()) {
        (Locks::One(mode), [name]) => {
            let client = &app.client;
            let guard = if only_try {
                by_mode::try_lock(client, name, *mode, &wanted.options).await?
            } else {
                by_mode::lock(client, name, *mode, &wanted.options).await?
            };
            Ok(vec![guard])
        }
        (_, names) => {
            let names = names.iter().map(LockName::as_str);
            let any = app.client.any_of_with(names, &wanted.options)?;
            let guards = if only_try {
                any.try_lock_many(wanted.count()).await?
            } else {
                any.lock_many(wanted.count()).await?
            };
            Ok(guards.into_guards())
        }
    }
}
