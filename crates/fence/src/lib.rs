//! Resources that refuse a stale lock holder, by its fencing token. No lock client is needed.
//!
//! A fence is the resource's side of a lock. A lock can end while its holder is paused; the holder
//! then resumes and writes. No lock service can prevent that, but the resource can: each exclusive
//! grant comes with a *fencing token*, a number larger than all before. The resource remembers the
//! largest token that it has accepted (its *mark*), and refuses smaller ones. Martin Kleppmann
//! describes this in [How to do distributed locking][2016], 2016.
//!
//! [2016]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
//!
//! Two calls are needed:
//!
//! - **seal**: raise the mark to my token *before my first read*. Otherwise the write of an older
//!   holder can happen between my read and my write. My write, made from the old value, then undoes
//!   it although it was acknowledged.
//! - **check-and-write**: refuse a smaller token, raise the mark to mine and write, in one atomic
//!   step. A check followed by a write is no fence: the process can be paused between the two.
//!
//! # A row of PostgreSQL, and any lock service
//! The token is the number that the lock service returned with the lock: the fencing token of
//! `holdline`, the create revision of an etcd lock key, the `czxid` of a ZooKeeper node, or what
//! Hazelcast's `FencedLock` returns. It must grow with each grant of the name; a random lock id
//! does not.
//!
#![cfg_attr(feature = "postgres", doc = "```")]
#![cfg_attr(not(feature = "postgres"), doc = "```text")]
//! use holdline_fence::{FenceError, FencingToken, PostgresFence, Proof};
//! use tokio_postgres::{Client, NoTls};
//!
//! /// Sells one apple. `token` is the number that came with the lock.
//! async fn sell(db: &mut Client, token: u64) -> Result<(), Box<dyn std::error::Error>> {
//!     let mine = Proof::exclusive(FencingToken::new(token)?);
//!     let fence = PostgresFence::new("stock/17");
//!     let step = db.transaction().await?;
//!     // First, before the read. A stale holder ends here, by an error.
//!     fence.seal(&step, &mine).await?;
//!     let row = step.query_one("SELECT apples FROM stock WHERE id = 17", &[]).await?;
//!     let apples: i32 = row.get(0);
//!     step.execute("UPDATE stock SET apples = $1 WHERE id = 17", &[&(apples - 1)]).await?;
//!     Ok(step.commit().await?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = holdline_services::PostgresServer::start(Default::default());
//! # let url = server.url();
//! let (mut db, connection) = tokio_postgres::connect(&url, NoTls).await?;
//! tokio::spawn(connection);
//! # db.batch_execute("CREATE TABLE stock(id INT PRIMARY KEY, apples INT)").await?;
//! # db.batch_execute("INSERT INTO stock VALUES (17, 10)").await?;
//! PostgresFence::create_table(&db).await?; // once, or by your migrations
//!
//! sell(&mut db, 34).await?;
//! let late = sell(&mut db, 33).await.expect_err("it was granted before");
//! assert!(matches!(late.downcast_ref(), Some(FenceError::Stale(_))));
//! # assert_eq!(server.sql("SELECT apples FROM stock"), ["9"]);
//! # Ok(())
//! # }
//! ```
//!
//! # Which resource
//! | resource | look at |
//! |---|---|
//! | a value in this process | [`FencedCell`] |
#![cfg_attr(
    feature = "file",
    doc = "| a file | [`FencedFile`] |
| anything that programs of one machine write to | [`FileMark`]: the mark alone |"
)]
#![cfg_attr(
    not(feature = "file"),
    doc = "| a file | `FencedFile`, with the feature `file` |
| anything that programs of one machine write to | `FileMark`, with the feature `file` |"
)]
#![cfg_attr(
    feature = "sqlite",
    doc = "| rows of an SQLite database | [`SqliteFence`]: the mark in the same transaction |"
)]
#![cfg_attr(
    not(feature = "sqlite"),
    doc = "| rows of an SQLite database | `SqliteFence`, with the feature `sqlite` |"
)]
#![cfg_attr(
    feature = "postgres",
    doc = "| rows of a PostgreSQL database | [`PostgresFence`]: the mark in the same transaction |"
)]
#![cfg_attr(
    not(feature = "postgres"),
    doc = "| rows of a PostgreSQL database | `PostgresFence`, with the feature `postgres` |"
)]
#![cfg_attr(
    feature = "mysql",
    doc = "| rows of MariaDB or MySQL | [`MysqlFence`]: the mark in the same transaction |"
)]
#![cfg_attr(
    not(feature = "mysql"),
    doc = "| rows of MariaDB or MySQL | `MysqlFence`, with the feature `mysql` |"
)]
//! | the same, by any driver | [`sql`]: the statements |
//! | a key of a Redis server, by any client | [`RedisFence`]: scripts |
#![cfg_attr(
    feature = "http",
    doc = "| what an HTTP service keeps | [`http`]: the header, and a layer for tower |"
)]
#![cfg_attr(
    not(feature = "http"),
    doc = "| what an HTTP service keeps | `http`, with the feature `http` |"
)]
//! | your own | [`Fenced`] is the trait, [`Rules`] the decision |
//!
//! Each refusal is an error, is counted ([`Refusals`]) and logged by `tracing`, and an observer is
//! notified ([`Rules::with_observer`]).
//!
//! Invariants: F1 in `proof`, F2 to F4 in `rules`, F5 to F8 in `file`, F9 in `sqlite`, F10 and F11
//! in `postgres`, F12 and F13 in `redis`, F14 in `http`, F15 to F17 in `mysql`. The page
//! `docs/fencing.md` of the repository is the guide for users, with SQL for other drivers.
//!
//! # What fencing cannot do
//! - It orders the grants of *one* lock name. A resource written under two names is not fenced.
//! - It refuses late holders, not hostile ones: anybody can present a number.
//! - It does not affect reads without a check, and undoes nothing: earlier writes of a stale holder
//!   stay.
//! - If a mark is lost (deleted, restored from an old copy), late holders are accepted again.

mod cell;
mod error;
#[cfg(feature = "file")]
mod file;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod proof;
#[cfg(doctest)]
mod readme;
mod redis;
mod refusals;
mod rules;
pub mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(test)]
mod tests;

pub use cell::FencedCell;
pub use error::{FenceError, StaleToken};
#[cfg(feature = "file")]
pub use file::{FencedFile, FileMark, HeldMark};
pub use holdline_core::{
    Certainty, FencingToken, LockName, Mode, NameError, PermitsError, TokenError,
};
#[cfg(feature = "mysql")]
pub use mysql::MysqlFence;
#[cfg(feature = "postgres")]
pub use postgres::PostgresFence;
pub use proof::{Access, CannotFence, Exclusive, Granted, Proof, Shared};
pub use redis::{GUARD as REDIS_GUARD, RedisCall, RedisFence};
pub use refusals::{Closure, Refusal, RefusalObserver, Refusals};
pub use rules::Rules;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteFence, SqliteResource};

/// A resource that remembers the largest fencing token that it has accepted, and refuses smaller
/// ones.
///
/// The calls block if the resource does I/O; in async code call them by `spawn_blocking`. For a
/// resource of your own, keep the mark where the data is, and decide with [`Rules`] in the step
/// that writes.
///
/// # Guarantees
/// Under any interleaving of any holders, the tokens of accepted writes never decrease. A write
/// after a seal is based on a read after that seal: no older write happened in between.
pub trait Fenced {
    /// What a write changes.
    type Target: ?Sized;
    /// The error of a write. The resource then undoes the write.
    type Failure;

    /// Returns the largest token that was accepted, or `None` if there was none yet.
    ///
    /// It may be larger a moment later: use it for reports, not for decisions.
    ///
    /// # Errors
    /// `Foreign`, `Busy` or `Failed`. Nothing was changed.
    fn mark(&self) -> Result<Option<FencingToken>, FenceError>;

    /// Checks that no newer holder was here, and does not raise the mark. A shared holder may do
    /// nothing else.
    ///
    /// It says nothing about the next moment: do not write because of it.
    ///
    /// # Errors
    /// `Stale`, `OtherName`: stop. `Foreign`, `Busy`, `Failed`: the check was not done. Nothing was
    /// changed in any case.
    fn check<A: Access>(&self, proof: &Proof<A>) -> Result<(), FenceError>;

    /// Raises the mark to the holder's token. Call it before the first read: from then on no older
    /// holder can change the data.
    ///
    /// Sealing again with the same token changes nothing.
    ///
    /// # Errors
    /// `Stale`, `TooFar`, `OtherName`: refused, the mark is unchanged. `Foreign`, `Busy`: not done.
    /// `Failed`: see its certainty; after `Unknown` seal again before reading.
    fn seal(&self, proof: &Proof) -> Result<(), FenceError>;

    /// Refuses a smaller token; otherwise raises the mark and writes, in one atomic step.
    ///
    /// # Errors
    /// `Stale`, `TooFar`, `OtherName`: refused, `write` did not run. `Foreign`, `Busy`: `write` did
    /// not run. `Write`: it failed, mark and data are unchanged. `Failed`: see its certainty; after
    /// `Unknown` mark and data are both new or both old: read again.
    fn check_and_write<R>(
        &self,
        proof: &Proof,
        write: impl FnOnce(&mut Self::Target) -> Result<R, Self::Failure>,
    ) -> Result<R, FenceError>;
}
