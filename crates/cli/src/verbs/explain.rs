//! `holdline explain URL`.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use holdline_core::capabilities::{ClockKind, Expiry, HandOff};
use holdline_core::snapshot::coarse;
use holdline_core::{AuditTrail, Capabilities, Escaped};
use holdline_local::LocalReport;
use serde_json::{Value, json};

use super::common::AskedEngineArgs;
use crate::config::Address;
use crate::console::Console;
use crate::duration::written;
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::open_store::{NoStore, OpenStore, StoreOptions};
use crate::verb::{AtStake, Verb};
use crate::view::millis;

/// Show what an engine guarantees, in plain words
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdline explain local:")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    engine: AskedEngineArgs,
}

/// Describes `explain`.
pub(crate) fn verb() -> Verb {
    Verb::new("explain", |arguments: ExplainArgs, invocation| {
        invocation.on_engine(&arguments, arguments.engine.choice(), AtStake::Nothing, run)
    })
}

/// Prints what the engine guarantees.
async fn run(_: &ExplainArgs, address: Address, console: &Console) -> Outcome {
    if let Some(no_store) = NoStore::at(&address)? {
        let store = LocalStoreState::NotMade(&no_store);
        return print(&address, &no_store.capabilities, &store, console);
    }
    let options = StoreOptions { read_only: true, ..StoreOptions::default() };
    let open_store = OpenStore::open(address, options).await?;
    let report = open_store.local_report()?;
    let store =
        report.map_or(LocalStoreState::None, |report| LocalStoreState::Made(Box::new(report)));
    print(open_store.address(), open_store.capabilities(), &store, console)
}

/// What is known about the store, if the engine is the local one.
enum LocalStoreState<'a> {
    None,
    NotMade(&'a NoStore),
    Made(Box<LocalReport>),
}

fn print(
    address: &Address,
    capabilities: &Capabilities,
    store: &LocalStoreState<'_>,
    console: &Console,
) -> Outcome {
    let url = holdline::redact_url(&address.url);
    let made = match store {
        LocalStoreState::Made(report) => serde_json::to_value(report).map_err(Failure::internal)?,
        LocalStoreState::None | LocalStoreState::NotMade(_) => Value::Null,
    };
    let object = json!({
        "url": url,
        "source": address.source.to_string(),
        "guarantees": sentences(capabilities),
        "store": made,
        "capabilities": object(capabilities)?,
    });
    let mut text = format!("{url} ({})\n", address.source);
    let _ = writeln!(text, "engine {}", capabilities.engine);
    if let LocalStoreState::NotMade(no_store) = store {
        let _ = writeln!(text, "{no_store}");
    }
    if let LocalStoreState::Made(report) = store {
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
    console.print(&object, &text)?;
    Ok(Exit::Success)
}

/// Returns the capabilities as JSON, with durations in whole milliseconds.
fn object(capabilities: &Capabilities) -> Result<Value, Failure> {
    let mut object = serde_json::to_value(capabilities).map_err(Failure::internal)?;
    let lease = capabilities.lease;
    object["lease"] = json!({
        "min_ms": millis(lease.min),
        "max_ms": millis(lease.max),
        "step_ms": millis(lease.step),
    });
    object["lag_ms"] = millis(capabilities.lag).into();
    object["quarantine_ms"] = capabilities.quarantine.map(millis).into();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("lag");
        fields.remove("quarantine");
    }
    Ok(object)
}

/// Returns the guarantees in plain words. They are made from the capabilities, so the two agree.
fn sentences(capabilities: &Capabilities) -> Vec<String> {
    let mut shown = vec![
        format!(
            "At most one client considers itself the holder of an exclusive name, as long as \
             clock rates agree and the store loses no data. A paused process can still write \
             late: {}.",
            match capabilities.fencing {
                true => "hand the fencing token to the resource if that would do harm",
                false => "if that would do harm, take an engine that gives fencing tokens",
            }
        ),
        freedom(capabilities),
        match capabilities.clock {
            ClockKind::Boottime => "Time goes on while the machine sleeps: a lease can expire.",
            ClockKind::Monotonic => "Store and holder sleep together: a suspend ends no lease.",
        }
        .to_owned(),
        tokens(capabilities).to_owned(),
        waiting(capabilities),
    ];
    if capabilities.splits {
        shown.push(
            "A majority of its servers must agree: fewer than half of them may be down, slow or \
             without their data at any time. Requests at the same moment may have to be repeated."
                .to_owned(),
        );
    }
    if let Some(quarantine) = capabilities.quarantine {
        shown.push(format!(
            "A server that was restarted or promoted may lack grants: there nobody gets a name \
             for {} (a quarantine), and holders go on.",
            coarse(quarantine)
        ));
    }
    if capabilities.lease.max > Duration::ZERO {
        let range = capabilities.lease;
        shown.push(format!("Leases last from {} to {}.", written(range.min), written(range.max)));
    }
    let has = [
        (capabilities.shared, "shared mode"),
        (capabilities.permits, "permits"),
        (capabilities.live, "grants that live as long as a process"),
        (capabilities.detach, "leases that no process holds (acquire)"),
        (capabilities.revoke, "revoke"),
        (capabilities.polite_revoke, "a revoke that notifies the holder first"),
        (capabilities.remove_waiter, "the removal of a waiter (revoke --waiter)"),
        (capabilities.freeze, "freeze"),
        (capabilities.list, "ls"),
        (capabilities.metadata, "what the holder reports about itself"),
        (capabilities.audit != AuditTrail::None, "an audit trail of what operators did"),
    ];
    let list = |wanted: bool| {
        let names = has.iter().filter(|(has, _)| *has == wanted).map(|(_, name)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    if !list(true).is_empty() {
        shown.push(format!("It has: {}.", list(true)));
    }
    if !list(false).is_empty() {
        shown.push(format!("It has not: {}.", list(false)));
    }
    shown
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
            "A holder that dies frees its name as soon as the server notices its closed connection."
                .into()
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
        (false, _) if capabilities.fair_on_request => {
            "There is no queue unless the lock is fair (`--fair`): the first request gets a name \
             that became free"
        }
        (false, _) => "There is no queue: the first request gets a name that became free",
    };
    match (capabilities.queue, capabilities.hand_off) {
        (true, HandOff::Message | HandOff::Direct) => {
            format!("{order}, and only the next is woken. {} may wait.", capabilities.max_waiters)
        }
        _ => format!("{order}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_listed() {
        let mut capabilities = Capabilities::reference("x", "x");
        capabilities.freeze = false;
        capabilities.fencing = false;
        capabilities.fair = false;
        let shown = sentences(&capabilities).join("\n");
        for words in ["It has not:", "freeze", "no fencing tokens", "without a promise of order"] {
            assert!(shown.contains(words), "{shown}");
        }
        assert!(!shown.contains("hand the fencing token"), "{shown}");
    }

    #[test]
    fn a_quarantine_is_shown() {
        let mut capabilities = Capabilities::reference("x", "x");
        assert!(!sentences(&capabilities).join("\n").contains("quarantine"));
        capabilities.quarantine = Some(Duration::from_millis(72_600));
        let shown = sentences(&capabilities).join("\n");
        assert!(shown.contains("(a quarantine)"), "{shown}");
        assert_eq!(object(&capabilities).expect("JSON")["quarantine_ms"], 72_600);
    }

    #[test]
    fn an_engine_without_further_capabilities_has_no_empty_list() {
        let mut capabilities = Capabilities::reference("x", "x");
        let Capabilities { shared, permits, live, detach, revoke, .. } = &mut capabilities;
        for can in [shared, permits, live, detach, revoke] {
            *can = false;
        }
        let Capabilities { polite_revoke, remove_waiter, freeze, list, metadata, .. } =
            &mut capabilities;
        for can in [polite_revoke, remove_waiter, freeze, list, metadata] {
            *can = false;
        }
        let shown = sentences(&capabilities).join("\n");
        assert!(!shown.contains("It has:") && shown.contains("It has not:"), "{shown}");
    }
}
