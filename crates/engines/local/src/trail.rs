//! The audit trail: one row for each record, in the order of their numbers.
//!
//! A user that may write the directory may change it, as every lock. A power cut loses the last
//! records, as it loses the last locks.

use std::ops::ControlFlow;

use holdline_core::audit::MAX_RECORDS;
use holdline_core::{
    AuditCommand, AuditEntry, AuditId, AuditPage, AuditRecord, AuditRequest, OperationReply,
};

use crate::error::Fault;
use crate::keys;
use crate::rows::Rows;

/// How many bytes of a row are its time.
const TIME: usize = 8;

/// Carries out a command.
pub(crate) fn ask(rows: Rows<'_>, command: &AuditCommand) -> Result<OperationReply, Fault> {
    match command {
        AuditCommand::Append { at_ms, record } => append(rows, *at_ms, record),
        AuditCommand::Read(request) => read(rows, request),
    }
}

fn append(rows: Rows<'_>, at_ms: u64, record: &AuditRecord) -> Result<OperationReply, Fault> {
    let mut last = 0;
    rows.visit_back_between(&keys::audit(0), &keys::audit(u64::MAX), |key, _| {
        last = keys::audit_number(key).unwrap_or(0);
        Ok(ControlFlow::Break(()))
    })?;
    let number = last.saturating_add(1);
    let row = [&at_ms.to_be_bytes()[..], record.to_encoded().as_bytes()].concat();
    rows.insert(&keys::audit(number), &row)?;
    let first = (number + 1).saturating_sub(MAX_RECORDS as u64);
    rows.delete_between(&keys::audit(0), &keys::audit(first))?;
    Ok(OperationReply::Done)
}

fn read(rows: Rows<'_>, request: &AuditRequest) -> Result<OperationReply, Fault> {
    let end = request.before.map_or(u64::MAX, |before| before.number);
    let mut entries = Vec::new();
    rows.visit_back_between(&keys::audit(0), &keys::audit(end), |key, row| {
        let (time, text) = row.split_at(row.len().min(TIME));
        let at_ms = time.try_into().map_or(0, u64::from_be_bytes);
        let id = AuditId { at_ms, number: keys::audit_number(key).unwrap_or(0) };
        if request.covers(id) {
            entries.push(AuditEntry { id, record: AuditRecord::from_encoded(text) });
        }
        let is_full = entries.len() == request.limit();
        Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(OperationReply::Audit(AuditPage::of(entries, request)))
}

#[cfg(test)]
mod tests {
    use holdline_core::Operator;

    use super::*;
    use crate::keys::SCHEMA;

    #[test]
    fn only_the_newest_records_are_kept_and_a_changed_row_is_shown() {
        let connection = rusqlite::Connection::open_in_memory().expect("opened");
        connection.execute_batch(SCHEMA).expect("made");
        let rows = Rows::of(&connection);
        let command = || {
            let record = Box::new(AuditRecord::new("freeze", &Operator::default()));
            AuditCommand::Append { at_ms: 7, record }
        };
        ask(rows, &command()).expect("appended");
        let late = keys::audit(MAX_RECORDS as u64 + 1);
        rows.insert(&late, b"short").expect("inserted");
        ask(rows, &command()).expect("appended");
        let reply = ask(rows, &AuditCommand::Read(AuditRequest::default())).expect("read");
        let OperationReply::Audit(page) = reply else { panic!("a page") };
        let shown: Vec<(u64, &str)> = page
            .entries
            .iter()
            .map(|entry| (entry.id.number, entry.record.action.as_str()))
            .collect();
        let last = MAX_RECORDS as u64 + 2;
        assert_eq!(shown, [(last, "freeze"), (last - 1, "unreadable")]);
    }
}
