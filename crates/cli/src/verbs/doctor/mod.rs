//! `holdline doctor [URL]`.

mod holds;

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use holdline_core::{Checkup, Escaped, Finding, Health};
use serde_json::{Value, json};

use super::common::AskedEngineArgs;
use crate::config::Address;
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::open_store::of_url;
use crate::verb::{AtStake, Verb};

/// Check the health of an engine: exit 0 if healthy, 1 with warnings, 2 with errors
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 no problem, 1 a warning, 2 an error.\n\nExample:\n  \
                        holdline doctor local:")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    engine: AskedEngineArgs,
    /// Also list all holds, and warn of one that has lasted longer than this (24h)
    #[arg(long, value_name = "DUR", value_parser = duration::positive)]
    longest_hold: Option<Duration>,
}

/// Describes `doctor`.
pub(crate) fn verb() -> Verb {
    Verb::new("doctor", |arguments: DoctorArgs, invocation| {
        invocation.on_engine(&arguments, arguments.engine.choice(), AtStake::Nothing, run)
    })
}

/// Checks the health of the engine.
async fn run(arguments: &DoctorArgs, address: Address, console: &Console) -> Outcome {
    let checkup = holdline::health::checkup(&address.url).await;
    let mut checkup = checkup.map_err(|error| of_url(error, &address.url))?;
    let url = holdline::redact_url(&address.url);
    if let Some(limit) = arguments.longest_hold {
        let finding = match checkup.health() {
            Health::Error => holds::not_checked(),
            Health::Ok | Health::Warning => holds::check(address, limit).await,
        };
        checkup.add(finding);
    }
    let object = json!({
        "url": url,
        "engine": checkup.engine(),
        "health": checkup.health().to_string(),
        "findings": checkup.findings().iter().map(object).collect::<Vec<_>>(),
    });
    console.print(&object, &text(&url, &checkup, console.is_verbose()))?;
    Ok(match checkup.health() {
        Health::Ok => Exit::Success,
        Health::Warning => Exit::Negative,
        Health::Error => Exit::Unhealthy,
    })
}

fn object(finding: &Finding) -> Value {
    json!({
        "check": finding.check(),
        "health": finding.health().to_string(),
        "found": finding.found(),
        "matters": finding.matters(),
        "fix": finding.fix(),
    })
}

/// Formats one line for each check. A check that failed explains why it matters and what to do.
fn text(url: &str, checkup: &Checkup, all: bool) -> String {
    let widest = checkup.findings().iter().map(|f| f.check().len()).max().unwrap_or(0);
    let mut text = format!("{url} (engine {})\n\n", checkup.engine());
    for finding in checkup.findings() {
        let health = finding.health().to_string();
        let check = finding.check();
        let _ = writeln!(text, "{health:<7}  {check:<widest$}  {}", Escaped(finding.found()));
        if finding.health() != Health::Ok || all {
            let _ = writeln!(text, "{:11}it matters: {}", "", finding.matters());
        }
        if let Some(fix) = finding.fix() {
            let _ = writeln!(text, "{:11}to do: {}", "", Escaped(fix));
        }
    }
    let count = |health| checkup.findings().iter().filter(|f| f.health() == health).count();
    let _ = writeln!(
        text,
        "\n{}: {} ok, {}, {}",
        checkup.health(),
        count(Health::Ok),
        counted(count(Health::Warning), "warning"),
        counted(count(Health::Error), "error"),
    );
    text
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_text_is_escaped_and_failed_checks_are_explained() {
        let mut checkup = Checkup::new("x");
        checkup.add(Finding::ok("fine", "it would matter", "as it should"));
        checkup.add(Finding::ok("odd", "it matters much", "\u{1b}[2Jodd").fail("mend\nit"));
        let shown = text("x:", &checkup, false);
        assert!(!shown.contains('\u{1b}') && !shown.contains("mend\nit"), "{shown}");
        assert!(!shown.contains("it would matter") && shown.contains("it matters much"), "{shown}");
        assert!(shown.ends_with("error: 1 ok, 0 warnings, 1 error\n"), "{shown}");
    }

    #[test]
    fn the_sum_counts_one_warning_and_two_errors() {
        let mut checkup = Checkup::new("x");
        checkup.add(Finding::ok("one", "matters", "found").warn("mend"));
        checkup.add(Finding::ok("two", "matters", "found").fail("mend"));
        checkup.add(Finding::ok("three", "matters", "found").fail("mend"));
        let shown = text("x:", &checkup, false);
        assert!(shown.ends_with("error: 0 ok, 1 warning, 2 errors\n"), "{shown}");
    }
}
