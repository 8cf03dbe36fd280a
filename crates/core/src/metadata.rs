//! What a holder states about itself.
//!
//! The store keeps it with the lease, and `who` shows it. No rule depends on it.
//! Invariant H1: encoded it has at most [`MAX_METADATA_BYTES`] bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest encoded metadata, in bytes.
pub const MAX_METADATA_BYTES: usize = 1024;

/// What a holder states about itself, field by field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HolderFields {
    /// The machine's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The process id on that machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The user's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The program that holds the lock.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub program: String,
    /// Why it holds the lock, in the user's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Free labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The W3C trace context, so that a waiter's span can link to the holder's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub traceparent: String,
    /// The value of an election's leader, or of a candidate.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The lease that was asked for, in milliseconds. Only detached leases have it:
    /// the process that renews one may know only its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_duration_ms: Option<u64>,
}

/// A holder's metadata, encoded once and cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Metadata(Arc<str>);

impl Metadata {
    /// Encodes the fields.
    ///
    /// # Errors
    /// [`MetadataError`] when the encoding is longer than [`MAX_METADATA_BYTES`].
    pub fn new(fields: &HolderFields) -> Result<Metadata, MetadataError> {
        // A struct of strings and numbers always encodes; an empty object stands for the rest.
        Metadata::from_encoded(&serde_json::to_string(fields).unwrap_or_else(|_| "{}".into()))
    }

    /// Takes text that a store has kept. Text that is not ours decodes to empty fields.
    ///
    /// # Errors
    /// [`MetadataError`] when it is longer than [`MAX_METADATA_BYTES`].
    pub fn from_encoded(text: &str) -> Result<Metadata, MetadataError> {
        if text.len() > MAX_METADATA_BYTES {
            return Err(MetadataError { bytes: text.len() });
        }
        Ok(Metadata(Arc::from(text)))
    }

    /// Returns the encoding, for a store to keep: one JSON object.
    pub fn as_encoded(&self) -> &str {
        &self.0
    }

    /// Decodes the fields; what cannot be read is empty.
    pub fn fields(&self) -> HolderFields {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl Default for Metadata {
    fn default() -> Metadata {
        Metadata(Arc::from("{}"))
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metadata({})", self.0)
    }
}

/// The metadata is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "reason, labels and the rest of the holder's metadata may have {MAX_METADATA_BYTES} bytes \
     together, these have {bytes}: shorten the reason or the labels"
)]
pub struct MetadataError {
    /// Its encoded length in bytes.
    pub bytes: usize,
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            self.fields().serialize(serializer)
        } else {
            self.0.as_ref().serialize(serializer)
        }
    }
}

/// Metadata as the text that a store has kept, also if it is not ours; for `serde(with)`.
pub(crate) mod as_text {
    use super::{Deserialize, Deserializer, Metadata, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        it: &Metadata,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        it.as_encoded().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Metadata, D::Error> {
        Metadata::from_encoded(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Metadata, D::Error> {
        if deserializer.is_human_readable() {
            let fields = HolderFields::deserialize(deserializer)?;
            Metadata::new(&fields).map_err(serde::de::Error::custom)
        } else {
            let text = <&str>::deserialize(deserializer)?;
            Metadata::from_encoded(text).map_err(serde::de::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let fields = HolderFields {
            host: "h".into(),
            pid: Some(7),
            reason: "new \u{1b}[31m".into(),
            labels: BTreeMap::from([("k".into(), "v".into())]),
            ..HolderFields::default()
        };
        assert_eq!(Metadata::new(&fields).expect("small").fields(), fields);
        assert_eq!(Metadata::default().fields(), HolderFields::default());
    }

    #[test]
    fn too_large_is_refused_and_foreign_text_is_empty() {
        let fields = HolderFields { reason: "x".repeat(1024), ..HolderFields::default() };
        assert!(matches!(Metadata::new(&fields), Err(MetadataError { bytes: 1025.. })));
        let foreign = Metadata::from_encoded("not json").expect("short");
        assert_eq!(foreign.fields(), HolderFields::default());
    }
}
