//! The audit trail of one engine: the newest records.

use std::collections::VecDeque;

use holdline_core::audit::MAX_RECORDS;
use holdline_core::{AuditCommand, AuditEntry, AuditId, AuditPage, OperationReply};

/// The records, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// The number of the last record.
    last: u64,
    kept: VecDeque<AuditEntry>,
}

impl Trail {
    /// Carries out a command.
    pub(crate) fn ask(&mut self, command: &AuditCommand) -> OperationReply {
        match command {
            AuditCommand::Append { at_ms, record } => {
                self.last += 1;
                let id = AuditId { at_ms: *at_ms, number: self.last };
                self.kept.push_back(AuditEntry { id, record: (**record).clone() });
                if self.kept.len() > MAX_RECORDS {
                    self.kept.pop_front();
                }
                OperationReply::Done
            }
            AuditCommand::Read(request) => {
                let newest = self.kept.iter().rev().filter(|entry| request.covers(entry.id));
                let entries = newest.take(request.limit()).cloned().collect();
                OperationReply::Audit(AuditPage::of(entries, request))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::{AuditRecord, AuditRequest, Operator};

    use super::*;

    #[test]
    fn only_the_newest_records_are_kept() {
        let mut trail = Trail::default();
        let record = Box::new(AuditRecord::new("freeze", &Operator::default()));
        for at_ms in 0..MAX_RECORDS as u64 + 5 {
            trail.ask(&AuditCommand::Append { at_ms, record: record.clone() });
        }
        let mut request = AuditRequest::default();
        let mut seen = Vec::new();
        loop {
            let OperationReply::Audit(page) = trail.ask(&AuditCommand::Read(request)) else {
                panic!("a page")
            };
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
