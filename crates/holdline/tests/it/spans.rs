//! The spans that are reported to tracing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use holdline::LockOptions;

use crate::support::{client, engine, settle};

/// Writes down the names and fields of all spans.
#[derive(Clone, Default)]
struct Notes(Arc<Inner>);

#[derive(Default)]
struct Inner {
    next: AtomicU64,
    lines: Mutex<Vec<String>>,
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = span.metadata().name().to_owned();
        span.record(&mut Line(&mut line));
        self.0.lines.lock().push(line);
        Id::from_u64(self.0.next.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut line = "recorded".to_owned();
        values.record(&mut Line(&mut line));
        self.0.lines.lock().push(line);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_wait_and_a_hold_have_spans_and_the_wait_knows_the_holder() {
    let notes = Notes::default();
    let _here = tracing::subscriber::set_default(notes.clone());
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let options = LockOptions::default().with_traceparent(trace);
    let mutex = client.mutex_with("a", &options).expect("fits");
    let first = mutex.lock().await.expect("free");
    let waiter = tokio::spawn(mutex.lock_owned());
    settle().await;
    first.release().await;
    waiter.await.expect("no panic").expect("handed over").release().await;
    let lines = notes.0.lines.lock();
    let count = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!((count("lock.hold name=a"), count("lock.wait name=a")), (2, 1), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains(trace)), "{lines:?}");
}
