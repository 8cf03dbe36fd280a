//! The errors of etcd, and the errors that the library returns for them.
//!
//! A refusal means that the request did nothing. If there is no answer in time, the connection
//! breaks, or the leader changes, the request may have been applied, or may still be.

use std::fmt;

use holdline_core::{Certainty, ErrorKind, LockError};
use tonic::{Code, Status};

/// The engine's short name.
pub(crate) const ENGINE: &str = "etcd";

holdline_net::errors_of!(ENGINE);

/// How much of a server's message is kept.
const LONGEST_WORDS: usize = 300;

/// Why a request failed, before it is clear what that means for a lock.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The lease of the request does not exist.
    LeaseGone,
    /// The lease to be created exists.
    LeaseExists,
    /// The authentication token is no longer valid.
    Unauthenticated(LockError),
    /// Another member may be able to answer.
    Elsewhere(LockError),
    /// Any other error.
    Error(LockError),
}

impl RequestError {
    /// Returns the error for the library.
    pub(crate) fn into_error(self) -> LockError {
        match self {
            RequestError::LeaseGone => {
                protocol("the etcd lease is gone, although it was just kept alive")
            }
            RequestError::LeaseExists => {
                protocol("another client made a lease with this lease's id")
            }
            RequestError::Unauthenticated(error)
            | RequestError::Elsewhere(error)
            | RequestError::Error(error) => error,
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

/// A message of the server, shortened and without control characters.
#[derive(Debug)]
struct ServerMessage(String);

impl fmt::Display for ServerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", holdline_core::Escaped(&self.0))
    }
}

/// Too few members agree, as while a leader is elected.
fn no_quorum(server: &ServerMessage, certainty: Certainty) -> LockError {
    LockError::new(ENGINE, ErrorKind::NoQuorum { nodes: vec![server.to_string()] }, certainty)
}

/// Returns the innermost cause, which says most: a refused connection, an untrusted certificate.
pub(crate) fn deepest(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(next) = deepest.source() {
        deepest = next;
    }
    deepest.to_string()
}

/// Classifies a failed call.
pub(crate) fn request_error(status: &Status) -> RequestError {
    // The cause of a broken connection is the innermost source.
    let cause = std::error::Error::source(status).map(deepest).unwrap_or_default();
    let words = format!("{} {cause}", status.message());
    let words: String = words.trim_end().chars().take(LONGEST_WORDS).collect();
    let has = |text: &str| words.contains(text);
    let message = ServerMessage(words.clone());
    if has("requested lease not found") {
        return RequestError::LeaseGone;
    }
    if has("lease already exists") {
        return RequestError::LeaseExists;
    }
    // Some requests return the messages between the members, with no code of their own.
    let is_old = has("revision of auth store is old") || has("revision in header is old");
    if status.code() == Code::Unauthenticated || is_old || has("invalid auth token") {
        let error = refused(format!("the server no longer knows our token ({message})"));
        return RequestError::Unauthenticated(error);
    }
    match refusal(status.code(), &words) {
        Some(advice) => RequestError::Error(refused(format!("{advice} ({message})"))),
        None => unanswered(status.code(), &words, &message),
    }
}

/// Returns advice, if the server has refused the request.
fn refusal(code: Code, words: &str) -> Option<&'static str> {
    let has = |text: &str| words.contains(text);
    Some(match code {
        Code::PermissionDenied => {
            "the user may not use our keys: grant its role readwrite on the prefix"
        }
        _ if has("user name is empty") || has("user name not found") => {
            "the server wants user and password"
        }
        _ if has("authentication failed") => "user or password is wrong",
        _ if has("authentication is not enabled") => {
            "the server knows no passwords: leave user and password out"
        }
        _ if has("database space exceeded") => {
            "the server's database is full: compact and defragment it, then disarm its alarm"
        }
        _ if has("corrupt") => "the server reports that its data is corrupt",
        _ if has("too many operations") => {
            "the server takes too few operations a transaction: raise --max-txn-ops to 128"
        }
        _ if has("request is too large") => "the request is too large for the server",
        _ => return None,
    })
}

/// Returns the error of a request that may have been applied.
fn unanswered(code: Code, words: &str, server: &ServerMessage) -> RequestError {
    let has = |text: &str| words.contains(text);
    // This is returned before the request is processed.
    if has("etcdserver: no leader") {
        return RequestError::Elsewhere(no_quorum(server, Certainty::NotApplied));
    }
    if has("not capable") || has("too many requests") {
        let message = format!("the member cannot serve now ({server})");
        return RequestError::Elsewhere(unavailable(message, Certainty::NotApplied));
    }
    // The members did not agree in time; the request may still be applied.
    if has("etcdserver: request timed out") || has("etcdserver: leader changed") {
        return RequestError::Elsewhere(no_quorum(server, Certainty::Unknown));
    }
    match code {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            let message = format!("no answer of the cluster ({server})");
            RequestError::Elsewhere(unavailable(message, Certainty::Unknown))
        }
        _ => RequestError::Error(protocol(format!(
            "the server refused what it should know: {server}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(code: Code, words: &str) -> (ErrorKind, Certainty) {
        let error = request_error(&Status::new(code, words)).into_error();
        (error.kind().clone(), error.certainty())
    }

    #[test]
    fn a_refused_request_is_not_applied_and_the_error_says_what_to_do() {
        for (code, words, advice) in [
            (Code::PermissionDenied, "etcdserver: permission denied", "readwrite on the prefix"),
            (Code::InvalidArgument, "etcdserver: user name is empty", "user and password"),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                "password is wrong",
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                "database is full",
            ),
        ] {
            let (kind, certainty) = outcome(code, words);
            assert!(
                matches!(&kind, ErrorKind::Refused { message } if message.contains(advice)),
                "{kind:?}"
            );
            assert_eq!(certainty, Certainty::NotApplied, "{words}");
        }
    }

    #[test]
    fn an_expired_token_is_distinguished_from_other_errors() {
        for (code, words) in [
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old"),
            (Code::Unknown, "auth: revision in header is old"),
            (Code::Unknown, "auth: invalid auth token"),
        ] {
            let found = request_error(&Status::new(code, words));
            assert!(matches!(found, RequestError::Unauthenticated(_)), "{words}: {found:?}");
        }
    }

    #[test]
    fn requests_that_may_have_been_applied_are_unknown() {
        for (code, words) in [(Code::Unknown, "transport error"), (Code::DeadlineExceeded, "")] {
            let (kind, certainty) = outcome(code, words);
            assert!(matches!(kind, ErrorKind::Unavailable { .. }), "{words}: {kind:?}");
            assert_eq!(certainty, Certainty::Unknown, "{words}");
        }
    }

    #[test]
    fn members_that_do_not_agree_are_no_quorum() {
        for (words, expected) in [
            ("etcdserver: no leader", Certainty::NotApplied),
            ("etcdserver: request timed out", Certainty::Unknown),
            ("etcdserver: request timed out, possibly due to connection lost", Certainty::Unknown),
            ("etcdserver: leader changed", Certainty::Unknown),
        ] {
            let (kind, certainty) = outcome(Code::Unavailable, words);
            assert!(matches!(kind, ErrorKind::NoQuorum { .. }), "{words}: {kind:?}");
            assert_eq!(certainty, expected, "{words}");
        }
    }

    #[test]
    fn words_of_the_server_do_not_reach_a_terminal_raw() {
        let error = request_error(&Status::new(Code::Internal, "a\u{1b}[31mb")).into_error();
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
}
