//! One node of a set: its connection, and what it was last heard to say.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::{NodeId, Told, View};
use holdline_core::{Certainty, Clock, ErrorKind, LockError, Moment};
use parking_lot::Mutex;

use super::release::Owed;
use super::requests;
use super::{ENGINE, replies};
use crate::native::Asker;
use crate::node::{Node, Value};
use crate::options::RedisOptions;

/// How long a first connection may take before the others are not kept waiting for it.
const FIRST_CONNECTION: Duration = Duration::from_secs(1);
/// How often we look at a node that waits: at first, while we measure, and while another client
/// measures.
const FIRST_MEASURED: Duration = Duration::from_millis(200);
const MEASURED: Duration = Duration::from_secs(1);
const OTHERS_MEASURE: Duration = Duration::from_secs(5);
/// No pause between two looks at such a node is shorter.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
/// A channel that Sentinels hear on each server that they look after.
const SENTINELS: &str = "__sentinel__:hello";

/// One node.
#[derive(Debug)]
pub(super) struct Member {
    address: String,
    node: Node,
    found: Mutex<Option<Found>>,
    said: Mutex<Said>,
    /// Which member of a set was seen here last.
    seen: Mutex<Option<NodeId>>,
    measurer: Mutex<Measurer>,
    owed: Owed,
}

/// Who measures its wait, as far as we know.
#[derive(Clone, Copy, Debug, Default)]
enum Measurer {
    #[default]
    Nobody,
    /// We do: so much is left since our last report.
    Us(Duration),
    Another,
}

/// What was found of one run of the server.
#[derive(Clone, Debug)]
struct Found {
    marker: Arc<str>,
    /// It keeps all that it has answered, over restarts too.
    durable: bool,
    /// How long this run had lasted when it was asked, and when that was.
    up: Option<(Duration, Moment)>,
}

/// What is known of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// What it said last, if the last try to ask it went well.
    pub(super) heard: Option<Heard>,
    /// What it said last, also when it has not answered since.
    pub(super) last: Option<Heard>,
    /// Why the last try did not.
    pub(super) failure: Option<LockError>,
}

/// The connection leads to another run of the server than the one that was greeted.
#[derive(Debug)]
pub(super) struct Another;

/// What a node said.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    /// Under which run of the server.
    pub(super) marker: Arc<str>,
    pub(super) view: View,
    /// Its clock, in microseconds, and when we read that by ours.
    pub(super) time_us: u64,
    pub(super) at: Moment,
    /// When its wait is over at the latest, as we have measured it.
    pub(super) waits_until: Option<Moment>,
    pub(super) round_trip: Duration,
    /// Its settings say that it keeps all that it has answered, over restarts too. For people: the
    /// rules do not rely on it.
    pub(super) durable: bool,
    /// How long this run of it has lasted.
    pub(super) up: Option<Duration>,
}

impl Heard {
    /// Tells whether it is in the same wait.
    fn waits_as(&self, other: &Heard) -> bool {
        let wait = |heard: &Heard| (heard.view.id, heard.view.quarantine.map(|(_, by)| by));
        self.view.quarantine.is_some() && self.marker == other.marker && wait(self) == wait(other)
    }

    /// What it said, with how much less of its wait is left as we have measured it.
    pub(super) fn as_of(&self, now: Moment) -> View {
        let measured = self.view.quarantine.zip(self.waits_until);
        let measured = measured.map(|((left, _), until)| left.saturating_sub(now.until(until)));
        View { measured: measured.unwrap_or_default(), ..self.view.clone() }
    }

    /// What its clock shows at a moment of ours, in microseconds.
    pub(super) fn time_us_at(&self, now: Moment) -> u64 {
        let since = self.at.until(now) + self.round_trip / 2;
        self.time_us.saturating_add(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}

impl Member {
    pub(super) fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<Member, LockError> {
        let node = Node::new(options, clock)?;
        Ok(Member {
            address: options.address().to_string(),
            node,
            found: Mutex::default(),
            said: Mutex::default(),
            seen: Mutex::default(),
            measurer: Mutex::default(),
            owed: Owed::default(),
        })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// What it has yet to be told.
    pub(super) fn owed(&self) -> &Owed {
        &self.owed
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// Tells whether there is a connection that answers in time, to this run of the server; `Err`
    /// when it leads to another.
    pub(super) fn is_well(&self, marker: &str) -> Result<bool, Another> {
        match self.node.well() {
            Some(facts) if facts.run_id.as_deref() == Some(marker) => Ok(true),
            Some(_) => Err(Another),
            None => Ok(false),
        }
    }

    /// Why it has no connection that answers in time.
    pub(super) fn excuse(&self) -> String {
        let failure = self.said.lock().failure.clone().or_else(|| self.node.excuse());
        failure.map_or_else(|| "does not answer".to_owned(), |one| one.kind().to_string())
    }

    pub(super) fn said(&self) -> Said {
        self.said.lock().clone()
    }

    /// Asks the node how it stands, and tells it under which run of the server it was found.
    /// `only_looks`: changes nothing there.
    pub(super) async fn greet(&self, asker: &Asker, clock: &dyn Clock, only_looks: bool) {
        let outcome = self.ask(asker, clock, only_looks).await;
        let mut said = self.said.lock();
        *said = match outcome {
            Ok(mut heard) => {
                let before = said.last.as_ref().filter(|last| last.waits_as(&heard));
                self.note_measurer(before, &heard);
                // No answer of the same wait says that it lasts longer than another did.
                if let Some(earlier) = before.map(|before| before.waits_until) {
                    heard.waits_until = heard.waits_until.min(earlier);
                }
                let mut seen = self.seen.lock();
                if heard.view.configuration.as_ref().is_some_and(|one| one.has(heard.view.id)) {
                    *seen = Some(heard.view.id);
                }
                heard.view.before = *seen;
                Said { last: Some(heard.clone()), heard: Some(heard), failure: None }
            }
            Err(failure) => {
                // Who did not answer may be as it was; who answered so is not.
                let silent = matches!(failure.kind(), ErrorKind::Unavailable { .. });
                let last = said.last.take().filter(|_| silent);
                Said { heard: None, last, failure: Some(failure) }
            }
        };
    }

    async fn ask(
        &self,
        asker: &Asker,
        clock: &dyn Clock,
        only_looks: bool,
    ) -> Result<Heard, LockError> {
        let limit = if self.node.server().is_none() { FIRST_CONNECTION } else { asker.deadline };
        let facts = self.node.ready_within(limit.max(asker.deadline)).await?;
        let Some(marker) = facts.run_id.as_deref().map(Arc::<str>::from) else {
            let message =
                "the user may not ask which run of the server this is: its ACL lacks +info";
            return Err(refused(message));
        };
        let before = self.found.lock().clone();
        let found = match before.filter(|found| found.marker == marker) {
            // What only looks tells people, and settings change.
            Some(found) if only_looks => Found { durable: self.is_durable(asker).await, ..found },
            Some(found) => found,
            None => {
                let (durable, up) = self.examine(asker).await?;
                let up = up.map(|up| (up, clock.now()));
                let found = Found { marker: marker.clone(), durable, up };
                *self.found.lock() = Some(found.clone());
                found
            }
        };
        let durable = found.durable;
        let (sent, fresh) = (clock.now(), self.fresh());
        let call = || match only_looks {
            true => requests::look(asker, &marker, fresh),
            false => requests::greet(asker, &marker, fresh),
        };
        let unknown = self.node.unknown_scripts();
        let reply = self.node.call_of(Some(&marker), call).await?;
        let greeted = replies::greeted(&reply)?;
        if !only_looks && self.node.unknown_scripts() != unknown {
            // A server that was started again. An attempt that a majority decides is not sent to it
            // a second time in full, so it would never vote if it is the slowest.
            drop(self.node.call_in_full(|| requests::load_acquire(asker)).await);
        }
        if !greeted.accepted {
            let message = "two servers answer in turn under this address: name each by its own";
            return Err(refused(message));
        }
        let (view, time_us, at) = (greeted.view, greeted.time_us, clock.now());
        let (round_trip, up) = (sent.until(at), found.up.map(|(up, asked)| up + asked.until(at)));
        let waits_until = view.quarantine.map(|(left, _)| at.after(left));
        Ok(Heard { marker, view, time_us, at, waits_until, round_trip, durable, up })
    }

    /// Refuses what is no single server: a vote of it could be taken back behind its back.
    /// Tells whether it keeps all that it has answered, and how long it has been up.
    async fn examine(&self, asker: &Asker) -> Result<(bool, Option<Duration>), LockError> {
        let info = self.node.command(["INFO"], None, asker.deadline).await?;
        let info = info.as_text().unwrap_or_default();
        let field = |name: &str| {
            let lines = info.lines();
            let mut values = lines.filter_map(|line| line.trim_end().strip_prefix(name));
            values.find_map(|value| value.strip_prefix(':')).unwrap_or_default()
        };
        if field("role") == "slave" {
            return Err(refused("it is a replica: name independent servers"));
        }
        if field("cluster_enabled") == "1" || field("redis_mode") == "cluster" {
            return Err(refused("it belongs to a Redis Cluster: name independent servers"));
        }
        if !matches!(field("connected_slaves"), "0" | "") {
            let message = "it has replicas, and could be replaced by one that knows less: \
                           name servers without";
            return Err(refused(message));
        }
        let words = ["PUBSUB", "NUMSUB", SENTINELS];
        let heard = self.node.command(words, None, asker.deadline).await;
        // A user who may not ask is none the worse for it.
        let listeners = heard.ok().and_then(|reply| reply.as_array()?.get(1)?.as_integer());
        if listeners.is_some_and(|listeners| listeners > 0) {
            let message = "a Sentinel looks after it, and could replace it by one that knows \
                           less: name servers without";
            return Err(refused(message));
        }
        let up = field("uptime_in_seconds").parse().ok().map(Duration::from_secs);
        Ok((self.is_durable(asker).await, up))
    }

    /// Asks whether it keeps all that it has answered. Whoever may not ask goes by the worse.
    async fn is_durable(&self, asker: &Asker) -> bool {
        let words = ["CONFIG", "GET", "*append*"];
        let settings = self.node.command(words, None, asker.deadline).await.ok();
        let settings = settings.as_ref().and_then(Value::as_array).unwrap_or_default();
        let is = |name: &str, value: &str| {
            let mut pairs = settings.chunks(2);
            pairs.any(|pair| pair.iter().filter_map(Value::as_text).eq([name, value]))
        };
        // With the last of them on, `always` is not while the file is written anew.
        is("appendonly", "yes")
            && is("appendfsync", "always")
            && !is("no-appendfsync-on-rewrite", "yes")
    }

    /// Tells the node something; `false` when it does not fit how it stands.
    pub(super) async fn tell(&self, asker: &Asker, told: &Told) -> Result<bool, LockError> {
        let marker = self.said.lock().heard.as_ref().map(|heard| heard.marker.clone());
        let Some(marker) = marker else { return Ok(false) };
        let reply =
            self.node.call_of(Some(&marker), || requests::tell(asker, &marker, told)).await?;
        let taken = replies::told(&reply)?;
        if let Told::Waited { left, passed, .. } = told {
            *self.measurer.lock() = match taken {
                true => Measurer::Us(left.saturating_sub(in_micros(*passed))),
                false => Measurer::Another,
            };
        }
        Ok(taken)
    }

    /// Says what we have measured of its wait, and not reported yet.
    pub(super) fn measured(&self, now: Moment) -> Option<Told> {
        let view = self.said().heard?.as_of(now);
        let ((left, by_time), stamp) = (view.quarantine?, view.configuration?.stamp());
        let (episode, passed) = (view.id, view.measured);
        let is_some = !left.is_zero() && !passed.is_zero();
        is_some.then_some(Told::Waited { episode, stamp, by_time, left, passed })
    }

    /// Notes who measures its wait: another client does if less is left than we have reported.
    fn note_measurer(&self, before: Option<&Heard>, heard: &Heard) {
        let left = |heard: &Heard| heard.view.quarantine.map(|(left, _)| left);
        let mut measurer = self.measurer.lock();
        *measurer = match (before, *measurer) {
            (None, _) => Measurer::Nobody,
            (_, Measurer::Us(reported)) if left(heard) == Some(reported) => return,
            (Some(before), _) if left(before) != left(heard) => Measurer::Another,
            _ => return,
        };
    }

    /// How long its wait may go on before we look again. One client measures it; the others see in
    /// time when that one is gone.
    pub(super) fn pause(&self, left: Duration) -> Duration {
        let most = match *self.measurer.lock() {
            Measurer::Nobody => FIRST_MEASURED,
            Measurer::Us(_) => MEASURED,
            Measurer::Another => OTHERS_MEASURE,
        };
        left.clamp(SHORTEST_PAUSE, most)
    }

    /// Draws an id for the case that the node has lost its memory.
    pub(super) fn fresh(&self) -> NodeId {
        let mut bytes = [0; 16];
        for part in bytes.chunks_mut(4) {
            part.copy_from_slice(&self.node.random().to_be_bytes());
        }
        NodeId::from_bytes(bytes)
    }
}

/// Two servers that are one run of one.
pub(super) fn same_run(said: &[Said]) -> Option<(usize, usize)> {
    let marker = |said: &Said| said.heard.as_ref().map(|heard| heard.marker.clone());
    said.iter().enumerate().find_map(|(at, one)| {
        let mine = marker(one)?;
        let other = said[..at].iter().position(|other| marker(other).as_ref() == Some(&mine));
        other.map(|other| (other, at))
    })
}

/// What of a duration a node is told.
fn in_micros(duration: Duration) -> Duration {
    duration.saturating_sub(Duration::from_nanos(u64::from(duration.subsec_nanos() % 1_000)))
}

fn refused(message: &str) -> LockError {
    let kind = ErrorKind::Refused { message: message.to_owned() };
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}
