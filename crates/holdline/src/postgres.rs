//! PostgreSQL's own advisory locks and row locks.
//!
//! Neither is a lock of a [`Client`](crate::Client); each documents its own guarantees.
//!
//! ```no_run
//! use std::time::Duration;
//! use holdline::postgres::{AdvisoryKey, PostgresOptions, advisory_lock};
//!
//! # async fn example() -> Result<(), holdline::LockError> {
//! let options = PostgresOptions::from_url("postgres://app@db.example/orders")?;
//! // The lock that a program with sqlx calls `PgAdvisoryLock::new("migrations")`.
//! let lock = advisory_lock(&options, AdvisoryKey::of_sqlx("migrations"))?;
//! let guard = lock.lock(Duration::from_secs(60)).await?;
//! // … migrate …
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```

pub use holdline_postgres::{
    AdvisoryGuard, AdvisoryKey, AdvisoryLock, AdvisoryPool, PostgresEngine, PostgresOptions,
    RowLock, RowLockError, RowWait, tokio_postgres,
};
use tokio_postgres::{Client, Row, Transaction};

use crate::LockError;
use crate::clock::ClockKind;
use crate::engines::clock;

/// Makes an [`AdvisoryPool`], with the machine's clock. No connection is made yet.
///
/// # Errors
/// `Invalid`: an option is wrong. `Refused`: the machine has no timer left.
///
/// # Examples
/// ```no_run
/// use holdline::postgres::{PostgresOptions, advisory_pool};
///
/// # async fn example() -> Result<(), holdline::LockError> {
/// let options = PostgresOptions::from_url("postgres://app@db.example/orders")?;
/// let pool = advisory_pool(&options)?;
/// for account in [4, 8, 15] {
///     let guard = pool.advisory_lock(account)?.try_lock().await?;
///     // … settle the account, in the session that settled the last one …
///     guard.release().await?;
/// }
/// # Ok(())
/// # }
/// ```
pub fn advisory_pool(options: &PostgresOptions) -> Result<AdvisoryPool, LockError> {
    AdvisoryPool::new(options, clock(ClockKind::Boottime, "postgres")?)
}

/// Describes an [`AdvisoryLock`] with a pool of its own and the machine's clock. No connection is
/// made yet.
///
/// # Errors
/// `Invalid`: an option is wrong. `Refused`: the machine has no timer left.
pub fn advisory_lock(
    options: &PostgresOptions,
    key: impl Into<AdvisoryKey>,
) -> Result<AdvisoryLock, LockError> {
    AdvisoryLock::new(options, key, clock(ClockKind::Boottime, "postgres")?)
}

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
