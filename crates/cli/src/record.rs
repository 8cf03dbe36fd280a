//! Records of operators' actions that no store keeps: in a file, if the user names one.

use std::fmt::Display;
use std::path::PathBuf;

use holdline::audit::AuditFile;
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

/// Says that nothing has recorded an action, and why.
pub(crate) fn not_recorded(record: &AuditRecord, why: impl Display) -> String {
    // The words of records are stable; people read what they type.
    let typed = match record.action.as_str() {
        "revoke_now" => "revoke --now".to_owned(),
        action => action.replace('_', " "),
    };
    format!("{}: not recorded{why}", Escaped(&typed))
}

/// Appends a record to the file of [`FILE`]. If there is none, or it cannot be written, a message
/// says that nothing has the record.
pub(crate) fn in_file(record: &AuditRecord, url: &str, messages: &dyn Messages) {
    let Some(path) = std::env::var_os(FILE).filter(|path| !path.is_empty()) else {
        let why = format!(": this engine keeps no audit trail, and no file is named by {FILE}");
        return messages.info(&not_recorded(record, why));
    };
    let path = PathBuf::from(path);
    let url = holdline::redact_url(url);
    let written = AuditFile::open(&path).and_then(|file| file.append(&url, record));
    if let Err(error) = written {
        let path = path.to_string_lossy();
        let why = format!(" in {}: {error}", Escaped(&path));
        messages.warn(&not_recorded(record, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_what_they_type() {
        let operator = Operator { who: "me".to_owned(), from: "here".to_owned() };
        let text = |action: &str| not_recorded(&AuditRecord::new(action, &operator), "");
        assert_eq!(text("revoke_now"), "revoke --now: not recorded");
        assert_eq!(text("fence_bump"), "fence bump: not recorded");
        assert_eq!(text("freeze"), "freeze: not recorded");
    }
}
