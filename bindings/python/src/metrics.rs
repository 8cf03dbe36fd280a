//! The library's metrics, added up here, and read by Python when somebody asks.
//!
//! Threads of the library only add to numbers: no Python code runs for an event, and none is lost
//! (P1 of the crate). A forked child starts with none of its parent's.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once, OnceLock};

use metrics::atomics::AtomicU64;
use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;

/// The upper bounds of the buckets: those of docs/metrics.md, which the alerts need.
const BUCKETS: [f64; 10] = [0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0];

static FIRST: Generation = Generation::new();

/// The numbers of one process. A forked child begins a new generation: a thread of its parent may
/// have left the old one locked for ever.
struct Generation {
    table: Mutex<Table>,
    next: OnceLock<Box<Generation>>,
}

/// The metrics of a process.
struct Table {
    /// The kind and the help text of each name.
    about: BTreeMap<String, (&'static str, String)>,
    counters: BTreeMap<Key, Arc<AtomicU64>>,
    gauges: BTreeMap<Key, Arc<AtomicU64>>,
    histograms: BTreeMap<Key, Arc<Sums>>,
}

impl Generation {
    const fn new() -> Generation {
        let table = Table {
            about: BTreeMap::new(),
            counters: BTreeMap::new(),
            gauges: BTreeMap::new(),
            histograms: BTreeMap::new(),
        };
        Generation { table: Mutex::new(table), next: OnceLock::new() }
    }

    /// The generation of this process.
    fn current() -> &'static Generation {
        let mut generation = &FIRST;
        while let Some(next) = generation.next.get() {
            generation = next;
        }
        generation
    }
}

/// What a histogram has received.
#[derive(Default)]
struct Sums(Mutex<[Bucket; BUCKETS.len() + 1]>);

/// How many values fell into a bucket, and their sum.
#[derive(Clone, Copy, Default)]
struct Bucket {
    count: u64,
    sum: f64,
}

impl HistogramFn for Sums {
    fn record(&self, value: f64) {
        let at = BUCKETS.partition_point(|bound| *bound < value);
        let mut buckets = self.0.lock();
        buckets[at].count += 1;
        buckets[at].sum += value;
    }
}

fn table() -> MutexGuard<'static, Table> {
    Generation::current().table.lock()
}

/// The recorder of the library's facade.
struct Numbers;

impl Recorder for Numbers {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        describe("counter", &name, &help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        describe("gauge", &name, &help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        describe("histogram", &name, &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(table().counters.entry(key.clone()).or_default().clone())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(table().gauges.entry(key.clone()).or_default().clone())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(table().histograms.entry(key.clone()).or_default().clone())
    }
}

fn describe(kind: &'static str, name: &KeyName, help: &str) {
    table().about.insert(name.as_str().to_owned(), (kind, help.to_owned()));
}

/// Has the library describe all metrics to the recorder, if there is one.
fn describe_all() {
    let _ = holdline::metrics::fence_observer();
}

/// Adds up metrics from now on: of clients that are made with them, and of fences.
#[pyfunction]
pub(crate) fn start_metrics() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // It fails only if there is a recorder, and this library has its own copy of `metrics`.
        let _ = metrics::set_global_recorder(Numbers);
    });
    describe_all();
}

/// Forgets the parent's numbers in a forked child, which has only this thread.
#[pyfunction]
pub(crate) fn forget_metrics() {
    // It fails only if it is called by two threads at once.
    let _ = Generation::current().next.set(Box::new(Generation::new()));
    describe_all();
}

/// The upper bounds of the buckets of all histograms, without the last, which has none.
#[pyfunction]
pub(crate) fn metric_buckets() -> Vec<f64> {
    BUCKETS.to_vec()
}

type Labels = Vec<(String, String)>;
/// Labels, a value, and the count and the sum of each bucket of a histogram.
type Series = (Labels, f64, Vec<(u64, f64)>);
/// Name, kind, help, and its series.
type Family = (String, &'static str, String, Vec<Series>);

fn labels(key: &Key) -> Labels {
    key.labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect()
}

/// All metrics as they are now.
#[pyfunction]
pub(crate) fn read_metrics() -> Vec<Family> {
    let table = table();
    let mut series: BTreeMap<&str, Vec<Series>> = BTreeMap::new();
    for (key, value) in &table.counters {
        // A count is far below 2^53, so it is exact.
        let value = value.load(Ordering::Relaxed) as f64;
        series.entry(key.name()).or_default().push((labels(key), value, Vec::new()));
    }
    for (key, value) in &table.gauges {
        let value = f64::from_bits(value.load(Ordering::Relaxed));
        series.entry(key.name()).or_default().push((labels(key), value, Vec::new()));
    }
    for (key, sums) in &table.histograms {
        let buckets = sums.0.lock().iter().map(|bucket| (bucket.count, bucket.sum)).collect();
        series.entry(key.name()).or_default().push((labels(key), 0.0, buckets));
    }
    let families = table.about.iter();
    let families = families.map(|(name, (kind, help))| {
        let of_name = series.remove(name.as_str()).unwrap_or_default();
        (name.clone(), *kind, help.clone(), of_name)
    });
    families.collect()
}
