//! Metrics by the facade crate `metrics`, for whatever exporter the program has installed.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), holdline::LockError> {
//! use holdline::{Client, ClientOptions, LockOptions};
//!
//! // First install a recorder, such as the one of `metrics-exporter-prometheus`.
//! let options = ClientOptions::default().with_metrics();
//! let client = Client::connect_with("memory:metrics", options).await?;
//! let options = LockOptions::default().with_class("invoice:{id}");
//! client.mutex_with("invoice:4711", &options)?.lock().await?.release().await.into_result()?;
//! # Ok(())
//! # }
//! ```
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `holdline_acquire_total` | counter | `engine`, `class`, `outcome`: `acquired`, `busy`, `timeout`, `cancelled`, `error` |
//! | `holdline_wait_seconds` | histogram | `engine`, `class`, `outcome`: `acquired`, `timeout`, `cancelled` |
//! | `holdline_hold_seconds` | histogram | `engine`, `class`, `end`: `released`, `dropped`, `detached`, `lost` |
//! | `holdline_lost_total` | counter | `engine`, `class`, `reason`: `expired`, `max_hold`, `ran_out`, `missing`, `revoked`, `store_gone`, `released`, `other` |
//! | `holdline_lease_slack_seconds` | histogram | `engine`, `class`: how long the lease was still valid at each renewal; small values are near misses |
//! | `holdline_held`, `holdline_waiting` | gauge | `engine`, `class` |
//! | `holdline_store_op_seconds` | histogram | `engine`, `op`: `acquire`, `renew`, `release`, `inspect`, `list`, `operate`; `outcome`: `ok`, `error`. Requests that an engine answers without I/O, or whose answer nobody waited for, are not in it |
//! | `holdline_node_up`, `holdline_node_votes` | gauge | `engine`, `node` (its address): 1 or 0; only of a quorum, as the next ones |
//! | `holdline_node_quarantine_seconds` | gauge | `engine`, `node`: how long it gives no vote yet; 0 without a quarantine |
//! | `holdline_clock_drift_seconds` | gauge | `engine`, `node`: how far its clock is ahead of the median of the nodes |
//! | `holdline_quorum_margin` | gauge | `engine`: how many nodes more than a majority vote; negative without a majority |
//! | `holdline_fenced_rejects_total` | counter | `reason`: `stale`, `too_far`, `other_name` ([`fence_observer`]) |
//! | `holdline_build_info` | gauge | `version`; always 1 |
//!
//! A lock name is never a label: the *class* is ([`LockOptions::with_class`], or a rule of the
//! client). All of it comes from [`Observer`], so what is missing here you can count yourself.
//!
//! [`LockOptions::with_class`]: crate::LockOptions::with_class

mod engine;
mod names;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use holdline_core::{Clock, Engine, ErrorKind, FencingToken, LockError, QuorumHealth};
use holdline_fence::{FenceError, Refusal};

use crate::observer::class::{Class, Classes};
use crate::observer::{Both, HoldEnd, Observer, Subject, failure_outcome};
use engine::MeteredEngine;

/// Returns an observer that counts the refusals of a fence in `holdline_fenced_rejects_total`: for
/// [`Rules::with_observer`](crate::fence::Rules::with_observer).
pub fn fence_observer() -> Arc<dyn Observer> {
    names::describe();
    Arc::new(FenceMetrics)
}

/// Has the engine and the observers of a client record metrics.
pub(crate) fn attach(
    engine: Arc<dyn Engine>,
    observer: Option<Arc<dyn Observer>>,
    clock: Arc<dyn Clock>,
) -> (Arc<dyn Engine>, Option<Arc<dyn Observer>>) {
    names::describe();
    gauge!(names::BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1);
    let metrics: Arc<dyn Observer> = Arc::new(ClientMetrics::new(engine.capabilities().engine));
    let observer: Arc<dyn Observer> = match observer {
        Some(theirs) => Arc::new(Both(theirs, metrics)),
        None => metrics,
    };
    (Arc::new(MeteredEngine::new(engine, clock)), Some(observer))
}

/// The metrics of one client.
struct ClientMetrics {
    engine: &'static str,
    /// By [`Class::index`]. Looking a metric up by its labels costs more than a lock in memory.
    classes: Box<[OnceLock<ClassMetrics>]>,
}

/// What each lock of a class moves.
struct ClassMetrics {
    acquired: Counter,
    waited: Histogram,
    released: Histogram,
    held: Gauge,
    waiting: Gauge,
    slack: Histogram,
}

impl ClientMetrics {
    fn new(engine: &'static str) -> ClientMetrics {
        ClientMetrics { engine, classes: (0..Classes::COUNT).map(|_| OnceLock::new()).collect() }
    }

    fn of(&self, class: &Class) -> &ClassMetrics {
        self.classes[class.index()].get_or_init(|| ClassMetrics::new(self.engine, class.name()))
    }

    fn count_outcome(&self, subject: Subject<'_>, outcome: &'static str, waited: Option<Duration>) {
        let engine = self.engine;
        let class = subject.class.name().to_owned();
        counter!(
            names::ACQUIRE_TOTAL,
            "engine" => engine, "class" => class.clone(), "outcome" => outcome,
        )
        .increment(1);
        if let Some(waited) = waited {
            histogram!(
                names::WAIT_SECONDS,
                "engine" => engine, "class" => class, "outcome" => outcome,
            )
            .record(waited);
        }
    }
}

impl ClassMetrics {
    fn new(engine: &'static str, class: &str) -> ClassMetrics {
        let class = class.to_owned();
        ClassMetrics {
            acquired: counter!(
                names::ACQUIRE_TOTAL,
                "engine" => engine, "class" => class.clone(), "outcome" => "acquired",
            ),
            waited: histogram!(
                names::WAIT_SECONDS,
                "engine" => engine, "class" => class.clone(), "outcome" => "acquired",
            ),
            released: histogram!(
                names::HOLD_SECONDS,
                "engine" => engine, "class" => class.clone(), "end" => "released",
            ),
            held: gauge!(names::HELD, "engine" => engine, "class" => class.clone()),
            waiting: gauge!(names::WAITING, "engine" => engine, "class" => class.clone()),
            slack: histogram!(
                names::LEASE_SLACK_SECONDS, "engine" => engine, "class" => class,
            ),
        }
    }
}

impl Observer for ClientMetrics {
    fn acquired(&self, subject: Subject<'_>, _: FencingToken, waited: Duration) {
        let metrics = self.of(subject.class);
        metrics.acquired.increment(1);
        metrics.waited.record(waited);
        metrics.held.increment(1);
    }

    fn attached(&self, subject: Subject<'_>, _: FencingToken) {
        self.of(subject.class).held.increment(1);
    }

    fn failed(&self, subject: Subject<'_>, error: &LockError) {
        let waited = match error.kind() {
            ErrorKind::TimedOut { waited, .. } => Some(*waited),
            _ => None,
        };
        self.count_outcome(subject, failure_outcome(error), waited);
    }

    fn cancelled(&self, subject: Subject<'_>, waited: Duration) {
        self.count_outcome(subject, "cancelled", Some(waited));
    }

    fn wait_started(&self, subject: Subject<'_>) {
        self.of(subject.class).waiting.increment(1);
    }

    fn wait_finished(&self, subject: Subject<'_>) {
        self.of(subject.class).waiting.decrement(1);
    }

    fn renewed(&self, subject: Subject<'_>, slack: Duration) {
        self.of(subject.class).slack.record(slack);
    }

    fn ended(&self, subject: Subject<'_>, end: &HoldEnd, held_for: Duration) {
        let metrics = self.of(subject.class);
        metrics.held.decrement(1);
        if *end == HoldEnd::Released {
            return metrics.released.record(held_for);
        }
        let engine = self.engine;
        let class = subject.class.name().to_owned();
        histogram!(
            names::HOLD_SECONDS, "engine" => engine, "class" => class.clone(), "end" => end.word(),
        )
        .record(held_for);
        if let HoldEnd::Lost(reason) = end {
            let reason = reason.word();
            counter!(
                names::LOST_TOTAL, "engine" => engine, "class" => class, "reason" => reason,
            )
            .increment(1);
        }
    }

    fn quorum_health(&self, health: &QuorumHealth) {
        let engine = health.engine;
        gauge!(names::QUORUM_MARGIN, "engine" => engine).set(health.margin);
        for node in &health.nodes {
            let set = |name: &'static str, value: f64| {
                gauge!(name, "engine" => engine, "node" => node.address.clone()).set(value);
            };
            set(names::NODE_UP, f64::from(u8::from(node.up)));
            set(names::NODE_VOTES, f64::from(u8::from(node.votes)));
            set(names::NODE_QUARANTINE_SECONDS, node.quarantine.as_secs_f64());
            if let Some(drift) = node.clock_drift_us {
                // Far below 2^53, so it is exact.
                set(names::CLOCK_DRIFT_SECONDS, drift as f64 / 1e6);
            }
        }
    }

    fn fence_refused(&self, refusal: &Refusal<'_>) {
        FenceMetrics.fence_refused(refusal);
    }
}

/// Counts what a fence refuses.
struct FenceMetrics;

impl Observer for FenceMetrics {
    fn fence_refused(&self, refusal: &Refusal<'_>) {
        let reason = match refusal.error {
            FenceError::TooFar { .. } => "too_far",
            FenceError::OtherName { .. } => "other_name",
            _ => "stale",
        };
        counter!(names::FENCED_REJECTS_TOTAL, "reason" => reason).increment(1);
    }
}
