//! The audit trail of a store, and a file for the records that a store cannot keep.
//!
//! - A1: a record is appended after its operation, and a failed append changes nothing of it.
//! - A2: a line of the file is on the disk when [`AuditFile::append`] returns, or it is an error.
//!
//! Read next: [`holdline_core::audit`] for the records.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use holdline_core::{
    AuditCommand, AuditEntry, AuditPage, AuditRecord, AuditRequest, ErrorKind, LockError,
    Operation, OperationReply,
};
use serde::Serialize;

use crate::client::Client;

/// The mode of a new file: nobody else reads who did what, or why. Windows has no modes: there it
/// has the rights of its directory.
#[cfg(unix)]
const MODE: u32 = 0o600;

impl Client {
    /// Appends a record to the audit trail of the store, with the time of now.
    ///
    /// # Errors
    /// `Unsupported`: the store keeps no trail, or a server keeps it, which appends the records of
    /// its clients itself. `Invalid`: a text of the record is too long. All others: the store
    /// failed, and by its certainty the record may be there.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer: the record may be appended.
    pub async fn append_audit(&self, record: AuditRecord) -> Result<(), LockError> {
        let record = Box::new(record);
        let command = AuditCommand::Append { at_ms: unix_ms(SystemTime::now()), record };
        self.operate(&Operation::Audit(command)).await.map(drop)
    }

    /// Returns the newest records of the audit trail that `wanted` accepts, the newest first. It
    /// asks the store for pages until it has as many as the request says.
    ///
    /// # Errors
    /// `Unsupported`: the store keeps no trail. All others: the store failed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn audit(
        &self,
        request: &AuditRequest,
        wanted: impl Fn(&AuditEntry) -> bool,
    ) -> Result<AuditPage, LockError> {
        let (limit, mut next) = (request.limit, *request);
        let mut found = AuditPage::default();
        loop {
            let page = self.audit_page(next).await?;
            for entry in page.entries.into_iter().filter(&wanted) {
                if found.entries.len() == limit {
                    found.before = found.entries.last().map(|last| last.id);
                    return Ok(found);
                }
                found.entries.push(entry);
            }
            match page.before {
                Some(before) if next.before != Some(before) => next.before = Some(before),
                _ => return Ok(found),
            }
        }
    }

    async fn audit_page(&self, request: AuditRequest) -> Result<AuditPage, LockError> {
        match self.operate(&Operation::Audit(AuditCommand::Read(request))).await? {
            OperationReply::Audit(page) => Ok(page),
            _ => {
                let message = "a command to the audit trail had another reply".to_owned();
                let kind = ErrorKind::Protocol { message };
                let certainty = holdline_core::Certainty::NotApplied;
                Err(LockError::new(self.capabilities().engine, kind, certainty))
            }
        }
    }
}

/// A file of records, one JSON object a line. Lines are only appended.
#[derive(Debug)]
pub struct AuditFile(File);

/// A line of the file.
#[derive(Serialize)]
struct Line<'a> {
    at_ms: u64,
    store: &'a str,
    #[serde(flatten)]
    record: &'a AuditRecord,
}

impl AuditFile {
    /// Opens the file for appending. A new one is readable by this user only.
    ///
    /// # Errors
    /// The file cannot be opened, or is not a regular file.
    pub fn open(path: &Path) -> io::Result<AuditFile> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, MODE);
        let file = options.open(path)?;
        match file.metadata()?.is_file() {
            true => Ok(AuditFile(file)),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
        }
    }

    /// Appends a record with the time of now, and waits until it is on the disk. `store` is the
    /// name or the URL of the store; it must have no secret.
    ///
    /// # Errors
    /// The line was not written, or it is unknown whether the disk has it.
    pub fn append(&self, store: &str, record: &AuditRecord) -> io::Result<()> {
        let at_ms = unix_ms(SystemTime::now());
        let mut line = serde_json::to_vec(&Line { at_ms, store, record })?;
        line.push(b'\n');
        // One write, so that the lines of several processes do not mix.
        (&self.0).write_all(&line)?;
        self.0.sync_data()
    }
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
