//! What can go wrong with etcd, and what the library is told about it.
//!
//! A refusal says that the request did nothing. No answer in time, a broken connection, a change
//! of the leader on the way: the request may have been carried out, or may be yet.

use std::fmt;

use holdline_core::{Certainty, ErrorKind, LockError};
use tonic::{Code, Status};

/// The engine's short name.
pub(crate) const ENGINE: &str = "etcd";

/// How much of the server's own words is kept.
const LONGEST_WORDS: usize = 300;

/// Why a request came to nothing, before it is known what that means for a lock.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The lease that it named is not there.
    LeaseGone,
    /// The lease that it would have made is there.
    LeaseExists,
    /// The token that names our user is no longer good.
    Unauthenticated(LockError),
    /// Another member may do better.
    Elsewhere(LockError),
    /// All else.
    Error(LockError),
}

impl Trouble {
    /// Returns the error that the library is told.
    pub(crate) fn into_error(self) -> LockError {
        match self {
            Trouble::LeaseGone => protocol("the lease is gone that was kept a moment ago"),
            Trouble::LeaseExists => protocol("a lease of our own number was made by another"),
            Trouble::Unauthenticated(error) | Trouble::Elsewhere(error) | Trouble::Error(error) => {
                error
            }
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

/// The words of the server, cut and without what a terminal obeys.
#[derive(Debug)]
struct Words(String);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", holdline_core::Escaped(&self.0))
    }
}

/// No answer; `certainty` tells whether the request may have been carried out.
pub(crate) fn unavailable(message: impl Into<String>, certainty: Certainty) -> LockError {
    LockError::new(ENGINE, ErrorKind::Unavailable { message: message.into() }, certainty)
}

/// Too few members agree, as while a leader is elected.
fn no_quorum(told: &Words, certainty: Certainty) -> LockError {
    LockError::new(ENGINE, ErrorKind::NoQuorum { nodes: vec![told.to_string()] }, certainty)
}

/// The server answered what it must not. What the request did is unknown.
pub(crate) fn protocol(message: impl Into<String>) -> LockError {
    LockError::new(ENGINE, ErrorKind::Protocol { message: message.into() }, Certainty::Unknown)
}

pub(crate) fn foreign(found: impl Into<String>) -> LockError {
    LockError::new(ENGINE, ErrorKind::Foreign { found: found.into() }, Certainty::NotApplied)
}

pub(crate) fn not_applied(kind: ErrorKind) -> LockError {
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}

/// The cause that lies deepest says most: a refused connection, a certificate that is not trusted.
pub(crate) fn deepest(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(next) = deepest.source() {
        deepest = next;
    }
    deepest.to_string()
}

fn refused(message: String) -> LockError {
    not_applied(ErrorKind::Refused { message })
}

/// What a failed call means.
pub(crate) fn trouble(status: &Status) -> Trouble {
    // Why a connection broke stands deep below the words.
    let cause = std::error::Error::source(status).map(deepest).unwrap_or_default();
    let words = format!("{} {cause}", status.message());
    let words: String = words.trim_end().chars().take(LONGEST_WORDS).collect();
    let has = |text: &str| words.contains(text);
    let told = Words(words.clone());
    if has("requested lease not found") {
        return Trouble::LeaseGone;
    }
    if has("lease already exists") {
        return Trouble::LeaseExists;
    }
    // Some requests bring the words of the members among themselves, with no code of their own.
    let is_old = has("revision of auth store is old") || has("revision in header is old");
    if status.code() == Code::Unauthenticated || is_old || has("invalid auth token") {
        let error = refused(format!("the server no longer knows our token ({told})"));
        return Trouble::Unauthenticated(error);
    }
    match refusal(status.code(), &words) {
        Some(advice) => Trouble::Error(refused(format!("{advice} ({told})"))),
        None => unanswered(status.code(), &words, &told),
    }
}

/// What to do about a request that the server will not carry out, if it is that.
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
        _ if has("corrupt") => "the server says that its data is corrupt",
        _ if has("too many operations") => {
            "the server takes too few operations a transaction: raise --max-txn-ops to 128"
        }
        _ if has("request is too large") => "the request is too large for the server",
        _ => return None,
    })
}

/// A request that may have been carried out, or was stopped on its way.
fn unanswered(code: Code, words: &str, told: &Words) -> Trouble {
    let has = |text: &str| words.contains(text);
    // Said before the request is looked at.
    if has("etcdserver: no leader") {
        return Trouble::Elsewhere(no_quorum(told, Certainty::NotApplied));
    }
    if has("not capable") || has("too many requests") {
        let message = format!("the member cannot serve now ({told})");
        return Trouble::Elsewhere(unavailable(message, Certainty::NotApplied));
    }
    // Said when the members did not agree on the request in time; they may do so yet.
    if has("etcdserver: request timed out") || has("etcdserver: leader changed") {
        return Trouble::Elsewhere(no_quorum(told, Certainty::Unknown));
    }
    match code {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            let message = format!("no answer of the cluster ({told})");
            Trouble::Elsewhere(unavailable(message, Certainty::Unknown))
        }
        _ => Trouble::Error(protocol(format!("the server refused what it should know: {told}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: Code, words: &str) -> (ErrorKind, Certainty) {
        let error = trouble(&Status::new(code, words)).into_error();
        (error.kind().clone(), error.certainty())
    }

    #[test]
    fn a_refusal_did_nothing_and_says_what_to_do() {
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
            let (kind, certainty) = told(code, words);
            assert!(
                matches!(&kind, ErrorKind::Refused { message } if message.contains(advice)),
                "{kind:?}"
            );
            assert_eq!(certainty, Certainty::NotApplied, "{words}");
        }
    }

    #[test]
    fn a_token_that_is_no_longer_good_is_told_from_all_else() {
        for (code, words) in [
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old"),
            (Code::Unknown, "auth: revision in header is old"),
            (Code::Unknown, "auth: invalid auth token"),
        ] {
            let found = trouble(&Status::new(code, words));
            assert!(matches!(found, Trouble::Unauthenticated(_)), "{words}: {found:?}");
        }
    }

    #[test]
    fn what_may_have_been_carried_out_is_unknown() {
        for (code, words) in [(Code::Unknown, "transport error"), (Code::DeadlineExceeded, "")] {
            let (kind, certainty) = told(code, words);
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
            let (kind, certainty) = told(Code::Unavailable, words);
            assert!(matches!(kind, ErrorKind::NoQuorum { .. }), "{words}: {kind:?}");
            assert_eq!(certainty, expected, "{words}");
        }
    }

    #[test]
    fn words_of_the_server_do_not_reach_a_terminal_raw() {
        let error = trouble(&Status::new(Code::Internal, "a\u{1b}[31mb")).into_error();
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
}
