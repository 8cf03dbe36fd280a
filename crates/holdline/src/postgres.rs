//! What PostgreSQL has beside the engine: its own advisory locks.
//!
//! They share nothing with [`Client`](crate::Client) but the sequence of fencing tokens, and
//! promise less: each says what.
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
    AdvisoryGuard, AdvisoryKey, AdvisoryLock, PostgresEngine, PostgresOptions,
};

use crate::engines::clock;
use crate::{ClockKind, LockError};

/// Describes an [`AdvisoryLock`], with the machine's clock. Nothing is connected yet.
///
/// # Errors
/// `Invalid`: an option is wrong. `Refused`: the machine gives no timer.
pub fn advisory_lock(
    options: &PostgresOptions,
    key: impl Into<AdvisoryKey>,
) -> Result<AdvisoryLock, LockError> {
    AdvisoryLock::new(options, key, clock(ClockKind::Boottime, "postgres")?)
}
