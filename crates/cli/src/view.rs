//! The holders and the queue of a name, formatted for people and for tools.
//!
//! `docs/json.md` describes the JSON objects. Keys are only ever added.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdline_core::json::{FreezeJson, HolderJson, LockJson, WaiterJson};
pub(crate) use holdline_core::moment::whole_millis as millis;
use holdline_core::snapshot::{ServerHold, coarse};
use holdline_core::{
    Escaped, FreezeView, GrantState, HolderSummary, HolderView, Snapshot, WaiterView,
};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::console::Console;
use crate::holder::{Holder, is_gone, join_pids};
use crate::table::{Align, Table};

/// How many waiters are shown to people; all are counted.
const SHOWN: usize = 20;

/// Returns a snapshot as one JSON object.
pub(crate) fn object(snapshot: &Snapshot) -> Value {
    let mut object = json!(LockJson::from(snapshot));
    object["holders"] = snapshot.holders.iter().map(holder_object).collect();
    object["queue"] = snapshot.queue.iter().map(waiter_object).collect();
    object
}

/// Returns a holder as JSON, with what only this machine may see.
pub(crate) fn holder_object(holder: &HolderView) -> Value {
    let mut object = flat(HolderJson::from(holder));
    if !matches!(holder.state, GrantState::Revoked(_)) {
        object["revoke_reason"] = Value::Null;
    }
    object["live"] = holder.live.into();
    object["detached"] = holder.detached.into();
    object["pids"] = json!(holder.pids);
    if is_gone(&holder.summary.metadata.fields(), &holder.pids) {
        object["pid"] = Value::Null;
    }
    object
}

/// Returns the holder that a request waited for, with the fields of a holder.
pub(crate) fn in_the_way(holder: &Holder) -> Value {
    let mut object = flat(HolderJson::from(&holder.summary));
    if let Some(keepers) = &holder.keepers {
        object["pid"] = Value::Null;
        object["pids"] = json!(keepers);
    }
    object
}

/// Returns a waiter as JSON.
pub(crate) fn waiter_object(waiter: &WaiterView) -> Value {
    flat(WaiterJson::from(waiter))
}

/// Returns a freeze as JSON.
pub(crate) fn freeze_object(freeze: &FreezeView) -> Value {
    json!(FreezeJson::from(freeze))
}

/// Writes what a holder or waiter reports about itself beside its other fields; what it does not
/// report is null.
fn flat(view: impl Serialize) -> Value {
    let mut object = json!(view);
    let about = object["about"].take();
    for field in ["host", "pid", "user", "program", "reason", "labels", "traceparent", "value"] {
        object[field] = about[field].clone();
    }
    if object["labels"].is_null() {
        object["labels"] = json!({});
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("about");
    }
    object
}

/// Returns the time of day in `left`, as milliseconds since 1970, for people and scripts. No rule
/// depends on it.
pub(crate) fn unix_millis(left: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    millis(now.saturating_add(left))
}

/// Returns a time in UTC, to the second, such as `2027-01-31T08:00:00Z`.
pub(crate) fn moment(at: SystemTime) -> String {
    let written = Timestamp::try_from(at).map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    // Only a time thousands of years away cannot be written.
    written.unwrap_or_else(|_| format!("{:?}", at.duration_since(UNIX_EPOCH).unwrap_or_default()))
}

/// Returns a time of day in UTC.
#[cfg(any(feature = "top", test))]
pub(crate) fn time_of_day(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Returns a snapshot for people.
pub(crate) fn text(snapshot: &Snapshot, console: &Console) -> String {
    let mut text = format!("{}: {}\n", snapshot.name, summary(snapshot));
    if let Some(freeze) = &snapshot.freeze {
        let left = coarse(freeze.left);
        let until = if freeze.active {
            format!("frozen for {left} more")
        } else {
            format!("to be frozen when its holders are done, for {left} from now")
        };
        let _ = writeln!(text, "{until}: {}", Escaped(&freeze.reason));
    }
    for hold in odd_holds(snapshot) {
        let count = snapshot.servers.as_ref().map_or(0, |servers| servers.servers);
        let ServerHold { lease_id, servers, without_expiry } = hold;
        let _ = write!(text, "{lease_id} is on {servers} of {count} servers");
        let _ = match without_expiry {
            0 => writeln!(text),
            without => writeln!(text, ", without an expiry on {without}"),
        };
    }
    if !snapshot.holders.is_empty() {
        let (heading, rows) = holders(&snapshot.holders).lines("  ");
        text.extend([console.heading(&heading), rows]);
        if console.is_verbose() {
            text.extend(snapshot.holders.iter().take(SHOWN).map(labels));
        }
    }
    if !snapshot.queue.is_empty() {
        let _ = writeln!(text, "{} waiting", snapshot.queue_length);
        let (heading, rows) = waiters(&snapshot.queue).lines("  ");
        text.extend([console.heading(&heading), rows]);
        if let Some(more) = snapshot.queue_length.checked_sub(SHOWN).filter(|more| *more > 0) {
            let _ = writeln!(text, "  and {more} more");
        }
    }
    text
}

/// Returns the holders on servers of a quorum that a healthy name has not: on a minority, or
/// without an expiry.
fn odd_holds(snapshot: &Snapshot) -> impl Iterator<Item = &ServerHold> {
    let count = snapshot.servers.as_ref().map_or(0, |servers| servers.servers);
    let holds = snapshot.servers.iter().flat_map(|servers| &servers.holds);
    holds.filter(move |hold| 2 * hold.servers <= count || hold.without_expiry > 0)
}

/// Returns the state of a name in a few words.
pub(crate) fn summary(snapshot: &Snapshot) -> String {
    let frozen = snapshot.freeze.as_ref().is_some_and(|freeze| freeze.active);
    let count = snapshot.holder_count;
    match (snapshot.permits_of, count) {
        _ if frozen => "frozen".into(),
        (_, 0) if snapshot.holds_without_expiry().next().is_some() => {
            "free, a server has no expiry".into()
        }
        (_, 0) => "free".into(),
        (Some(of), _) => {
            let held: u32 =
                snapshot.holders.iter().filter_map(|h| h.summary.mode.permit_count()).sum();
            format!("{held} of {of} permits held")
        }
        (None, 1) => "held".into(),
        (None, _) => format!("held by {count}"),
    }
}

fn holders(holders: &[HolderView]) -> Table {
    let mut table = Table::new(&[
        ("TOKEN", Align::Right),
        ("LEASE", Align::Left),
        ("MODE", Align::Left),
        ("STATE", Align::Left),
        ("SINCE", Align::Right),
        ("LEFT", Align::Right),
        ("HOST", Align::Left),
        ("PID", Align::Right),
        ("USER", Align::Left),
        ("PROGRAM", Align::Left),
        ("KEPT BY", Align::Left),
        ("REASON", Align::Left),
    ]);
    for holder in holders.iter().take(SHOWN) {
        let HolderView { summary, state, .. } = holder;
        let fields = summary.metadata.fields();
        let state = match state {
            GrantState::Held if holder.live => "held, live".into(),
            GrantState::Held if holder.detached => "held, detached".into(),
            GrantState::Held => "held".into(),
            GrantState::Revoked(reason) => format!("revoked: {reason}"),
        };
        table.row(&[
            &summary.token.map(|token| token.to_string()).unwrap_or_default(),
            &summary.lease_id.to_string(),
            &summary.mode.to_string(),
            &state,
            &summary.held_for.map(coarse).unwrap_or_default(),
            &left(summary),
            &fields.host,
            &pid_text(holder),
            &fields.user,
            &fields.program,
            &join_pids(&holder.pids),
            &fields.reason,
        ]);
    }
    table
}

/// Returns how long the store keeps a grant.
pub(crate) fn left(holder: &HolderSummary) -> String {
    if holder.no_expiry { "no expiry".into() } else { holder.left.map(coarse).unwrap_or_default() }
}

/// One line for each label of a holder.
fn labels(holder: &HolderView) -> String {
    let mut text = String::new();
    let token = holder.summary.token.map(|token| format!("{token} ")).unwrap_or_default();
    for (key, value) in &holder.summary.metadata.fields().labels {
        let _ = writeln!(text, "  {token}{}={}", Escaped(key), Escaped(value));
    }
    text
}

/// Returns the process to show for a holder: the one that requested the lock. If it has ended and
/// others keep its live grant, one of those.
pub(crate) fn pid(holder: &HolderView) -> Option<u32> {
    let fields = holder.summary.metadata.fields();
    if is_gone(&fields, &holder.pids) { holder.pids.first().copied() } else { fields.pid }
}

/// As [`pid`]; says so if there is no such process, and nobody else keeps the grant. The process
/// may have ended, or run in another container of the same host name.
fn pid_text(holder: &HolderView) -> String {
    match (pid(holder), holder.summary.metadata.fields().pid) {
        (Some(pid), _) => pid.to_string(),
        (None, Some(pid)) => format!("{pid}, not here"),
        (None, None) => String::new(),
    }
}

fn waiters(waiters: &[WaiterView]) -> Table {
    let mut table = Table::new(&[
        ("#", Align::Right),
        ("LEASE", Align::Left),
        ("MODE", Align::Left),
        ("WAITED", Align::Right),
        ("HOST", Align::Left),
        ("PID", Align::Right),
        ("USER", Align::Left),
        ("PROGRAM", Align::Left),
        ("REASON", Align::Left),
    ]);
    for (at, waiter) in waiters.iter().take(SHOWN).enumerate() {
        let fields = waiter.metadata.fields();
        table.row(&[
            &(at + 1).to_string(),
            &waiter.lease_id.to_string(),
            &waiter.mode.to_string(),
            &waiter.waited.map(coarse).unwrap_or_default(),
            &fields.host,
            &fields.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            &fields.user,
            &fields.program,
            &fields.reason,
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_of_utc() {
        let at = UNIX_EPOCH + Duration::from_secs(86_400 * 3 + 3_600 * 13 + 60 * 5 + 9);
        assert_eq!(time_of_day(at), "13:05:09Z");
        assert_eq!(moment(at), "1970-01-04T13:05:09Z");
        assert_eq!(moment(UNIX_EPOCH + Duration::from_millis(u64::MAX)), "18446744073709551.615s");
    }
}
