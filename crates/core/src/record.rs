//! What a store that keeps a text for each contender keeps in it: how it asked, how it is kept,
//! what it tells about itself. The layout is known to other programs, so it is part of the keys.

use serde::{Deserialize, Serialize};

use crate::lease::Hold;
use crate::metadata::Metadata;

/// The format that is written. No other is read.
const FORMAT: u8 = 1;

/// A contender's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    v: u8,
    /// The hold that was asked for first: asking again must name the same.
    pub asked: Hold,
    /// The hold that the last renewal gave.
    pub hold: Hold,
    /// The words of an operator who wants the name back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
    /// What the contender tells about itself.
    pub holder: Metadata,
}

impl Record {
    /// The record of one that asks.
    pub fn new(hold: Hold, metadata: &Metadata) -> Record {
        Record { v: FORMAT, asked: hold, hold, revoked: None, holder: metadata.clone() }
    }

    /// How it is written.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings and numbers always encode; an empty record would be refused when it is read.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a record; `None` when it is none of this format.
    pub fn from_bytes(bytes: &[u8]) -> Option<Record> {
        let record: Option<Record> = serde_json::from_slice(bytes).ok();
        record.filter(|record| record.v == FORMAT)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_record_comes_back_and_what_is_none_is_told() {
        let mut record =
            Record::new(Hold::Leased(Duration::from_millis(1_500)), &Metadata::default());
        record.revoked = Some("\"why\"".into());
        assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record.clone()));
        let newer = String::from_utf8(record.to_bytes()).expect("text").replace(":1,", ":2,");
        for bytes in ["", "{}", "text", &newer] {
            assert_eq!(Record::from_bytes(bytes.as_bytes()), None, "{bytes}");
        }
    }
}
