//! What can go wrong with ZooKeeper, and what the library is told about it.
//!
//! A refusal says that the request did nothing. A connection that broke or an answer that did not
//! come in time leave open whether it was carried out.

use std::fmt;

use holdline_core::{Certainty, ErrorKind, LockError};
use zookeeper_client::Error;

/// The engine's short name.
pub(crate) const ENGINE: &str = "zookeeper";

/// How much of what the client says is kept.
const LONGEST_WORDS: usize = 300;

/// Why a request came to nothing, before it is known what that means for a lock.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The session is over, and with it all its nodes.
    SessionGone,
    /// There is no such node.
    NoNode,
    /// There is such a node.
    NodeExists,
    /// The node has children.
    NotEmpty,
    /// The node was changed meanwhile.
    BadVersion,
    /// No answer came: it may have been carried out.
    NoAnswer(String),
    /// All else.
    Error(LockError),
}

impl Trouble {
    /// Returns the error that the library is told.
    pub(crate) fn into_error(self) -> LockError {
        match self {
            Trouble::SessionGone => unavailable("the session ended meanwhile", Certainty::Unknown),
            Trouble::NoNode => protocol("a node is gone that was there a moment ago"),
            Trouble::NodeExists => protocol("a node of our own name was made by another"),
            Trouble::NotEmpty => protocol("a node has children where there are to be none"),
            Trouble::BadVersion => protocol("a node changes again and again"),
            Trouble::NoAnswer(message) => unavailable(message, Certainty::Unknown),
            Trouble::Error(error) => error,
        }
    }
}

impl From<LockError> for Trouble {
    fn from(error: LockError) -> Trouble {
        Trouble::Error(error)
    }
}

impl From<Trouble> for LockError {
    fn from(trouble: Trouble) -> LockError {
        trouble.into_error()
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        match error {
            Error::SessionExpired | Error::SessionMoved | Error::ClientClosed => {
                Trouble::SessionGone
            }
            Error::NoNode => Trouble::NoNode,
            Error::NodeExists => Trouble::NodeExists,
            Error::NotEmpty => Trouble::NotEmpty,
            Error::BadVersion => Trouble::BadVersion,
            Error::ConnectionLoss | Error::Timeout | Error::NoHosts => {
                Trouble::NoAnswer(format!("no answer of the servers ({})", words(&error)))
            }
            Error::NoAuth => Trouble::Error(refused(
                "the user may not use our nodes: grant it all rights on them (setAcl), or name \
                 another in the URL",
            )),
            Error::AuthFailed => Trouble::Error(refused("the servers refuse user and password")),
            Error::InvalidAcl => Trouble::Error(refused(
                "the servers do not take the nodes' ACL: `acl=creator` needs user and password",
            )),
            Error::QuotaExceeded => {
                Trouble::Error(refused("the quota on our nodes is used up: raise it (setquota)"))
            }
            Error::NotReadOnly => Trouble::Error(LockError::new(
                ENGINE,
                ErrorKind::NoQuorum {
                    nodes: vec!["the member only reads: it sees no quorum".into()],
                },
                Certainty::NotApplied,
            )),
            Error::Throttled => {
                Trouble::Error(unavailable("the servers are busy", Certainty::NotApplied))
            }
            // A connection that breaks in the middle is told as what the system said of it.
            Error::Custom(_) => Trouble::NoAnswer(format!("no answer ({})", words(&error))),
            other => Trouble::Error(protocol(words(&other))),
        }
    }
}

/// What the client says, cut and without what a terminal obeys.
fn words(error: &dyn fmt::Display) -> String {
    let words: String = error.to_string().chars().take(LONGEST_WORDS).collect();
    holdline_core::Escaped(&words).to_string()
}

/// No answer; `certainty` tells whether the request may have been carried out.
pub(crate) fn unavailable(message: impl Into<String>, certainty: Certainty) -> LockError {
    LockError::new(ENGINE, ErrorKind::Unavailable { message: message.into() }, certainty)
}

/// The server answered what it must not. What the request did is unknown.
pub(crate) fn protocol(message: impl Into<String>) -> LockError {
    LockError::new(ENGINE, ErrorKind::Protocol { message: message.into() }, Certainty::Unknown)
}

pub(crate) fn foreign(found: impl Into<String>) -> LockError {
    not_applied(ErrorKind::Foreign { found: found.into() })
}

pub(crate) fn not_applied(kind: ErrorKind) -> LockError {
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}

fn refused(message: &str) -> LockError {
    not_applied(ErrorKind::Refused { message: message.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(error: Error) -> (ErrorKind, Certainty) {
        let error = Trouble::from(error).into_error();
        (error.kind().clone(), error.certainty())
    }

    #[test]
    fn a_refusal_did_nothing_and_says_what_to_do() {
        for (error, advice) in [
            (Error::NoAuth, "setAcl"),
            (Error::AuthFailed, "user and password"),
            (Error::InvalidAcl, "needs user and password"),
            (Error::QuotaExceeded, "setquota"),
        ] {
            let (kind, certainty) = told(error);
            assert!(
                matches!(&kind, ErrorKind::Refused { message } if message.contains(advice)),
                "{kind:?}"
            );
            assert_eq!(certainty, Certainty::NotApplied, "{advice}");
        }
    }

    #[test]
    fn what_may_have_been_carried_out_is_unknown() {
        for error in [Error::ConnectionLoss, Error::Timeout, Error::SessionExpired] {
            let (kind, certainty) = told(error.clone());
            assert!(matches!(kind, ErrorKind::Unavailable { .. }), "{error}: {kind:?}");
            assert_eq!(certainty, Certainty::Unknown, "{error}");
        }
    }
}
