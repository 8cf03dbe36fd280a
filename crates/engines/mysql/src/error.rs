//! Errors of a MariaDB server, and the error kinds that the library gets for them.
//!
//! Each command calls one procedure, which is one transaction: if the server returns an error,
//! nothing was applied. Only an error that ends the session, or kills the statement, may come after
//! the commit.

use holdline_core::{Certainty, ErrorKind, LockError};

/// The engine's short name.
pub(crate) const ENGINE: &str = "mysql";

holdline_net::errors_of!(ENGINE);

/// An error of the server.
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

/// Why a statement has no result.
#[derive(Clone, Debug)]
pub(crate) enum Failed {
    /// The server refused it; the connection is usable.
    Server(Complaint),
    /// The connection ended before it was sent.
    NotSent,
    /// The connection ended after that.
    Broken(String),
}

/// Statements that were killed, or ended with their session: they may have committed.
pub(crate) const STOPPED: [u16; 6] = [1053, 1077, 1317, 1927, 1969, 3024];
/// A deadlock: the server has rolled the transaction back.
pub(crate) const DEADLOCK: u16 = 1213;
/// A timeout while waiting for a row or a table.
pub(crate) const LOCK_WAIT: u16 = 1205;
/// The server takes no writes.
const READ_ONLY: [u16; 3] = [1290, 1792, 1836];
/// The same, and the handshake had found that it takes them: it is being switched over.
const SWITCHED_OVER: [u16; 2] = [1290, 1836];
/// A procedure, a table or a database is missing.
const GONE: [u16; 3] = [1305, 1146, 1049];
/// A privilege is missing: on the database, a table, a column, a procedure, or globally.
pub(crate) const NO_RIGHT: [u16; 7] = [1044, 1142, 1143, 1227, 1345, 1370, 1410];

/// Converts the failure of a command.
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

/// Converts a failure while connecting.
pub(crate) fn of_handshake(failed: &Failed) -> LockError {
    of_command(failed).with_certainty(Certainty::NotApplied)
}

/// Returns whether the tables or procedures are gone.
pub(crate) fn is_store_gone(failed: &Failed) -> bool {
    matches!(failed, Failed::Server(words) if GONE.contains(&words.code))
}

/// Returns whether the server refused the statement because another session has a lock.
pub(crate) fn is_locked(failed: &Failed) -> bool {
    matches!(failed, Failed::Server(words) if words.code == LOCK_WAIT)
}

/// Returns whether the statement may have left its transaction open.
pub(crate) fn is_stopped(failed: &Failed) -> bool {
    matches!(failed, Failed::Server(words) if STOPPED.contains(&words.code))
}

/// Returns whether the server refuses writes, as a former primary does.
pub(crate) fn takes_no_writes(failed: &Failed) -> bool {
    matches!(failed, Failed::Server(words) if READ_ONLY.contains(&words.code))
}

/// The error for a server that took writes when the connection was made, and no longer does.
pub(crate) fn switched_over(failed: &Failed) -> Option<LockError> {
    match failed {
        Failed::Server(words) if SWITCHED_OVER.contains(&words.code) => {
            Some(read_only(true, &format!("the server takes no writes ({words})")))
        }
        _ => None,
    }
}

/// Returns whether the server has no room for one more prepared statement
/// (`max_prepared_stmt_count`, of all clients together).
pub(crate) fn is_out_of_statements(failed: &Failed) -> bool {
    matches!(failed, Failed::Server(words) if words.code == 1461)
}

/// The server takes no writes, `found` says why. `took_writes` is whether this client has reached
/// one that took them: then another server is becoming the primary, and callers wait for it.
pub(crate) fn read_only(took_writes: bool, found: &str) -> LockError {
    if took_writes {
        unavailable(
            format!("a switchover is under way: {found}, and this client had a primary before"),
            Certainty::NotApplied,
        )
    } else {
        refused(format!("{found}: name the primary"))
    }
}

/// Converts an error of the server, by its number.
pub(crate) fn kind_of(words: &Complaint) -> ErrorKind {
    let refused = |advice: &str| ErrorKind::Refused { message: format!("{advice} ({words})") };
    let unavailable = |what: &str| ErrorKind::Unavailable { message: format!("{what} ({words})") };
    match words.code {
        1045 | 1698 | 1873 => {
            refused("user or password is wrong, or the account needs TLS or a certificate")
        }
        1130 => refused("the server does not let this user in from here"),
        1129 => refused("the server blocks this machine after failed connections: FLUSH HOSTS"),
        4150 => refused("the server blocks this account after wrong passwords: FLUSH PRIVILEGES"),
        3118 | 4151 => refused("the account is locked: ALTER USER … ACCOUNT UNLOCK"),
        1820 | 1862 => refused("the password has expired: set a new one (ALTER USER)"),
        1251 | 1275 | 1524 => refused(
            "the server cannot check the password of this account: let it be kept by \
             mysql_native_password or ed25519",
        ),
        3159 => refused("the server asks for TLS: write `sslmode=verify-full`"),
        1449 => refused(
            "the account that made the procedures of the audit trail is gone: drop these \
             procedures, and connect once as an account that may make them",
        ),
        1419 => refused(
            "the account may not create routines while there is a binary log: connect once as one \
             that may, or set log_bin_trust_function_creators",
        ),
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
        // Another transaction was first, by innodb_snapshot_isolation.
        1020 => unavailable("another session changed the row"),
        DEADLOCK => unavailable("the server broke a deadlock"),
        LOCK_WAIT => unavailable("the command waited too long for others"),
        1040 | 1203 | 1226 => unavailable("the server has no room for one more connection"),
        1461 => unavailable("the server has no room for one more prepared statement"),
        1047 | 1152 | 1158..=1161 | 1184 | 1412 | 1615 => {
            unavailable("the server could not do it now")
        }
        1305 | 1146 => unavailable("the tables of the locks were removed while they were in use"),
        _ => ErrorKind::Protocol {
            message: format!("the server refused what it should know: {words}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_error(code: u16) -> LockError {
        of_command(&Failed::Server(Complaint { code, says: "words".to_owned() }))
    }

    #[test]
    fn statements_that_were_killed_are_unknown_and_all_others_not_applied() {
        for code in STOPPED {
            assert_eq!(server_error(code).certainty(), Certainty::Unknown, "{code}");
        }
        for code in [DEADLOCK, LOCK_WAIT, 1290, 1142, 4025] {
            assert_eq!(server_error(code).certainty(), Certainty::NotApplied, "{code}");
        }
    }

    #[test]
    fn errors_name_their_fix() {
        for (code, says) in [
            (1044, "grant it"),
            (1045, "password"),
            (1129, "FLUSH HOSTS"),
            (1130, "from here"),
            (1143, "grant it"),
            (1227, "grant it"),
            (1251, "mysql_native_password"),
            (1275, "mysql_native_password"),
            (1345, "grant it"),
            (1370, "grant it"),
            (1410, "grant it"),
            (1419, "log_bin_trust_function_creators"),
            (1449, "drop these procedures"),
            (1524, "mysql_native_password"),
            (1698, "password"),
            (1820, "has expired"),
            (1862, "has expired"),
            (1873, "password"),
            (3118, "ACCOUNT UNLOCK"),
            (3159, "verify-full"),
            (4150, "FLUSH PRIVILEGES"),
            (4151, "ACCOUNT UNLOCK"),
            (1836, "name the primary"),
            (1049, "make it first"),
            (1142, "grant it"),
            (1290, "name the primary"),
            (1665, "binlog_format"),
            (4025, "no fencing token"),
        ] {
            let error = server_error(code);
            assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{code}: {error}");
            assert!(error.to_string().contains(says), "{code}: {error}");
        }
        assert!(matches!(server_error(9_999).kind(), ErrorKind::Protocol { .. }));
    }
}
