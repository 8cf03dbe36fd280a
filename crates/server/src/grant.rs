//! An attempt's grants on their way to the client: registered, answered, extended or released.
//! There is one, or one for each of several names that were asked for together.
//!
//! `life` has the rules and the invariants; this file carries them out. Every end of an attempt is
//! reported once, by an event and a metric that say what the answer says.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures_util::future::{join_all, try_join_all};
use holdline::{Guard, Lease, ReleaseOutcome};
use holdline_core::{
    Certainty, Hold, LeaseId, LockName, Moment, Purpose, RenewReply, RenewRequest,
};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::events::{Event, What};
use crate::identity::Identity;
use crate::json::Json;
use crate::life::{
    ACKNOWLEDGEMENT, AttemptId, Begin, Extension, MOST_LEASES, Refusal, SessionEnd, is_long,
};
use crate::limits::LeasePlace;
use crate::peer::Peer;
use crate::problem::Problem;

/// How often grants are looked for that are to be extended.
const LOOK: Duration = Duration::from_secs(1);
/// How many leases one renewal has at most.
const BATCH: usize = 128;

/// An attempt to acquire, from its first step to its answer. If it is dropped before, the grant is
/// released that it may have.
pub(crate) struct Attempt {
    app: App,
    identity: Identity,
    names: Vec<LockName>,
    /// The lease id of the client, who alone gives it up.
    key: Option<LeaseId>,
    id: AttemptId,
    /// The whole lease.
    lease: Duration,
    ended: CancellationToken,
    peer: Option<Arc<Peer>>,
    began: Moment,
    /// For the leases that it may get.
    places: Vec<LeasePlace>,
    is_reported: bool,
}

/// What an attempt is for.
pub(crate) struct AttemptOf<'a> {
    pub(crate) names: &'a [LockName],
    /// How many of the names are asked for.
    pub(crate) count: usize,
    /// For one name only.
    pub(crate) key: Option<LeaseId>,
    pub(crate) session: Option<LeaseId>,
    pub(crate) lease: Duration,
}

/// A grant that its session, if any, lists.
pub(crate) struct ListedGrant {
    pub(crate) lease: Lease,
    /// Until when the lease is valid, at least.
    pub(crate) valid_until: Moment,
}

impl Attempt {
    pub(crate) fn begin(
        app: &App,
        identity: &Identity,
        peer: Option<Arc<Peer>>,
        of: &AttemptOf<'_>,
    ) -> Result<Attempt, Problem> {
        let began = app.client.clock().now();
        let places = app.lease_places(identity, of.count, of.key)?;
        let begin = Begin {
            count: of.count,
            session: of.session,
            owner: identity.name(),
            key: of.key.zip(of.names.first()).map(|(id, name)| (name.clone(), id)),
            lease: of.lease,
        };
        let begun = app.life.lock().begin(&begin, began);
        let begun = begun.map_err(|refusal| app.refused(refusal, of.session))?;
        Ok(Attempt {
            app: app.clone(),
            identity: identity.clone(),
            names: of.names.to_vec(),
            key: of.key,
            id: begun.id,
            lease: begun.lease,
            ended: begun.ended,
            peer,
            began,
            places,
            is_reported: false,
        })
    }

    /// Returns how long the lease is to be: a session's has its duration.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns when the attempt began.
    pub(crate) fn began(&self) -> Moment {
        self.began
    }

    /// Resolves when the session of the attempt has ended.
    pub(crate) async fn session_ended(&self) {
        self.ended.cancelled().await;
    }

    /// Resolves when the client has closed the connection.
    pub(crate) async fn client_gone(&self) {
        match &self.peer {
            Some(peer) => peer.gone().await,
            None => std::future::pending().await,
        }
    }

    /// Takes grants over from their guards: the session lists all of them, or all are released.
    pub(crate) async fn take_over(
        &mut self,
        guards: Vec<Guard>,
    ) -> Result<Vec<ListedGrant>, Problem> {
        for (guard, place) in guards.iter().zip(std::mem::take(&mut self.places)) {
            self.app.hold(guard.lease_id(), guard.remaining(), place);
        }
        if self.peer.as_ref().is_some_and(|peer| peer.is_gone()) {
            // An id of the client is left to it, and its grant ends with its first lease.
            let certainty = match self.key {
                Some(_) => Certainty::Applied,
                None => self.undo(guards).await,
            };
            return Err(Problem::client_gone().certain(certainty));
        }
        let grants = guards.iter().map(|guard| (guard.name().clone(), guard.lease_id()));
        let now = self.app.client.clock().now();
        let granted = self.app.life.lock().granted(self.id, grants.collect(), now);
        if let Err(end) = granted {
            // After silence the client may have gone on elsewhere, under the id that it chose.
            let certainty = match (end, self.key) {
                (SessionEnd::Silent, Some(_)) => Certainty::Unknown,
                _ => self.undo(guards).await,
            };
            return Err(Problem::session_ended().certain(certainty));
        }
        // If one fails, the end of the attempt releases all of them.
        try_join_all(guards.into_iter().map(detach)).await
    }

    /// Releases grants that are not registered; returns whether one may still be there.
    async fn undo(&self, guards: Vec<Guard>) -> Certainty {
        let mut certainty = Certainty::NotApplied;
        let ids: Vec<LeaseId> = guards.iter().map(Guard::lease_id).collect();
        let outcomes = join_all(guards.into_iter().map(Guard::release)).await;
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            match outcome {
                ReleaseOutcome::Released { confirmed: true, .. }
                | ReleaseOutcome::Nested { .. }
                | ReleaseOutcome::Lost { .. } => self.app.held.end(id),
                _ => certainty = Certainty::Unknown,
            }
        }
        certainty
    }

    /// Answers with the grants.
    pub(crate) fn answer(mut self, leases: &[ListedGrant], body: impl Serialize) -> Response {
        self.is_reported = true;
        for ListedGrant { lease, .. } in leases {
            let event = Event::of(What::Granted, lease.name()).by(&self.identity);
            self.app.events.publish(event.lease(lease.lease_id()).token(lease.fencing_token()));
        }
        self.count("acquired");
        let response = Json(body).into_response();
        response.map(|body| Body::new(AnswerBody { body, attempt: Some(self) }))
    }

    /// Reports that the attempt has ended without a grant.
    pub(crate) fn refused(mut self, problem: &Problem) {
        self.report_refusal(problem.kind().word());
    }

    fn report_refusal(&mut self, kind: &'static str) {
        self.is_reported = true;
        for name in &self.names {
            let event = Event::of(What::Refused, name).by(&self.identity).kind(kind);
            let event = match self.key {
                Some(id) => event.lease(id),
                None => event,
            };
            self.app.events.publish(event);
        }
        self.count(kind);
    }

    fn count(&self, outcome: &'static str) {
        let waited = self.began.until(self.app.client.clock().now());
        self.app.metrics.acquired(&self.app.store, outcome, waited);
    }

    fn answered(&mut self) {
        let now = self.app.client.clock().now();
        if is_long(self.lease)
            && let Some(peer) = &self.peer
        {
            peer.expect_acknowledgement(ACKNOWLEDGEMENT);
        }
        self.app.life.lock().answered(self.id, self.peer.as_ref(), now);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let left = self.app.life.lock().left(self.id);
        for (name, lease) in left {
            self.app.release_unanswered(name, lease, &self.identity);
        }
        if !self.is_reported {
            self.report_refusal(Problem::client_gone().kind().word());
        }
    }
}

/// Lets a lease go out of this process.
async fn detach(guard: Guard) -> Result<ListedGrant, Problem> {
    let valid_until = guard.valid_until();
    // One name is acquired detached, and this sends no request. Of several, each is renewed, which
    // may take long.
    let lease = guard.detach().await.map_err(|error| Problem::from(error.error()))?;
    Ok(ListedGrant { lease, valid_until })
}

impl App {
    /// Explains why `life` refuses.
    pub(crate) fn refused(&self, refusal: Refusal, session: Option<LeaseId>) -> Problem {
        match refusal {
            Refusal::NoSession if session.is_some_and(|id| !self.drew_session(id)) => {
                Problem::other_server()
            }
            Refusal::NoSession => Problem::no_session(),
            Refusal::TooManyLeases => {
                Problem::too_many(format!("a session may have {MOST_LEASES} leases"))
                    .fix("open another session")
            }
            Refusal::TooManySessions => Problem::too_many("too many sessions are open already")
                .fix(
                    "close some, or raise `sessions` in `[server.limits]` of the server, and \
                     restart it",
                ),
            Refusal::TooManySessionsOfOwner => {
                Problem::too_many("too many sessions of this client are open already").fix(
                    "close some, or raise `sessions_per_client` in `[server.limits]` of the \
                     server, and restart it",
                )
            }
        }
    }

    /// Releases a grant whose answer nobody has received, in the background.
    fn release_unanswered(&self, name: LockName, lease: LeaseId, identity: &Identity) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let app = self.clone();
        let identity = identity.clone();
        runtime.spawn(async move {
            let released = app.client.leases().give_up_by_id(&name, lease).await;
            match released {
                Ok(ReleaseOutcome::Released { confirmed: true, .. }) => {
                    app.released(&name, lease, &identity);
                }
                Ok(outcome) => tracing::debug!(?outcome, "a grant without an owner is released"),
                Err(error) => tracing::warn!(%error, "a grant without an owner ends by itself"),
            }
        });
    }
}

/// The body of an answer with a grant. Once it was taken to be written, the client may know the
/// grant; if it is dropped before, nobody does.
struct AnswerBody {
    body: Body,
    attempt: Option<Attempt>,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(mut attempt) = self.attempt.take() {
            attempt.answered();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Extends grants whose answers were read. Runs as long as the server.
pub(crate) async fn extend_what_was_read(app: &App) {
    loop {
        tokio::time::sleep(LOOK).await;
        let now = app.client.clock().now();
        let read = app.life.lock().read(now, |peer| peer.state());
        extend(app, &read).await;
    }
}

/// Extends what may have been read, since nobody will do it later.
pub(crate) async fn extend_at_stop(app: &App, limit: Duration) {
    let read = app.life.lock().read_at_stop(|peer| peer.state());
    if tokio::time::timeout(limit, extend(app, &read)).await.is_err() {
        tracing::warn!("leases were not extended before the end: {} at most", read.len());
    }
}

async fn extend(app: &App, read: &[Extension]) {
    let client = app.client.admin().client_id();
    for batch in read.chunks(BATCH) {
        let renewal = |extension: &Extension| RenewRequest {
            name: extension.name.clone(),
            lease_id: extension.lease_id,
            client,
            purpose: Purpose::Keep(Hold::Detached(extension.lease)),
        };
        let renewals: Vec<RenewRequest> = batch.iter().map(renewal).collect();
        let replies = app.engine().renew(&renewals).await;
        for (extension, reply) in batch.iter().zip(replies) {
            match reply {
                // What was released meanwhile, or revoked, is over.
                Ok(reply) => {
                    app.life.lock().extended(extension.lease_id);
                    if let RenewReply::Renewed { left } = reply {
                        app.extend(extension.lease_id, left.unwrap_or(extension.lease));
                    }
                }
                Err(error) => tracing::warn!(%error, "a lease is not extended yet"),
            }
        }
    }
}
