//! One node of a set: its connection, its last report, and the quarantine of a node that lost its
//! data. A promoted master of Sentinels has a quarantine of its own (`link::master_term`).

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::node::Run;
use holdline_core::quorum::{NodeCommand, NodeId, NodeReport};
use holdline_core::{Clock, LockError, Moment};
use parking_lot::Mutex;

use super::in_progress::UndoQueue;
use super::requests;
use super::{refused, replies};
use crate::link::Link;
use crate::native::RequestContext;
use crate::options::RedisOptions;

/// The timeout of a node's first connection: the other nodes wait for it.
pub(super) const FIRST_CONNECTION_TIMEOUT: Duration = Duration::from_secs(1);
/// The time between two reports of a node in quarantine: at first, while this client measures, and
/// while another client measures.
const FIRST_INTERVAL: Duration = Duration::from_millis(200);
const MEASURING_INTERVAL: Duration = Duration::from_secs(1);
const OTHER_MEASURES_INTERVAL: Duration = Duration::from_secs(5);
/// The shortest time between two reports of such a node.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// The channel to which Sentinels subscribe on each server that they monitor.
const SENTINELS: &str = "__sentinel__:hello";

/// One node.
#[derive(Debug)]
pub(super) struct Member {
    address: String,
    link: Link,
    observed: Mutex<Observed>,
    /// The id of the member that was last seen here.
    last_member: Mutex<Option<NodeId>>,
    measurer: Mutex<Measurer>,
    /// The undos that it has yet to receive.
    pub(super) undo_queue: UndoQueue,
}

/// Which client measures the quarantine, as far as this one knows.
#[derive(Clone, Copy, Debug, Default)]
enum Measurer {
    #[default]
    Unknown,
    /// This one: the time that was left after its last report.
    ThisClient(Duration),
    OtherClient,
}

/// What a server says of itself.
struct ServerState {
    /// Of which master it was a replica in this run, and until when.
    replica_until: Option<String>,
    up: Option<Duration>,
}

/// What is known of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// The last report, if the last request succeeded.
    pub(super) current: Option<Observation>,
    /// The last report, even if later requests were not answered.
    pub(super) last: Option<Observation>,
    /// Why the last request failed.
    pub(super) failure: Option<LockError>,
}

/// A report of a node, as this client received it.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    /// The run_id of the server.
    pub(super) marker: Arc<str>,
    pub(super) report: NodeReport,
    /// Its clock, in microseconds, and our time when it arrived.
    pub(super) time_us: u64,
    pub(super) at: Moment,
    /// The latest end of its quarantine, as this client has measured it.
    pub(super) waits_until: Option<Moment>,
    pub(super) round_trip: Duration,
    /// Its uptime, where somebody inspects it.
    pub(super) up: Option<Duration>,
}

impl Observation {
    /// Returns whether both are of the same quarantine.
    fn is_same_quarantine(&self, other: &Observation) -> bool {
        // An id has one quarantine (N6 of the core's `node`).
        self.report.quarantine.is_some()
            && other.report.quarantine.is_some()
            && self.report.id == other.report.id
    }

    /// Returns the report with the time of its quarantine that this client has measured.
    pub(super) fn with_measured_time(&self, now: Moment) -> NodeReport {
        let measured = self.report.quarantine.zip(self.waits_until);
        let measured = measured.map(|((left, _), until)| left.saturating_sub(now.until(until)));
        NodeReport { measured: measured.unwrap_or_default(), ..self.report.clone() }
    }

    /// Returns how far its clock is ahead of the `median` at a moment of ours, in microseconds.
    pub(super) fn clock_offset_us(&self, now: Moment, median: u64) -> Option<i64> {
        let offset = i128::from(self.time_us_at(now)) - i128::from(median);
        i64::try_from(offset).ok()
    }

    /// Returns its clock at a moment of ours, in microseconds.
    pub(super) fn time_us_at(&self, now: Moment) -> u64 {
        let since = self.at.until(now) + self.round_trip / 2;
        self.time_us.saturating_add(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}

impl Member {
    pub(super) fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<Member, LockError> {
        let link = Link::new(options, clock)?;
        Ok(Member {
            address: options.address().to_string(),
            link,
            observed: Mutex::default(),
            last_member: Mutex::default(),
            measurer: Mutex::default(),
            undo_queue: UndoQueue::default(),
        })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// Describes why it has no connection that answers in time.
    pub(super) fn failure_text(&self) -> String {
        let failure = self.observed.lock().failure.clone().or_else(|| self.link.last_error());
        failure.map_or_else(|| "does not answer".to_owned(), |one| one.kind().to_string())
    }

    pub(super) fn observed(&self) -> Observed {
        self.observed.lock().clone()
    }

    /// Sends the node the run_id of its server, and requests its report. `read_only`: changes
    /// nothing there.
    pub(super) async fn handshake(
        &self,
        context: &RequestContext,
        clock: &dyn Clock,
        read_only: bool,
    ) {
        let outcome = self.request_report(context, clock, read_only).await;
        let mut observed = self.observed.lock();
        *observed = match outcome {
            Ok(mut current) => {
                let before =
                    observed.last.as_ref().filter(|last| last.is_same_quarantine(&current));
                self.note_measurer(before, &current);
                // A later answer in the same quarantine never prolongs it.
                if let Some(earlier) = before.map(|before| before.waits_until) {
                    current.waits_until = current.waits_until.min(earlier);
                }
                let mut last_member = self.last_member.lock();
                let report = &mut current.report;
                if report.configuration.as_ref().is_some_and(|one| one.has(report.id)) {
                    *last_member = Some(report.id);
                }
                report.last_seen_id = *last_member;
                Observed { last: Some(current.clone()), current: Some(current), failure: None }
            }
            Err(failure) => {
                // A node that did not answer may be unchanged; one that answered an error is not.
                let silent = failure.is_unavailable();
                let last = observed.last.take().filter(|_| silent);
                Observed { current: None, last, failure: Some(failure) }
            }
        };
    }

    async fn request_report(
        &self,
        context: &RequestContext,
        clock: &dyn Clock,
        read_only: bool,
    ) -> Result<Observation, LockError> {
        let mut limit = context.deadline;
        if self.link.last_facts().is_none() {
            limit = limit.max(FIRST_CONNECTION_TIMEOUT);
        }
        let facts = self.link.ready_within(limit).await?;
        let Some(marker) = facts.run_id.as_deref().map(Arc::<str>::from) else {
            let message =
                "the user may not ask which run of the server this is: its ACL lacks +info";
            return Err(refused(message));
        };
        let server = self.check_server(context, read_only).await?;
        let run = Run { marker: marker.to_string(), replica_until: server.replica_until };
        let sent = clock.now();
        let fresh = self.fresh_id();
        let call = || requests::handshake(context, &run, fresh, read_only);
        let unknown = self.link.unknown_scripts();
        let reply = self.link.call_of(Some(&marker), call).await?;
        let handshake = replies::handshake(&reply)?;
        if !read_only && self.link.unknown_scripts() != unknown {
            // A restarted server has no scripts. An attempt that a majority decides does not send
            // it the script's text, so it would never vote if it is the slowest: load the script
            // now.
            drop(self.link.call_in_full(|| requests::load_acquire(context)).await);
        }
        if !handshake.accepted {
            let message = "two servers answer in turn under this address: name each by its own";
            return Err(refused(message));
        }
        let at = clock.now();
        let report = handshake.report;
        let waits_until = report.quarantine.map(|(left, _)| at.after(left));
        Ok(Observation {
            marker,
            report,
            time_us: handshake.time_us,
            at,
            waits_until,
            round_trip: sent.until(at),
            up: server.up,
        })
    }

    /// Rejects a server whose data another one could replace, since its votes could then be lost.
    /// It may get a replica, or become one, at any time. `inspected`: asks for its uptime, too.
    async fn check_server(
        &self,
        context: &RequestContext,
        inspected: bool,
    ) -> Result<ServerState, LockError> {
        let ask = async |section: &str| {
            let info = self.link.command(["INFO", section], None, context.deadline).await?;
            Ok::<String, LockError>(info.as_text().unwrap_or_default().to_owned())
        };
        let listeners = self.link.command(["PUBSUB", "NUMSUB", SENTINELS], None, context.deadline);
        let (replication, listeners) = tokio::join!(ask("replication"), listeners);
        let replication = replication?;
        let field = |name: &str| field(&replication, name);
        if field("role") == "slave" {
            return Err(refused("it is a replica: name independent servers"));
        }
        if self.link.last_facts().is_some_and(|facts| facts.in_cluster) {
            return Err(refused("it belongs to a Redis Cluster: name independent servers"));
        }
        if !matches!(field("connected_slaves"), "0" | "") {
            let message = "it has replicas, and a replica with less data could replace it: \
                           name servers without";
            return Err(refused(message));
        }
        // A user without the right to ask is accepted.
        let listeners = listeners.ok().and_then(|reply| reply.as_array()?.get(1)?.as_integer());
        if listeners.is_some_and(|listeners| listeners > 0) {
            let message = "a Sentinel monitors it, and could replace it by a replica with \
                           less data: name servers without";
            return Err(refused(message));
        }
        let former_master = field("master_replid2");
        let was_replica = former_master.contains(|digit| digit != '0');
        let replica_until =
            was_replica.then(|| format!("{former_master}:{}", field("second_repl_offset")));
        let mut up = None;
        if inspected {
            let server = ask("server").await?;
            up = self::field(&server, "uptime_in_seconds").parse().ok().map(Duration::from_secs);
        }
        Ok(ServerState { replica_until, up })
    }

    /// Sends the node a command; `false` if it does not match the node's state.
    pub(super) async fn send_command(
        &self,
        context: &RequestContext,
        command: &NodeCommand,
    ) -> Result<bool, LockError> {
        let marker = self.observed.lock().current.as_ref().map(|current| current.marker.clone());
        let Some(marker) = marker else { return Ok(false) };
        let reply = self
            .link
            .call_of(Some(&marker), || requests::command(context, &marker, command))
            .await?;
        let accepted = replies::accepted(&reply)?;
        if let NodeCommand::ReportWait { left, passed, .. } = command {
            *self.measurer.lock() = if accepted {
                Measurer::ThisClient(left.saturating_sub(whole_micros(*passed)))
            } else {
                Measurer::OtherClient
            };
        }
        Ok(accepted)
    }

    /// Returns the time of its quarantine that this client has measured and not reported yet.
    pub(super) fn measured(&self, now: Moment) -> Option<NodeCommand> {
        let report = self.observed().current?.with_measured_time(now);
        let (left, _) = report.quarantine?;
        let passed = report.measured;
        let report = NodeCommand::ReportWait { episode: report.id, left, passed };
        (!passed.is_zero()).then_some(report)
    }

    /// Records which client measures: another one, if less is left than this one has reported.
    fn note_measurer(&self, before: Option<&Observation>, current: &Observation) {
        let left = |current: &Observation| current.report.quarantine.map(|(left, _)| left);
        let mut measurer = self.measurer.lock();
        *measurer = match (before, *measurer) {
            (None, _) => Measurer::Unknown,
            (_, Measurer::ThisClient(reported)) if left(current) == Some(reported) => return,
            (Some(before), _) if left(before) != left(current) => Measurer::OtherClient,
            _ => return,
        };
    }

    /// Returns when to ask for the next report in a quarantine. One client measures it; the others
    /// ask often enough to see when that one is gone.
    pub(super) fn next_measurement_in(&self, left: Duration) -> Duration {
        let most = match *self.measurer.lock() {
            Measurer::Unknown => FIRST_INTERVAL,
            Measurer::ThisClient(_) => MEASURING_INTERVAL,
            Measurer::OtherClient => OTHER_MEASURES_INTERVAL,
        };
        left.clamp(MIN_INTERVAL, most)
    }

    /// Draws an id in case the node has lost its data.
    pub(super) fn fresh_id(&self) -> NodeId {
        let mut bytes = [0; 16];
        for part in bytes.chunks_mut(4) {
            part.copy_from_slice(&self.link.random().to_be_bytes());
        }
        NodeId::from_bytes(bytes)
    }
}

/// Returns a field of the reply to `INFO`; an empty text if it is not there.
fn field<'i>(info: &'i str, name: &str) -> &'i str {
    let mut values = info.lines().filter_map(|line| line.trim_end().strip_prefix(name));
    values.find_map(|value| value.strip_prefix(':')).unwrap_or_default()
}

/// Finds two addresses that lead to one run of a server.
pub(super) fn same_run(observed: &[Observed]) -> Option<(usize, usize)> {
    let marker =
        |observed: &Observed| observed.current.as_ref().map(|current| current.marker.clone());
    observed.iter().enumerate().find_map(|(at, one)| {
        let run_id = marker(one)?;
        let other = observed[..at].iter().position(|other| marker(other).as_ref() == Some(&run_id));
        other.map(|other| (other, at))
    })
}

/// Rounds a duration down to what is sent to a node.
fn whole_micros(duration: Duration) -> Duration {
    duration.saturating_sub(Duration::from_nanos(u64::from(duration.subsec_nanos() % 1_000)))
}
