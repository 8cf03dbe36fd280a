//! Who has the slot: read from how the lock stands.
//!
//! A holder whose lease is detached has done the job, and keeps the slot; any other runs the job.
//! A slot that is longer than the engine keeps leases is kept by a freeze, whose reason says so.

use std::time::Duration;

use holdline_core::{HolderFields, HolderView, Snapshot};

use super::slot::Span;

/// The label under which a holder reports its slot: the slot's start in milliseconds since 1970.
pub(super) const SLOT: &str = "slot";
/// The label for the end of that slot, which is the start of the next one.
pub(super) const SLOT_END: &str = "slot_end";
/// What the reason of a freeze that keeps a slot begins with.
const MARK: &str = "once:";

/// What a look at the lock showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nobody has the name.
    Free,
    /// Somebody has it for a slot.
    Slot(Box<SlotHolder>),
    /// Somebody has it who knows of no slot: another kind of lock, or an operator's freeze.
    Other,
}

/// Who has the name for which slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotHolder {
    /// When that slot starts.
    pub(super) start: u64,
    /// When it ends, if that is known.
    pub(super) end: Option<u64>,
    /// The job is done, or runs at most once.
    pub(super) done: bool,
    pub(super) by: HolderFields,
    pub(super) held_for: Option<Duration>,
    /// How long the store keeps it, if the engine reports that.
    pub(super) left: Option<Duration>,
}

impl SlotHolder {
    /// Returns whether the holder divides time into other slots than ours: slots of one schedule
    /// never overlap.
    pub(super) fn has_other_slots(&self, span: Span) -> bool {
        let end = self.end.unwrap_or(self.start + 1);
        self.start != span.start && self.start < span.end && end > span.start
    }
}

/// Reads a snapshot.
pub(super) fn read(snapshot: &Snapshot, now: u64) -> Seen {
    let freeze = snapshot.freeze.as_ref();
    let kept = freeze.map(|freeze| of_reason(&freeze.reason, freeze.left, now));
    let found = match (snapshot.holders.first(), kept) {
        (Some(holder), kept) => of_holder(holder).map(|holder| match kept.flatten() {
            // It runs at most once: the slot is kept already, whatever becomes of the holder.
            Some(kept) if kept.start == holder.start => {
                SlotHolder { done: true, left: kept.left, ..holder }
            }
            _ => holder,
        }),
        (None, Some(kept)) => kept,
        (None, None) if snapshot.is_held() => None,
        (None, None) => return Seen::Free,
    };
    found.map_or(Seen::Other, |other| Seen::Slot(Box::new(other)))
}

fn of_holder(holder: &HolderView) -> Option<SlotHolder> {
    let summary = &holder.summary;
    let by = summary.metadata.fields();
    Some(SlotHolder {
        start: by.labels.get(SLOT)?.parse().ok()?,
        end: by.labels.get(SLOT_END).and_then(|end| end.parse().ok()),
        done: holder.detached,
        by,
        held_for: summary.held_for,
        left: summary.left,
    })
}

/// Writes the reason of a freeze that keeps a slot.
pub(super) fn reason(span: Span, at: u64, by: &HolderFields) -> String {
    let mut text = format!("{MARK} {SLOT}={} {SLOT_END}={} at={at}", span.start, span.end);
    for (key, value) in [("host", &by.host), ("program", &by.program)] {
        let value: String = value.chars().filter(|c| !c.is_whitespace()).take(60).collect();
        if !value.is_empty() {
            text += &format!(" {key}={value}");
        }
    }
    text
}

fn of_reason(reason: &str, left: Duration, now: u64) -> Option<SlotHolder> {
    let fields = reason.strip_prefix(MARK)?;
    let field = |key: &str| {
        fields.split_whitespace().find_map(|field| field.strip_prefix(key)?.strip_prefix('='))
    };
    let text = |key| field(key).unwrap_or_default().to_owned();
    let at: Option<u64> = field("at").and_then(|at| at.parse().ok());
    Some(SlotHolder {
        start: field(SLOT)?.parse().ok()?,
        end: field(SLOT_END).and_then(|end| end.parse().ok()),
        done: true,
        by: HolderFields {
            host: text("host"),
            program: text("program"),
            ..HolderFields::default()
        },
        held_for: at.map(|at| Duration::from_millis(now.saturating_sub(at))),
        left: Some(left),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_overlap_are_of_another_schedule() {
        let other = |start, end| {
            let by = HolderFields::default();
            let done = true;
            SlotHolder { start, end, done, by, held_for: None, left: None }
        };
        let span = Span { start: 20, end: 30 };
        for (start, end, differs) in [
            (20, Some(30), false),
            (10, Some(20), false),
            (30, Some(40), false),
            (0, Some(10), false),
            (0, Some(100), true),
            (15, Some(25), true),
            (22, Some(24), true),
            // A holder that does not say when its slot ends.
            (25, None, true),
            (0, None, false),
        ] {
            assert_eq!(other(start, end).has_other_slots(span), differs, "{start} {end:?}");
        }
    }

    #[test]
    fn the_reason_of_a_freeze_names_the_slot_and_who_ran() {
        let span = Span { start: 7_000, end: 9_000 };
        let host = "h".repeat(600);
        let by = HolderFields { host, program: "a report".into(), ..HolderFields::default() };
        let reason = reason(span, 7_100, &by);
        assert!(reason.len() <= holdline_core::operation::MAX_REASON_BYTES, "{}", reason.len());
        let other = of_reason(&reason, Duration::from_secs(1), 7_500).expect("ours");
        assert_eq!((other.start, other.done, &*other.by.program), (7_000, true, "areport"));
        assert_eq!(other.end, Some(9_000));
        assert_eq!(other.held_for, Some(Duration::from_millis(400)));
        for other in ["", "moving house", "once: ", "once: slot=x at=1"] {
            assert_eq!(of_reason(other, Duration::ZERO, 0), None, "{other:?}");
        }
    }
}
