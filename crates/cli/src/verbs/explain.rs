//! `holdline explain URL`.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use holdline_core::capabilities::{ClockKind, Expiry, HandOff};
use holdline_core::snapshot::coarse;
use holdline_core::{Capabilities, Escaped};
use serde_json::json;

use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::session::Session;

/// What `explain` takes.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline explain local:")]
pub(crate) struct ExplainArgs {
    /// The engine; the one that would be used without it
    #[arg(value_name = "URL")]
    pub(crate) url: Option<String>,
}

/// Says what the engine guarantees.
pub(crate) fn run(session: &Session, console: &Console) -> Outcome {
    let capabilities = session.capabilities();
    let url = holdline::redact_url(&session.address().url);
    let report = session.local_report()?;
    if console.is_json() {
        console.object(&json!({
            "url": url,
            "source": session.address().source.to_string(),
            "guarantees": sentences(capabilities),
            "store": report,
            "capabilities": capabilities,
        }))?;
        return Ok(Exit::Success);
    }
    let from = session.address().source.to_string();
    let mut text = format!("{url} ({from})\n");
    let _ = writeln!(text, "engine {}", capabilities.engine);
    if let Some(report) = &report {
        let directory = report.directory.to_string_lossy();
        let file_system = Escaped(&report.file_system);
        let _ = writeln!(text, "store {} ({file_system})", Escaped(&directory));
        for warning in &report.warnings {
            let _ = writeln!(text, "warning: {}", Escaped(warning));
        }
    }
    text.push('\n');
    for sentence in sentences(capabilities) {
        let _ = writeln!(text, "- {sentence}");
    }
    console.data(&text)?;
    Ok(Exit::Success)
}

/// The guarantees in plain words, made of the capabilities so that they cannot differ.
fn sentences(capabilities: &Capabilities) -> Vec<String> {
    let mut told = vec![
        "At most one holder of an exclusive name believes that it holds it, as long as clocks \
         keep their rate and the store does not forget. A paused process can still write late: \
         hand the fencing token to the resource if that would do harm."
            .to_owned(),
        freedom(capabilities),
        match capabilities.clock {
            ClockKind::Boottime => "Time goes on while the machine sleeps: a lease can run out.",
            ClockKind::Monotonic => "Store and holder sleep together: a suspend ends no lease.",
        }
        .to_owned(),
        tokens(capabilities).to_owned(),
        waiting(capabilities),
    ];
    if capabilities.lease.max > Duration::ZERO {
        let range = capabilities.lease;
        told.push(format!("Leases last from {:?} to {}.", range.min, coarse(range.max)));
    }
    let has = [
        (capabilities.shared, "shared mode"),
        (capabilities.permits, "permits"),
        (capabilities.live, "grants that live as long as a process"),
        (capabilities.detach, "leases that no process holds (acquire)"),
        (capabilities.revoke, "revoke"),
        (capabilities.freeze, "freeze"),
        (capabilities.list, "ls"),
    ];
    let list = |wanted: bool| {
        let names = has.iter().filter(|(has, _)| *has == wanted).map(|(_, name)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    told.push(format!("It has: {}.", list(true)));
    if !list(false).is_empty() {
        told.push(format!("It has not: {}.", list(false)));
    }
    told
}

fn freedom(capabilities: &Capabilities) -> String {
    let lag = match capabilities.lag {
        Duration::ZERO => String::new(),
        lag => format!(", at most {lag:?} later"),
    };
    match (capabilities.expiry, capabilities.live) {
        (Expiry::Lease, true) => format!(
            "A holder that dies frees its name at once, and a live grant lasts until its last \
             process is gone; a detached lease frees it when its time is over{lag}."
        ),
        (Expiry::Lease, false) => {
            format!("A holder that dies or is cut off frees its name when its lease is over{lag}.")
        }
        (Expiry::Session, _) => format!(
            "A holder that dies or is cut off frees its names when its session is over{lag}."
        ),
        (Expiry::Live, _) => {
            "A holder that dies frees its name as soon as its connection is seen to be gone.".into()
        }
    }
}

fn tokens(capabilities: &Capabilities) -> &'static str {
    if capabilities.fencing {
        "Each grant carries a fencing token that is larger than every earlier one of its name."
    } else {
        "It gives no fencing tokens."
    }
}

fn waiting(capabilities: &Capabilities) -> String {
    let order = match (capabilities.queue, capabilities.fair) {
        (true, true) => "Contenders get the name in the order in which they queued",
        (true, false) => "Contenders queue, without a promise of order",
        (false, _) => "There is no queue: whoever asks first gets a name that became free",
    };
    match (capabilities.queue, capabilities.hand_off) {
        (true, HandOff::Claim | HandOff::Direct) => {
            format!("{order}, and only the next is woken. {} may wait.", capabilities.max_waiters)
        }
        _ => format!("{order}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let mut capabilities = Capabilities::reference("x", "x");
        capabilities.freeze = false;
        capabilities.fencing = false;
        capabilities.fair = false;
        let told = sentences(&capabilities).join("\n");
        for words in ["It has not:", "freeze", "no fencing tokens", "without a promise of order"] {
            assert!(told.contains(words), "{told}");
        }
    }
}
