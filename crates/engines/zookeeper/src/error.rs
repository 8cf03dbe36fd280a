//! The errors of ZooKeeper, and the errors that the library returns for them.
//!
//! A refusal means that the request did nothing. If the connection breaks, or there is no answer in
//! time, the request may have been applied.

use std::fmt;

use holdline_core::{Certainty, ErrorKind, LockError};
use zookeeper_client::Error;

/// The engine's short name.
pub(crate) const ENGINE: &str = "zookeeper";

/// How much of the client's message is kept.
const LONGEST_WORDS: usize = 300;

/// Why a request failed, before it is clear what that means for a lock.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The session has expired, and with it all its nodes.
    SessionGone,
    /// The node does not exist.
    NoNode,
    /// The node exists already.
    NodeExists,
    /// The node has children.
    NotEmpty,
    /// The node was changed meanwhile.
    BadVersion,
    /// No answer: the request may have been applied.
    NoAnswer(String),
    /// Any other error.
    Error(LockError),
}

impl RequestError {
    /// Returns the error for the library.
    pub(crate) fn into_error(self) -> LockError {
        match self {
            RequestError::SessionGone => {
                unavailable("the session ended meanwhile", Certainty::Unknown)
            }
            RequestError::NoNode => protocol("a node is gone that existed just before"),
            RequestError::NodeExists => {
                protocol("another client created a node with the name of this one")
            }
            RequestError::NotEmpty => protocol("a node has children that it must not have"),
            RequestError::BadVersion => protocol("a node keeps changing"),
            RequestError::NoAnswer(message) => unavailable(message, Certainty::Unknown),
            RequestError::Error(error) => error,
        }
    }
}

impl From<LockError> for RequestError {
    fn from(error: LockError) -> RequestError {
        RequestError::Error(error)
    }
}

impl From<RequestError> for LockError {
    fn from(failure: RequestError) -> LockError {
        failure.into_error()
    }
}

impl From<Error> for RequestError {
    fn from(error: Error) -> RequestError {
        match error {
            Error::SessionExpired | Error::SessionMoved | Error::ClientClosed => {
                RequestError::SessionGone
            }
            Error::NoNode => RequestError::NoNode,
            Error::NodeExists => RequestError::NodeExists,
            Error::NotEmpty => RequestError::NotEmpty,
            Error::BadVersion => RequestError::BadVersion,
            Error::ConnectionLoss | Error::Timeout | Error::NoHosts => {
                RequestError::NoAnswer(format!("no answer of the servers ({})", words(&error)))
            }
            Error::NoAuth => RequestError::Error(refused(
                "the user may not use the locks' nodes: grant it all rights on them (setAcl), \
                 or use another user in the URL",
            )),
            Error::AuthFailed => {
                RequestError::Error(refused("the servers refuse user and password"))
            }
            Error::InvalidAcl => RequestError::Error(refused(
                "the servers do not accept the nodes' ACL: `acl=creator` needs user and password",
            )),
            Error::QuotaExceeded => RequestError::Error(refused(
                "the quota on the nodes is used up: raise it (setquota)",
            )),
            Error::NotReadOnly => RequestError::Error(LockError::new(
                ENGINE,
                ErrorKind::NoQuorum {
                    nodes: vec!["the member is read-only: it has no quorum".into()],
                },
                Certainty::NotApplied,
            )),
            Error::Throttled => {
                RequestError::Error(unavailable("the servers are busy", Certainty::NotApplied))
            }
            // A connection that breaks during a request is reported as an error of the system.
            Error::Custom(_) => RequestError::NoAnswer(format!("no answer ({})", words(&error))),
            other => RequestError::Error(protocol(words(&other))),
        }
    }
}

/// Returns the message of the client, shortened and without control characters.
fn words(error: &dyn fmt::Display) -> String {
    let words: String = error.to_string().chars().take(LONGEST_WORDS).collect();
    holdline_core::Escaped(&words).to_string()
}

/// No answer; `certainty` says whether the request may have been applied.
pub(crate) fn unavailable(message: impl Into<String>, certainty: Certainty) -> LockError {
    LockError::new(ENGINE, ErrorKind::Unavailable { message: message.into() }, certainty)
}

/// An unexpected answer. Whether the request was applied is unknown.
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

    fn outcome(error: Error) -> (ErrorKind, Certainty) {
        let error = RequestError::from(error).into_error();
        (error.kind().clone(), error.certainty())
    }

    #[test]
    fn a_refused_request_is_not_applied_and_the_error_says_what_to_do() {
        for (error, advice) in [
            (Error::NoAuth, "setAcl"),
            (Error::AuthFailed, "user and password"),
            (Error::InvalidAcl, "needs user and password"),
            (Error::QuotaExceeded, "setquota"),
        ] {
            let (kind, certainty) = outcome(error);
            assert!(
                matches!(&kind, ErrorKind::Refused { message } if message.contains(advice)),
                "{kind:?}"
            );
            assert_eq!(certainty, Certainty::NotApplied, "{advice}");
        }
    }

    #[test]
    fn requests_that_may_have_been_applied_are_unknown() {
        for error in [Error::ConnectionLoss, Error::Timeout, Error::SessionExpired] {
            let (kind, certainty) = outcome(error.clone());
            assert!(matches!(kind, ErrorKind::Unavailable { .. }), "{error}: {kind:?}");
            assert_eq!(certainty, Certainty::Unknown, "{error}");
        }
    }
}
