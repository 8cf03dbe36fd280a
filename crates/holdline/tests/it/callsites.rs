//! Makes spans certain to reach a subscriber that one thread sets.
//!
//! Tracing decides once for each place that makes a span whether anybody wants it. A thread without
//! a subscriber that comes to such a place first, while another thread sets its subscriber, can
//! leave the place off for both. Therefore a test comes to its places before it sets its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

/// How often a place may be found in the middle of another thread's decision.
const TRIES: usize = 10_000;

/// Wants every span, and notes which come and whether a decision on one was still open.
#[derive(Default)]
struct Probe {
    seen: Mutex<BTreeSet<&'static str>>,
    open: AtomicBool,
}

/// Runs `action` until tracing has decided on the spans of these names, each of which it makes.
pub(crate) async fn decided(spans: &[&'static str], action: impl AsyncFn()) {
    for _ in 0..TRIES {
        let probe = Arc::new(Probe::default());
        let here = tracing::subscriber::set_default(probe.clone());
        tracing::callsite::rebuild_interest_cache();
        action().await;
        drop(here);
        let seen = probe.seen.lock();
        if spans.iter().all(|name| seen.contains(name)) && !probe.open.load(Ordering::Relaxed) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("tracing does not decide on {spans:?}");
}

impl Subscriber for Probe {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.is_span() { Interest::always() } else { Interest::never() }
    }

    /// It is asked only if no decision stands: not after "always" of all subscribers.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.open.fetch_or(metadata.is_span(), Ordering::Relaxed);
        metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.seen.lock().insert(span.metadata().name());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
