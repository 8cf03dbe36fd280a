//! The metrics. A lock name is never a label: there may be any number of them.

use std::borrow::Cow;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::config::DEFAULT_STORE;

/// From a tenth of a millisecond to minutes.
fn times() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 4.0, 12))
}

type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// Marks an answer whose request waited for a lock.
#[derive(Clone)]
pub(crate) struct Waited;

/// The metrics of one server.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Labels<2>, Counter>,
    acquire: Family<Labels<2>, Counter>,
    wait: Family<Labels<1>, Histogram>,
    request_time: Family<Labels<2>, Histogram>,
    lost: Family<Labels<1>, Counter>,
    unrecorded: Family<Labels<1>, Counter>,
    waiting: Gauge,
    streams: Gauge,
    sessions: Gauge,
    leases: Gauge,
    connections: Gauge,
    connections_refused: Counter,
    store_up: Family<Labels<1>, Gauge>,
    foreign_keys: Family<Labels<1>, Gauge>,
    keys_without_expiry: Family<Labels<1>, Gauge>,
    long_holds: Family<Labels<2>, Gauge>,
}

/// How much of what is limited is open now.
pub(crate) struct OpenCounts {
    pub(crate) waiting: usize,
    pub(crate) streams: usize,
    pub(crate) sessions: usize,
    pub(crate) leases: usize,
}

/// What other libraries keep in a store.
#[derive(Debug, Default)]
pub(crate) struct SharedKeys {
    /// Their holders.
    pub(crate) foreign: usize,
    /// Holders that the store never ends.
    pub(crate) without_expiry: usize,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("holdline"),
            requests: Family::default(),
            acquire: Family::default(),
            wait: Family::new_with_constructor(times),
            request_time: Family::new_with_constructor(times),
            lost: Family::default(),
            unrecorded: Family::default(),
            waiting: Gauge::default(),
            streams: Gauge::default(),
            sessions: Gauge::default(),
            leases: Gauge::default(),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            store_up: Family::default(),
            foreign_keys: Family::default(),
            keys_without_expiry: Family::default(),
            long_holds: Family::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version of the server", version);
        registry.register("http_requests", "Requests by path and status", self.requests.clone());
        registry.register_with_unit(
            "http_request",
            "How long requests took that did not wait for a lock",
            Unit::Seconds,
            self.request_time.clone(),
        );
        registry.register("acquire", "Attempts by their outcome", self.acquire.clone());
        registry.register_with_unit(
            "wait",
            "How long attempts took until they ended",
            Unit::Seconds,
            self.wait.clone(),
        );
        registry.register("lost", "Leases that were lost", self.lost.clone());
        registry.register(
            "audit_unrecorded",
            "Actions of operators of which neither the store nor the audit file has a record",
            self.unrecorded.clone(),
        );
        registry.register("waiting", "Requests that wait for a lock", self.waiting.clone());
        registry.register("event_streams", "Open event streams", self.streams.clone());
        registry.register("sessions", "Open sessions", self.sessions.clone());
        registry.register(
            "leases",
            "Leases that this server has granted or renewed, and that are not over",
            self.leases.clone(),
        );
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "connections_refused",
            "Connections that were closed at once, since their address had too many",
            self.connections_refused.clone(),
        );
        registry.register(
            "store_up",
            "Whether the store answered when the server last looked",
            self.store_up.clone(),
        );
        registry.register(
            "foreign_keys",
            "Locks that clients of other libraries held when the server last counted",
            self.foreign_keys.clone(),
        );
        registry.register(
            "keys_without_expiry",
            "Lock keys that the store never ends, when the server last counted",
            self.keys_without_expiry.clone(),
        );
        registry.register(
            "long_holds",
            "Holds that had lasted longer than their limit when the server last counted",
            self.long_holds.clone(),
        );
    }

    /// Counts a request. `path` is the pattern of the route, never the path itself. `took` is
    /// absent if the request waited for a lock: that time says nothing about the server.
    pub(crate) fn request(&self, path: &str, status: u16, took: Option<Duration>) {
        let status = match status {
            200 => "200".into(),
            other => other.to_string().into(),
        };
        let labels = [("path", path.to_owned().into()), ("status", status)];
        self.requests.get_or_create(&labels).inc();
        let Some(took) = took else { return };
        let (store, path) = store_of(path);
        let labels = [("store", store.to_owned().into()), ("path", path.to_owned().into())];
        self.request_time.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Begins the metrics of a store, which is taken to answer.
    pub(crate) fn store(&self, store: &str) {
        drop(self.lost.get_or_create(&of(store)));
        drop(self.unrecorded.get_or_create(&of(store)));
        self.store_up(store, true);
        self.shared_keys(store, &SharedKeys::default());
    }

    /// Counts an attempt to acquire.
    pub(crate) fn acquired(&self, store: &str, outcome: &'static str, waited: Duration) {
        self.wait.get_or_create(&of(store)).observe(waited.as_secs_f64());
        let [store] = of(store);
        self.acquire.get_or_create(&[store, ("outcome", outcome.into())]).inc();
    }

    /// Counts a lease that was lost.
    pub(crate) fn lost(&self, store: &str) {
        self.lost.get_or_create(&of(store)).inc();
    }

    /// Counts an operator's action of which there is no record.
    pub(crate) fn unrecorded(&self, store: &str) {
        self.unrecorded.get_or_create(&of(store)).inc();
    }

    /// Notes whether the store answers.
    pub(crate) fn store_up(&self, store: &str, up: bool) {
        self.store_up.get_or_create(&of(store)).set(i64::from(up));
    }

    /// Notes what other libraries keep in the store.
    pub(crate) fn shared_keys(&self, store: &str, keys: &SharedKeys) {
        self.foreign_keys.get_or_create(&of(store)).set(number(keys.foreign));
        self.keys_without_expiry.get_or_create(&of(store)).set(number(keys.without_expiry));
    }

    /// Notes how many holds of names with a prefix last too long.
    pub(crate) fn long_holds(&self, store: &str, prefix: &str, count: usize) {
        self.long_holds.get_or_create(&of_prefix(store, prefix)).set(number(count));
    }

    /// Ends what is noted of a prefix that has no limit any more.
    pub(crate) fn forget_long_holds(&self, store: &str, prefix: &str) {
        self.long_holds.remove(&of_prefix(store, prefix));
    }

    /// Counts a connection that was opened, or closed.
    pub(crate) fn connection(&self, opened: bool) {
        if opened {
            self.connections.inc();
        } else {
            self.connections.dec();
        }
    }

    /// Counts a connection that was closed at once.
    pub(crate) fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    /// Writes all metrics.
    pub(crate) fn text(&self, open: &OpenCounts) -> Option<String> {
        self.waiting.set(number(open.waiting));
        self.streams.set(number(open.streams));
        self.sessions.set(number(open.sessions));
        self.leases.set(number(open.leases));
        let mut text = String::new();
        encode(&mut text, &self.registry).ok()?;
        Some(text)
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Divides the pattern of a route into the name of the store and the pattern within it.
fn store_of(path: &str) -> (&str, &str) {
    let rest = path.strip_prefix("/stores/");
    let named = rest.and_then(|rest| rest.find('/').map(|end| rest.split_at(end)));
    named.unwrap_or((DEFAULT_STORE, path))
}

fn of_prefix(store: &str, prefix: &str) -> Labels<2> {
    let [store] = of(store);
    [store, ("prefix", prefix.to_owned().into())]
}

fn of(store: &str) -> Labels<1> {
    [("store", store.to_owned().into())]
}
