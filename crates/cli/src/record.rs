//! Records of operators' actions that no store keeps: in a file, if the user names one.

use std::path::PathBuf;

use holdline::AuditFile;
use holdline_core::{AuditRecord, Escaped, Operator};

use crate::console::Messages;
use crate::holder;
use crate::user;

/// The variable with the file for records that the store does not keep.
const FILE: &str = "HOLDLINE_AUDIT_FILE";

/// Returns who acts: this user, by this process.
pub(crate) fn operator() -> Operator {
    let from = format!("{} (pid {})", holder::host(), std::process::id());
    Operator { who: user::name(), from }
}

/// Appends a record to the file of [`FILE`]. If there is none, or it cannot be written, a message
/// says that nothing has the record.
pub(crate) fn in_file(record: &AuditRecord, url: &str, messages: &dyn Messages) {
    let action = Escaped(&record.action);
    let Some(path) = std::env::var_os(FILE).filter(|path| !path.is_empty()) else {
        let message = "not recorded: this engine keeps no audit trail, and no file is named by";
        return messages.info(&format!("{action}: {message} {FILE}"));
    };
    let path = PathBuf::from(path);
    let url = holdline::redact_url(url);
    let written = AuditFile::open(&path).and_then(|file| file.append(&url, record));
    if let Err(error) = written {
        let path = path.to_string_lossy();
        messages.warn(&format!("{action}: not recorded in {}: {error}", Escaped(&path)));
    }
}
