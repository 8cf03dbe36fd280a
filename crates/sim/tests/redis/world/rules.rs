//! What must be so in the store, from one look to the next and over time.

use std::collections::BTreeMap;
use std::time::Duration;

use holdline_core::Moment;

use super::book::Book;
use super::frame::Frame;
use super::view::{Record, View};

type Views = BTreeMap<&'static str, View>;

/// How long after the last fault everything must have mended.
const MENDED: Duration = Duration::from_secs(5);
/// A name that is free while somebody waits is handed over within a heartbeat and a claim window.
const HANDED_OVER: Duration = Duration::from_secs(6);
/// A waiter that is told looks at once.
const LOOKED: Duration = Duration::from_millis(450);
/// How long after a disturbance requests may hang yet.
const HANGS: Duration = Duration::from_secs(3);
/// A waiter that was heard within this time is there.
const HEARD_MS: i64 = 2_000;
/// One that was not heard for this long leaves the line.
const SILENCE_MS: i64 = 4_000;

/// What is known from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// No fault works since then.
    quiet_since: Moment,
    pub(crate) paused_until: Moment,
    pub(crate) loses_messages: bool,
    /// Since when a name stands free while somebody waits.
    free_since: BTreeMap<&'static str, Moment>,
    /// Since when a grant has nobody who stands for it.
    orphans: BTreeMap<(&'static str, String), Moment>,
    /// Since when a hand-off to one that hears its inbox could have been claimed.
    handed: BTreeMap<(&'static str, String), Moment>,
}

impl Rules {
    /// A fault works until this moment.
    pub(crate) fn disturbed(&mut self, until: Moment) {
        self.quiet_since = self.quiet_since.max(until);
    }

    pub(crate) fn note_handed(&mut self, now: Moment, all: Vec<(&'static str, String, bool)>) {
        let before = std::mem::take(&mut self.handed);
        for (name, id, heard) in all {
            if heard {
                let key = (name, id);
                let since = before.get(&key).copied().unwrap_or(now);
                self.handed.insert(key, since);
            }
        }
    }

    /// Looks at what time has made of things.
    pub(crate) fn check(&mut self, now: Moment, server_ms: i64, views: &Views, book: &mut Book) {
        for (name, view) in views {
            self.check_free(now, server_ms, name, view, book);
            for record in &view.holders {
                self.check_orphan(now, server_ms, name, record, book);
            }
        }
        let gone = |name: &&'static str, id: &String| {
            views.get(name).is_none_or(|view| view.holder(id).is_none())
        };
        self.orphans.retain(|(name, id), _| !gone(name, id));
        self.check_handed(now, views, book);
    }

    /// P7: a free name goes to whoever waits.
    fn check_free(
        &mut self,
        now: Moment,
        server_ms: i64,
        name: &'static str,
        view: &View,
        book: &mut Book,
    ) {
        let taken = view.holders.iter().any(|record| record.at_ms >= server_ms);
        let waits = view.queue.iter().any(|record| record.at_ms > server_ms - HEARD_MS);
        if taken || !waits {
            self.free_since.remove(name);
            return;
        }
        let since = *self.free_since.entry(name).or_insert(now);
        if since.max(self.quiet_since).after(HANDED_OVER) < now {
            book.break_promise(now, "P7", format!("{name}: it is free, and they wait"));
        }
    }

    /// P5: what nobody stands for is given up.
    fn check_orphan(
        &mut self,
        now: Moment,
        server_ms: i64,
        name: &'static str,
        record: &Record,
        book: &mut Book,
    ) {
        let key = (name, record.id.clone());
        let owner = book.clients.get(&record.client).copied();
        let Some((process, life)) =
            owner.and_then(|process| Some((process, *book.lives.get(&process)?)))
        else {
            return;
        };
        // A guard that was forgotten stays one: its lease ends it.
        let held = book.holds.values().any(|hold| hold.id == record.id);
        let asking = book
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
            book.break_promise(now, "P5", format!("{name}: nobody stands for {id} of {process}"));
        }
    }

    /// P7: a waiter looks as soon as it is told, and when its subscription stands anew.
    fn check_handed(&mut self, now: Moment, views: &Views, book: &mut Book) {
        if self.loses_messages || self.quiet_since.after(HANGS) > now {
            return;
        }
        for ((name, id), since) in &self.handed {
            let record = views.get(name).and_then(|view| view.holder(id));
            let Some(record) = record.filter(|record| record.state == b'h') else { continue };
            let owner = book.clients.get(&record.client).and_then(|p| book.lives.get(p));
            let awake = owner.filter(|life| life.killed.is_none() && life.paused_since.is_none());
            let Some(life) = awake else { continue };
            if life.awake_since.after(HANGS) < now && since.after(LOOKED) < now {
                let id = record.short().to_owned();
                let owner = book.clients.get(&record.client);
                let waits = book
                    .attempts
                    .values()
                    .any(|attempt| attempt.name == *name && Some(&attempt.process) == owner);
                let (promise, what) = match waits {
                    true => ("P7", "was told and does not look"),
                    false => ("P5", "was handed the name and nobody waits there"),
                };
                book.break_promise(now, promise, format!("{name}: {id} {what}"));
            }
        }
    }
}

/// Looks at what one request has changed.
pub(crate) fn compare(
    now: Moment,
    server_ms: i64,
    before: &Views,
    after: &Views,
    frame: &Frame,
    heard: &mut dyn FnMut(&str) -> bool,
    book: &mut Book,
) {
    for (name, view) in after {
        let Some(old) = before.get(name) else { continue };
        if old == view {
            continue;
        }
        for record in &old.holders {
            check_owner(now, server_ms, name, record, view, frame, book);
            let released = view.holder(&record.id).is_none() && releases(frame, &record.id);
            if released && view.holders.is_empty() && !view.queue.is_empty() {
                let id = record.short();
                book.break_promise(now, "P7", format!("{name}: {id} left it to nobody"));
            }
        }
        for record in &view.holders {
            match old.holder(&record.id) {
                // An operator is before the queue.
                None if record.state == b'f' => {}
                None => check_order(now, server_ms, name, record, old, view, heard, book),
                Some(was) if was.state == b'h' && record.state == b'g' => {
                    if !asks_for(frame, &record.id) {
                        let id = record.short();
                        let what = format!("{name}: {id} holds what it never came for");
                        book.break_promise(now, "P8", what);
                    }
                }
                Some(_) => {}
            }
        }
    }
}

/// P4: only its own id ends a grant before its time; an operator ends what was frozen or taken.
fn check_owner(
    now: Moment,
    server_ms: i64,
    name: &str,
    record: &Record,
    view: &View,
    frame: &Frame,
    book: &mut Book,
) {
    let by_operator = record.state == b'f' || book.taken_now.contains(&record.token);
    let ended = view.holder(&record.id).is_none();
    if ended && !by_operator && record.at_ms > server_ms && !releases(frame, &record.id) {
        let id = record.short();
        book.break_promise(now, "P4", format!("{name}: {id} was ended by another's request"));
    }
}

/// P8: whoever is there and came first is served first.
#[allow(clippy::too_many_arguments, reason = "what is known before and after one request")]
fn check_order(
    now: Moment,
    server_ms: i64,
    name: &str,
    record: &Record,
    old: &View,
    view: &View,
    heard: &mut dyn FnMut(&str) -> bool,
    book: &mut Book,
) {
    let place = old.queue.iter().position(|waiter| waiter.id == record.id);
    let ahead = &old.queue[..place.unwrap_or(old.queue.len())];
    let passed = ahead.iter().find(|waiter| {
        let there = waiter.at_ms > server_ms - SILENCE_MS && view.waiter(&waiter.id).is_some();
        there && (place.is_none() || heard(&waiter.inbox))
    });
    if let Some(passed) = passed {
        let (one, other) = (record.short(), passed.short());
        book.break_promise(now, "P8", format!("{name}: {one} passed {other}"));
    }
}

/// Tells whether a request ends what a lease id has.
fn releases(frame: &Frame, id: &str) -> bool {
    frame.words().any(|word| word.len() == 34 && word.starts_with(id.as_bytes()))
}

/// Tells whether a request asks for a lease id.
fn asks_for(frame: &Frame, id: &str) -> bool {
    frame.words().any(|word| word.len() > 34 && word.starts_with(id.as_bytes()))
}
