//! PostgreSQL's own locks on rows. They are not locks of a [`Client`](crate::Client).

pub use holdline_postgres::{
    PostgresEngine, PostgresOptions, RowLock, RowLockError, RowWait, tokio_postgres,
};
use tokio_postgres::{Client, Row, Transaction};

use crate::clock::ClockKind;
use crate::engines::clock;

/// Locks rows, runs `body` in the same transaction, and commits what it did.
///
/// For rows in this database: if they are written only under their lock, no fencing token is
/// needed, since a holder whose connection ended can no longer commit. The client is the caller's
/// own, of the re-exported crate [`tokio_postgres`]; it must not be inside a transaction. Keep the
/// body short: an open transaction delays the server's vacuum.
///
/// The transaction is `READ COMMITTED`, whatever the session's default. After a wait the server
/// checks again whether the row still matches the query; if not, the error is
/// [`RowLockError::Missing`].
///
/// # Errors
/// See [`RowLockError`]; only after its `Unknown` the transaction may have been committed.
///
/// # Cancel safety
/// Dropping the future rolls back, unless the commit was already sent. A wait for rows continues in
/// the server until its limit; the next statement on the connection waits for that.
///
/// # Examples
/// ```no_run
/// use holdline::postgres::{RowLock, RowLockError, RowWait, row_lock, tokio_postgres};
///
/// # use tokio_postgres::{Client, Error};
/// # async fn example(client: &mut Client) -> Result<(), RowLockError<Error>> {
/// // The next job that nobody else does.
/// let next = "select id from jobs where not done order by id limit 1";
/// let rows = RowLock::new(next, &[]).with_wait(RowWait::SkipLocked);
/// row_lock(client, &rows, async |transaction, rows| {
///     let id: i32 = rows[0].get(0);
///     transaction.execute("update jobs set done = true where id = $1", &[&id]).await
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
pub async fn row_lock<T, E, F>(
    client: &mut Client,
    rows: &RowLock<'_>,
    body: F,
) -> Result<T, RowLockError<E>>
where
    F: AsyncFnOnce(&mut Transaction<'_>, Vec<Row>) -> Result<T, E>,
{
    let clock = clock(ClockKind::Boottime, "postgres")?;
    holdline_postgres::row_lock(client, rows, &*clock, body).await
}
