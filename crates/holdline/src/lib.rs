//! One lock API over many engines, with leases that report their loss, and fencing tokens.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), holdline::LockError> {
//! let client = holdline::Client::connect("memory:").await?;
//! let guard = client.mutex("nightly-backup")?.lock().await?;
//! // … work, and pass guard.fencing_token() to the resource …
//! guard.release().await;
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
//! [`Client`] connects; [`Mutex`], [`RwLock`] and [`Semaphore`] describe locks; a [`Guard`] is a
//! held lock; [`LockOptions`] sets leases and waits; [`blocking`] is the same without async. How it
//! works: `registry` (the schedule), `keeper` (renewal), `queue` (heartbeat), `janitor` (release of
//! what was abandoned), `acquire` (one attempt).

mod acquire;
mod all;
pub mod blocking;
mod client;
mod client_options;
mod clock;
mod core;
mod engines;
mod entropy;
pub mod fence;
mod grant;
mod guard;
mod held;
mod janitor;
mod keeper;
mod lease;
mod mutex;
#[cfg(feature = "mysql")]
pub mod mysql;
mod observer;
mod options;
mod owner;
mod parker;
mod plan;
#[cfg(feature = "postgres")]
pub mod postgres;
mod process;
mod queue;
#[cfg(doctest)]
mod readme;
#[cfg(feature = "redis")]
pub mod redlock;
mod registry;
mod release;
mod runtime;
mod rwlock;
mod semaphore;
mod url;
mod worker;

pub use all::Guards;
pub use client::{Client, ShutdownReport, URL_VARIABLE};
pub use client_options::ClientOptions;
pub use clock::{ManualClock, SystemClock};
pub use engines::checkup;
pub use grant::RiskReason;
pub use guard::Guard;
pub use held::Held;
pub use holdline_core::{
    Anchor, Capabilities, Certainty, ClientId, Clock, ClockKind, Engine, Entropy, ErrorKind,
    Escaped, FencingToken, Hold, HolderFields, HolderSummary, LeaseId, ListPage, ListRequest,
    LockError, LockName, LostReason, Mode, Moment, Operation, OperationReply, Snapshot,
};
#[cfg(feature = "etcd")]
pub use holdline_etcd::{EtcdEngine, EtcdOptions};
#[cfg(feature = "local")]
pub use holdline_local::{LocalEngine, LocalOptions, LocalReport};
pub use holdline_memory::{MemoryEngine, MemoryOptions};
#[cfg(feature = "mysql")]
pub use holdline_mysql::{MysqlEngine, MysqlOptions};
#[cfg(feature = "postgres")]
pub use holdline_postgres::{PostgresEngine, PostgresOptions};
#[cfg(feature = "redis")]
pub use holdline_redis::{RedisEngine, RedisOptions};
#[cfg(feature = "zookeeper")]
pub use holdline_zookeeper::{Family as ZooKeeperFamily, ZooKeeperEngine, ZooKeeperOptions};
pub use lease::{DetachError, Lease};
pub use mutex::{Mutex, Ran};
pub use observer::{Observer, Subject};
pub use options::{Keep, LockOptions, OnLost};
pub use owner::Owner;
pub use release::ReleaseOutcome;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
pub use url::redact_url;
