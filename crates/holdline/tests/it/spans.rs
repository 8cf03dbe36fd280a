//! The spans that are reported to tracing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

use holdline::admin::Operation;
use holdline::{Keep, LockOptions};

use crate::callsites::decided;
use crate::support::{client, engine, locked, name, pass, settle};

/// One span: its fields, and whether it has ended.
#[derive(Clone, Debug, Default)]
struct Noted {
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
    handles: u32,
}

impl Noted {
    fn is(&self, field: &str, value: &str) -> bool {
        self.fields.get(field).is_some_and(|text| text == value)
    }
}

/// Writes down all spans, in the order in which they began.
#[derive(Clone, Default)]
struct Notes(Arc<Inner>);

#[derive(Default)]
struct Inner {
    spans: Mutex<Vec<Noted>>,
    entered: Mutex<Vec<u64>>,
    unknown: AtomicU64,
}

impl Notes {
    /// The spans of locks that have ended, by name and outcome; and how many have not.
    fn outcomes(&self) -> (Vec<(&'static str, String)>, usize) {
        let spans = self.0.spans.lock();
        let locks = spans.iter().filter(|span| span.name.starts_with("lock."));
        let (ended, open): (Vec<_>, Vec<_>) = locks.partition(|span| span.handles == 0);
        let outcome = |span: &Noted| span.fields.get("lock.outcome").cloned().unwrap_or_default();
        (ended.into_iter().map(|span| (span.name, outcome(span))).collect(), open.len())
    }

    fn all(&self, name: &str) -> Vec<Noted> {
        self.0.spans.lock().iter().filter(|span| span.name == name).cloned().collect()
    }

    fn of(&self, id: &Id, change: impl FnOnce(&mut Noted)) {
        let mut spans = self.0.spans.lock();
        match spans.get_mut(usize::try_from(id.into_u64() - 1).expect("few")) {
            Some(noted) => change(noted),
            None => drop(self.0.unknown.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

impl Visit for Noted {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let here = self.0.entered.lock().last().copied();
        let parent = if span.is_contextual() { here } else { span.parent().map(Id::into_u64) };
        let name = span.metadata().name();
        let mut noted = Noted { name, parent, handles: 1, ..Noted::default() };
        span.record(&mut noted);
        let mut spans = self.0.spans.lock();
        spans.push(noted);
        Id::from_u64(u64::try_from(spans.len()).expect("few"))
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.of(id, |noted| values.record(noted));
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.of(id, |noted| noted.handles += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        self.of(&id, |noted| noted.handles -= 1);
        false
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.0.entered.lock().push(id.into_u64());
    }

    fn exit(&self, id: &Id) {
        let mut entered = self.0.entered.lock();
        assert_eq!(entered.pop(), Some(id.into_u64()), "they nest");
    }
}

/// Begins to write down the spans of this thread.
async fn begin() -> (Notes, DefaultGuard) {
    decided(&["lock.wait", "lock.hold"], async || {
        let (engine, clock) = engine();
        let mutex = client(engine, &clock, 1).mutex("before").expect("good");
        let _ = mutex.lock().await.expect("free").release().await;
    })
    .await;
    let notes = Notes::default();
    (notes.clone(), tracing::subscriber::set_default(notes))
}

#[tokio::test]
async fn a_wait_and_a_hold_have_spans_and_the_wait_knows_the_holder() {
    let (notes, _here) = begin().await;
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let options = LockOptions::default().with_traceparent(trace).with_class("letter");
    let mutex = client.mutex_with("a", &options).expect("fits");
    let first = mutex.lock().await.expect("free");
    let waiter = tokio::spawn(locked(mutex));
    settle().await;
    let (id, token) = (first.lease_id(), first.fencing_token());
    let _ = first.release().await;
    let _ = waiter.await.expect("no panic").expect("handed over").release().await;
    let (waits, holds) = (notes.all("lock.wait"), notes.all("lock.hold"));
    assert_eq!((waits.len(), holds.len()), (2, 2), "{waits:?} {holds:?}");
    for span in waits.iter().chain(&holds) {
        for (field, value) in [
            ("lock.name", "a"),
            ("lock.class", "letter"),
            ("lock.mode", "exclusive"),
            ("lock.engine", "memory"),
            ("otel.kind", "internal"),
        ] {
            assert!(span.is(field, value), "{field}: {span:?}");
        }
        assert!(!span.fields.contains_key("db.system.name"), "memory is no database: {span:?}");
        assert!(!span.fields.contains_key("otel.status_code"), "nothing failed: {span:?}");
        assert_eq!(span.handles, 0, "it has ended: {span:?}");
    }
    let lease_id = |span: &Noted| span.fields["lock.lease_id"].clone();
    assert_eq!(lease_id(&holds[0]), lease_id(&waits[0]));
    assert!(holds[0].is("lock.lease_id", &id.short().to_string()), "not the whole id: {holds:?}");
    assert!(holds[0].is("lock.fencing_token", &token.to_string()), "{holds:?}");
    assert!(waits[0].is("lock.fencing_token", &token.to_string()), "{waits:?}");
    let blocked = |span: &Noted| span.fields.contains_key("lock.blocked_by.holder");
    assert!(!blocked(&waits[0]) && blocked(&waits[1]), "{waits:?}");
    assert!(waits[1].is("lock.blocked_by.traceparent", trace), "{waits:?}");
    assert_eq!(notes.0.unknown.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn each_end_of_a_wait_and_of_a_hold_is_its_outcome() {
    let (notes, _here) = begin().await;
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let second = Duration::from_secs(1);
    let lock = |options: LockOptions| client.mutex_with("a", &options).expect("fits");
    let plain = lock(LockOptions::default());
    let guard = plain.lock().await.expect("free");
    plain.try_lock().await.expect_err("held");
    let limited = tokio::spawn(locked(lock(LockOptions::default().with_wait(second))));
    let cancelled = tokio::spawn(locked(plain.clone()));
    settle().await;
    pass(&clock, 2 * second).await;
    limited.await.expect("no panic").expect_err("out of time");
    cancelled.abort();
    settle().await;
    let _ = guard.release().await;
    drop(plain.lock().await.expect("free"));
    settle().await;
    let lease = plain.lock().await.expect("free").detach().await.expect("detached");
    let _ = client.leases().attach(&lease).await.expect("ours").release().await;
    let lost = plain.lock().await.expect("free");
    let (token, reason) = (lost.fencing_token(), "x".to_owned());
    let revoke = Operation::Revoke { name: name("a"), token, reason, now: true };
    client.admin().operate(&revoke).await.expect("carried out");
    assert!(lost.release().await.is_lost());
    let fixed = LockOptions::default().with_keep(Keep::Fixed).with_lease_duration(second);
    let ran_out = lock(fixed).lock().await.expect("free");
    pass(&clock, 2 * second).await;
    // The keeper has found the loss: the span has ended although the guard is still there.
    let (outcomes, open) = notes.outcomes();
    drop(ran_out);
    assert_eq!(open, 0, "{outcomes:?}");
    let ends = |span: &str| {
        let ends = outcomes.iter().filter(|(name, _)| *name == span);
        ends.map(|(_, outcome)| outcome.as_str()).collect::<Vec<_>>()
    };
    let waits = ["acquired", "busy", "timeout", "cancelled", "acquired", "acquired", "acquired"];
    assert_eq!(ends("lock.wait")[..7], waits);
    let holds = ["released", "dropped", "detached", "released", "lost", "lost"];
    assert_eq!(ends("lock.hold"), holds);
    let failed = |name: &str| {
        let spans = notes.all(name).into_iter();
        let failed = spans.filter(|span| span.is("otel.status_code", "error"));
        failed.map(|span| span.fields["error.type"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(failed("lock.wait"), ["timed_out"], "a busy name is an answer");
    assert_eq!(failed("lock.hold"), ["revoked", "ran_out"]);
}

#[tokio::test]
async fn both_spans_are_children_of_the_span_that_asks() {
    let (notes, _here) = begin().await;
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let mutex = client.mutex("a").expect("good");
    let held = mutex.lock().await.expect("free");
    let job = tracing::info_span!("job");
    let id = job.id().expect("it is on").into_u64();
    let waiting = tracing::Instrument::instrument(locked(mutex), job);
    let waiter = tokio::spawn(waiting);
    settle().await;
    let _ = held.release().await;
    let _ = waiter.await.expect("no panic").expect("handed over").release().await;
    let parent = |name: &str| notes.all(name).pop().expect("there is one").parent;
    assert_eq!((parent("lock.wait"), parent("lock.hold")), (Some(id), Some(id)));
}
