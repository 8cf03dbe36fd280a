//! Fencing: how a resource refuses a stale holder.
//!
//! A lease can end while its holder is paused; the holder then resumes and writes. No lock can
//! prevent that, but the resource can. Each exclusive grant has a fencing token larger than all
//! before. The resource remembers the largest token that it has accepted (its *mark*), and refuses
//! smaller ones. Two calls are needed:
//!
//! - **seal**: raise the mark to my token *before my first read*. Otherwise the write of an older
//!   holder can happen between my read and my write. My write, made from the old value, then undoes
//!   it although it was acknowledged.
//! - **check-and-write**: refuse a smaller token, raise the mark to mine and write, in one atomic
//!   step. A check followed by a write is no fence: the process can be paused between the two.
//!
//! | resource | look at |
//! |---|---|
//! | a value in this process | [`FencedCell`] |
//! | a file | [`FencedFile`] |
//! | anything that programs of one machine write to | [`FileMark`]: the mark alone |
#![cfg_attr(
    feature = "fence-sqlite",
    doc = "| rows of an SQLite database | [`SqliteFence`]: the mark in the same transaction |"
)]
#![cfg_attr(
    not(feature = "fence-sqlite"),
    doc = "| rows of an SQLite database | `SqliteFence`, with the feature `fence-sqlite` |"
)]
#![cfg_attr(
    feature = "fence-postgres",
    doc = "| rows of a PostgreSQL database | [`PostgresFence`]: the mark in the same transaction |"
)]
#![cfg_attr(
    not(feature = "fence-postgres"),
    doc = "| rows of a PostgreSQL database | `PostgresFence`, with the feature `fence-postgres` |"
)]
#![cfg_attr(
    feature = "fence-mysql",
    doc = "| rows of MariaDB or MySQL | [`MysqlFence`]: the mark in the same transaction |"
)]
#![cfg_attr(
    not(feature = "fence-mysql"),
    doc = "| rows of MariaDB or MySQL | `MysqlFence`, with the feature `fence-mysql` |"
)]
//! | the same, by any driver | [`sql`]: the statements |
//! | a key of a Redis server, by any client | [`RedisFence`]: scripts |
#![cfg_attr(
    feature = "fence-http",
    doc = "| what an HTTP service keeps | [`http`]: the header, and a layer for tower |"
)]
#![cfg_attr(
    not(feature = "fence-http"),
    doc = "| what an HTTP service keeps | `http`, with the feature `fence-http` |"
)]
//! | your own | [`Fenced`] is the trait, [`Rules`] the decision |
//!
//! Each refusal is an error, is counted ([`Refusals`]) and logged, and an observer is notified
//! ([`Rules::with_observer`]).
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
mod file;
#[cfg(feature = "fence-http")]
pub mod http;
#[cfg(feature = "fence-mysql")]
mod mysql;
#[cfg(feature = "fence-postgres")]
mod postgres;
mod proof;
mod redis;
mod refusals;
mod rules;
pub mod sql;
#[cfg(feature = "fence-sqlite")]
mod sqlite;
#[cfg(test)]
mod tests;

use holdline_core::FencingToken;

pub use cell::FencedCell;
pub use error::{FenceError, StaleToken};
pub use file::{FencedFile, FileMark, HeldMark};
#[cfg(feature = "fence-mysql")]
pub use mysql::MysqlFence;
#[cfg(feature = "fence-postgres")]
pub use postgres::PostgresFence;
pub use proof::{Access, CannotFence, Exclusive, Granted, Proof, Shared};
pub use redis::{GUARD as REDIS_GUARD, RedisCall, RedisFence};
pub use refusals::{Refusal, Refusals};
pub use rules::Rules;
#[cfg(feature = "fence-sqlite")]
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
