//! The audit trail of a store, and a file for the records that a store cannot keep.
//!
//! An [`AuditRecord`] says which [`Operator`] did what, and its [`AuditOutcome`].
//! [`Admin::append_audit`](crate::admin::Admin::append_audit) appends it to the store, and
//! [`Admin::audit`](crate::admin::Admin::audit) reads the newest ones. [`AuditFile`] is for stores
//! without a trail; which have one is in [`Capabilities`](crate::engine::Capabilities).
//!
//! - A1: a record is appended after its operation, and a failed append changes nothing of it.
//! - A2: a line of the file is on the disk when [`AuditFile::append`] returns, or it is an error.
//!
//! Read next: [`holdline_core::audit`] for the records.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use holdline_core::moment::whole_millis;
pub use holdline_core::{
    AuditEntry, AuditId, AuditOutcome, AuditPage, AuditRecord, AuditRequest, AuditTrail, Operator,
};
use serde::Serialize;

/// The mode of a new file: nobody else reads who did what, or why. Windows has no modes: there it
/// has the rights of its directory.
#[cfg(unix)]
const MODE: u32 = 0o600;

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
        if file.metadata()?.is_file() {
            Ok(AuditFile(file))
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
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

/// Returns a time of day in milliseconds since 1970.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    whole_millis(since)
}
