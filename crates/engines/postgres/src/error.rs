//! Errors of a PostgreSQL server, and the error kinds that the library gets for them.
//!
//! Each command is one statement, which is one transaction: if the server returns an error, nothing
//! was applied. Only an error that ends the session may come after the commit.

use holdline_core::{Certainty, ErrorKind, LockError};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// Classes of errors that pass without a change of ours. `55`: a database is closed to new
/// connections, or an object is in use, as during maintenance. `XX`: an internal error, and what
/// poolers say of themselves, such as that they have no room for one more client.
const TRANSIENT: [&str; 6] = ["57", "40", "58", "08", "55", "XX"];

/// The engine's short name.
pub(crate) const ENGINE: &str = "postgres";

holdline_net::errors_of!(ENGINE);

/// Converts an error of the client crate for a command that was sent.
pub(crate) fn of_command(error: &tokio_postgres::Error) -> LockError {
    match error.as_db_error() {
        Some(words) => of_server(words),
        None => unavailable(format!("the connection broke: {}", plain(error)), Certainty::Unknown),
    }
}

/// Converts an error of the client crate while connecting.
pub(crate) fn of_handshake(error: &tokio_postgres::Error) -> LockError {
    match error.as_db_error() {
        Some(words) => of_server(words).with_certainty(Certainty::NotApplied),
        None if plain(error).contains("password missing") => {
            refused("the server asks for a password: set it by `password_env` or `password_file`")
        }
        None => {
            let message = format!("the server broke the connection off: {}", plain(error));
            unavailable(message, Certainty::NotApplied)
        }
    }
}

/// Returns the error and its cause in one line; for an error of the server, its message.
pub(crate) fn plain(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(words), _) => says(words),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}

/// Returns the server's message, code and hint. Details are left out: they quote the user's rows.
pub(crate) fn says(words: &DbError) -> String {
    let code = words.code().code();
    match words.hint() {
        Some(hint) => format!("{}, {code}; {hint}", words.message()),
        None => format!("{}, {code}", words.message()),
    }
}

/// Returns whether the server refused a statement because another session has a lock.
pub(crate) fn is_locked(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Returns whether the server takes no writes.
pub(crate) fn is_read_only(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// The server takes no writes, `found` says why. `took_writes` is whether this client has reached
/// one that took them: then another server is becoming the primary, and callers wait for it.
pub(crate) fn takes_no_writes(took_writes: bool, found: &str) -> LockError {
    if took_writes {
        unavailable(
            format!("a switchover is under way: {found}, and this client had a primary before"),
            Certainty::NotApplied,
        )
    } else {
        refused(format!("{found}: name the primary"))
    }
}

/// Returns whether the schema, or an object in it, is gone.
pub(crate) fn is_schema_gone(error: &tokio_postgres::Error) -> bool {
    let gone = [
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::UNDEFINED_OBJECT,
        SqlState::INVALID_SCHEMA_NAME,
    ];
    error.code().is_some_and(|code| gone.contains(code))
}

fn of_server(words: &DbError) -> LockError {
    let ends = matches!(words.parsed_severity(), Some(Severity::Fatal | Severity::Panic) | None);
    let certainty = if ends { Certainty::Unknown } else { Certainty::NotApplied };
    LockError::new(ENGINE, kind_of(words), certainty)
}

fn kind_of(words: &DbError) -> ErrorKind {
    let says = says(words);
    let refused = |advice: &str| ErrorKind::Refused { message: format!("{advice} ({says})") };
    let unavailable = |what: &str| ErrorKind::Unavailable { message: format!("{what} ({says})") };
    let code = words.code();
    if words.message().contains("statement pooling") {
        // PgBouncer's text: waiting does not change the pooler's configuration.
        let message = format!(
            "a pooler gives each statement to another connection, and allows no transaction: set \
             `pool_mode = transaction` for this database, or name the server itself ({says})"
        );
        ErrorKind::Invalid { field: "url", message }
    } else if *code == SqlState::INVALID_PASSWORD {
        refused("user or password is wrong")
    } else if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
        refused("the server does not let this user in from here")
    } else if *code == SqlState::INVALID_CATALOG_NAME {
        refused("there is no such database: make it first, or name another")
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        // A translated message has the same name of the function.
        if words.message().contains("_1") {
            refused(
                "the role lacks a right: GRANT EXECUTE ON FUNCTION, for the one in the message, \
                 TO it",
            )
        } else {
            refused("the role lacks a right: grant it USAGE on the schema")
        }
    } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        refused("the server takes no writes: name the primary")
    } else if *code == SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED {
        refused("no fencing token is left: the sequence stands at the largest there is")
    } else if *code == SqlState::DISK_FULL || *code == SqlState::OUT_OF_MEMORY {
        refused("the server has no room")
    } else if *code == SqlState::QUERY_CANCELED || *code == SqlState::LOCK_NOT_AVAILABLE {
        unavailable("the command waited too long for others")
    } else if code.code().starts_with("53") {
        unavailable("the server has no room for one more connection")
    } else if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED {
        refused("the database is damaged")
    } else if *code == SqlState::PROGRAM_LIMIT_EXCEEDED {
        refused("the server is at a limit, and takes no writes")
    } else if TRANSIENT.iter().any(|class| code.code().starts_with(class)) {
        unavailable("the server could not do it now")
    } else if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::INVALID_SCHEMA_NAME {
        unavailable("the schema was removed while it was in use")
    } else {
        ErrorKind::Protocol { message: format!("the server refused what it should know: {says}") }
    }
}
