//! What is stored at a contender's node: how it asked, how it is kept, what it tells about itself.

use holdline_core::{Hold, LockError, Metadata};
use serde::{Deserialize, Serialize};

use crate::error::foreign;

/// The format that this engine writes. Another is refused as foreign.
const FORMAT: u8 = 1;

/// A contender's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    v: u8,
    /// The hold that was asked for first: asking again must name the same.
    pub(crate) asked: Hold,
    /// The hold that the last renewal gave.
    pub(crate) hold: Hold,
    /// The words of an operator who wants the name back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoked: Option<String>,
    pub(crate) holder: Metadata,
}

impl Record {
    pub(crate) fn new(hold: Hold, metadata: &Metadata) -> Record {
        Record { v: FORMAT, asked: hold, hold, revoked: None, holder: metadata.clone() }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Strings and numbers always encode; an empty record would be refused when it is read.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// `Foreign`: it is none of this format.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Record, LockError> {
        let record: Option<Record> = serde_json::from_slice(bytes).ok();
        record
            .filter(|record| record.v == FORMAT)
            .ok_or_else(|| foreign("a node like ours has a value that is none of this version's"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdline_core::ErrorKind;

    use super::*;

    #[test]
    fn a_record_comes_back_and_what_is_none_is_foreign() {
        let mut record =
            Record::new(Hold::Leased(Duration::from_millis(1_500)), &Metadata::default());
        record.revoked = Some("\"why\"".into());
        assert_eq!(Record::from_bytes(&record.to_bytes()).expect("ours"), record);
        let newer = String::from_utf8(record.to_bytes()).expect("text").replace(":1,", ":2,");
        for bytes in ["", "{}", "text", &newer] {
            let error = Record::from_bytes(bytes.as_bytes()).expect_err("foreign");
            assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{bytes}: {error}");
        }
    }
}
