//! Sessions: the leases that one heartbeat of a client renews.
//!
//! - N1: only a heartbeat of the client renews. The server never does so by itself, and never gives
//!   a lease of a session up: the client may have gone on at another server under the same id.
//! - N2: a session without a heartbeat for its duration is forgotten. Its leases have the same
//!   duration, so they end in the store by then.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use axum::extract::{Path, State};
use holdline_core::lease::{DEFAULT_DRIFT_PPM, DEFAULT_LEASE, MAX_LEASE};
use holdline_core::validity::validity_time;
use holdline_core::{Hold, LeaseId, LockName, Purpose, RenewReply, RenewRequest};
use http::StatusCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::{Identity, Right};
use crate::app::App;
use crate::input::{Body, lease_id, lock_name};
use crate::json::Json;
use crate::locks::{DONE, release_by_id};
use crate::problem::{Problem, ProblemBody};
use crate::views::millis;

/// How many leases one session has at most.
const MOST_LEASES: usize = 1_000;
const SHORTEST: Duration = Duration::from_secs(1);
const NO_SESSION: &str = "no such session: it ended, or another server has it; create a new one";

/// The sessions of this server.
pub(crate) struct Sessions {
    most: usize,
    state: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    by_id: HashMap<LeaseId, Session>,
    /// The session that keeps a lease.
    by_lease: HashMap<LeaseId, LeaseId>,
}

impl Open {
    fn remove(&mut self, id: LeaseId) -> Option<Session> {
        let session = self.by_id.remove(&id)?;
        for (_, lease) in &session.leases {
            self.by_lease.remove(lease);
        }
        Some(session)
    }
}

struct Session {
    owner: String,
    duration: Duration,
    last_heartbeat: Instant,
    leases: BTreeSet<(LockName, LeaseId)>,
}

impl Session {
    fn is_over(&self) -> bool {
        self.last_heartbeat.elapsed() >= self.duration
    }
}

impl Sessions {
    pub(crate) fn new(most: usize) -> Sessions {
        Sessions { most, state: Mutex::default() }
    }

    pub(crate) fn count(&self) -> usize {
        self.state.lock().by_id.len()
    }

    /// Forgets the sessions that are over; returns how many.
    pub(crate) fn sweep(&self) -> usize {
        let mut state = self.state.lock();
        let over = |(id, session): (&LeaseId, &Session)| session.is_over().then_some(*id);
        let over: Vec<LeaseId> = state.by_id.iter().filter_map(over).collect();
        for id in &over {
            state.remove(*id);
        }
        over.len()
    }

    fn create(
        &self,
        id: LeaseId,
        owner: &str,
        duration: Duration,
        leases: BTreeSet<(LockName, LeaseId)>,
    ) -> Result<(), Problem> {
        let mut state = self.state.lock();
        if state.by_id.len() >= self.most {
            return Err(Problem::too_many("too many sessions are open already"));
        }
        let session =
            Session { owner: owner.to_owned(), duration, last_heartbeat: Instant::now(), leases };
        for (_, lease) in &session.leases {
            state.by_lease.insert(*lease, id);
        }
        state.by_id.insert(id, session);
        Ok(())
    }

    /// Does something with a session of this owner that is not over.
    fn with<T>(
        &self,
        id: LeaseId,
        owner: &str,
        work: impl FnOnce(&mut Session) -> T,
    ) -> Result<T, Problem> {
        let mut state = self.state.lock();
        let session = state.by_id.get_mut(&id).filter(|session| session.owner == owner);
        let session = session.filter(|session| !session.is_over());
        session.map(work).ok_or_else(|| Problem::not_found(NO_SESSION))
    }

    /// Returns the duration of a session, which is that of its leases.
    pub(crate) fn duration(&self, id: LeaseId, owner: &str) -> Result<Duration, Problem> {
        self.with(id, owner, |session| match session.leases.len() < MOST_LEASES {
            true => Ok(session.duration),
            false => Err(Problem::too_many("the session has too many leases already")),
        })?
    }

    /// Keeps one more lease from now on.
    pub(crate) fn keep(&self, id: LeaseId, name: &LockName, lease: LeaseId) -> Result<(), Problem> {
        let mut state = self.state.lock();
        let session = state.by_id.get_mut(&id).filter(|session| !session.is_over());
        let session = session.ok_or_else(|| Problem::not_found(NO_SESSION))?;
        session.leases.insert((name.clone(), lease));
        state.by_lease.insert(lease, id);
        Ok(())
    }

    /// Keeps a lease no longer: it was released or is lost.
    pub(crate) fn forget(&self, name: &LockName, lease: LeaseId) {
        let mut state = self.state.lock();
        let Some(id) = state.by_lease.remove(&lease) else { return };
        if let Some(session) = state.by_id.get_mut(&id) {
            session.leases.remove(&(name.clone(), lease));
        }
    }

    fn close(&self, id: LeaseId, owner: &str) -> Result<BTreeSet<(LockName, LeaseId)>, Problem> {
        self.with(id, owner, |_| ())?;
        let session = self.state.lock().remove(id);
        session.map(|session| session.leases).ok_or_else(|| Problem::not_found(NO_SESSION))
    }
}

/// What to open.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SessionBody {
    /// How long the leases live without a heartbeat; @default_lease@ unless set.
    #[schema(minimum = 1000, maximum = 86_400_000)]
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
    #[schema(min_length = 1, max_length = 512, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
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
    /// How long the holder may believe the lease, counted from when it *sent* this request; 0 if
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
    let (shortest, longest) = (range.min.max(SHORTEST), range.max.min(MAX_LEASE));
    if !(shortest..=longest).contains(&duration) {
        let (shortest, longest) = (millis(shortest), millis(longest));
        let detail = format!("must be from {shortest} to {longest} here");
        return Err(Problem::invalid("duration_ms", detail));
    }
    if body.leases.len() > MOST_LEASES {
        return Err(Problem::invalid("leases", format!("may be {MOST_LEASES} at most")));
    }
    let mut leases = BTreeSet::new();
    for lease in &body.leases {
        let entry = (lock_name(&lease.name)?, lease_id("leases.lease_id", &lease.lease_id)?);
        identity.may_on(Right::Lock, entry.0.as_str())?;
        leases.insert(entry);
    }
    let id = app.draw_id();
    app.sessions.create(id, identity.name(), duration, leases)?;
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
    let leases = app.sessions.close(lease_id("session", &id)?, identity.name())?;
    let mut failure = None;
    for (name, lease) in leases {
        let released = release_by_id(&app, &identity, &name, lease).await;
        // A lease that was lost is over too.
        failure = failure.or(released.err().filter(|problem| problem.kind() != "lost"));
    }
    failure.map_or(Ok(DONE), Err)
}

/// Renews the leases of a session, and returns how each one stands.
async fn renewed(app: &App, identity: &Identity, id: LeaseId) -> Result<SessionView, Problem> {
    let (duration, leases) = app.sessions.with(id, identity.name(), |session| {
        session.last_heartbeat = Instant::now();
        (session.duration, session.leases.clone())
    })?;
    let client = app.client.admin().client_id();
    let line = |(name, lease_id): &(LockName, LeaseId)| RenewRequest {
        name: name.clone(),
        lease_id: *lease_id,
        client,
        purpose: Purpose::Keep(Hold::Detached(duration)),
    };
    let lines: Vec<RenewRequest> = leases.iter().map(line).collect();
    let replies = app.engine().renew(&lines).await;
    let mut kept = Vec::with_capacity(leases.len());
    for (entry, reply) in leases.into_iter().zip(replies) {
        let (state, valid_for) = match reply {
            Ok(RenewReply::Renewed { left }) => {
                let left = left.unwrap_or(duration);
                (LeaseState::Renewed, validity_time(left, DEFAULT_DRIFT_PPM))
            }
            Ok(RenewReply::Revoked { .. }) => (LeaseState::Revoked, Duration::ZERO),
            Ok(_) => (LeaseState::Lost, Duration::ZERO),
            Err(error) => {
                tracing::warn!(%error, "a lease of a session was not renewed");
                (LeaseState::Unknown, Duration::ZERO)
            }
        };
        if state == LeaseState::Lost {
            app.sessions.forget(&entry.0, entry.1);
            app.lost(&entry.0, entry.1, identity);
        }
        let (name, lease_id) = (entry.0.as_str().to_owned(), entry.1.to_hex());
        kept.push(KeptLease { name, lease_id, state, valid_for_ms: millis(valid_for) });
    }
    Ok(SessionView {
        session: id.to_hex(),
        duration_ms: millis(duration),
        heartbeat_ms: millis(duration / 3),
        leases: kept,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LeaseId = LeaseId::from_bytes([1; 16]);
    const B: LeaseId = LeaseId::from_bytes([2; 16]);

    #[test]
    fn a_session_belongs_to_its_owner_and_ends_in_silence() {
        let sessions = Sessions::new(1);
        let name = LockName::new("n").expect("a good name");
        let minute = Duration::from_secs(60);
        sessions.create(A, "ann", minute, BTreeSet::new()).expect("room");
        assert!(sessions.create(B, "ann", minute, BTreeSet::new()).is_err(), "one at most");
        assert!(sessions.duration(A, "bob").is_err(), "of another");
        assert_eq!(sessions.duration(A, "ann").ok(), Some(minute));
        sessions.keep(A, &name, B).expect("alive");
        sessions.forget(&name, B);
        assert_eq!(sessions.with(A, "ann", |session| session.leases.len()).ok(), Some(0));
        assert_eq!(sessions.sweep(), 0);
        sessions.with(A, "ann", |session| session.duration = Duration::ZERO).expect("alive");
        assert!(sessions.duration(A, "ann").is_err() && sessions.keep(A, &name, B).is_err());
        assert_eq!((sessions.sweep(), sessions.count()), (1, 0));
    }
}
