//! The engine contract for Holdline's own programs: one request a command, passed on as it is.
//!
//! - C1: nothing is decided here but who may ask. Kind and certainty of an error are the engine's.
//! - C2: every client is a remote one: this process is not the holder, so its death must not end
//!   what the holder was granted.
//! - C3: no live grant crosses a network: a descriptor keeps it.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use holdline_core::{
    AcquireReply, CountingCommand, Hints, Hold, LatchCommand, ListPage, ListRequest, LockError,
    Purpose, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};
use holdline_http::wire::{
    Acquire, Batch, Description, Failure, Inspect, Operate, Operated, Outcome, Renew, STILL_HERE,
    Watch, hint_byte,
};
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::events::{Event, What};
use crate::identity::Identity;
use crate::input::Body;
use crate::json::Json;
use crate::open_access::OpenAccess;
use crate::operators::check_right;
use crate::problem::Problem;
use crate::rights::Right;

/// How often a watch without hints writes a byte, so that a broken connection is noticed.
const BEAT: Duration = Duration::from_secs(5);
/// How many renewals a batch has at most.
const MAX_BATCH: usize = 128;

type Answer<T> = Result<Json<Outcome<T>>, Problem>;

fn answer<T>(reply: Result<T, LockError>) -> Answer<T> {
    Ok(Json(outcome(reply)))
}

fn outcome<T>(reply: Result<T, LockError>) -> Outcome<T> {
    match reply {
        Ok(reply) => Outcome::Ok(reply),
        Err(error) => {
            tracing::debug!(%error, "a command failed");
            Outcome::Error(Failure::of(&error))
        }
    }
}

fn not_live(app: &App, hold: Hold) -> Result<(), LockError> {
    match hold {
        Hold::Live => Err(app.engine().capabilities().lacks("live grants through a server")),
        Hold::Leased(_) | Hold::Detached(_) => Ok(()),
    }
}

pub(crate) async fn describe(
    State(app): State<App>,
    _: Identity,
) -> Result<Json<Description>, Problem> {
    let capabilities = app.engine().capabilities();
    // Servers of one store have one identity; it must not name a host or a path.
    let digest = Sha256::digest(capabilities.identity.as_bytes());
    let digits: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    Ok(Json(Description::of(capabilities, format!("{}:{digits}", capabilities.engine))))
}

pub(crate) async fn acquire(
    State(app): State<App>,
    identity: Identity,
    Body(body): Body<Acquire>,
) -> Answer<AcquireReply> {
    let request = body.into_request();
    identity.may_on(Right::Lock, request.name.as_str())?;
    if let Err(error) = not_live(&app, request.hold) {
        return answer(Err(error));
    }
    // It may be a repeat, or a look of a waiter.
    let mut places = app.lease_places(&identity, 1, Some(request.lease_id))?;
    let reply = app.engine().try_acquire(&request).await;
    if let Ok(AcquireReply::Granted { token, left, .. }) = &reply {
        if let (Some(left), Some(place)) = (left, places.pop()) {
            app.hold(request.lease_id, *left, place);
        }
        let event = Event::of(What::Granted, &request.name).by(&identity);
        app.events.publish(event.lease(request.lease_id).token(*token));
    }
    if identity.may_on(Right::View, request.name.as_str()).is_err() {
        return answer(reply.map(without_holder));
    }
    answer(reply)
}

/// Leaves out who holds the name.
fn without_holder(reply: AcquireReply) -> AcquireReply {
    match reply {
        AcquireReply::Queued { position, next_look, .. } => {
            AcquireReply::Queued { position, holder: None, next_look }
        }
        AcquireReply::Busy { at_most, next_look, .. } => {
            AcquireReply::Busy { holder: None, at_most, next_look }
        }
        other => other,
    }
}

pub(crate) async fn renew(
    State(app): State<App>,
    identity: Identity,
    Body(Batch { renewals }): Body<Batch<Vec<Renew>>>,
) -> Answer<Vec<Outcome<RenewReply>>> {
    if renewals.len() > MAX_BATCH {
        return Err(Problem::invalid("renewals", format!("may be {MAX_BATCH} at most")));
    }
    let renewals: Vec<RenewRequest> = renewals.into_iter().map(Renew::into_request).collect();
    for renewal in &renewals {
        identity.may_on(Right::Lock, renewal.name.as_str())?;
        if let Purpose::Keep(hold) = renewal.purpose
            && let Err(error) = not_live(&app, hold)
        {
            return Ok(Json(Outcome::Error(Failure::of(&error))));
        }
    }
    let replies = app.engine().renew(&renewals).await;
    for (renewal, reply) in renewals.iter().zip(&replies) {
        match (renewal.purpose, reply) {
            (Purpose::Keep(_), Ok(RenewReply::Unknown)) => {
                app.lost(&renewal.name, renewal.lease_id, &identity);
            }
            (Purpose::Keep(_), Ok(RenewReply::Renewed { left: Some(left) })) => {
                app.keep(renewal.lease_id, *left, &identity);
            }
            _ => {}
        }
    }
    Ok(Json(Outcome::Ok(replies.into_iter().map(outcome).collect())))
}

pub(crate) async fn release(
    State(app): State<App>,
    identity: Identity,
    Body(request): Body<ReleaseRequest>,
) -> Answer<ReleaseReply> {
    identity.may_on(Right::Lock, request.name.as_str())?;
    let reply = app.engine().release(&request).await;
    if let Ok(ReleaseReply::Released { .. }) = &reply {
        app.released(&request.name, request.lease_id, &identity);
    }
    answer(reply)
}

pub(crate) async fn inspect(
    State(app): State<App>,
    identity: Identity,
    Body(Inspect { name }): Body<Inspect>,
) -> Answer<Snapshot> {
    identity.may_on(Right::View, name.as_str())?;
    answer(app.engine().inspect(&name).await)
}

pub(crate) async fn list(
    State(app): State<App>,
    identity: Identity,
    Body(request): Body<ListRequest>,
) -> Answer<ListPage> {
    identity.may_on(Right::View, &request.prefix)?;
    answer(app.engine().list(&request).await)
}

pub(crate) async fn operate(
    State(app): State<App>,
    identity: Identity,
    Body(body): Body<Operate>,
) -> Answer<Operated> {
    let reply = match body {
        Operate::Operation(operation) => {
            check_right(&identity, &operation)?;
            app.operate(&identity, operation).await.map(Operated::Operation)
        }
        Operate::Latch { name, command } => {
            identity.may_on(right_of_latch(command), name.as_str())?;
            app.engine().latch(&name, command).await.map(Operated::Latch)
        }
        Operate::Counting { name, command } => {
            identity.may_on(right_of_counting(command), name.as_str())?;
            app.engine().counting(&name, command).await.map(Operated::Counting)
        }
        Operate::AuditRead(request) => {
            Ok(Operated::AuditRead(app.audit(&identity, &request, |_| true).await?))
        }
    };
    answer(reply)
}

fn right_of_latch(command: LatchCommand) -> Right {
    match command {
        LatchCommand::Count => Right::View,
        LatchCommand::Set(_) | LatchCommand::CountDown(_) => Right::Lock,
    }
}

fn right_of_counting(command: CountingCommand) -> Right {
    match command {
        CountingCommand::Available | CountingCommand::Await { .. } => Right::View,
        CountingCommand::Set(_)
        | CountingCommand::Acquire(_)
        | CountingCommand::Release(_)
        | CountingCommand::Drain => Right::Lock,
    }
}

/// Sends the hints of one lease id, a byte each, until the client closes the connection.
pub(crate) async fn watch(
    State(app): State<App>,
    identity: Identity,
    access: OpenAccess,
    Body(Watch { name, lease_id }): Body<Watch>,
) -> Result<Response, Problem> {
    identity.may_on(Right::Lock, name.as_str())?;
    let waiter = app.limits.waiter(identity.name())?;
    let hints = app.engine().watch(&name, lease_id);
    let state = (app, hints, waiter);
    let bytes = stream::unfold(state, |(app, mut hints, waiter)| async move {
        let byte = next_byte(&app, &mut hints).await?;
        Some((Ok::<_, Infallible>(vec![byte]), (app, hints, waiter)))
    });
    let ended = async move { access.ended(Right::Lock, name.as_str()).await };
    let bytes = bytes.take_until(ended);
    // A first byte, so that the client knows that the watch stands.
    let bytes = stream::once(async { Ok(vec![STILL_HERE]) }).chain(bytes);
    Ok(HttpBody::from_stream(bytes).into_response())
}

async fn next_byte(app: &App, hints: &mut Hints) -> Option<u8> {
    tokio::select! {
        biased;
        () = app.stopping.cancelled() => None,
        hint = hints.next() => hint.map(hint_byte),
        () = tokio::time::sleep(BEAT) => Some(STILL_HERE),
    }
}
