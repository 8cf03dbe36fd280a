//! The MariaDB engine: locks in tables of one database.
//!
//! Each verb is one call of a procedure. It locks the row of one name and carries out a whole step
//! of the lock table on it. A free name is granted, and released, by one prepared statement.
//! The next contender sleeps in the server on a connection of its own, and
//! the procedure wakes it. The rows are the truth: a lost connection costs nothing but time.
//!
//! # Guarantees
//! It keeps the promises of the lock table while the server's clock does not step and committed
//! data stay: on one primary with `innodb_flush_log_at_trx_commit = 1`. A failover to a replica
//! keeps neither exclusion nor the order of fencing tokens, unless the old primary can no longer
//! write and the replica had received everything: run `holdline fence bump` afterwards. Fencing
//! tokens come from a counter in the name's row; their order does not depend on time.
//!
//! # Read next
//! `engine` for the verbs, `fast` for the common ones, `keys` and `sql/tables.sql` for the
//! stored data, `sql/rules.sql` and
//! `sql/verbs.sql` for the rules, `schema` for how they are created. Then `link` for how a
//! statement is sent, `options` for what can be set. `row_lock` is independent of all that: locks
//! on rows of the user's own.

mod checkup;
mod connection;
mod engine;
mod error;
mod fast;
mod keys;
mod link;
mod locked_rows;
mod options;
mod replies;
mod requests;
mod row_lock;
mod rows;
mod schema;
mod views;
mod waiting_commands;

use std::sync::Arc;

use holdline_core::{Clock, Engine, LockError};

pub use checkup::checkup;
pub use engine::MysqlEngine;
pub use holdline_net::sql::row_lock::RowWait;
pub use mysql_async;
pub use options::MysqlOptions;
pub use row_lock::{RowLock, RowLockError, row_lock};

/// Makes the engine, and waits until it has a connection. `clock` must count the time that the
/// machine is suspended, as the server's does.
///
/// # Errors
/// `Invalid`: an option is wrong. `Unavailable`: the server cannot be reached. `Refused`: it does
/// not let us in, takes no writes, or this account lacks a right. `Foreign`: a table under our
/// names is not ours. Nothing is held after any of them.
pub async fn connect(
    options: &MysqlOptions,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Engine>, LockError> {
    Ok(Arc::new(MysqlEngine::connect(options, clock).await?))
}
