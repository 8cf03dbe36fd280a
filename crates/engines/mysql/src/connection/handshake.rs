//! The first statements on a new connection, before any command.
//!
//! A pooler is recognised by the connection id: the server reports another one than in its initial
//! handshake. Behind a pooler no session variable is set and no inbox is opened, because the next
//! statement may go to another connection. Each command is one statement, which works there too.

use std::time::Duration;

use holdline_core::{Clock, LockError};

use super::driver::ConnectionHandle;
use crate::error::{of_handshake, read_only, refused};
use crate::options::MysqlOptions;
use crate::rows::only;

/// The oldest supported server: it has `SKIP LOCKED`.
const OLDEST: (u32, u32) = (10, 6);

/// The SQL mode. Procedures keep the mode with which they were created. It has no
/// `SIMULTANEOUS_ASSIGNMENT`: in `sql`, an `UPDATE` assigns its columns from left to right.
pub(crate) const SQL_MODE: &str = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION";

/// What is known about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// As the server reports it.
    pub(crate) version: String,
    /// Whether it is MariaDB, which is the server that is tested.
    pub(crate) is_mariadb: bool,
    /// Whether a pooler is between us and the server.
    pub(crate) pooled: bool,
    /// The round trip of the first statement.
    pub(crate) round_trip: Duration,
}

/// Checks the server and sets the session up; `number` is the connection id from the initial
/// handshake. `took_writes` is whether this client has reached a server that took writes.
pub(crate) async fn handshake(
    handle: &ConnectionHandle,
    number: u32,
    options: &MysqlOptions,
    clock: &dyn Clock,
    took_writes: bool,
) -> Result<Facts, LockError> {
    let before = clock.now();
    let ask = "select version() as version, connection_id() as number, \
        @@global.read_only as follows limit 1";
    let reply = handle.ask(ask).await.map_err(|failed| of_handshake(&failed))?;
    let round_trip = before.until(clock.now());
    let row = only(&reply)?;
    let version: String = row.sure("version")?;
    let (is_mariadb, known) = version_of(&version);
    if is_mariadb && known < OLDEST {
        return Err(refused(format!(
            "the server is MariaDB {version}: we need {}.{} or newer",
            OLDEST.0, OLDEST.1
        )));
    }
    // An account with the privilege to write there must not do so unknowingly.
    let follows: &str = row.sure("follows")?;
    if !takes_writes(follows) {
        let found = format!("the server has read_only = {follows}, as a replica has");
        return Err(read_only(took_writes, &found));
    }
    let pooled = row.sure::<i64>("number")? != i64::from(number);
    if pooled {
        tracing::debug!("a pooler is between us and the server: waiters rely on their heartbeat");
    } else {
        set(handle, options, is_mariadb).await?;
    }
    Ok(Facts { version, is_mariadb, pooled, round_trip })
}

/// Sets the session variables that commands rely on, whatever the server or its `init_connect` has
/// set. Procedures begin their own transactions and have the settings with which they were created.
async fn set(
    handle: &ConnectionHandle,
    options: &MysqlOptions,
    is_mariadb: bool,
) -> Result<(), LockError> {
    // The server's timeout is shorter than ours: after its error the outcome is certain.
    let limit = (options.command_timeout().as_secs() * 6 / 10).max(1);
    let mut text = format!(
        "set session autocommit = 1, completion_type = 'NO_CHAIN', sql_mode = '{SQL_MODE}', \
         innodb_lock_wait_timeout = {limit}, lock_wait_timeout = {limit}, \
         sql_select_limit = 18446744073709551615, timestamp = default"
    );
    if is_mariadb {
        // Other servers do not know these.
        text.push_str(", max_statement_time = 0, check_constraint_checks = 1");
    }
    handle.ask(text).await.map_err(|failed| of_handshake(&failed))?;
    // As the procedures set it for themselves. The variable has another name on each server.
    let text = "set session transaction isolation level read committed, read write";
    handle.ask(text).await.map(drop).map_err(|failed| of_handshake(&failed))
}

/// Reads the variable `read_only`: a number, or since MariaDB 12 a text such as `OFF`, `ON` and
/// `NO_LOCK`. All but the first forbid writes.
fn takes_writes(value: &str) -> bool {
    value == "0" || value.eq_ignore_ascii_case("off")
}

/// Returns whether it is MariaDB, and the first two numbers of its version. Some servers put the
/// version of an old MySQL before their own.
fn version_of(version: &str) -> (bool, (u32, u32)) {
    let is_mariadb = version.contains("MariaDB");
    let own = version.strip_prefix("5.5.5-").filter(|_| is_mariadb).unwrap_or(version);
    let mut numbers = own.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    (is_mariadb, (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_read_only_says_so_by_number_or_text() {
        for (read_only, expected) in [
            ("0", true),
            ("OFF", true),
            ("off", true),
            ("1", false),
            ("ON", false),
            ("NO_LOCK", false),
            ("NO_LOCK_NO_ADMIN", false),
            ("", false),
        ] {
            assert_eq!(takes_writes(read_only), expected, "{read_only}");
        }
    }

    #[test]
    fn versions_are_read() {
        for (text, expected) in [
            ("10.11.19-MariaDB-0+deb12u1", (true, (10, 11))),
            ("5.5.5-10.6.4-MariaDB-log", (true, (10, 6))),
            ("12.1.2-MariaDB-ubu2404", (true, (12, 1))),
            ("8.0.36", (false, (8, 0))),
            ("odd", (false, (0, 0))),
        ] {
            assert_eq!(version_of(text), expected, "{text}");
        }
    }
}
