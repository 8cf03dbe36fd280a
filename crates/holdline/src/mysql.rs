//! MariaDB's own row locks, for a connection of your own.

pub use holdline_mysql::{MysqlEngine, MysqlOptions, RowLock, RowLockError, RowWait, mysql_async};
use mysql_async::{Conn, Row, Transaction};

use crate::clock::ClockKind;
use crate::engines::clock;

/// Locks rows, runs `body` in the same transaction, and commits what it did.
///
/// For rows in this database: if they are written only under their lock, no fencing token is
/// needed, since a holder whose connection ended can no longer commit. The connection is the
/// caller's own, of the re-exported crate [`mysql_async`]; it must not be inside a transaction.
/// Return an error from the body if one of its statements fails. Keep the body short: an open
/// transaction delays the server's purge.
///
/// The transaction is `READ COMMITTED`, whatever the session's default. After a wait the server
/// checks again whether the row still matches the query; if not, the error is
/// [`RowLockError::Missing`].
///
/// # Errors
/// See [`RowLockError`]; only after its `Unknown` the transaction may have been committed.
///
/// # Cancel safety
/// Dropping the future rolls back, unless the commit was already sent. In the middle of a statement
/// it closes the connection.
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
