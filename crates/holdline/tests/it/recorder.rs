//! A recorder of metrics that keeps everything, for the tests to look at.

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use parking_lot::Mutex;

/// The values of one metric: a count or the value of a gauge, or all values of a histogram.
#[derive(Default)]
struct Values(Mutex<Vec<f64>>);

impl Values {
    fn add(&self, change: f64) {
        let mut values = self.0.lock();
        let before = values.pop().unwrap_or(0.0);
        *values = vec![before + change];
    }
}

impl CounterFn for Values {
    fn increment(&self, by: u64) {
        self.add(f64::from(u32::try_from(by).expect("few")));
    }

    fn absolute(&self, _: u64) {
        panic!("no counter of ours is set");
    }
}

impl GaugeFn for Values {
    fn increment(&self, by: f64) {
        self.add(by);
    }

    fn decrement(&self, by: f64) {
        self.add(-by);
    }

    fn set(&self, value: f64) {
        *self.0.lock() = vec![value];
    }
}

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        self.0.lock().push(value);
    }
}

/// All metrics by name and labels. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Recorded(Arc<Mutex<BTreeMap<String, Arc<Values>>>>);

impl Recorded {
    fn values_of(&self, key: &Key) -> Arc<Values> {
        let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value()));
        let key = format!("{} {}", key.name(), labels.collect::<Vec<_>>().join(","));
        self.0.lock().entry(key).or_default().clone()
    }

    /// The values under a name and labels; none of what was never recorded.
    pub(crate) fn values(&self, key: &str) -> Vec<f64> {
        self.0.lock().get(key).map_or_else(Vec::new, |values| values.0.lock().clone())
    }

    /// Everything.
    pub(crate) fn all(&self) -> BTreeMap<String, Vec<f64>> {
        let all = self.0.lock();
        all.iter().map(|(key, values)| (key.clone(), values.0.lock().clone())).collect()
    }
}

impl std::fmt::Debug for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.all().fmt(f)
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.values_of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.values_of(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.values_of(key))
    }
}
