//! What happens to locks through this server, as a stream of server-sent events.
//!
//! - E1: events are kept for a while, so that a client that reconnects with `Last-Event-ID` misses
//!   none; if it would, it receives `gap` first.
//! - E2: a reader that is slower than the events loses its stream, with `gap` as the last word.
//!   There is no queue for one reader, so it costs the server nothing.
//! - E4: the text of an event is written when the first reader reaches it, and is then kept: most
//!   events of a server without readers are never written.
//! - E5: a stream ends within a moment after its reader may no longer view the names.
//! - E3: what other servers and programs do to the same store is no event. A stream for one name
//!   looks at the store (`watched`), and sends how the lock stands; one for a prefix does so if it
//!   is asked to.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use holdline_core::{FencingToken, LeaseId, LockName, ShortLeaseId};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, Serializer};
use tokio::sync::{Notify, watch};
use utoipa::{IntoParams, ToSchema};

use crate::access::{Identity, Right};
use crate::app::App;
use crate::input::{Parameters, lock_name};
use crate::limits::Counted;
use crate::open_access::OpenAccess;
use crate::problem::{Problem, ProblemBody};
use crate::watched::{COUNTS_AS, Scope, Watched};

/// How many events are kept.
const KEPT: usize = 10_000;
/// How many events one write has at most.
const BATCH: usize = 256;
/// Events of this time are written together: a thousand readers are woken fifty times a second,
/// however much happens.
const TOGETHER: Duration = Duration::from_millis(20);
/// How often a stream without events writes a comment, so that a broken connection is noticed.
pub(crate) const STILL_HERE: Duration = Duration::from_secs(10);
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

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LockEvent)]
pub(crate) enum What {
    Granted,
    Released,
    Refused,
    Lost,
    Revoked,
    Removed,
    Frozen,
    Unfrozen,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            What::Granted => "granted",
            What::Released => "released",
            What::Refused => "refused",
            What::Lost => "lost",
            What::Revoked => "revoked",
            What::Removed => "removed",
            What::Frozen => "frozen",
            What::Unfrozen => "unfrozen",
        }
    }
}

/// One event. The lease id is shown by its first digits.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Event {
    #[serde(skip)]
    what: What,
    name: LockName,
    at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_id: Option<ShortLeaseId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fencing_token: Option<FencingToken>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "identity_name")]
    by: Option<Identity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

fn identity_name<S: Serializer>(by: &Option<Identity>, to: S) -> Result<S::Ok, S::Error> {
    by.as_ref().map(Identity::name).serialize(to)
}

impl Event {
    pub(crate) fn of(what: What, name: &LockName) -> Event {
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Event {
            what,
            name: name.clone(),
            at_ms: crate::views::millis(at),
            lease_id: None,
            fencing_token: None,
            by: None,
            kind: None,
            reason: String::new(),
        }
    }

    pub(crate) fn lease(mut self, id: LeaseId) -> Event {
        self.lease_id = Some(id.short());
        self
    }

    /// The waiter, of whose lease id only the first digits are known.
    pub(crate) fn waiter(mut self, id: ShortLeaseId) -> Event {
        self.lease_id = Some(id);
        self
    }

    pub(crate) fn token(mut self, token: FencingToken) -> Event {
        self.fencing_token = Some(token);
        self
    }

    pub(crate) fn by(mut self, who: &Identity) -> Event {
        self.by = Some(who.clone());
        self
    }

    pub(crate) fn kind(mut self, kind: &'static str) -> Event {
        self.kind = Some(kind);
        self
    }

    pub(crate) fn reason(mut self, reason: &str) -> Event {
        reason.clone_into(&mut self.reason);
        self
    }
}

/// An event, and its text once a reader has reached it.
struct Kept {
    event: Event,
    text: OnceCell<String>,
}

impl Kept {
    fn text(&self, epoch: &str, number: u64) -> &str {
        self.text.get_or_init(|| {
            // Strings and numbers always encode.
            let data = serde_json::to_string(&self.event).unwrap_or_default();
            let word = self.event.what.word();
            format!("id: {epoch}-{number}\nevent: {word}\ndata: {data}\n\n")
        })
    }
}

/// The events of one server since it started.
pub(crate) struct Events {
    /// Distinguishes the numbers of this run from those of another.
    epoch: String,
    ring: Mutex<Ring>,
    published: Notify,
    next: watch::Sender<u64>,
}

struct Ring {
    /// The number of the first event that is kept.
    first: u64,
    kept: VecDeque<Kept>,
}

impl Ring {
    fn next(&self) -> u64 {
        self.first + self.kept.len() as u64
    }
}

/// What a reader gets.
enum Read {
    /// Text, perhaps none, and the number to go on with.
    Events(String, u64),
    /// Nothing new.
    Nothing,
    /// Events that it has not seen are gone.
    Gap,
}

impl Events {
    pub(crate) fn new(epoch: String) -> Events {
        let ring = Mutex::new(Ring { first: 1, kept: VecDeque::new() });
        Events { epoch, ring, published: Notify::new(), next: watch::Sender::new(1) }
    }

    /// Adds an event.
    pub(crate) fn publish(&self, event: Event) {
        let mut ring = self.ring.lock();
        ring.kept.push_back(Kept { event, text: OnceCell::new() });
        if ring.kept.len() > KEPT {
            ring.kept.pop_front();
            ring.first += 1;
        }
        drop(ring);
        // A reader subscribes before it reads: one that comes later finds the event.
        if self.next.receiver_count() > 0 {
            self.published.notify_one();
        }
    }

    /// Wakes the readers, at most once in a while. Runs as long as the server.
    pub(crate) async fn wake_readers(&self) {
        loop {
            self.published.notified().await;
            tokio::time::sleep(TOGETHER).await;
            let next = self.ring.lock().next();
            self.next.send_replace(next);
        }
    }

    /// Reads what there is from a number on, for one identity.
    fn read(&self, from: u64, wanted: &impl Fn(&LockName) -> bool) -> Read {
        let ring = self.ring.lock();
        if from < ring.first {
            return Read::Gap;
        }
        let skipped = usize::try_from(from - ring.first).unwrap_or(usize::MAX);
        let part = ring.kept.iter().skip(skipped).take(BATCH);
        let count = part.len() as u64;
        if count == 0 {
            return Read::Nothing;
        }
        let part = (from..).zip(part).filter(|(_, kept)| wanted(&kept.event.name));
        let text = part.map(|(number, kept)| kept.text(&self.epoch, number)).collect();
        Read::Events(text, from + count)
    }

    /// Finds out where a stream begins, and whether events are missing before that.
    fn start(&self, last: Option<&str>) -> (u64, bool) {
        let ring = self.ring.lock();
        let Some(last) = last else { return (ring.next(), false) };
        let number = last.rsplit_once('-').filter(|(epoch, _)| *epoch == self.epoch);
        let number = number.and_then(|(_, number)| number.parse::<u64>().ok());
        match number.map(|number| number.saturating_add(1)) {
            Some(from) if (ring.first..=ring.next()).contains(&from) => (from, false),
            _ => (ring.first, true),
        }
    }
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
    #[param(min_length = 1, max_length = 512, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
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
        Some(name) => Scope::Name(lock_name(&name)?),
        None => Scope::Prefix(prefix),
    };
    identity.may_on(Right::View, scope.text())?;
    let watched = match &scope {
        Scope::Prefix(_) if !state => None,
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
    scope: Scope,
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
                Scope::Name(only) => only == name,
                Scope::Prefix(prefix) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(events: &Events, count: usize) {
        let name = LockName::new("n").expect("a good name");
        for _ in 0..count {
            events.publish(Event::of(What::Granted, &name));
        }
    }

    #[test]
    fn a_reader_resumes_or_learns_of_the_gap() {
        let events = Events::new("e".to_owned());
        publish(&events, 3);
        assert_eq!(events.start(None), (4, false));
        for (last, start) in
            [("e-1", (2, false)), ("e-3", (4, false)), ("e-9", (1, true)), ("f-1", (1, true))]
        {
            assert_eq!(events.start(Some(last)), start, "{last}");
        }
        assert_eq!(events.start(Some("nonsense")), (1, true));
        let Read::Events(text, next) = events.read(2, &|_| true) else { panic!("two events") };
        assert!(text.starts_with("id: e-2\nevent: granted\ndata: {\"name\":\"n\""), "{text}");
        assert_eq!(next, 4);
        assert!(matches!(events.read(4, &|_| true), Read::Nothing));
        let Read::Events(text, _) = events.read(1, &|_| false) else { panic!("no gap") };
        assert!(text.is_empty(), "a name that the reader may not see");
    }

    #[test]
    fn what_is_kept_has_a_bound_and_a_slow_reader_falls_out() {
        let events = Events::new("e".to_owned());
        publish(&events, KEPT + 5);
        assert_eq!(events.ring.lock().kept.len(), KEPT);
        assert!(matches!(events.read(1, &|_| true), Read::Gap));
        assert_eq!(events.start(Some("e-2")), (6, true));
        assert_eq!(events.start(Some("e-5")), (6, false));
    }
}
