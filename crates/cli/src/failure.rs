//! Why a verb failed: the exit code, the message, and what to do about it.

use std::fmt::{Display, Write as _};

use holdline_core::{Certainty, ErrorKind, LockError};

use crate::child::LaunchError;
use crate::descriptors;
use crate::exit::{self, Exit};
use crate::holder::Holder;

/// A failure, ready to be printed. Its text contains no unescaped external text and no secret.
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
    /// Whether the request took effect; `None` if no request was sent to a store.
    pub(crate) certainty: Option<Certainty>,
    /// The holder of the name, if the store reported it.
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

    /// Somebody else holds the name.
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
    /// Makes a failure of an engine's error. `current` is the holder as seen now, if it was
    /// inspected.
    pub(crate) fn of(error: &LockError, current: Option<Holder>) -> Failure {
        let text = error.to_string();
        let holder = match error.kind() {
            ErrorKind::Busy { holder } | ErrorKind::TimedOut { holder, .. } => holder.as_deref(),
            _ => None,
        };
        let current = current.or(holder.cloned().map(Holder::reported));
        let text = match (holder, &current) {
            (Some(holder), Some(current)) => {
                text.replacen(&holder.to_string(), &current.to_string(), 1)
            }
            _ => text,
        };
        // Each server's error gets a line of its own.
        let text = match error.kind() {
            ErrorKind::NoQuorum { nodes } if !nodes.is_empty() => {
                text.replacen(&nodes.join("; "), &format!("\n  {}", nodes.join("\n  ")), 1)
            }
            _ => text,
        };
        let mut message = text.strip_prefix("holdline: ").unwrap_or(&text).to_owned();
        let mut fix = None;
        let mut cause = std::error::Error::source(error);
        // Engines make short chains; the bound protects against a circular one.
        for _ in 0..8 {
            let Some(source) = cause else { break };
            let text = source.to_string();
            let io = source.downcast_ref::<std::io::Error>();
            fix = fix.or_else(|| descriptors::fix(io?));
            if !message.contains(&text) {
                let _ = write!(message, ": {text}");
            }
            cause = source.source();
        }
        let kind = error.kind().word();
        let mut failure = Failure::new(Exit::of(error.kind()), kind, message);
        failure.certainty = Some(error.certainty());
        failure.fix = fix.or_else(|| exit::fix(error.kind()).map(str::to_owned));
        failure.holder = current.map(Box::new);
        failure
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Failure {
        let failure = Failure::internal(&error);
        match error.exit_code() {
            127 => failure.kind("not_found").exit(Exit::NotFound),
            126 => failure.kind("cannot_run").exit(Exit::CannotRun),
            _ => failure,
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        let fix = descriptors::fix(&error);
        Failure { fix, ..Failure::internal(error) }
    }
}
