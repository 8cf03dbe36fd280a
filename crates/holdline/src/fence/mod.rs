//! Fencing: how a resource refuses a holder that comes too late.
//!
//! A lease can end while its holder is paused; the holder wakes up and writes. No lock can
//! prevent that, but the resource can: each exclusive grant carries a fencing token larger than
//! all before, the resource remembers the largest one it has accepted (its *mark*), and refuses
//! smaller ones. Two calls make it work, and both are needed:
//!
//! - **seal**: raise the mark to my token *before my first read*. Else the write of an older
//!   holder can land between my read and my write, and my write, made from the old value, undoes
//!   it although it was acknowledged.
//! - **check-and-write**: refuse a smaller token, raise the mark to mine and write, in one atomic
//!   step. A check followed by a write is no fence: the pause can come between the two.
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
//! Each refusal is an error, is counted ([`Refusals`]) and logged, and told to an observer
//! ([`Rules::with_observer`]).
//!
//! Invariants: F1 in `proof`, F2 to F4 in `rules`, F5 to F8 in `file`, F9 in `sqlite`, F10 and F11
//! in `postgres`, F12 and F13 in `redis`, F14 in `http`, F15 to F17 in `mysql`. The page
//! `docs/fencing.md` of the repository tells the same to users, with SQL for those who write it
//! themselves.
//!
//! # What fencing cannot do
//! - It orders the grants of *one* lock name. A resource written under two names is not fenced.
//! - It keeps late holders out, not hostile ones: everybody can show a number.
//! - It knows nothing of reads that nobody checks, and undoes nothing: what a holder wrote before
//!   it was overtaken stays.
//! - A mark that is lost (deleted, restored from an old copy) lets late holders in again.

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

/// A resource that remembers the largest fencing token it has accepted, and refuses smaller ones.
///
/// The calls block where the resource does I/O; in async code call them by `spawn_blocking`. To
/// make a resource of your own one, keep the mark where the data is, and decide with [`Rules`]
/// in the step that writes.
///
/// # Guarantees
/// Under any interleaving of any holders, the tokens of accepted writes never fall, and what a
/// holder wrote after sealing was made from what it read after sealing: no older write came
/// between.
pub trait Fenced {
    /// What a write changes.
    type Target: ?Sized;
    /// Why a write gives up. The resource then undoes what it did.
    type Failure;

    /// Returns the largest token that was accepted, or `None` if there was none yet.
    ///
    /// It may be larger a moment later: for people and programs that report, not for decisions.
    ///
    /// # Errors
    /// `Foreign`, `Busy` or `Failed`. Nothing was changed.
    fn mark(&self) -> Result<Option<FencingToken>, FenceError>;

    /// Checks that nobody newer was here, and raises nothing. All that a shared holder may do.
    ///
    /// It says nothing about the next moment: do not write on the strength of it.
    ///
    /// # Errors
    /// `Stale`, `OtherName`: stop. `Foreign`, `Busy`, `Failed`: nothing is known. Nothing was
    /// changed in any case.
    fn check<A: Access>(&self, proof: &Proof<A>) -> Result<(), FenceError>;

    /// Raises the mark to the holder's token. Call it before the first read: from then on no
    /// older holder changes what is read.
    ///
    /// Sealing again with the same token changes nothing.
    ///
    /// # Errors
    /// `Stale`, `TooFar`, `OtherName`: refused, the mark is as it was. `Foreign`, `Busy`: not
    /// done. `Failed`: its certainty tells; after `Unknown` seal again before reading.
    fn seal(&self, proof: &Proof) -> Result<(), FenceError>;

    /// Refuses a smaller token; else raises the mark and writes, in one atomic step.
    ///
    /// # Errors
    /// `Stale`, `TooFar`, `OtherName`: refused, `write` did not run. `Foreign`, `Busy`: `write`
    /// did not run. `Write`: it gave up, mark and data are as they were. `Failed`: its certainty
    /// tells; after `Unknown` the new mark and data are both there or both not: read again.
    fn check_and_write<R>(
        &self,
        proof: &Proof,
        write: impl FnOnce(&mut Self::Target) -> Result<R, Self::Failure>,
    ) -> Result<R, FenceError>;
}
