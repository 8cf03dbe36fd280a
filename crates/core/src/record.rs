//! The record of a contender, for stores that keep a text for each: what it requested, how its
//! grant is kept, and what it states about itself. Other programs read the layout, so it is part
//! of the key layout. Also what such a store remembers once the record is gone.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contract::RenewReply;
use crate::error::{Certainty, ErrorKind, LockError, LostReason};
use crate::lease::Hold;
use crate::lease_id::LeaseId;
use crate::metadata::Metadata;

/// The format that is written. No other is read.
const FORMAT: u8 = 1;

/// A contender's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    v: u8,
    /// The lease id, if the store's key does not contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    /// The hold of the first request: a repeated request must name the same.
    pub asked: Hold,
    /// The hold that the last renewal gave.
    pub hold: Hold,
    /// The reason of an operator who revoked the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
    /// What the contender states about itself.
    pub holder: Metadata,
}

impl Record {
    /// Makes the record of a new contender.
    pub fn new(hold: Hold, metadata: &Metadata) -> Record {
        let holder = metadata.clone();
        Record { v: FORMAT, lease_id: None, asked: hold, hold, revoked: None, holder }
    }

    /// Encodes the record.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings and numbers always encode; an empty record would be refused when it is read.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes a record; `None` when the text has another format.
    pub fn from_bytes(bytes: &[u8]) -> Option<Record> {
        let record: Option<Record> = serde_json::from_slice(bytes).ok();
        record.filter(|record| record.v == FORMAT)
    }
}

/// What such a store remembers about a lease id that has no record any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The lease id was given up.
    pub gone: bool,
    /// The grant was revoked, for this reason.
    pub revoked: Option<String>,
}

impl Marks {
    /// Checks that the lease id may still be used: one that was given up or revoked never is.
    ///
    /// # Errors
    /// `Cancelled` or `Lost`.
    pub fn check(&self, engine: &'static str) -> Result<(), LockError> {
        let kind = match &self.revoked {
            _ if self.gone => ErrorKind::Cancelled,
            Some(reason) => ErrorKind::Lost { reason: LostReason::Revoked(reason.clone()) },
            None => return Ok(()),
        };
        Err(LockError::new(engine, kind, Certainty::NotApplied))
    }

    /// Returns the reply to a renewal under the lease id.
    pub fn into_renew_reply(self) -> RenewReply {
        match self.revoked {
            Some(reason) => RenewReply::Revoked { reason, left: Some(Duration::ZERO) },
            None => RenewReply::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_decoded_and_other_text_is_rejected() {
        let mut record =
            Record::new(Hold::Leased(Duration::from_millis(1_500)), &Metadata::default());
        record.revoked = Some("\"why\"".into());
        assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record.clone()));
        record.lease_id = Some(LeaseId::from_bytes([7; 16]));
        assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record.clone()));
        let newer = String::from_utf8(record.to_bytes()).expect("text").replace(":1,", ":2,");
        for bytes in ["", "{}", "text", &newer] {
            assert_eq!(Record::from_bytes(bytes.as_bytes()), None, "{bytes}");
        }
    }
    #[test]
    fn a_lease_id_that_was_given_up_or_revoked_is_never_used_again() {
        let revoked = Some("maintenance".to_owned());
        for (gone, revoked, says) in [
            (true, None, "given up"),
            (true, revoked.clone(), "given up"),
            (false, revoked, "maintenance"),
        ] {
            let error = Marks { gone, revoked }.check("e").expect_err("over");
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.certainty(), Certainty::NotApplied);
        }
        assert!(Marks::default().check("e").is_ok());
    }
}
