//! The errors of ZooKeeper, and the errors that the library returns for them.
//!
//! A refusal means that the request did nothing. If the connection breaks, or there is no answer in
//! time, the request may have been applied.

use holdline_core::{Certainty, ErrorKind, LockError};

/// The engine's short name.
pub(crate) const ENGINE: &str = "zookeeper";

holdline_net::errors_of!(ENGINE);

// The codes of errors, as in `KeeperException.Code`.
const CONNECTION_LOSS: i32 = -4;
const OPERATION_TIMEOUT: i32 = -7;
const NO_NODE: i32 = -101;
const NO_AUTH: i32 = -102;
const BAD_VERSION: i32 = -103;
const NODE_EXISTS: i32 = -110;
const NOT_EMPTY: i32 = -111;
const SESSION_EXPIRED: i32 = -112;
const INVALID_ACL: i32 = -114;
const AUTH_FAILED: i32 = -115;
const SESSION_MOVED: i32 = -118;
const NOT_READ_ONLY: i32 = -119;
const SASL_REQUIRED: i32 = -124;
const QUOTA_EXCEEDED: i32 = -125;
const THROTTLED: i32 = -127;

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
    /// The request was not sent, and never will be.
    NotSent(String),
    /// Any other error.
    Error(LockError),
}

impl RequestError {
    /// Returns the error for the library. An earlier request of the same verb may have been
    /// applied, so the outcome of the verb is unknown even if this request was not sent.
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
            RequestError::NoAnswer(message) | RequestError::NotSent(message) => {
                unavailable(message, Certainty::Unknown)
            }
            RequestError::Error(error) => error,
        }
    }

    /// As [`into_error`](Self::into_error), for the first request of a verb that changes anything.
    pub(crate) fn into_first_error(self) -> LockError {
        match self {
            RequestError::NotSent(message) => unavailable(message, Certainty::NotApplied),
            other => other.into_error(),
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

impl RequestError {
    /// Returns the error that a server reports by this code. It did nothing then.
    pub(crate) fn of_code(code: i32) -> RequestError {
        let refused = |message: &str| RequestError::Error(refused(message));
        match code {
            NO_NODE => RequestError::NoNode,
            NODE_EXISTS => RequestError::NodeExists,
            NOT_EMPTY => RequestError::NotEmpty,
            BAD_VERSION => RequestError::BadVersion,
            SESSION_EXPIRED | SESSION_MOVED => RequestError::SessionGone,
            CONNECTION_LOSS | OPERATION_TIMEOUT => {
                RequestError::NoAnswer(format!("the servers have no answer (error {code})"))
            }
            NO_AUTH => refused(
                "the user may not use the locks' nodes: grant it all rights on them (setAcl), \
                 or use another user in the URL",
            ),
            AUTH_FAILED | SASL_REQUIRED => refused("the servers refuse user and password"),
            INVALID_ACL => refused(
                "the servers do not accept the nodes' ACL: `acl=creator` needs user and password",
            ),
            QUOTA_EXCEEDED => refused("the quota on the nodes is used up: raise it (setquota)"),
            NOT_READ_ONLY => {
                let nodes = vec!["the member is read-only: it has no quorum".into()];
                RequestError::Error(not_applied(ErrorKind::NoQuorum { nodes }))
            }
            THROTTLED => {
                RequestError::Error(unavailable("the servers are busy", Certainty::NotApplied))
            }
            other => RequestError::Error(protocol(format!("the servers report error {other}"))),
        }
    }
}

/// Returns whether the session has ended after an error with this code.
pub(crate) fn ends_session(code: i32) -> bool {
    matches!(code, SESSION_EXPIRED | AUTH_FAILED | SASL_REQUIRED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(code: i32) -> (ErrorKind, Certainty) {
        let error = RequestError::of_code(code).into_error();
        (error.kind().clone(), error.certainty())
    }

    #[test]
    fn a_refused_request_is_not_applied_and_the_error_says_what_to_do() {
        for (code, advice) in [
            (NO_AUTH, "setAcl"),
            (AUTH_FAILED, "user and password"),
            (INVALID_ACL, "needs user and password"),
            (QUOTA_EXCEEDED, "setquota"),
        ] {
            let (kind, certainty) = outcome(code);
            assert!(
                matches!(&kind, ErrorKind::Refused { message } if message.contains(advice)),
                "{kind:?}"
            );
            assert_eq!(certainty, Certainty::NotApplied, "{advice}");
        }
    }

    #[test]
    fn requests_that_may_have_been_applied_are_unknown() {
        for code in [CONNECTION_LOSS, OPERATION_TIMEOUT, SESSION_EXPIRED] {
            let (kind, certainty) = outcome(code);
            assert!(matches!(kind, ErrorKind::Unavailable { .. }), "{code}: {kind:?}");
            assert_eq!(certainty, Certainty::Unknown, "{code}");
        }
        let unknown_code = outcome(-9_999);
        assert!(matches!(unknown_code, (ErrorKind::Protocol { .. }, Certainty::Unknown)));
    }

    #[test]
    fn a_request_that_was_not_sent_is_not_applied_if_it_is_the_first_of_its_verb() {
        let error = || RequestError::NotSent("no connection".to_owned());
        assert_eq!(error().into_error().certainty(), Certainty::Unknown);
        assert_eq!(error().into_first_error().certainty(), Certainty::NotApplied);
        let unanswered = RequestError::NoAnswer("no answer".to_owned());
        assert_eq!(unanswered.into_first_error().certainty(), Certainty::Unknown);
    }
}
