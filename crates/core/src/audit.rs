//! The audit trail: what operators did to a store, in the store itself.
//!
//! - A1: a record is bounded: a text that is too long is cut when the record is made, and an engine
//!   refuses a record that is encoded longer than [`MAX_RECORD_BYTES`].
//! - A2: a store keeps about the newest [`MAX_RECORDS`]. Only an append removes older ones.
//! - A3: the record of an operation is appended after it, by a request of its own. So a failed
//!   append never changes the outcome of the operation, and a process that ends between the two
//!   leaves no record.
//! - A4: a record that cannot be read is shown as one ([`UNREADABLE`]), not left out.
//!
//! Times are Unix milliseconds: of the store's clock where it has one, else of the program that
//! appended. No rule about locks depends on a record.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

use crate::capabilities::{AuditTrail, Capabilities};
use crate::error::{Certainty, LockError};
use crate::name::LockName;
use crate::token::FencingToken;

/// About how many records a store keeps.
pub const MAX_RECORDS: usize = 10_000;
/// How many records one page has at most.
pub const MAX_PAGE: usize = 500;
/// The longest encoded record, in bytes: every text at its limit, each byte escaped.
pub const MAX_RECORD_BYTES: usize = 8 * 1024;
/// The longest reason that an operator may give, in bytes.
pub const MAX_REASON_BYTES: usize = 512;
/// The longest action, in bytes.
const MAX_ACTION_BYTES: usize = 32;
/// The longest text that names an operator, or where a request came from, in bytes.
const MAX_WHO_BYTES: usize = 128;
/// The longest text that explains an outcome, in bytes.
const MAX_DETAIL_BYTES: usize = 200;
/// The action of a record that cannot be read.
pub const UNREADABLE: &str = "unreadable";
/// The format that is written. No other is read.
const FORMAT: u8 = 1;

/// What became of an operator's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = OutcomeBody))]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    /// It is done.
    Done,
    /// The holder was notified, and keeps the name for the rest of its lease at most.
    Notified,
    /// There was nothing to act on. Nothing was changed.
    NothingThere,
    /// It was refused or failed. Nothing was changed.
    Refused,
    /// Whether it took effect is unknown.
    Unknown,
}

impl AuditOutcome {
    /// Returns the word of the outcome, as JSON has it.
    pub fn word(self) -> &'static str {
        match self {
            AuditOutcome::Done => "done",
            AuditOutcome::Notified => "notified",
            AuditOutcome::NothingThere => "nothing_there",
            AuditOutcome::Refused => "refused",
            AuditOutcome::Unknown => "unknown",
        }
    }
}

impl fmt::Display for AuditOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Who acts, and from where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operator {
    /// The user, or the name of a token.
    pub who: String,
    /// The machine and the process, or the address.
    pub from: String,
}

/// One action of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// What was done: one word, such as `revoke`.
    pub action: String,
    /// The user, or the name of a token.
    pub who: String,
    /// The machine and the process, or the address.
    pub from: String,
    /// The lock name; `None` for an action on the whole store.
    pub name: Option<LockName>,
    /// The fencing token that the action named.
    pub fencing_token: Option<FencingToken>,
    /// The operator's reason.
    pub reason: String,
    /// What became of it.
    pub outcome: AuditOutcome,
    /// The error of an action that was refused or is unknown.
    pub detail: String,
}

impl AuditRecord {
    /// Makes the record of an action that is done.
    pub fn new(action: &str, operator: &Operator) -> AuditRecord {
        AuditRecord {
            action: cut(action, MAX_ACTION_BYTES),
            who: cut(&operator.who, MAX_WHO_BYTES),
            from: cut(&operator.from, MAX_WHO_BYTES),
            name: None,
            fencing_token: None,
            reason: String::new(),
            outcome: AuditOutcome::Done,
            detail: String::new(),
        }
    }

    /// Sets the reason, or what the action is about where it has no name.
    #[must_use]
    pub fn because(self, reason: &str) -> AuditRecord {
        AuditRecord { reason: cut(reason, MAX_REASON_BYTES), ..self }
    }

    /// Sets what became of an action that ended with an error.
    #[must_use]
    pub fn failed(self, error: &LockError) -> AuditRecord {
        let outcome = match error.certainty() {
            Certainty::Applied => AuditOutcome::Done,
            Certainty::NotApplied => AuditOutcome::Refused,
            Certainty::Unknown => AuditOutcome::Unknown,
        };
        self.ended(outcome, error)
    }

    /// Sets what became of the action, and why.
    #[must_use]
    pub fn ended(self, outcome: AuditOutcome, detail: impl fmt::Display) -> AuditRecord {
        AuditRecord { outcome, detail: cut(&detail.to_string(), MAX_DETAIL_BYTES), ..self }
    }

    /// Checks what no store need be asked for before the record is appended.
    ///
    /// # Errors
    /// `Unsupported` where the engine does not append, `Invalid` for a record that is too long.
    pub fn check(&self, capabilities: &Capabilities) -> Result<(), LockError> {
        match capabilities.audit {
            AuditTrail::None => Err(capabilities.lacks_audit()),
            AuditTrail::Server => Err(capabilities
                .lacks("records of its clients: the server records what it is asked to do")),
            AuditTrail::Store if self.to_encoded().len() > MAX_RECORD_BYTES => {
                let message = format_args!("may have {MAX_RECORD_BYTES} bytes");
                Err(LockError::invalid(capabilities.engine, "record", message))
            }
            AuditTrail::Store => Ok(()),
        }
    }

    /// Encodes the record, for a store to keep: one JSON object.
    pub fn to_encoded(&self) -> String {
        // Strings and numbers always encode; an empty record is shown as unreadable.
        serde_json::to_string(&Encoded { v: FORMAT, record: Cow::Borrowed(self) })
            .unwrap_or_default()
    }

    /// Decodes a record. A text that is none of ours becomes a record with the action
    /// [`UNREADABLE`].
    pub fn from_encoded(text: &[u8]) -> AuditRecord {
        match serde_json::from_slice(text) {
            Ok(Encoded { v: FORMAT, record }) => record.into_owned(),
            _ => {
                let record = AuditRecord::new(UNREADABLE, &Operator::default());
                record.ended(AuditOutcome::Unknown, String::from_utf8_lossy(text))
            }
        }
    }
}

/// A record as stores keep it.
#[derive(Serialize, Deserialize)]
struct Encoded<'a> {
    v: u8,
    #[serde(flatten)]
    record: Cow<'a, AuditRecord>,
}

/// The place of a record in its trail: the time of the append, and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditId {
    /// When the record was appended, in Unix milliseconds.
    pub at_ms: u64,
    /// Distinguishes the records of a store, alone or together with the time.
    pub number: u64,
}

impl fmt::Display for AuditId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at_ms, self.number)
    }
}

impl Serialize for AuditId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AuditId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<AuditId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for AuditId {
    type Err = AuditIdError;

    fn from_str(text: &str) -> Result<AuditId, AuditIdError> {
        let (at_ms, number) = text.split_once('-').ok_or(AuditIdError)?;
        let read = |text: &str| {
            if text.bytes().all(|byte| byte.is_ascii_digit()) {
                text.parse().map_err(|_| AuditIdError)
            } else {
                Err(AuditIdError)
            }
        };
        Ok(AuditId { at_ms: read(at_ms)?, number: read(number)? })
    }
}

/// A text is no place in an audit trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be two numbers with a `-` between them")]
pub struct AuditIdError;

/// A record, and its place in the trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Its place, which has the time.
    pub id: AuditId,
    /// The record.
    pub record: AuditRecord,
}

/// Which records to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRequest {
    /// Only records of this time or later, in Unix milliseconds.
    pub since_ms: u64,
    /// Only records before this place.
    pub before: Option<AuditId>,
    /// How many records at most; [`MAX_PAGE`] if it is more.
    pub limit: usize,
}

impl Default for AuditRequest {
    /// The newest records.
    fn default() -> AuditRequest {
        AuditRequest { since_ms: 0, before: None, limit: MAX_PAGE }
    }
}

/// Some records, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// The records.
    pub entries: Vec<AuditEntry>,
    /// Where the next page begins; `None` at the end.
    pub before: Option<AuditId>,
}

impl AuditPage {
    /// Makes a page of the records that a store returned for a request. A full page has another
    /// one behind it, which may be empty.
    pub fn of(entries: Vec<AuditEntry>, request: &AuditRequest) -> AuditPage {
        let is_full = entries.len() >= request.limit();
        let before = entries.last().filter(|_| is_full).map(|entry| entry.id);
        AuditPage { entries, before }
    }
}

impl AuditRequest {
    /// Checks what no store need be asked for.
    ///
    /// # Errors
    /// `Unsupported` where the engine has no trail.
    pub fn check(&self, capabilities: &Capabilities) -> Result<(), LockError> {
        let has_trail = capabilities.audit != AuditTrail::None;
        if has_trail { Ok(()) } else { Err(capabilities.lacks_audit()) }
    }

    /// Returns how many records a page may have.
    pub fn limit(&self) -> usize {
        self.limit.clamp(1, MAX_PAGE)
    }

    /// Returns whether a record is one that the request is for, apart from the limit.
    pub fn covers(&self, id: AuditId) -> bool {
        id.at_ms >= self.since_ms && self.before.is_none_or(|before| id.number < before.number)
    }
}

/// Cuts a text to at most `bytes`, between two characters.
pub fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::operation::{Operation, OperationReply};

    fn revoke(reason: &str) -> Operation {
        Operation::Revoke {
            name: LockName::new("a\"\\").expect("good"),
            token: FencingToken::MIN,
            reason: reason.to_owned(),
            now: false,
        }
    }

    #[test]
    fn a_record_is_bounded_whatever_the_texts_and_comes_back() {
        let long = "\u{1}".repeat(5_000);
        let operator = Operator { who: long.clone(), from: long.clone() };
        let kind = ErrorKind::Unavailable { message: long.clone() };
        let error = LockError::new("e", kind, Certainty::Unknown);
        let name = LockName::new("\"".repeat(512)).expect("good");
        let record = revoke(&long).audit_record(&operator, &Err(error));
        let record = AuditRecord { name: Some(name), ..record };
        let text = record.to_encoded();
        assert!(text.len() <= MAX_RECORD_BYTES, "{}", text.len());
        assert_eq!(AuditRecord::from_encoded(text.as_bytes()), record);
        assert_eq!(record.outcome, AuditOutcome::Unknown);
    }

    #[test]
    fn the_outcome_is_that_of_the_reply() {
        let error = |certainty| {
            Err(LockError::new("e", ErrorKind::Refused { message: "no".into() }, certainty))
        };
        for (reply, outcome) in [
            (Ok(OperationReply::Done), AuditOutcome::Done),
            (Ok(OperationReply::Notified { left: None }), AuditOutcome::Notified),
            (Ok(OperationReply::NothingThere), AuditOutcome::NothingThere),
            (error(Certainty::NotApplied), AuditOutcome::Refused),
            (error(Certainty::Unknown), AuditOutcome::Unknown),
            (error(Certainty::Applied), AuditOutcome::Done),
        ] {
            let record = revoke("why").audit_record(&Operator::default(), &reply);
            assert_eq!((record.outcome, record.detail.is_empty()), (outcome, reply.is_ok()));
            assert_eq!(serde_json::to_value(outcome).expect("JSON"), outcome.word());
        }
    }

    #[test]
    fn what_cannot_be_read_is_shown_as_a_record() {
        let good = AuditRecord::new("freeze", &Operator::default()).to_encoded();
        for text in [&b""[..], b"{}", b"\xff", good.replace("\"v\":1", "\"v\":2").as_bytes()] {
            let record = AuditRecord::from_encoded(text);
            assert_eq!((record.action.as_str(), record.name), (UNREADABLE, None));
        }
    }

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let id = AuditId { at_ms: 7, number: u64::MAX };
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "7", "7-", "-7", "+7-1", "a-b", "7-18446744073709551616"] {
            assert_eq!(text.parse::<AuditId>(), Err(AuditIdError), "{text}");
        }
    }

    #[test]
    fn a_store_without_a_trail_refuses_it_and_a_server_refuses_records_only() {
        let mut capabilities = Capabilities::reference("e", "test");
        let append = AuditRecord::new("freeze", &Operator::default());
        let read = AuditRequest::default();
        for (audit, appends, reads) in [
            (AuditTrail::None, false, false),
            (AuditTrail::Server, false, true),
            (AuditTrail::Store, true, true),
        ] {
            capabilities.audit = audit;
            assert_eq!(append.check(&capabilities).is_ok(), appends, "{audit:?}");
            assert_eq!(read.check(&capabilities).is_ok(), reads, "{audit:?}");
        }
    }
}
