//! Metrics and spans: `lock` and `release` with them on, against the same without.
//!
//! The recorder keeps what an exporter for Prometheus keeps: counts, gauges, and for each histogram
//! a sum and eleven buckets. The subscriber keeps the fields of each span until it ends, as that of
//! an exporter does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ::metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use holdline::{Client, ClientOptions, LockOptions};
use holdline_services::{RedisConfig, RedisServer};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};

use crate::rounds::{Failure, ROUNDS, Round, each, report};

const MEMORY_CYCLES: usize = 200_000;
const REDIS_CYCLES: usize = 4_000;
/// The upper ends of the buckets, in seconds.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Keeps every metric for itself: a program holds the handles, so nobody need find them again.
struct Keeping;

#[derive(Default)]
struct Buckets {
    counts: [AtomicU64; BUCKETS.len() + 1],
    sum: AtomicU64,
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        let bucket = BUCKETS.iter().position(|end| value <= *end).unwrap_or(BUCKETS.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |sum: u64| Some((f64::from_bits(sum) + value).to_bits());
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

impl Recorder for Keeping {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(AtomicU64::new(0)))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(AtomicU64::new(0)))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Buckets::default()))
    }
}

pub(crate) fn section() -> Result<(), Failure> {
    // A second one is refused, and serves as well.
    let _ = ::metrics::set_global_recorder(Keeping);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let memory = runtime.block_on(rounds("memory:bench-metrics", MEMORY_CYCLES))?;
    report("memory: lock + release, metrics on against off", &memory, "at most 1.3");
    let spans = runtime.block_on(spans("memory:bench-spans", MEMORY_CYCLES))?;
    report("memory: lock + release, spans on against off", &spans, "measured, no budget");
    let server = RedisServer::start(RedisConfig::default());
    let redis = runtime.block_on(rounds(&server.url(), REDIS_CYCLES))?;
    report("redis: lock + release, metrics on against off", &redis, "about 1");
    Ok(())
}

async fn rounds(url: &str, cycles: usize) -> Result<Vec<Round>, Failure> {
    let off = Client::connect(url).await?;
    let on = Client::connect_with(url, ClientOptions::default().with_metrics()).await?;
    let options = LockOptions::default().with_class("stock/{id}");
    let (off, on) = (off.mutex_with("stock/1", &options)?, on.mutex_with("stock/2", &options)?);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..cycles {
            let _ = off.lock().await?.release().await;
        }
        let floor = each(start.elapsed(), cycles);
        let start = Instant::now();
        for _ in 0..cycles {
            let _ = on.lock().await?.release().await;
        }
        rounds.push(Round { floor, subject: each(start.elapsed(), cycles) });
    }
    Ok(rounds)
}

async fn spans(url: &str, cycles: usize) -> Result<Vec<Round>, Failure> {
    let client = Client::connect(url).await?;
    let mutex = client.mutex("stock/1")?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..cycles {
            let _ = mutex.lock().await?.release().await;
        }
        let floor = each(start.elapsed(), cycles);
        let wanted = Targets::new().with_target("holdline::spans", LevelFilter::DEBUG);
        let kept = tracing_subscriber::fmt::layer().with_writer(std::io::sink).with_filter(wanted);
        let subscriber = tracing_subscriber::registry().with(kept);
        let _here = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber);
        let start = Instant::now();
        for _ in 0..cycles {
            let _ = mutex.lock().await?.release().await;
        }
        rounds.push(Round { floor, subject: each(start.elapsed(), cycles) });
    }
    Ok(rounds)
}
