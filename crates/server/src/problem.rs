//! Errors as problem details (RFC 9457).
//!
//! `detail` never contains what a store or a driver said in its own words: it may name paths,
//! hosts and users. That goes to the log.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use holdline_core::json::HolderJson;
use holdline_core::{Certainty, ErrorKind, LockError, LostReason};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use crate::json::Json;
use crate::kind::{Kind, LostWord};
use crate::metrics::Waited;
use crate::rights::Right;

/// How many seconds a client is asked to pause at most.
const LONGEST_PAUSE: u64 = 5;

/// What went wrong, as it is sent.
#[derive(Clone, Debug)]
pub struct Problem(Box<ProblemBody>);

/// What went wrong, as `application/problem+json`.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// Identifies the kind of problem: `urn:holdline:problem:` and the kind.
    #[serde(rename = "type")]
    #[schema(rename = "type", example = "urn:holdline:problem:busy")]
    type_: String,
    /// The kind in a few words.
    title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What happened.
    detail: String,
    /// A stable word for programs.
    kind: Kind,
    /// Whether the request took effect.
    certainty: Certainty,
    /// After how many seconds another attempt is worth it.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    /// The field of the request that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'static str>,
    /// Why a lease is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<LostWord>,
    /// Who holds the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Box<HolderJson>>,
    /// Whether the request waited for a lock.
    #[serde(skip)]
    waited: bool,
}

impl Problem {
    fn new(
        status: StatusCode,
        kind: Kind,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Problem {
        Problem(Box::new(ProblemBody {
            type_: format!("urn:holdline:problem:{}", kind.word()),
            title,
            status: status.as_u16(),
            detail: detail.into(),
            kind,
            certainty: Certainty::NotApplied,
            retry_after: None,
            field: None,
            fix: None,
            lost: None,
            holder: None,
            waited: false,
        }))
    }

    pub(crate) fn fix(mut self, fix: &'static str) -> Problem {
        self.0.fix = Some(fix);
        self
    }

    /// Says when another attempt is worth it. Clients that obey do not sleep through the moment at
    /// which a holder of a long lease is done: they look again within seconds.
    fn retry_after(mut self, after: Duration) -> Problem {
        self.0.retry_after = Some(after.as_secs().clamp(1, LONGEST_PAUSE));
        self
    }

    /// Notes that the request waited for a lock.
    pub(crate) fn after_wait(mut self) -> Problem {
        self.0.waited = true;
        self
    }

    /// Leaves out who holds the lock: the client has no right to see it.
    pub(crate) fn without_holder(mut self) -> Problem {
        self.0.holder = None;
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::BAD_GATEWAY)
    }

    /// Returns the kind in a few words.
    pub fn title(&self) -> &'static str {
        self.0.title
    }

    /// Returns what happened.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Returns what to do, if there is advice.
    pub fn advice(&self) -> Option<&'static str> {
        self.0.fix
    }

    /// Returns the field of the request that is wrong.
    pub fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }

    /// Returns whether the request may have taken effect.
    pub fn is_uncertain(&self) -> bool {
        self.0.certainty != Certainty::NotApplied
    }

    /// A request of no known form.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::BAD_REQUEST,
            Kind::BadRequest,
            "The request cannot be read",
            detail,
        )
    }

    /// A field has a wrong value.
    pub(crate) fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Problem {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let mut problem = Problem::new(status, Kind::Invalid, "A field has a wrong value", detail);
        problem.0.field = Some(field.into());
        problem
    }

    pub(crate) fn unauthenticated() -> Problem {
        let detail = "the request has no token that the server knows";
        let title = "Authentication is required";
        Problem::new(StatusCode::UNAUTHORIZED, Kind::Unauthenticated, title, detail)
            .fix("send `Authorization: Bearer TOKEN`")
    }

    pub(crate) fn lacks_right(right: Right) -> Problem {
        let right = match right {
            Right::View => "view",
            Right::Lock => "lock",
            Right::Operate => "operate",
            Right::Admin => "admin",
        };
        let detail = format!("the token lacks the right `{right}`");
        Problem::new(StatusCode::FORBIDDEN, Kind::Forbidden, "A right is missing", detail)
            .fix("ask the operator of the server for the right")
    }

    pub(crate) fn outside_prefixes() -> Problem {
        let detail = "the token is not good for this name or prefix";
        Problem::new(StatusCode::FORBIDDEN, Kind::Forbidden, "A right is missing", detail)
            .fix("use a name with one of the prefixes of the token")
    }

    pub(crate) fn outside_stores() -> Problem {
        let detail = "the token is not good for this store";
        Problem::new(StatusCode::FORBIDDEN, Kind::Forbidden, "A right is missing", detail)
            .fix("use one of the stores of the token: `/stores/NAME` before the path")
    }

    pub(crate) fn wrong_host() -> Problem {
        let detail = "the `Host` header names none of the hosts of this server";
        let title = "The request is for another server";
        Problem::new(StatusCode::MISDIRECTED_REQUEST, Kind::WrongHost, title, detail)
            .fix("add the name to `hosts` in the configuration of the server")
    }

    pub(crate) fn wrong_origin() -> Problem {
        let detail = "a page of another origin may not use this server";
        Problem::new(StatusCode::FORBIDDEN, Kind::WrongOrigin, "The origin is refused", detail)
    }

    pub(crate) fn not_found(detail: &str) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, Kind::NotFound, "There is nothing here", detail)
    }

    /// Says how a slash within a lock name is written.
    pub(crate) fn with_slash_hint(self) -> Problem {
        self.fix("write a slash within a lock name as `%2F`: `/v1/locks/a%2Fb` is the lock `a/b`")
    }

    pub(crate) fn no_session() -> Problem {
        Problem::not_found("no such session: it was closed, or had no heartbeat for its duration")
            .fix("open a new session, with the leases that are still held")
    }

    /// The session was open when the request began.
    pub(crate) fn session_ended() -> Problem {
        Problem::not_found("the session has ended while the request waited")
            .fix("open a new session, with the leases that are still held")
    }

    /// A session is known to the server that opened it.
    pub(crate) fn other_server() -> Problem {
        let detail = "another server has opened the session, or this one before it was restarted";
        let title = "The session is of another server";
        Problem::new(StatusCode::MISDIRECTED_REQUEST, Kind::OtherServer, title, detail).fix(
            "send all requests of a session to one server; if it is gone, open a new session with \
             the leases that are still held",
        )
    }

    /// Nobody reads this, except a client that has closed one direction of the connection.
    pub(crate) fn client_gone() -> Problem {
        let detail = "the client has closed the connection before it was answered";
        let title = "The client is gone";
        Problem::new(StatusCode::BAD_REQUEST, Kind::ClientGone, title, detail)
    }

    pub(crate) fn method_not_allowed() -> Problem {
        let detail = "the header `Allow` lists the methods of this path";
        let title = "The method is not allowed";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, Kind::MethodNotAllowed, title, detail)
    }

    pub(crate) fn too_large(limit: usize) -> Problem {
        let detail = format!("a body may have {limit} bytes");
        let title = "The body is too large";
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Kind::TooLarge, title, detail)
    }

    pub(crate) fn headers_too_long(limit: usize) -> Problem {
        let detail = format!("the headers of a request may have {limit} bytes");
        let title = "The headers are too long";
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        Problem::new(status, Kind::TooLarge, title, detail)
    }

    /// Writes the problem as it is sent.
    pub(crate) fn to_json(&self) -> String {
        // Strings and numbers always encode.
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    pub(crate) fn too_many_headers(limit: usize) -> Problem {
        let detail = format!("a request may have {limit} headers");
        let title = "The request has too many headers";
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        Problem::new(status, Kind::TooLarge, title, detail)
    }

    pub(crate) fn too_slow() -> Problem {
        let detail = "the body did not arrive in time";
        let title = "The request is too slow";
        Problem::new(StatusCode::REQUEST_TIMEOUT, Kind::TooSlow, title, detail)
    }

    pub(crate) fn not_json() -> Problem {
        let detail = "the body must be JSON";
        let title = "The media type is not supported";
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Kind::NotJson, title, detail)
            .fix("send `Content-Type: application/json`")
    }

    pub(crate) fn too_many(detail: impl Into<String>) -> Problem {
        let title = "A limit of the server is reached";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, Kind::TooMany, title, detail)
            .retry_after(Duration::from_secs(1))
    }

    /// The server stops. What it was asked for may be asked of another one.
    pub(crate) fn stopping(certainty: Certainty) -> Problem {
        let detail = "the server is stopping";
        let title = "The server is stopping";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Stopping, title, detail)
            .retry_after(Duration::from_secs(1))
            .certain(certainty)
    }

    /// The store may answer a repeated request with another grant.
    pub(crate) fn no_keys() -> Problem {
        let detail = "the store behind this server cannot repeat a request under one lease id";
        let title = "The store cannot do that";
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let mut problem = Problem::new(status, Kind::Unsupported, title, detail)
            .fix("leave the header out, and do not repeat the request");
        problem.0.field = Some("Idempotency-Key".to_owned());
        problem
    }

    /// The token of a revoke is not that of a holder.
    pub(crate) fn stale_token() -> Problem {
        let detail = "no holder of this name has this fencing token";
        Problem::new(StatusCode::CONFLICT, Kind::Stale, "The fencing token does not match", detail)
            .fix("look at the name again")
    }

    pub(crate) fn not_ready() -> Problem {
        let detail = "the store does not answer";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Unavailable, "Not ready", detail)
            .retry_after(Duration::from_secs(1))
    }

    pub(crate) fn certain(mut self, certainty: Certainty) -> Problem {
        self.0.certainty = certainty;
        self
    }

    /// The store did not confirm a release.
    pub(crate) fn unconfirmed() -> Problem {
        let detail = "the store did not confirm; the end of the lease frees the name at the latest";
        let title = "The store did not answer";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Unavailable, title, detail)
            .retry_after(Duration::from_secs(1))
            .certain(Certainty::Unknown)
    }

    /// Says what `lost` means for a request to acquire: an operator has ended it while it waited,
    /// or has revoked the grant that it asks for again.
    pub(crate) fn of_acquire(mut self) -> Problem {
        if self.0.lost == Some(LostWord::Revoked) {
            self.0.title = "An operator has ended the request";
            "an operator removed the request from the queue, or revoked its grant"
                .clone_into(&mut self.0.detail);
        }
        self
    }

    /// The lease is over.
    pub(crate) fn lost(reason: &LostReason) -> Problem {
        let detail = match reason {
            LostReason::Revoked(_) => "an operator revoked the lease".to_owned(),
            LostReason::StoreGone(_) => "the store that had the lease is gone".to_owned(),
            other => format!("the lease is lost: {other}"),
        };
        let mut problem = Problem::new(StatusCode::GONE, Kind::Lost, "The lease is lost", detail);
        problem.0.lost = Some(match reason {
            LostReason::Expired | LostReason::RanOut | LostReason::MaxHold => LostWord::Expired,
            LostReason::Missing => LostWord::Missing,
            LostReason::Revoked(_) => LostWord::Revoked,
            LostReason::Released => LostWord::Released,
            _ => LostWord::Other,
        });
        problem
    }
}

impl From<LockError> for Problem {
    fn from(error: LockError) -> Problem {
        Problem::from(&error)
    }
}

impl From<&LockError> for Problem {
    fn from(error: &LockError) -> Problem {
        of_kind(error).certain(error.certainty())
    }
}

fn of_kind(error: &LockError) -> Problem {
    let second = Duration::from_secs(1);
    match error.kind() {
        ErrorKind::Busy { holder } => {
            let detail = "another client holds the lock, or waits for it";
            let mut problem =
                Problem::new(StatusCode::LOCKED, Kind::Busy, "The lock is held", detail);
            problem.0.holder = holder.as_deref().map(|holder| Box::new(HolderJson::from(holder)));
            problem.retry_after(holder.as_ref().and_then(|holder| holder.left).unwrap_or(second))
        }
        ErrorKind::TimedOut { holder, .. } => {
            let detail = "the lock was not free within the wait limit";
            // Not 408: browsers, proxies and libraries repeat that by themselves.
            let status = StatusCode::LOCKED;
            let mut problem = Problem::new(status, Kind::TimedOut, "The wait ran out", detail);
            problem.0.holder = holder.as_deref().map(|holder| Box::new(HolderJson::from(holder)));
            problem
        }
        ErrorKind::Cancelled => {
            let detail = "the lease id was given up before, so it is never granted again";
            Problem::new(StatusCode::CONFLICT, Kind::Cancelled, "The lease id was given up", detail)
                .fix("ask again with a new `Idempotency-Key`")
        }
        ErrorKind::Lost { reason } => Problem::lost(reason),
        ErrorKind::TooManyWaiters { limit } => {
            Problem::too_many(format!("{limit} contenders wait for the lock already"))
        }
        ErrorKind::Quarantined { left } => {
            let detail = "the store lost its memory, and grants nothing for a while";
            let title = "The store is quarantined";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Quarantined, title, detail)
                .retry_after(*left)
        }
        ErrorKind::Unsupported { feature } => {
            let detail = format!("the store behind this server cannot do: {feature}");
            let title = "The store cannot do that";
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, Kind::Unsupported, title, detail)
        }
        ErrorKind::Invalid { field, message } => Problem::invalid(of_api(field), message.clone()),
        other => of_store(other, error),
    }
}

/// Durations of the library are whole milliseconds here, and their names say so.
fn of_api(field: &'static str) -> &'static str {
    match field {
        "duration" => "duration_ms",
        "lease_duration" => "lease_duration_ms",
        "wait" => "wait_ms",
        other => other,
    }
}

/// The store failed in its own words, which go to the log.
fn of_store(kind: &ErrorKind, error: &LockError) -> Problem {
    tracing::warn!(%error, "the store failed");
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    let (status, kind, title) = match kind {
        ErrorKind::NoQuorum { .. } => (unavailable, Kind::NoQuorum, "Too few nodes answer"),
        ErrorKind::NotInitialised => {
            (unavailable, Kind::NotInitialised, "The store is not set up for locks")
        }
        ErrorKind::Foreign { .. } => {
            (StatusCode::CONFLICT, Kind::Foreign, "Something else stands under the name")
        }
        ErrorKind::Refused { .. } => (unavailable, Kind::Refused, "The store refused"),
        ErrorKind::Unavailable { .. } => {
            (unavailable, Kind::Unavailable, "The store did not answer")
        }
        _ => (StatusCode::BAD_GATEWAY, Kind::Protocol, "The store gave no valid answer"),
    };
    let problem = Problem::new(status, kind, title, "the log of the server has the details");
    match status {
        StatusCode::CONFLICT => problem,
        _ => problem.retry_after(Duration::from_secs(1)),
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let retry_after = self.0.retry_after;
        let waited = self.0.waited;
        let mut response = (status, Json(self.0)).into_response();
        if waited {
            response.extensions_mut().insert(Waited);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_never_asked_to_sleep_for_long() {
        for (left, seconds) in [(0, 1), (1, 1), (5, 5), (6, 5), (86_400, 5)] {
            let left = Duration::from_secs(left);
            let error = LockError::new("e", ErrorKind::Quarantined { left }, Certainty::NotApplied);
            assert_eq!(Problem::from(error).0.retry_after, Some(seconds));
        }
    }

    #[test]
    fn each_kind_has_its_status_and_no_word_of_the_store() {
        let secret = || "s3cret".to_owned();
        let wait = Duration::from_millis(1);
        for (kind, status) in [
            (ErrorKind::Busy { holder: None }, 423),
            (ErrorKind::TimedOut { waited: wait, holder: None }, 423),
            (ErrorKind::Cancelled, 409),
            (ErrorKind::Lost { reason: LostReason::StoreGone(secret()) }, 410),
            (ErrorKind::Lost { reason: LostReason::Revoked(secret()) }, 410),
            (ErrorKind::TooManyWaiters { limit: 1 }, 429),
            (ErrorKind::NoQuorum { nodes: vec![secret()] }, 503),
            (ErrorKind::Quarantined { left: wait }, 503),
            (ErrorKind::NotInitialised, 503),
            (ErrorKind::Unsupported { feature: "permits" }, 422),
            (ErrorKind::Foreign { found: secret() }, 409),
            (ErrorKind::Refused { message: secret() }, 503),
            (ErrorKind::Unavailable { message: secret() }, 503),
            (ErrorKind::Protocol { message: secret() }, 502),
            (ErrorKind::Invalid { field: "mode", message: "why".to_owned() }, 422),
        ] {
            let error = LockError::new("e", kind, Certainty::Unknown);
            let problem = Problem::from(error);
            assert_eq!((problem.0.status, problem.0.certainty), (status, Certainty::Unknown));
            let text = serde_json::to_string(&problem.0).expect("JSON");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
}
