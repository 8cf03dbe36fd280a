//! `holdline audit [PATTERN]`: what operators did.

use std::time::{Duration, SystemTime};

use clap::Args;
use holdline::watch::NamePattern;
use holdline_core::audit::MAX_RECORDS;
use holdline_core::moment::whole_millis;
use holdline_core::{AuditEntry, AuditRecord, AuditRequest};
use jiff::Timestamp;
use serde_json::json;

use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::open_store::OpenStore;
use crate::table::{Align, Table};
use crate::verb::{StoreUse, Verb};
use crate::view;

/// Show what operators did: who, from where, when and why
#[derive(Debug, Args)]
#[command(
    after_help = "The store keeps about the newest 10000 records of revoke, freeze, unfreeze \
    and fence bump. The oldest of those shown comes first.\n\nExamples:\n  holdline audit --since \
    24h\n  holdline audit 'deploy/*' --json"
)]
pub(crate) struct AuditArgs {
    /// Only names that match: `*` stands for any text, `?` for one character. Without it actions on
    /// the whole store are shown too
    #[arg(value_name = "PATTERN", value_parser = NamePattern::new)]
    pattern: Option<NamePattern>,
    /// Only what was recorded since then: a time such as 2027-01-31T08:00:00Z, or a duration such
    /// as 24h, counted back from now
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = since)]
    since: Option<SystemTime>,
    /// Only the newest N records
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MAX_RECORDS as u64))]
    limit: u64,
}

/// Describes `audit`.
pub(crate) fn verb() -> Verb {
    Verb::on_store("audit", StoreUse::Reads(|_, _| Ok(Exit::Success)), run)
}

/// Reads a time, or a duration that is counted back from now.
fn since(text: &str) -> Result<SystemTime, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.into());
    }
    let long_ago = duration::any(text)
        .map_err(|error| format!("{error}; or write a time, such as 2027-01-31T08:00:00Z"))?;
    Ok(SystemTime::now().checked_sub(long_ago).unwrap_or(SystemTime::UNIX_EPOCH))
}

/// Prints the records.
pub(crate) async fn run(arguments: &AuditArgs, store: &OpenStore, console: &Console) -> Outcome {
    let since = arguments.since.unwrap_or(SystemTime::UNIX_EPOCH);
    let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let request = AuditRequest {
        since_ms: whole_millis(since),
        before: None,
        limit: usize::try_from(arguments.limit).unwrap_or(MAX_RECORDS),
    };
    let wanted = |entry: &AuditEntry| match (&arguments.pattern, &entry.record.name) {
        (None, _) => true,
        (Some(pattern), Some(name)) => pattern.matches(name),
        (Some(_), None) => false,
    };
    let page = store.audit(&request, wanted).await?;
    let entries = || page.entries.iter().rev();
    if console.is_json() {
        for entry in entries() {
            console.object(&object(entry))?;
        }
    } else if !page.entries.is_empty() {
        console.data(&table(entries(), console))?;
    } else {
        console.info("no action of an operator is recorded here");
    }
    if page.before.is_some() {
        console.info(&format!("older records are not shown: only the newest {}", request.limit));
    }
    Ok(Exit::Success)
}

fn object(entry: &AuditEntry) -> serde_json::Value {
    let AuditEntry { id, record } = entry;
    json!({
        "id": id,
        "at_ms": id.at_ms,
        "action": record.action,
        "who": record.who,
        "from": record.from,
        "name": record.name,
        "fencing_token": record.fencing_token,
        "reason": record.reason,
        "outcome": record.outcome,
        "detail": record.detail,
    })
}

fn table<'a>(entries: impl Iterator<Item = &'a AuditEntry>, console: &Console) -> String {
    let mut table = Table::new(&[
        ("TIME", Align::Left),
        ("WHO", Align::Left),
        ("FROM", Align::Left),
        ("ACTION", Align::Left),
        ("NAME", Align::Left),
        ("TOKEN", Align::Right),
        ("OUTCOME", Align::Left),
        ("REASON", Align::Left),
        ("DETAIL", Align::Left),
    ]);
    for AuditEntry { id, record } in entries {
        let AuditRecord { action, who, from, name, fencing_token, reason, outcome, detail } =
            record;
        table.row(&[
            &view::moment(SystemTime::UNIX_EPOCH + Duration::from_millis(id.at_ms)),
            who,
            from,
            action,
            name.as_ref().map_or("", |name| name.as_str()),
            &fencing_token.map(|token| token.to_string()).unwrap_or_default(),
            outcome.word(),
            reason,
            detail,
        ]);
    }
    let (heading, rows) = table.lines("");
    console.heading(&heading) + &rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_and_written_and_a_duration_counts_back() {
        let time = since("2027-01-31T08:00:00Z").expect("a time");
        assert_eq!(view::moment(time), "2027-01-31T08:00:00Z");
        let before = SystemTime::now();
        assert!(since("1h").expect("a duration") <= before);
        for bad in ["", "yesterday", "-1h", "2027-13-01T00:00:00Z"] {
            assert!(since(bad).is_err(), "{bad}");
        }
    }
}
