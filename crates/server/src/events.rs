//! What happens to locks through this server: the events that were kept, for `event_stream`.
//!
//! - E1: events are kept for a while, so that a client that reconnects with `Last-Event-ID` misses
//!   none; if it would, it receives `gap` first.
//! - E2: a reader that is slower than the events loses its stream, with `gap` as the last word.
//!   There is no queue for one reader, so it costs the server nothing.
//! - E4: the text of an event is written when the first reader reaches it, and is then kept: most
//!   events of a server without readers are never written.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use holdline_core::{FencingToken, LeaseId, LockName, ShortLeaseId};
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use tokio::sync::{Notify, watch};
use utoipa::ToSchema;

use crate::identity::Identity;

/// How many events are kept.
const KEPT: usize = 10_000;
/// How many events one write has at most.
const BATCH: usize = 256;
/// Events of this time are written together: a thousand readers are woken fifty times a second,
/// however much happens.
const TOGETHER: Duration = Duration::from_millis(20);

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
    pub(crate) next: watch::Sender<u64>,
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
pub(crate) enum Read {
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
    pub(crate) fn read(&self, from: u64, wanted: &impl Fn(&LockName) -> bool) -> Read {
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
    pub(crate) fn start(&self, last: Option<&str>) -> (u64, bool) {
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
