//! One lock API over many engines, with leases that report their loss, and fencing tokens.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), holdline::LockError> {
//! let client = holdline::Client::connect("memory:").await?;
//! let guard = client.mutex("nightly-backup")?.lock().await?;
//! // … work, and pass guard.fencing_token() to the resource …
//! guard.release().await.into_result()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What a lock cannot promise
//! A process can be paused longer than its lease, and write when it resumes. [`Guard::is_valid`]
//! becomes false in time, but no program can check it and write in one step. If a late write would
//! do harm, pass [`Guard::fencing_token`] to the resource, which refuses smaller tokens.
//!
//! # Where to start
//! [`Client`] connects; [`Mutex`], [`RwLock`] and [`Semaphore`] describe locks; [`Election`] is a
//! lock whose holder leads; a [`Guard`] is a held lock; [`LockOptions`] sets leases and waits.
//!
//! The root has what a program with locks names. The rest is in modules:
//!
//! | module | for |
//! |---|---|
//! | [`blocking`] | the same locks without async |
//! | [`once`], [`election`], [`lease`] | what belongs to [`Once`], [`Election`] and [`Lease`] |
//! | [`fence`] | resources that refuse a stale holder |
//! | [`observer`], `metrics` | events and metrics of locks |
//! | [`admin`], [`audit`], [`watch`], [`health`] | operators: who holds what, commands, the audit trail, checks |
//! | [`memory`], `local`, `redis`, `redlock`, `postgres`, `mysql`, `etcd`, `zookeeper`, `http` | options of one engine, and what its store has besides |
//! | [`engine`], [`clock`] | programs that bring their own engine or clock, and tests |
//!
//! How it works inside, from the bottom up; each module knows only those before it. `engines`
//! (connect by a URL), `plan` (a lock's description, checked), `grant` (a held lease), `core` (the
//! parts of a client, with the schedule of its background work), `worker` (keeper, queue heartbeat
//! and janitor), `guard` (the end of a hold), `acquire` (one attempt), `client`, `primitives` (what
//! users lock with), `blocking`.

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
compile_error!(
    "holdline needs a clock that counts the time of a suspend, and knows those of Linux, macOS and \
     Windows. Programs on other systems can use `holdline serve` over HTTP"
);

mod acquire;
pub mod admin;
pub mod audit;
pub mod blocking;
mod client;
pub mod clock;
mod core;
mod debug;
pub mod election;
pub mod engine;
mod engines;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod fence;
mod grant;
mod guard;
pub mod health;
#[cfg(feature = "http")]
pub mod http;
pub mod lease;
#[cfg(feature = "local")]
pub mod local;
pub mod memory;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "mysql")]
pub mod mysql;
pub mod observer;
pub mod once;
mod parker;
mod plan;
#[cfg(feature = "postgres")]
pub mod postgres;
mod primitives;
#[cfg(doctest)]
mod readme;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
mod release_outcome;
mod spans;
pub mod watch;
mod worker;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use client::options::ClientOptions;
pub use client::{Client, ShutdownReport};
#[doc(inline)]
pub use election::{Election, Leadership};
pub use engines::url::redact_url;
pub use grant::RiskReason;
pub use guard::Guard;
pub use guard::held::Held;
pub use holdline_core::{
    Certainty, ErrorKind, FencingToken, HolderSummary, LeaseId, LockError, LockName, LostReason,
    Mode,
};
#[doc(inline)]
pub use lease::Lease;
#[doc(inline)]
pub use observer::Observer;
#[doc(inline)]
pub use once::Once;
pub use plan::options::{Keep, LockOptions, OnLost};
pub use primitives::all::{Guards, lock_all, lock_all_with};
pub use primitives::any_of::AnyOf;
pub use primitives::by_mode;
pub use primitives::counting_semaphore::CountingSemaphore;
pub use primitives::latch::Latch;
pub use primitives::mutex::{Mutex, Ran};
pub use primitives::owner::Owner;
pub use primitives::rwlock::RwLock;
pub use primitives::semaphore::Semaphore;
pub use release_outcome::ReleaseOutcome;
