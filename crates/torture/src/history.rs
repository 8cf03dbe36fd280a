//! The history of a run as JSON lines: what workers saw, and the injected faults.
//!
//! `docs/contributing/torture-report.md` describes the lines; fields are added and never renamed.

use std::io::{self, Write};

use holdline_core::{Mode, Moment};
use serde_json::{Map, Value, json};

use crate::Fault;
use crate::checker::{Event, Seen};

/// How many attempts a worker may make: their numbers are its own millions.
pub(crate) const ATTEMPTS: u64 = 1_000_000;

/// A fault that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) fault: Fault,
    pub(crate) from: Moment,
    pub(crate) to: Moment,
    /// The worker or node that it hit; `None` for all.
    pub(crate) worker: Option<usize>,
    pub(crate) node: Option<usize>,
}

/// Writes all of it in the order of time.
pub(crate) fn write(out: &mut dyn Write, events: &[Event], notes: &[Note]) -> io::Result<()> {
    let seen = events.iter().map(|event| (event.at, of_event(event)));
    let done = notes.iter().map(|note| (note.from, of_note(note)));
    let mut lines: Vec<(Moment, Value)> = seen.chain(done).collect();
    // Stable: what an attempt saw at one instant stays in its order.
    lines.sort_by_key(|(at, _)| *at);
    for (_, line) in lines {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

fn of_note(note: &Note) -> Value {
    json!({
        "at_ns": note.from,
        "event": "fault",
        "fault": note.fault.word(),
        "until_ns": note.to,
        "place": note.worker,
        "node": note.node,
    })
}

fn of_event(event: &Event) -> Value {
    let (word, more) = match &event.seen {
        Seen::Called { name, mode } => ("called", json!({ "name": name, "mode": of_mode(*mode) })),
        Seen::Queued => ("queued", json!({})),
        Seen::Granted { token, valid_until } => {
            ("granted", json!({ "fencing_token": token, "valid_until_ns": valid_until }))
        }
        Seen::Renewed { valid_until } => ("renewed", json!({ "valid_until_ns": valid_until })),
        Seen::Released => ("released", json!({})),
        Seen::Lost => ("lost", json!({})),
        Seen::Failed => ("failed", json!({})),
        Seen::Killed => ("killed", json!({})),
        Seen::Wrote { token, accepted, .. } => {
            ("wrote", json!({ "fencing_token": token, "accepted": accepted }))
        }
    };
    let mut line = Map::new();
    line.insert("at_ns".into(), json!(event.at));
    line.insert("event".into(), json!(word));
    line.insert("worker".into(), json!(event.attempt / ATTEMPTS));
    line.insert("attempt".into(), json!(event.attempt));
    if let Value::Object(more) = more {
        line.extend(more);
    }
    Value::Object(line)
}

fn of_mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Permits { .. } => "permits",
    }
}
