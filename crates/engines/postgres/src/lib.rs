//! The PostgreSQL engine: locks in a schema of one database.
//!
//! Each verb is one statement: a function in the schema locks the row of one name and carries out a
//! whole step of the lock table on it. A notification wakes the process of the next contender. The
//! rows are the truth: a lost connection costs nothing but time.
//!
//! # Guarantees
//! It keeps the promises of the lock table while the server's clock does not step and committed
//! data stay: on one primary with `fsync` on, and over a failover to a standby that commits wait
//! for. Fencing tokens come from a sequence. Their order depends on committed data in the same way,
//! and not on time.
//!
//! # Read next
//! `engine` for the verbs, `keys` and `sql/tables.sql` for the stored data, `sql/rules.sql` and
//! `sql/verbs.sql` for the rules, `schema` for how they are created. Then `link` for how a
//! statement is sent, `options` for what can be set. `row_lock` is independent of all that: the
//! server's own locks on rows.

mod checkup;
mod engine;
mod error;
mod keys;
mod link;
mod options;
mod replies;
mod requests;
mod row_lock;
mod schema;

use std::sync::Arc;

use holdline_core::{Clock, Engine, LockError};

pub use checkup::checkup;
pub use engine::PostgresEngine;
pub use holdline_net::sql::row_lock::RowWait;
pub use options::PostgresOptions;
pub use row_lock::{RowLock, RowLockError, row_lock};
pub use tokio_postgres;

/// Makes the engine, and waits until it has a connection. `clock` must count the time that the
/// machine is suspended, as the server's does.
///
/// # Errors
/// `Invalid`: an option is wrong. `Unavailable`: the server cannot be reached. `Refused`: it does
/// not let us in, or not to the schema, or the schema's functions are older and this role may not
/// replace them. `Foreign`: the schema holds what is not ours, or belongs to a stranger.
/// Nothing is held after any of them.
pub async fn connect(
    options: &PostgresOptions,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Engine>, LockError> {
    Ok(Arc::new(PostgresEngine::connect(options, clock).await?))
}
