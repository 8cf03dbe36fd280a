//! The library's events, for Python's `logging`.
//!
//! Events are stored, and a thread of Python's takes them: a thread of the library neither waits
//! for the interpreter (P1 of the crate) nor for a mutex that was locked at a fork.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::notifier::{Channel, Notifier};

/// How many events wait at most; later ones are counted and left out.
const CAPACITY: usize = 1_000;
/// How long an event waits for the store of events: nobody keeps it locked for longer.
const PATIENCE: Duration = Duration::from_millis(10);

/// The largest level that is stored: a number of Python's `logging`.
static LEVEL: AtomicU8 = AtomicU8::new(u8::MAX);
static STORED: Mutex<Stored> =
    Mutex::new(Stored { events: Vec::new(), left_out: 0, channel: None });

struct Stored {
    events: Vec<(u8, String, String)>,
    left_out: u64,
    channel: Option<Arc<Channel>>,
}

/// Stores events of this level and above, as `logging` numbers them, and wakes the notifier.
#[pyfunction]
pub(crate) fn set_log_level(level: u8, notifier: &Notifier) {
    static INSTALLED: Once = Once::new();
    if let Some(mut stored) = STORED.try_lock_for(PATIENCE) {
        stored.channel = Some(notifier.channel().clone());
    }
    LEVEL.store(level, Ordering::Relaxed);
    INSTALLED.call_once(|| {
        // It fails only if there is a subscriber, and this library has its own copy of `tracing`.
        let _ = tracing::subscriber::set_global_default(Logs);
    });
    tracing::callsite::rebuild_interest_cache();
}

/// Takes the stored events, `(level, logger, message)`, and how many were left out.
#[pyfunction]
pub(crate) fn take_logs() -> (Vec<(u8, String, String)>, u64) {
    match STORED.try_lock_for(PATIENCE) {
        Some(mut stored) => {
            (std::mem::take(&mut stored.events), std::mem::take(&mut stored.left_out))
        }
        None => (Vec::new(), 0),
    }
}

/// The number of `logging` for a level; it has no TRACE.
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

struct Logs;

impl Subscriber for Logs {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && number(*metadata.level()) >= LEVEL.load(Ordering::Relaxed)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match LEVEL.load(Ordering::Relaxed) {
            0..=5 => LevelFilter::TRACE,
            6..=10 => LevelFilter::DEBUG,
            11..=20 => LevelFilter::INFO,
            21..=30 => LevelFilter::WARN,
            31..=40 => LevelFilter::ERROR,
            _ => LevelFilter::OFF,
        })
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Id::from_u64(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let logger = metadata.target().replace("::", ".");
        let Some(mut stored) = STORED.try_lock_for(PATIENCE) else { return };
        if stored.events.len() >= CAPACITY {
            stored.left_out += 1;
            return;
        }
        stored.events.push((number(*metadata.level()), logger, text.message + &text.fields));
        let channel = stored.channel.clone();
        drop(stored);
        if let Some(channel) = channel {
            channel.signal();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message, and the fields as `key=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
