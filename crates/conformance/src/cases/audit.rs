//! The audit trail, where a store keeps one. All names of a store share it, so a case reads only
//! the records of its own name.

use holdline_core::audit::MAX_RECORD_BYTES;
use holdline_core::{
    AuditEntry, AuditId, AuditOutcome, AuditPage, AuditRecord, AuditRequest, ErrorKind, LockName,
    Operator,
};

use crate::bench::Bench;
use crate::case::{Case, case};
use crate::failure::{Failure, Outcome, Verdict, ensure};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(P9, "records are read back whole, the newest first, page by page", [Audit], in_order),
        case!(P9, "records can be read from a time on", [Audit], since),
        case!(P9, "a record that is too long is invalid, and none is kept", [Audit], too_long),
    ]
}

/// A time that no store shows unless it has no clock of its own.
const EARLY: u64 = 1_000_000_000_000;

async fn append(bench: &Bench, client: usize, record: &AuditRecord) -> Result<(), Failure> {
    let at_ms = EARLY + client as u64;
    let client = &bench.clients()[client % bench.clients().len()];
    Ok(client.engine.append_audit(at_ms, record).await?)
}

async fn page(bench: &Bench, request: AuditRequest) -> Result<AuditPage, Failure> {
    Ok(bench.clients()[0].engine.read_audit(&request).await?)
}

/// Reads all records of a name, the newest first, in pages of this length.
async fn of_name(
    bench: &Bench,
    name: &LockName,
    limit: usize,
    since_ms: u64,
) -> Result<Vec<AuditEntry>, Failure> {
    let mut request = AuditRequest { since_ms, before: None, limit };
    let mut found: Vec<AuditEntry> = Vec::new();
    loop {
        let page = page(bench, request).await?;
        ensure!(page.entries.len() <= limit, "a page of {limit} has {}", page.entries.len());
        let of_name = |entry: &AuditEntry| entry.record.name.as_ref() == Some(name);
        found.extend(page.entries.into_iter().filter(of_name));
        match page.before {
            Some(before) => request.before = Some(before),
            None => return Ok(found),
        }
    }
}

fn record(name: &LockName, reason: &str) -> AuditRecord {
    let operator = Operator { who: "ann".into(), from: "host\u{1b}[31m".into() };
    let record = AuditRecord::new("freeze", &operator);
    AuditRecord { name: Some(name.clone()), reason: reason.to_owned(), ..record }
}

async fn in_order(bench: Bench) -> Verdict {
    let name = bench.name();
    let mut records = Vec::new();
    for (number, reason) in ["a", "", "\0\"\\\u{202e}", "é🔒", "e"].into_iter().enumerate() {
        let record = record(&name, reason).ended(AuditOutcome::Unknown, "no answer");
        append(&bench, number, &record).await?;
        records.insert(0, record);
    }
    for limit in [2, 500] {
        let found = of_name(&bench, &name, limit, 0).await?;
        let ids: Vec<AuditId> = found.iter().map(|entry| entry.id).collect();
        let found: Vec<AuditRecord> = found.into_iter().map(|entry| entry.record).collect();
        ensure!(found == records, "in pages of {limit}: {found:?}");
        ensure!(ids.iter().all(|id| id.at_ms >= EARLY), "the times are {ids:?}");
    }
    Ok(Outcome::Ran)
}

async fn since(bench: Bench) -> Verdict {
    let name = bench.name();
    append(&bench, 0, &record(&name, "a")).await?;
    let [entry] = &of_name(&bench, &name, 100, 0).await?[..] else {
        return Err(Failure::new("the record is not there"));
    };
    let at_ms = entry.id.at_ms;
    ensure!(of_name(&bench, &name, 100, at_ms).await?.len() == 1, "it is of {at_ms}");
    ensure!(of_name(&bench, &name, 100, at_ms + 1).await?.is_empty(), "it is of {at_ms}");
    Ok(Outcome::Ran)
}

async fn too_long(bench: Bench) -> Verdict {
    let name = bench.name();
    let record = record(&name, &"x".repeat(MAX_RECORD_BYTES));
    let reply = bench.clients()[0].engine.append_audit(EARLY, &record).await;
    let kind = reply.as_ref().err().map(|error| error.kind());
    ensure!(matches!(kind, Some(ErrorKind::Invalid { .. })), "it gave {reply:?}");
    ensure!(of_name(&bench, &name, 100, 0).await?.is_empty(), "it was kept");
    Ok(Outcome::Ran)
}
