//! The audit trail: one row for each record, in the order of their numbers.
//!
//! A user that may write the directory may change it, as every lock. A power cut loses the last
//! records, as it loses the last locks.

use std::ops::ControlFlow;

use holdline_core::audit::MAX_RECORDS;
use holdline_core::{AuditEntry, AuditId, AuditPage, AuditRecord, AuditRequest};

use crate::error::Fault;
use crate::keys;
use crate::rows::Rows;

/// How many bytes of a row are its time.
const TIME: usize = 8;

/// Appends a record, and removes the oldest ones if there are too many.
pub(crate) fn append(rows: Rows<'_>, at_ms: u64, record: &AuditRecord) -> Result<(), Fault> {
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
    Ok(())
}

/// Returns a page of the records.
pub(crate) fn read(rows: Rows<'_>, request: &AuditRequest) -> Result<AuditPage, Fault> {
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
    Ok(AuditPage::of(entries, request))
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
        let record = AuditRecord::new("freeze", &Operator::default());
        append(rows, 7, &record).expect("appended");
        let late = keys::audit(MAX_RECORDS as u64 + 1);
        rows.insert(&late, b"short").expect("inserted");
        append(rows, 7, &record).expect("appended");
        let page = read(rows, &AuditRequest::default()).expect("read");
        let shown: Vec<(u64, &str)> = page
            .entries
            .iter()
            .map(|entry| (entry.id.number, entry.record.action.as_str()))
            .collect();
        let last = MAX_RECORDS as u64 + 2;
        assert_eq!(shown, [(last, "freeze"), (last - 1, "unreadable")]);
    }
}
