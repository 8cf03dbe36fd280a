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
//! lock whose holder leads; a [`Guard`] is a held lock; [`LockOptions`] sets leases and waits;
//! [`blocking`] is the same without async. How it works: `registry` (the schedule), `keeper`
//! (renewal), `queue` (heartbeat), `janitor` (release of what was abandoned), `acquire` (one
//! attempt), `own_waiters` (hand-offs within this client).

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
compile_error!(
    "holdline needs a clock that counts the time of a suspend, and knows those of Linux, macOS and \
     Windows. Programs on other systems can use `holdline serve` over HTTP"
);

mod acquire;
mod all;
mod any_of;
mod audit;
pub mod blocking;
mod class;
mod client;
mod client_options;
mod clock;
mod core;
mod counting_semaphore;
mod election;
mod engines;
mod entropy;
pub mod fence;
mod grant;
mod guard;
mod held;
mod janitor;
mod keeper;
mod latch;
mod lease;
mod leftovers;
#[cfg(feature = "metrics")]
pub mod metrics;
mod mutex;
#[cfg(feature = "mysql")]
pub mod mysql;
mod observer;
mod once;
mod options;
mod own_waiters;
mod owner;
mod parker;
mod plan;
#[cfg(feature = "postgres")]
pub mod postgres;
mod process;
mod progress;
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
mod spans;
mod url;
pub mod watch;
mod worker;

pub use all::{Guards, lock_all, lock_all_with};
pub use any_of::AnyOf;
pub use audit::AuditFile;
pub use class::{Class, MAX_CLASSES};
pub use client::{Client, ShutdownReport, URL_VARIABLE};
pub use client_options::ClientOptions;
pub use clock::{ManualClock, SystemClock};
pub use counting_semaphore::CountingSemaphore;
pub use election::{Election, Leader, Leaders, Leadership, MAX_VALUE_BYTES};
pub use engines::checkup;
pub use grant::RiskReason;
pub use guard::Guard;
pub use held::Held;
pub use holdline_core::counting::MAX_PERMITS;
pub use holdline_core::latch::MAX_COUNT;
pub use holdline_core::{
    Anchor, AuditEntry, AuditId, AuditOutcome, AuditPage, AuditRecord, AuditRequest, AuditTrail,
    Capabilities, Certainty, ClientId, Clock, ClockKind, Engine, Entropy, ErrorKind, Escaped,
    FencingToken, FreezeView, GrantState, HealthFeed, Hold, HolderFields, HolderSummary,
    HolderView, LeaseId, ListPage, ListRequest, LockError, LockName, LostReason, Mode, Moment,
    NodeHealth, Operation, OperationReply, Operator, QuorumHealth, ShortLeaseId, Snapshot,
    WaiterView,
};
#[cfg(feature = "etcd")]
pub use holdline_etcd::{EtcdEngine, EtcdOptions};
#[cfg(feature = "http")]
pub use holdline_http::{HttpEngine, HttpOptions};
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
pub use latch::Latch;
pub use lease::{DetachError, Lease};
pub use mutex::{Mutex, Ran};
pub use observer::{HoldEnd, Observer, Subject};
pub use once::{Begun, Once, OnceOptions, OnceOutcome, OnceRun, Slot, Taken};
pub use options::{Keep, LockOptions, OnLost};
pub use owner::Owner;
pub use release::ReleaseOutcome;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
pub use url::redact_url;
