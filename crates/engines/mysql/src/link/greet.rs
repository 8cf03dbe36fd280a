//! What is said on a new connection before any command.
//!
//! A pooler between us and the server is told by the number of the connection: it gives us one of
//! its own. Behind it nothing is set and nobody listens, since our next statement may go to another
//! connection; each command is one statement, and good there too.

use std::time::Duration;

use holdline_core::{Clock, LockError};

use super::driver::Asker;
use super::wire::Set;
use crate::error::{of_greeting, protocol, refused};
use crate::options::MysqlOptions;
use crate::replies::Row;

/// The oldest server that our procedures were written for: it can pass by rows that are locked.
const OLDEST: (u32, u32) = (10, 6);

/// How the server reads what we write, and what it does with values that do not fit. Procedures
/// keep the mode with which they were made.
pub(crate) const SQL_MODE: &str = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION";

/// What is known of the server behind the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// As the server tells it.
    pub(crate) version: String,
    /// One of the kind that we test with.
    pub(crate) is_mariadb: bool,
    /// Something between us and the server gives connections to others too.
    pub(crate) pooled: bool,
    /// How long the first question took, there and back.
    pub(crate) round_trip: Duration,
}

/// Says the first words; `number` is the connection's, as whoever let us in has told it.
pub(super) async fn greet(
    asker: &Asker,
    number: u32,
    options: &MysqlOptions,
    clock: &dyn Clock,
) -> Result<Facts, LockError> {
    let before = clock.now();
    let ask = "select version() as version, connection_id() as number, \
        @@global.read_only as follows limit 1";
    let told = asker.ask(ask).await.map_err(|failed| of_greeting(&failed))?;
    let round_trip = before.until(clock.now());
    let row = only(&told)?;
    let version: String = row.sure("version")?;
    let (is_mariadb, known) = version_of(&version);
    if is_mariadb && known < OLDEST {
        return Err(refused(format!(
            "the server is MariaDB {version}: we need {}.{} or newer",
            OLDEST.0, OLDEST.1
        )));
    }
    // Whoever has the right to write there all the same must not do it unawares.
    if row.sure::<i64>("follows")? != 0 {
        let says = "the server is read_only, as a replica is: name the primary";
        return Err(refused(says));
    }
    let pooled = row.sure::<i64>("number")? != i64::from(number);
    if pooled {
        tracing::debug!(
            "a pooler is between us and the server: waiters are left to their heartbeat"
        );
    } else {
        set(asker, options, is_mariadb).await?;
    }
    Ok(Facts { version, is_mariadb, pooled, round_trip })
}

/// The settings of our session that a command relies on, whatever the server or its `init_connect`
/// has set before. Its procedures begin their transactions themselves, and bring the settings with
/// which they were made.
async fn set(asker: &Asker, options: &MysqlOptions, is_mariadb: bool) -> Result<(), LockError> {
    // The server gives up before we do: its error is certain, our own impatience is not.
    let limit = (options.command_timeout().as_secs() * 6 / 10).max(1);
    let mut text = format!(
        "set session autocommit = 1, completion_type = 'NO_CHAIN', sql_mode = '{SQL_MODE}', \
         innodb_lock_wait_timeout = {limit}, lock_wait_timeout = {limit}, \
         sql_select_limit = 18446744073709551615, timestamp = default"
    );
    if is_mariadb {
        // Other servers do not know these.
        text.push_str(", tx_read_only = 0, max_statement_time = 0, check_constraint_checks = 1");
    }
    asker.ask(text).await.map(drop).map_err(|failed| of_greeting(&failed))
}

/// The one row of an answer of one set.
pub(crate) fn only(answer: &[Set]) -> Result<Row<'_>, LockError> {
    match answer {
        [set] if set.rows.len() == 1 => Ok(Row::of(set, &set.rows[0])),
        _ => Err(protocol("an answer has another shape than one row")),
    }
}

/// Whether it is MariaDB, and its first two numbers. Some put the version of an old MySQL before
/// their own.
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
    fn versions_are_read() {
        for (text, expected) in [
            ("10.11.19-MariaDB-0+deb12u1", (true, (10, 11))),
            ("5.5.5-10.6.4-MariaDB-log", (true, (10, 6))),
            ("8.0.36", (false, (8, 0))),
            ("odd", (false, (0, 0))),
        ] {
            assert_eq!(version_of(text), expected, "{text}");
        }
    }
}
