//! Errors as JSON.
//!
//! - F1: kind and certainty are kept.
//! - F2: what a store or a driver says in its own words stays in the server's log: it may name
//!   paths, hosts and users.

use std::sync::Mutex;
use std::time::Duration;

use holdline_core::{Certainty, ErrorKind, HolderSummary, LockError, LostReason};
use serde::{Deserialize, Serialize};

use crate::error::ENGINE;

/// What replaces the words of a store.
const IN_LOG: &str = "the log of the server has the store's own words";
/// How many features or fields of later servers are remembered at most.
const MOST_WORDS: usize = 64;

/// A [`LockError`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    kind: Kind,
    certainty: Certainty,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Busy { holder: Option<Box<HolderSummary>> },
    TimedOut { waited: Duration, holder: Option<Box<HolderSummary>> },
    Cancelled,
    Lost { reason: LostReason },
    TooManyWaiters { limit: usize },
    NoQuorum,
    Quarantined { left: Duration },
    NotInitialised,
    Unsupported { feature: String },
    Foreign,
    Refused,
    Unavailable,
    Protocol,
    Invalid { field: String, message: String },
}

impl Failure {
    /// Writes an error.
    pub fn of(error: &LockError) -> Failure {
        Failure { kind: Kind::of(error.kind()), certainty: error.certainty() }
    }

    /// Reads the error.
    pub fn into_error(self) -> LockError {
        LockError::new(ENGINE, self.kind.into_kind(), self.certainty)
    }
}

impl Kind {
    fn of(kind: &ErrorKind) -> Kind {
        match kind {
            ErrorKind::Busy { holder } => Kind::Busy { holder: holder.clone() },
            ErrorKind::TimedOut { waited, holder } => {
                Kind::TimedOut { waited: *waited, holder: holder.clone() }
            }
            ErrorKind::Cancelled => Kind::Cancelled,
            ErrorKind::Lost { reason } => Kind::Lost { reason: without_words(reason) },
            ErrorKind::TooManyWaiters { limit } => Kind::TooManyWaiters { limit: *limit },
            ErrorKind::NoQuorum { .. } => Kind::NoQuorum,
            ErrorKind::Quarantined { left } => Kind::Quarantined { left: *left },
            ErrorKind::NotInitialised => Kind::NotInitialised,
            ErrorKind::Unsupported { feature } => {
                Kind::Unsupported { feature: (*feature).to_owned() }
            }
            ErrorKind::Foreign { .. } => Kind::Foreign,
            ErrorKind::Refused { .. } => Kind::Refused,
            ErrorKind::Unavailable { .. } => Kind::Unavailable,
            ErrorKind::Invalid { field, message } => {
                Kind::Invalid { field: (*field).to_owned(), message: message.clone() }
            }
            // A kind that this version does not know, as one that must not be.
            _ => Kind::Protocol,
        }
    }

    fn into_kind(self) -> ErrorKind {
        let message = || IN_LOG.to_owned();
        match self {
            Kind::Busy { holder } => ErrorKind::Busy { holder },
            Kind::TimedOut { waited, holder } => ErrorKind::TimedOut { waited, holder },
            Kind::Cancelled => ErrorKind::Cancelled,
            Kind::Lost { reason } => ErrorKind::Lost { reason },
            Kind::TooManyWaiters { limit } => ErrorKind::TooManyWaiters { limit },
            Kind::NoQuorum => ErrorKind::NoQuorum { nodes: vec![message()] },
            Kind::Quarantined { left } => ErrorKind::Quarantined { left },
            Kind::NotInitialised => ErrorKind::NotInitialised,
            Kind::Unsupported { feature } => ErrorKind::Unsupported { feature: kept(feature) },
            Kind::Foreign => ErrorKind::Foreign { found: message() },
            Kind::Refused => ErrorKind::Refused { message: message() },
            Kind::Unavailable => ErrorKind::Unavailable { message: message() },
            Kind::Protocol => ErrorKind::Protocol { message: message() },
            Kind::Invalid { field, message } => ErrorKind::Invalid { field: kept(field), message },
        }
    }
}

/// Leaves out the words of a store.
fn without_words(reason: &LostReason) -> LostReason {
    match reason {
        LostReason::StoreGone(_) => LostReason::StoreGone(IN_LOG.to_owned()),
        other => other.clone(),
    }
}

/// Keeps a word for the life of the process, as errors need it. There are a few dozen; a server
/// that sends ever new ones gets a common one.
fn kept(word: String) -> &'static str {
    static WORDS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut words = WORDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    kept_in(&mut words, word)
}

fn kept_in(words: &mut Vec<&'static str>, word: String) -> &'static str {
    match words.iter().find(|known| **known == word) {
        Some(known) => known,
        None if words.len() < MOST_WORDS && word.len() <= 200 => {
            let word: &'static str = Box::leak(word.into_boxed_str());
            words.push(word);
            word
        }
        None => "request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(kind: ErrorKind) -> LockError {
        let error = LockError::new("redis", kind, Certainty::Unknown);
        let text = serde_json::to_string(&Failure::of(&error)).expect("JSON");
        assert!(!text.contains("s3cret"), "{text}");
        serde_json::from_str::<Failure>(&text).expect("read").into_error()
    }

    #[test]
    fn kind_and_certainty_cross_the_network_and_the_words_of_a_store_do_not() {
        let secret = || "s3cret".to_owned();
        for kind in [
            ErrorKind::Busy { holder: None },
            ErrorKind::TimedOut { waited: Duration::from_secs(1), holder: None },
            ErrorKind::Cancelled,
            ErrorKind::Lost { reason: LostReason::StoreGone(secret()) },
            ErrorKind::TooManyWaiters { limit: 3 },
            ErrorKind::NoQuorum { nodes: vec![secret()] },
            ErrorKind::Quarantined { left: Duration::from_millis(1_500) },
            ErrorKind::NotInitialised,
            ErrorKind::Unsupported { feature: "permits" },
            ErrorKind::Foreign { found: secret() },
            ErrorKind::Refused { message: secret() },
            ErrorKind::Unavailable { message: secret() },
            ErrorKind::Protocol { message: secret() },
            ErrorKind::Invalid { field: "mode", message: "why".to_owned() },
        ] {
            let back = round_trip(kind.clone());
            assert_eq!(std::mem::discriminant(back.kind()), std::mem::discriminant(&kind));
            assert_eq!(back.certainty(), Certainty::Unknown);
        }
        let invalid = ErrorKind::Invalid { field: "mode", message: "why".to_owned() };
        assert_eq!(round_trip(invalid.clone()).kind(), &invalid);
    }

    #[test]
    fn ever_new_words_do_not_fill_the_memory() {
        let mut words = Vec::new();
        for number in 0..1_000 {
            kept_in(&mut words, format!("word {number}"));
        }
        assert_eq!(kept_in(&mut words, "one more".to_owned()), "request");
        assert_eq!(kept_in(&mut words, "word 7".to_owned()), "word 7");
        assert_eq!(words.len(), MOST_WORDS);
    }
}
