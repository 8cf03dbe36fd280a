//! What MariaDB has beside the engine: its locks on rows, for a connection of your own.

pub use holdline_mysql::{MysqlEngine, MysqlOptions, RowLock, RowLockError, RowWait, mysql_async};
use mysql_async::{Conn, Row, Transaction};

use crate::ClockKind;
use crate::engines::clock;

/// Locks rows, runs `body` in the same transaction, and commits what it did.
///
/// For rows that live in this database: whoever writes them only under their lock needs no fencing
/// token, since a holder whose connection ended can no longer commit. The connection is the
/// caller's own, of the crate that stands here as [`mysql_async`]; it must not be inside a
/// transaction. Let the body fail when one of its statements does. Keep it short: an open
/// transaction holds back the server's cleaning up.
///
/// The transaction is `READ COMMITTED`, whatever the session's default: after a wait the server
/// looks again whether the row still fits the query, and if not it is [`RowLockError::Missing`].
///
/// # Errors
/// As [`RowLockError`] tells; only its `Unknown` may have been done.
///
/// # Cancel safety
/// Dropping the future rolls back, unless the commit was sent already: mid-statement by ending the
/// connection.
///
/// # Examples
/// ```no_run
/// use holdline::mysql::mysql_async::prelude::Queryable;
/// use holdline::mysql::{RowLock, RowLockError, RowWait, mysql_async, row_lock};
///
/// # use mysql_async::{Conn, Error};
/// # async fn example(connection: &mut Conn) -> Result<(), RowLockError<Error>> {
/// // The next job that nobody else does.
/// let next = "select id from jobs where not done order by id limit 1";
/// let rows = RowLock::new(next, ()).with_wait(RowWait::SkipLocked);
/// row_lock(connection, &rows, async |work, rows| {
///     let id: Option<i32> = rows[0].get(0);
///     work.exec_drop("update jobs set done = true where id = ?", (id,)).await
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
pub async fn row_lock<T, E, F>(
    connection: &mut Conn,
    rows: &RowLock<'_>,
    body: F,
) -> Result<T, RowLockError<E>>
where
    F: AsyncFnOnce(&mut Transaction<'_>, Vec<Row>) -> Result<T, E>,
{
    let clock = clock(ClockKind::Boottime, "mysql")?;
    holdline_mysql::row_lock(connection, rows, &*clock, body).await
}
