//! Server-sent events of a store.
//!
//! - E3: what other servers and programs do to the same store is no event. A stream for one name
//!   looks at the store (`watched`), and sends how the lock stands; one for a prefix does so if it
//!   is asked to.
//! - E5: a stream ends within a moment after its reader may no longer view the names.
//!
//! `events` has the rules of what is kept.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use holdline_core::LockName;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::events::{Read, What};
use crate::identity::Identity;
use crate::input::{Parameters, lock_name};
use crate::limits::Counted;
use crate::open_access::OpenAccess;
use crate::problem::{Problem, ProblemBody};
use crate::rights::Right;
use crate::watched::{COUNTS_AS, STILL_HERE, WatchScope, Watched};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// One event of the stream: its lines `id:`, `event:` and `data:`.
#[derive(ToSchema)]
#[allow(dead_code, reason = "the description is made of it; events are written as text")]
struct EventLines {
    /// For `Last-Event-ID`; absent with `gap` and `state`.
    #[schema(nullable = false)]
    id: Option<String>,
    event: EventWord,
    /// JSON: `name`, `at_ms` and what is known of the event; with `state` the lock as `GET` of it
    /// shows it; with `gap` an empty object.
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// What an event says.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "the description is made of it; events are written as text")]
enum EventWord {
    OfLock(What),
    OfStream(StreamEvent),
}

/// What an event says about the stream, or about the state of a lock.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "the description is made of it; events are written as text")]
enum StreamEvent {
    Gap,
    State,
}

/// Which events to send.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventParameters {
    /// Only those of names that begin with this text.
    #[serde(default)]
    prefix: String,
    /// Only those of this lock name, with `state` at the start and after each change; without
    /// `prefix` and `state`.
    #[param(
        min_length = 1,
        max_length = 512, // MAX_NAME_BYTES
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"
    )]
    name: Option<String>,
    /// Also `state` of each lock with the prefix, at the start if it is held or waited for, and
    /// after each change by any server or program.
    #[serde(default)]
    state: bool,
}

/// Sends what happens to locks through this server, as server-sent events.
///
/// The events are `granted`, `released`, `refused`, `lost`, `revoked`, `removed` (a waiter, by an
/// operator), `frozen` and `unfrozen`;
/// `gap` says that some were missed. `Last-Event-ID` resumes. With `name`, or with `state=true` for
/// a prefix, `state` shows how a lock stands in the store, at the start and after each change by
/// any server or program, within a second.
#[utoipa::path(
    get, path = "/v1/events", tag = "events",
    params(
        EventParameters,
        ("Last-Event-ID" = Option<String>, Header, description = "The last id that was received"),
    ),
    responses(
        (status = 200, body = EventLines,
         description = "The stream: the schema of an event", content_type = "text/event-stream"),
        (status = "default", body = ProblemBody, description = "A problem",
         content_type = "application/problem+json"),
    )
)]
pub(crate) async fn events(
    State(app): State<App>,
    identity: Identity,
    access: OpenAccess,
    Parameters(parameters): Parameters<EventParameters>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let EventParameters { prefix, name, state } = parameters;
    let scope = match name {
        Some(_) if !prefix.is_empty() => {
            return Err(Problem::invalid("name", "cannot be given together with `prefix`"));
        }
        Some(name) => WatchScope::Name(lock_name(&name)?),
        None => WatchScope::Prefix(prefix),
    };
    identity.may_on(Right::View, scope.text())?;
    let watched = match &scope {
        WatchScope::Prefix(_) if !state => None,
        scope => Some(Watched::new(&app, scope)?),
    };
    let count = if state { COUNTS_AS } else { 1 };
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        open.push(app.limits.stream(identity.name())?);
    }
    let last = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok());
    let (from, gap) = app.events.start(last);
    let changed = app.events.next.subscribe();
    let reader = Reader {
        app,
        identity,
        access,
        scope,
        watched,
        looks_now: true,
        from,
        begins: Some(gap),
        changed,
        ended: false,
        _open: open,
    };
    let body = Body::from_stream(stream::unfold(reader, |mut reader| async move {
        let text = reader.next().await?;
        Some((Ok::<_, Infallible>(text), reader))
    }));
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((headers, body).into_response())
}

/// The reader of one stream.
struct Reader {
    app: App,
    identity: Identity,
    access: OpenAccess,
    scope: WatchScope,
    watched: Option<Watched>,
    /// It is time to look at the store.
    looks_now: bool,
    from: u64,
    /// Nothing was written yet; `true`: a gap comes first.
    begins: Option<bool>,
    changed: watch::Receiver<u64>,
    ended: bool,
    _open: Vec<Counted>,
}

const GAP: &str = "event: gap\ndata: {}\n\n";

impl Reader {
    async fn next(&mut self) -> Option<String> {
        if self.ended {
            return None;
        }
        if let Some(gap) = self.begins.take() {
            // A first byte, so that the client knows that the stream stands.
            return Some(if gap { GAP.to_owned() } else { ": open\n\n".to_owned() });
        }
        loop {
            self.changed.mark_unchanged();
            let wanted = |name: &LockName| match &self.scope {
                WatchScope::Name(only) => only == name,
                WatchScope::Prefix(prefix) => {
                    name.as_str().starts_with(prefix) && self.identity.covers(name.as_str())
                }
            };
            match self.app.events.read(self.from, &wanted) {
                Read::Events(text, next) => {
                    self.from = next;
                    if !text.is_empty() {
                        return Some(text);
                    }
                }
                Read::Gap => {
                    self.ended = true;
                    return Some(GAP.to_owned());
                }
                Read::Nothing => {
                    if self.looks_now
                        && let Some(watched) = &mut self.watched
                    {
                        self.looks_now = false;
                        if let Some(text) = watched.look(&wanted).await {
                            return Some(text);
                        }
                        if watched.is_still_here_due() {
                            return Some(": \n\n".to_owned());
                        }
                    }
                    let next_look = async {
                        match &self.watched {
                            Some(watched) => watched.until_due().await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        biased;
                        () = self.app.stopping.cancelled() => return None,
                        () = self.access.ended(Right::View, self.scope.text()) => return None,
                        changed = self.changed.changed() => changed.ok()?,
                        () = next_look => self.looks_now = true,
                        () = tokio::time::sleep(STILL_HERE), if self.watched.is_none() => {
                            return Some(": \n\n".to_owned());
                        }
                    }
                }
            }
        }
    }
}
