//! What went wrong, and what is certain about it.
//!
//! Invariant E1: "held by another", "no answer" and "refused" are never one value.
//! Invariant E2: every failure says whether the request was applied, was not applied, or that
//! this is unknown.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::name::LockName;
use crate::snapshot::HolderSummary;

/// Whether the request that failed took effect in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = CertaintyWord))]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// It took effect.
    Applied,
    /// It did not take effect and will not.
    NotApplied,
    /// It may have taken effect, or may still take effect.
    Unknown,
}

impl Certainty {
    /// Returns the word for it, as JSON has it. It never changes.
    pub fn word(self) -> &'static str {
        match self {
            Certainty::Applied => "applied",
            Certainty::NotApplied => "not_applied",
            Certainty::Unknown => "unknown",
        }
    }
}

/// Why a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LostReason {
    /// It was not renewed in time, by the holder's own clock.
    Expired,
    /// It was held for as long as `max_hold` allows.
    MaxHold,
    /// It was acquired for a fixed time, without renewal, and that time is over.
    RanOut,
    /// The store no longer knows it: deleted, flushed, or ended by the store's own timer.
    Missing,
    /// An operator revoked it, for this reason.
    Revoked(String),
    /// The store's session, database or file that carried it is gone.
    StoreGone(String),
    /// It was released under its lease id: by its own guard, or by another process.
    Released,
}

impl LostReason {
    /// Returns the word for it, in metrics, spans and JSON. It never changes.
    pub fn word(&self) -> &'static str {
        match self {
            LostReason::Expired => "expired",
            LostReason::MaxHold => "max_hold",
            LostReason::RanOut => "ran_out",
            LostReason::Missing => "missing",
            LostReason::Revoked(_) => "revoked",
            LostReason::StoreGone(_) => "store_gone",
            LostReason::Released => "released",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostReason::Expired => f.write_str("not renewed in time"),
            LostReason::MaxHold => f.write_str("held for as long as max_hold allows"),
            LostReason::RanOut => f.write_str("its fixed lease has ended"),
            LostReason::Missing => f.write_str("the store no longer knows the lease"),
            LostReason::Revoked(reason) => {
                write!(f, "revoked by an operator: {}", crate::Escaped(reason))
            }
            LostReason::StoreGone(what) => write!(f, "the store is gone: {what}"),
            LostReason::Released => f.write_str("released under its lease id"),
        }
    }
}

/// What kind of failure it was, named by meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another client holds the name, or is ahead in its queue.
    Busy {
        /// The holder, where the engine knows it.
        holder: Option<Box<HolderSummary>>,
    },
    /// The wait limit passed while another client held the name.
    TimedOut {
        /// How long the client waited.
        waited: Duration,
        /// The holder at the last look.
        holder: Option<Box<HolderSummary>>,
    },
    /// This client gave the request up.
    Cancelled,
    /// The client no longer holds the lease.
    Lost {
        /// Why.
        reason: LostReason,
    },
    /// The name's queue is full.
    TooManyWaiters {
        /// How many contenders may wait.
        limit: usize,
    },
    /// Too few nodes answered, or none that may grant although others of its group answered.
    NoQuorum {
        /// One line for each node.
        nodes: Vec<String>,
    },
    /// The store may have lost its data and refuses requests for a while.
    Quarantined {
        /// For how much longer.
        left: Duration,
    },
    /// The store has not been set up for locks.
    NotInitialised,
    /// The engine cannot do this.
    Unsupported {
        /// The missing feature.
        feature: &'static str,
    },
    /// The data under the name is not ours. It was left as it is.
    Foreign {
        /// What was found.
        found: String,
    },
    /// The store refused the request: authentication, rights, read-only, full.
    Refused {
        /// The store's reason, and what to do.
        message: String,
    },
    /// The store did not answer.
    Unavailable {
        /// What was tried, and what happened.
        message: String,
    },
    /// The store sent an invalid reply.
    Protocol {
        /// What was expected and what was received.
        message: String,
    },
    /// The request itself is wrong.
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with it, and what would be valid.
        message: String,
    },
}

impl ErrorKind {
    /// Returns the word for this kind: in JSON, and as `error.type` in traces.
    pub fn word(&self) -> &'static str {
        match self {
            ErrorKind::Busy { .. } => "busy",
            ErrorKind::TimedOut { .. } => "timed_out",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Lost { .. } => "lost",
            ErrorKind::TooManyWaiters { .. } => "too_many_waiters",
            ErrorKind::NoQuorum { .. } => "no_quorum",
            ErrorKind::Quarantined { .. } => "quarantined",
            ErrorKind::NotInitialised => "not_initialised",
            ErrorKind::Unsupported { .. } => "unsupported",
            ErrorKind::Foreign { .. } => "foreign",
            ErrorKind::Refused { .. } => "refused",
            ErrorKind::Unavailable { .. } => "unavailable",
            ErrorKind::Protocol { .. } => "protocol",
            ErrorKind::Invalid { .. } => "invalid",
        }
    }
}

/// A failure of a lock operation: its kind, what is certain, the engine and the lock name.
#[derive(Clone)]
pub struct LockError(Box<ErrorParts>);

#[derive(Clone)]
struct ErrorParts {
    kind: ErrorKind,
    certainty: Certainty,
    engine: &'static str,
    name: Option<LockName>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl LockError {
    /// Makes an error. `engine` is the engine's short name, such as `local`.
    pub fn new(engine: &'static str, kind: ErrorKind, certainty: Certainty) -> LockError {
        LockError(Box::new(ErrorParts { kind, certainty, engine, name: None, source: None }))
    }

    /// Makes an error of kind `Invalid`, which is never applied.
    pub fn invalid(engine: &'static str, field: &'static str, message: impl fmt::Display) -> Self {
        let kind = ErrorKind::Invalid { field, message: message.to_string() };
        LockError::new(engine, kind, Certainty::NotApplied)
    }

    /// Makes an error of kind `Unsupported`, which is never applied.
    pub fn unsupported(engine: &'static str, feature: &'static str) -> LockError {
        LockError::new(engine, ErrorKind::Unsupported { feature }, Certainty::NotApplied)
    }

    /// Adds the lock name.
    #[must_use]
    pub fn with_name(mut self, name: &LockName) -> LockError {
        self.0.name = Some(name.clone());
        self
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> LockError {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Replaces what is certain.
    #[must_use]
    pub fn with_certainty(mut self, certainty: Certainty) -> LockError {
        self.0.certainty = certainty;
        self
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns whether the request took effect.
    pub fn certainty(&self) -> Certainty {
        self.0.certainty
    }

    /// Returns the engine's short name.
    pub fn engine(&self) -> &'static str {
        self.0.engine
    }

    /// Returns the lock name, where the failure concerns one.
    pub fn name(&self) -> Option<&LockName> {
        self.0.name.as_ref()
    }

    /// Returns whether another client holds or held the name: `Busy` or `TimedOut`.
    pub fn is_contended(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Busy { .. } | ErrorKind::TimedOut { .. })
    }

    /// Returns whether the store was not reached, or has not answered in time: `Unavailable`.
    pub fn is_unavailable(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Unavailable { .. })
    }

    /// Returns whether the store serves no requests at the moment, and may soon: `Unavailable`,
    /// `NoQuorum` or `Quarantined`. Attempts wait through such errors.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::Unavailable { .. }
                | ErrorKind::NoQuorum { .. }
                | ErrorKind::Quarantined { .. }
        )
    }

    /// Returns whether the lease is lost: `Lost`.
    pub fn is_lost(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Lost { .. })
    }

    /// Returns who held the name, for `Busy` and `TimedOut`, where the engine knows it.
    pub fn holder(&self) -> Option<&HolderSummary> {
        match &self.0.kind {
            ErrorKind::Busy { holder } | ErrorKind::TimedOut { holder, .. } => holder.as_deref(),
            _ => None,
        }
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.0.engine)?;
        if let Some(name) = &self.0.name {
            write!(f, "{name}: ")?;
        }
        write!(f, "{}", self.0.kind)?;
        match self.0.certainty {
            // A lost lease is no request.
            _ if matches!(self.0.kind, ErrorKind::Lost { .. }) => Ok(()),
            Certainty::Unknown => f.write_str(" (whether it took effect is unknown)"),
            Certainty::Applied => f.write_str(" (it took effect)"),
            Certainty::NotApplied => Ok(()),
        }
    }
}

impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockError")
            .field("kind", &self.0.kind)
            .field("certainty", &self.0.certainty)
            .field("engine", &self.0.engine)
            .field("name", &self.0.name)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for LockError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| -> &(dyn StdError + 'static) { source.as_ref() })
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Busy { holder } => {
                write!(f, "held by {}", HolderOrAnother(holder.as_deref()))
            }
            ErrorKind::TimedOut { waited, holder } => {
                write!(
                    f,
                    "not free after {waited:.1?}, held by {}",
                    HolderOrAnother(holder.as_deref())
                )
            }
            ErrorKind::Cancelled => f.write_str("given up by this client"),
            ErrorKind::Lost { reason } => write!(f, "the lease is lost: {reason}"),
            ErrorKind::TooManyWaiters { limit } => write!(f, "{limit} contenders wait already"),
            ErrorKind::NoQuorum { nodes } => write!(f, "no quorum: {}", nodes.join("; ")),
            ErrorKind::Quarantined { left } => {
                let why = "the store may have lost grants";
                write!(f, "{why}, and grants nothing for {left:.1?}")
            }
            ErrorKind::NotInitialised => f.write_str("the store is not set up for locks"),
            ErrorKind::Unsupported { feature } => write!(f, "this engine cannot do: {feature}"),
            ErrorKind::Foreign { found } => write!(f, "not ours, left as it is: {found}"),
            ErrorKind::Refused { message } => write!(f, "refused: {message}"),
            ErrorKind::Unavailable { message } => write!(f, "no answer: {message}"),
            ErrorKind::Protocol { message } => write!(f, "unexpected answer: {message}"),
            ErrorKind::Invalid { field, message } => write!(f, "{field}: {message}"),
        }
    }
}

struct HolderOrAnother<'a>(Option<&'a HolderSummary>);

impl fmt::Display for HolderOrAnother<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(holder) => holder.fmt(f),
            None => f.write_str("another"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FencingToken, LeaseId, Metadata, Mode};

    /// The pages on JSON, metrics and Python list these words.
    #[test]
    fn each_loss_has_a_word_of_its_own() {
        let text = String::new;
        let losses = [
            LostReason::Expired,
            LostReason::MaxHold,
            LostReason::RanOut,
            LostReason::Missing,
            LostReason::Revoked(text()),
            LostReason::StoreGone(text()),
            LostReason::Released,
        ];
        let words = losses.map(|loss| loss.word());
        let listed =
            ["expired", "max_hold", "ran_out", "missing", "revoked", "store_gone", "released"];
        assert_eq!(words, listed);
    }

    fn holder() -> HolderSummary {
        HolderSummary {
            lease_id: LeaseId::from_bytes([0xab; 16]).short(),
            token: FencingToken::new(7).ok(),
            mode: Mode::Exclusive,
            held_for: Some(Duration::from_secs(61)),
            left: None,
            no_expiry: false,
            metadata: Metadata::from_encoded(
                r#"{"program":"a\u001b[31mb","pid":9,"reason":"why"}"#,
            )
            .expect("short"),
        }
    }

    #[test]
    fn each_kind_reports_what_happened_and_its_certainty() {
        let name = LockName::new("n").expect("a good name");
        let busy = ErrorKind::Busy { holder: Some(Box::new(holder())) };
        let gone = ErrorKind::Lost { reason: LostReason::Expired };
        let silent = ErrorKind::Unavailable { message: "nothing within 1s".into() };
        for (kind, certainty, text) in [
            (busy, Certainty::NotApplied, "e: n: held by a\\u{1b}[31mb (pid 9) for 1m01s: why"),
            (gone, Certainty::NotApplied, "e: n: the lease is lost: not renewed in time"),
            (
                silent,
                Certainty::Unknown,
                "e: n: no answer: nothing within 1s (whether it took effect is unknown)",
            ),
            (
                ErrorKind::Cancelled,
                Certainty::Applied,
                "e: n: given up by this client (it took effect)",
            ),
        ] {
            let error = LockError::new("e", kind, certainty).with_name(&name);
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn held_no_answer_and_refused_are_three_things() {
        let busy = ErrorKind::Busy { holder: None };
        let silent = ErrorKind::Unavailable { message: String::new() };
        let refused = ErrorKind::Refused { message: String::new() };
        assert!(busy != silent && silent != refused && refused != busy);
        let contended = |kind| LockError::new("e", kind, Certainty::NotApplied).is_contended();
        assert_eq!([busy, silent, refused].map(contended), [true, false, false]);
    }

    #[test]
    fn the_source_is_kept_and_survives_a_copy() {
        let source = std::io::Error::other("deep down");
        let error = LockError::unsupported("e", "dancing").with_source(source);
        let copy = error.clone();
        assert_eq!(error.to_string(), copy.to_string());
        assert_eq!(StdError::source(&copy).map(ToString::to_string).as_deref(), Some("deep down"));
        assert_eq!((copy.certainty(), copy.engine()), (Certainty::NotApplied, "e"));
    }
}
