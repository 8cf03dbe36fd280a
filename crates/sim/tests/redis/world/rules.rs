//! The promises about the store: between two observations, and over time.

use std::collections::BTreeMap;
use std::time::Duration;

use holdline_core::Moment;

use super::frame::Frame;
use super::recorder::Recorder;
use super::view::{NameView, Record};

type NameViews = BTreeMap<&'static str, NameView>;

/// How long after the last fault everything must have recovered.
const MENDED: Duration = Duration::from_secs(5);
/// A free name is handed to a waiter that lives within a heartbeat and the lease of a hand-off.
const HANDED_OVER: Duration = Duration::from_secs(6);
/// A notified waiter begins, or asks, at once.
const LOOKED: Duration = Duration::from_millis(450);
/// How long after a disturbance requests may still hang.
const HANGS: Duration = Duration::from_secs(3);
/// A waiter with a heartbeat within this time is alive.
const ALIVE_MS: i64 = 2_000;
/// A waiter without a heartbeat for this long leaves the queue.
const SILENCE_MS: i64 = 4_000;

/// The state between two observations.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// The end of the last fault.
    quiet_since: Moment,
    pub(crate) paused_until: Moment,
    pub(crate) loses_messages: bool,
    /// Since when a name is free while a client waits.
    free_since: BTreeMap<&'static str, Moment>,
    /// Since when a grant is orphaned.
    orphans: BTreeMap<(&'static str, String), Moment>,
    /// Since when a subscribed client could hold what was handed to it.
    handed: BTreeMap<(&'static str, String), Moment>,
}

impl Rules {
    /// Records a fault that lasts until this moment.
    pub(crate) fn disturbed(&mut self, until: Moment) {
        self.quiet_since = self.quiet_since.max(until);
    }

    /// Returns whether this lease id was handed the name, and held it at the last look.
    pub(crate) fn is_handed(&self, name: &'static str, id: &str) -> bool {
        self.handed.contains_key(&(name, id.to_owned()))
    }

    pub(crate) fn note_handed(&mut self, now: Moment, all: Vec<(&'static str, String, bool)>) {
        let before = std::mem::take(&mut self.handed);
        for (name, id, is_subscribed) in all {
            let key = (name, id);
            let known = before.get(&key).copied().filter(|_| is_subscribed);
            self.handed.insert(key, known.unwrap_or(now));
        }
    }

    /// Checks the promises over time.
    pub(crate) fn check(
        &mut self,
        now: Moment,
        server_ms: i64,
        views: &NameViews,
        recorder: &mut Recorder,
    ) {
        for (name, view) in views {
            self.check_free(now, server_ms, name, view, recorder);
            for record in &view.holders {
                self.check_orphan(now, server_ms, name, record, recorder);
            }
        }
        let gone = |name: &&'static str, id: &String| {
            views.get(name).is_none_or(|view| view.holder(id).is_none())
        };
        self.orphans.retain(|(name, id), _| !gone(name, id));
        self.check_handed(now, views, recorder);
    }

    /// P7: a free name is granted to a waiter.
    fn check_free(
        &mut self,
        now: Moment,
        server_ms: i64,
        name: &'static str,
        view: &NameView,
        recorder: &mut Recorder,
    ) {
        let taken = view.holders.iter().any(|record| record.at_ms >= server_ms);
        let waits = view.queue.iter().any(|record| record.at_ms > server_ms - ALIVE_MS);
        if taken || !waits {
            self.free_since.remove(name);
            return;
        }
        let since = *self.free_since.entry(name).or_insert(now);
        if since.max(self.quiet_since).after(HANDED_OVER) < now {
            recorder.record_violation(now, "P7", format!("{name}: it is free, and they wait"));
        }
    }

    /// P5: orphaned grants are released.
    fn check_orphan(
        &mut self,
        now: Moment,
        server_ms: i64,
        name: &'static str,
        record: &Record,
        recorder: &mut Recorder,
    ) {
        let key = (name, record.id.clone());
        let owner = recorder.clients.get(&record.client).copied();
        let Some((process, life)) =
            owner.and_then(|process| Some((process, *recorder.lives.get(&process)?)))
        else {
            return;
        };
        // A leaked guard stays orphaned: its lease ends it.
        let held = recorder.holds.values().any(|hold| hold.id == record.id);
        let asking = recorder
            .attempts
            .values()
            .any(|attempt| attempt.process == process && attempt.name == name);
        let over = record.at_ms < server_ms;
        let away = life.killed.is_some() || life.paused_since.is_some();
        if held || asking || over || away {
            self.orphans.remove(&key);
            return;
        }
        let since = *self.orphans.entry(key).or_insert(now);
        let since = since.max(self.quiet_since).max(life.awake_since);
        if since.after(MENDED) < now {
            let id = record.short();
            recorder.record_violation(
                now,
                "P5",
                format!("{name}: nobody stands for {id} of {process}"),
            );
        }
    }

    /// P7: a waiter begins when it is notified, or asks, also when its subscription is restored.
    fn check_handed(&mut self, now: Moment, views: &NameViews, recorder: &mut Recorder) {
        // What has begun is a hold like any other.
        self.handed.retain(|(_, id), _| recorder.holds.values().all(|hold| hold.id != *id));
        if self.loses_messages || self.quiet_since.after(HANGS) > now {
            return;
        }
        for ((name, id), since) in &self.handed {
            let record = views.get(name).and_then(|view| view.holder(id));
            let Some(record) = record else { continue };
            let owner = recorder.clients.get(&record.client).and_then(|p| recorder.lives.get(p));
            let awake = owner.filter(|life| life.killed.is_none() && life.paused_since.is_none());
            let Some(life) = awake else { continue };
            if life.awake_since.after(HANGS) < now && since.after(LOOKED) < now {
                let id = record.short().to_owned();
                let owner = recorder.clients.get(&record.client);
                let waits = recorder
                    .attempts
                    .values()
                    .any(|attempt| attempt.name == *name && Some(&attempt.process) == owner);
                let (promise, what) = match waits {
                    true => ("P7", "was notified and does not begin"),
                    false => ("P5", "was handed the name and nobody waits there"),
                };
                recorder.record_violation(now, promise, format!("{name}: {id} {what}"));
            }
        }
    }
}

/// Checks the changes of one request.
pub(crate) fn compare(
    now: Moment,
    server_ms: i64,
    before: &NameViews,
    after: &NameViews,
    frame: &Frame,
    is_subscribed: &mut dyn FnMut(&str) -> bool,
    recorder: &mut Recorder,
) {
    for (name, view) in after {
        let Some(old) = before.get(name) else { continue };
        if old == view {
            continue;
        }
        for record in &old.holders {
            check_owner(now, server_ms, name, record, view, frame, recorder);
            // What was over before is no release: the request may have met a closed connection.
            let was_there = record.at_ms > server_ms;
            let is_gone = view.holder(&record.id).is_none();
            let released = was_there && is_gone && releases(frame, &record.id);
            if released && view.holders.is_empty() && !view.queue.is_empty() {
                let id = record.short();
                recorder.record_violation(now, "P7", format!("{name}: {id} left it to nobody"));
            }
        }
        for record in &view.holders {
            match old.holder(&record.id) {
                // An operator comes before the queue.
                None if record.state == b'f' => {}
                None => {
                    check_order(now, server_ms, name, record, old, view, is_subscribed, recorder);
                }
                Some(_) => {}
            }
        }
    }
}

/// P4: only its own lease id ends a grant early, or an operator.
fn check_owner(
    now: Moment,
    server_ms: i64,
    name: &str,
    record: &Record,
    view: &NameView,
    frame: &Frame,
    recorder: &mut Recorder,
) {
    let by_operator = record.state == b'f' || recorder.taken_now.contains(&record.token);
    let ended = view.holder(&record.id).is_none();
    if ended && !by_operator && record.at_ms > server_ms && !releases(frame, &record.id) {
        let id = record.short();
        recorder.record_violation(
            now,
            "P4",
            format!("{name}: {id} was ended by another's request"),
        );
    }
}

/// P8: of the waiters that are alive, the first in the queue is served first.
#[allow(clippy::too_many_arguments, reason = "what is known before and after one request")]
fn check_order(
    now: Moment,
    server_ms: i64,
    name: &str,
    record: &Record,
    old: &NameView,
    view: &NameView,
    is_subscribed: &mut dyn FnMut(&str) -> bool,
    recorder: &mut Recorder,
) {
    let place = old.queue.iter().position(|waiter| waiter.id == record.id);
    let ahead = &old.queue[..place.unwrap_or(old.queue.len())];
    let passed = ahead.iter().find(|waiter| {
        let there = waiter.at_ms > server_ms - SILENCE_MS && view.waiter(&waiter.id).is_some();
        there && (place.is_none() || is_subscribed(&waiter.inbox))
    });
    if let Some(passed) = passed {
        let (one, other) = (record.short(), passed.short());
        recorder.record_violation(now, "P8", format!("{name}: {one} passed {other}"));
    }
}

/// Returns whether a request releases a lease id.
fn releases(frame: &Frame, id: &str) -> bool {
    frame.words().any(|word| word.len() == 34 && word.starts_with(id.as_bytes()))
}
