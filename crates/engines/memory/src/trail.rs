//! The audit trail of one engine: the newest records.

use std::collections::VecDeque;

use holdline_core::audit::MAX_RECORDS;
use holdline_core::{AuditEntry, AuditId, AuditPage, AuditRecord, AuditRequest};

/// The records, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// The number of the last record.
    last: u64,
    kept: VecDeque<AuditEntry>,
}

impl Trail {
    /// Appends a record, and removes the oldest one if there are too many.
    pub(crate) fn append(&mut self, at_ms: u64, record: &AuditRecord) {
        self.last += 1;
        let id = AuditId { at_ms, number: self.last };
        self.kept.push_back(AuditEntry { id, record: record.clone() });
        if self.kept.len() > MAX_RECORDS {
            self.kept.pop_front();
        }
    }

    /// Returns a page of the records.
    pub(crate) fn read(&self, request: &AuditRequest) -> AuditPage {
        let newest = self.kept.iter().rev().filter(|entry| request.covers(entry.id));
        let entries = newest.take(request.limit()).cloned().collect();
        AuditPage::of(entries, request)
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::Operator;

    use super::*;

    #[test]
    fn only_the_newest_records_are_kept() {
        let mut trail = Trail::default();
        let record = AuditRecord::new("freeze", &Operator::default());
        for at_ms in 0..MAX_RECORDS as u64 + 5 {
            trail.append(at_ms, &record);
        }
        let mut request = AuditRequest::default();
        let mut seen = Vec::new();
        loop {
            let page = trail.read(&request);
            seen.extend(page.entries.iter().map(|entry| entry.id.at_ms));
            match page.before {
                Some(before) => request.before = Some(before),
                None => break,
            }
        }
        let kept: Vec<u64> = (5..MAX_RECORDS as u64 + 5).rev().collect();
        assert!(seen == kept, "{} records, from {:?}", seen.len(), seen.first());
    }
}
