//! Why a verb ends without its result: the exit code, what to say, and what to do about it.

use std::fmt::{Display, Write as _};

use holdline_core::{Certainty, ErrorKind, LockError};

use crate::descriptors;
use crate::exit::{self, Exit};
use crate::holder::Holder;

/// A failure, ready to be told. Its text holds nothing from outside unescaped, and no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// How the program ends.
    pub(crate) exit: Exit,
    /// The stable word for `--json`.
    pub(crate) kind: &'static str,
    /// What happened.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) fix: Option<String>,
    /// Whether the request took effect; `None` where nothing was asked of a store.
    pub(crate) certainty: Option<Certainty>,
    /// Who had the name, where the store told.
    pub(crate) holder: Option<Box<Holder>>,
}

/// What a verb ends with.
pub(crate) type Outcome = Result<Exit, Failure>;

impl Failure {
    fn new(exit: Exit, kind: &'static str, message: impl Display) -> Failure {
        let message = message.to_string();
        Failure { exit, kind, message, fix: None, certainty: None, holder: None }
    }

    /// The command line is wrong.
    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure::new(Exit::Usage, "usage", message)
    }

    /// The configuration or the URL is wrong.
    pub(crate) fn config(message: impl Display) -> Failure {
        Failure::new(Exit::Config, "config", message)
    }

    /// Our own failure.
    pub(crate) fn internal(message: impl Display) -> Failure {
        Failure::new(Exit::Internal, "internal", message)
    }

    /// The lease is not, or no longer, held.
    pub(crate) fn lost(message: impl Display) -> Failure {
        Failure::new(Exit::Lost, "lost", message)
    }

    /// Somebody else keeps the name.
    pub(crate) fn busy(message: impl Display) -> Failure {
        Failure::new(Exit::Busy, "busy", message)
    }

    /// There was nothing to act on.
    pub(crate) fn nothing(message: impl Display) -> Failure {
        Failure::new(Exit::Negative, "nothing_there", message)
    }

    /// Adds what to do about it.
    pub(crate) fn fix(mut self, fix: impl Display) -> Failure {
        self.fix = Some(fix.to_string());
        self
    }

    /// Replaces the stable word.
    pub(crate) fn kind(mut self, kind: &'static str) -> Failure {
        self.kind = kind;
        self
    }

    /// Adds whether the request took effect.
    pub(crate) fn certainty(mut self, certainty: Certainty) -> Failure {
        self.certainty = Some(certainty);
        self
    }

    /// Replaces the exit code.
    pub(crate) fn exit(mut self, exit: Exit) -> Failure {
        self.exit = exit;
        self
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Failure {
        Failure::of(&error, None)
    }
}

impl Failure {
    /// Tells a failure of an engine, with who is in the way, if somebody looked.
    pub(crate) fn of(error: &LockError, seen: Option<Holder>) -> Failure {
        let told = error.to_string();
        let holder = match error.kind() {
            ErrorKind::Busy { holder } | ErrorKind::TimedOut { holder, .. } => holder.as_deref(),
            _ => None,
        };
        let seen = seen.or(holder.cloned().map(Holder::told));
        let told = match (holder, &seen) {
            (Some(holder), Some(seen)) => told.replacen(&holder.to_string(), &seen.to_string(), 1),
            _ => told,
        };
        // What is known of each server has a line of its own.
        let told = match error.kind() {
            ErrorKind::NoQuorum { nodes } if !nodes.is_empty() => {
                told.replacen(&nodes.join("; "), &format!("\n  {}", nodes.join("\n  ")), 1)
            }
            _ => told,
        };
        let mut message = told.strip_prefix("holdline: ").unwrap_or(&told).to_owned();
        let mut fix = None;
        let mut cause = std::error::Error::source(error);
        // The chain is made by engines and short; the bound keeps a circular one from us.
        for _ in 0..8 {
            let Some(source) = cause else { break };
            let told = source.to_string();
            let io = source.downcast_ref::<std::io::Error>();
            fix = fix.or_else(|| descriptors::fix(io?));
            if !message.contains(&told) {
                let _ = write!(message, ": {told}");
            }
            cause = source.source();
        }
        let kind = exit::word(error.kind());
        let mut failure = Failure::new(Exit::of(error.kind()), kind, message);
        failure.certainty = Some(error.certainty());
        failure.fix = fix.or_else(|| exit::fix(error.kind()).map(str::to_owned));
        failure.holder = seen.map(Box::new);
        failure
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        let fix = descriptors::fix(&error);
        Failure { fix, ..Failure::internal(error) }
    }
}
