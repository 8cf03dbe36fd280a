//! What can go wrong with a MariaDB server, and what the library is told about it.
//!
//! Each command is one procedure, which is one transaction: an error of the server says that it
//! did nothing. Only one that ends the session, or stops the statement from outside, may come
//! after the commit.

use holdline_core::{Certainty, ErrorKind, LockError};

/// The engine's short name.
pub(crate) const ENGINE: &str = "mysql";

/// What a server says instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) code: u16,
    pub(crate) says: String,
}

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.says, self.code)
    }
}

/// Why a statement has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failed {
    /// The server refused it, and goes on.
    Server(Complaint),
    /// The connection ended before it was sent.
    NotSent,
    /// The connection ended after that.
    Broken(String),
}

/// Statements that were ended from outside, or with their session: by then they may be committed.
pub(crate) const STOPPED: [u16; 6] = [1053, 1077, 1317, 1927, 1969, 3024];
/// Somebody else was waited for in a ring; the server has undone the transaction.
pub(crate) const DEADLOCK: u16 = 1213;
/// A row or a table was waited for too long.
pub(crate) const LOCK_WAIT: u16 = 1205;
/// The server takes no writes.
const READ_ONLY: [u16; 3] = [1290, 1792, 1836];
/// A procedure, a table or a database is not there.
const GONE: [u16; 3] = [1305, 1146, 1049];
/// A right is missing: to the database, a table, a column, a procedure, or to all.
pub(crate) const NO_RIGHT: [u16; 6] = [1044, 1142, 1143, 1227, 1370, 1410];

pub(crate) fn unavailable(message: impl Into<String>, certainty: Certainty) -> LockError {
    LockError::new(ENGINE, ErrorKind::Unavailable { message: message.into() }, certainty)
}

pub(crate) fn refused(message: impl Into<String>) -> LockError {
    let kind = ErrorKind::Refused { message: message.into() };
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}

pub(crate) fn foreign(found: impl Into<String>) -> LockError {
    let kind = ErrorKind::Foreign { found: found.into() };
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}

/// An answer that has another shape than it must have: the command was carried out.
pub(crate) fn protocol(message: impl Into<String>) -> LockError {
    LockError::new(ENGINE, ErrorKind::Protocol { message: message.into() }, Certainty::Unknown)
}

/// What a failure means for a command.
pub(crate) fn of_command(failed: &Failed) -> LockError {
    match failed {
        Failed::Server(words) if STOPPED.contains(&words.code) => {
            unavailable(format!("the server stopped the command ({words})"), Certainty::Unknown)
        }
        Failed::Server(words) => LockError::new(ENGINE, kind_of(words), Certainty::NotApplied),
        Failed::NotSent => {
            unavailable("the connection broke before the command was sent", Certainty::NotApplied)
        }
        Failed::Broken(why) => {
            unavailable(format!("the connection broke: {why}"), Certainty::Unknown)
        }
    }
}

/// What a failure means while a connection is made.
pub(crate) fn of_greeting(failed: &Failed) -> LockError {
    of_command(failed).with_certainty(Certainty::NotApplied)
}

/// Tells whether what we keep in the database is gone.
pub(crate) fn is_store_gone(failed: &Failed) -> bool {
    matches!(failed, Failed::Server(words) if GONE.contains(&words.code))
}

/// Tells whether the statement may have left its transaction open.
pub(crate) fn is_stopped(failed: &Failed) -> bool {
    matches!(failed, Failed::Server(words) if STOPPED.contains(&words.code))
}

/// Tells whether the server takes no writes, as one that was the primary.
pub(crate) fn takes_no_writes(failed: &Failed) -> bool {
    matches!(failed, Failed::Server(words) if READ_ONLY.contains(&words.code))
}

/// What an error of the server means, by its number.
pub(crate) fn kind_of(words: &Complaint) -> ErrorKind {
    let refused = |advice: &str| ErrorKind::Refused { message: format!("{advice} ({words})") };
    let unavailable = |what: &str| ErrorKind::Unavailable { message: format!("{what} ({words})") };
    match words.code {
        1045 | 1698 => refused("user or password is wrong"),
        1129 | 1130 => refused("the server does not let this user in from here"),
        1049 => refused("there is no such database: make it first, or name another"),
        code if NO_RIGHT.contains(&code) => refused(
            "the account lacks a right: grant it SELECT, INSERT, UPDATE, DELETE and EXECUTE on \
             the database",
        ),
        code if READ_ONLY.contains(&code) => {
            refused("the server takes no writes: name the primary")
        }
        1665 => refused("the server logs statements: set binlog_format to MIXED or ROW"),
        4025 => refused("no fencing token is left: the name stands at the largest there is"),
        1021 | 1030 | 1037 | 1038 | 1041 | 1114 | 1135 => refused("the server has no room"),
        1153 => refused("the command is larger than max_allowed_packet: set it to 1M or more"),
        DEADLOCK => unavailable("it and others waited for each other in a ring"),
        LOCK_WAIT => unavailable("the command waited too long for others"),
        1040 | 1203 | 1226 => unavailable("the server has no room for one more connection"),
        1047 | 1152 | 1158..=1161 | 1184 => unavailable("the server could not do it now"),
        1305 | 1146 => unavailable("the tables of the locks were removed while they were in use"),
        _ => ErrorKind::Protocol {
            message: format!("the server refused what it should know: {words}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: u16) -> LockError {
        of_command(&Failed::Server(Complaint { code, says: "words".to_owned() }))
    }

    #[test]
    fn what_was_stopped_from_outside_may_have_been_done_and_all_else_was_not() {
        for code in STOPPED {
            assert_eq!(said(code).certainty(), Certainty::Unknown, "{code}");
        }
        for code in [DEADLOCK, LOCK_WAIT, 1290, 1142, 4025] {
            assert_eq!(said(code).certainty(), Certainty::NotApplied, "{code}");
        }
    }

    #[test]
    fn errors_name_what_mends_them() {
        for (code, says) in [
            (1045, "password"),
            (1049, "make it first"),
            (1142, "grant it"),
            (1290, "name the primary"),
            (1665, "binlog_format"),
            (4025, "no fencing token"),
        ] {
            let told = said(code);
            assert!(matches!(told.kind(), ErrorKind::Refused { .. }), "{code}: {told}");
            assert!(told.to_string().contains(says), "{code}: {told}");
        }
        assert!(matches!(said(9_999).kind(), ErrorKind::Protocol { .. }));
    }
}
