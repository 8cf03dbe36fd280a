//! Locks in one Redis or Valkey server, with or without Sentinel, or in a Redis Cluster.
//!
//! `docs/redis.md` of the repository says what each of them promises over a failover, and lists
//! the URLs. [`redlock`](crate::redlock) is for a quorum of independent servers.
//!
//! ```no_run
//! # async fn example() -> Result<(), holdline::LockError> {
//! let client = holdline::Client::connect("redis://127.0.0.1:6379").await?;
//! # Ok(())
//! # }
//! ```

pub use holdline_redis::{Dialect, Publish, RedisEngine, RedisOptions};
