//! The Redis engine: locks on one Redis or Valkey server, on the one that Sentinels make the
//! master, or on the masters of a cluster.
//!
//! Each verb is one script, so the server executes each step of the lock table atomically. The next
//! holder is notified by a message to its process.
//!
//! # Guarantees
//! The promises of the lock table hold while the server loses no data and its clock is not set
//! forward. A server that lost data (a restart without persistence, a flush) may grant a held name
//! again. The fencing token still grows, within the error of the server's clock. A failover to a
//! replica may lose the newest grants: if the URL names the sentinels, the promoted server grants
//! no lock until those have expired. A cluster may grant them again: only the tokens protect
//! there, by time.
//!
//! # Read next
//! `engine` for the verbs, `keys` for what is stored, `native` and `scripts/common.lua` for the
//! rules, `plain` and `redisson` for the other dialects: locks that are shared with other
//! libraries. Then `inbox`
//! and `link` for the connection, `sentinel` for finding the master, `cluster` for names on several
//! masters, `options` for the settings.

mod args;
mod checkup;
mod cluster;
mod command;
mod environment;
mod error;
mod in_flight;
mod inbox;
mod keys;
mod limits;
mod link;
mod lua_constants;
mod native;
mod options;
mod plain;
mod plain_record;
mod quorum;
mod redisson;
mod route;
mod sentinel;

use std::sync::Arc;

use holdline_core::{Clock, Engine, LockError};

pub use checkup::{checkup, quorum_checkup};
pub use cluster::ClusterEngine;
pub use command::{command, fail_over};
pub use environment::{Environment, Stream, Task, TaskSpawner};
pub use native::RedisEngine;
pub use options::{Dialect, Publish, RedisOptions};
pub use plain::PlainEngine;
pub use quorum::{
    NodeState, NodeStatus, QuorumAdmin, QuorumEngine, QuorumOptions, QuorumStatus, Replacement,
    VouchedServer,
};
pub use redisson::RedissonEngine;

/// Makes the engine of the configured dialect, and waits until it has a connection. `clock` must
/// count the time that the machine is suspended, as the server's does.
///
/// # Errors
/// `Invalid`: an option is wrong. `Unavailable`: the server cannot be reached. `NoQuorum`: other
/// servers of its group answer, and no master does. `Refused`: the server does not let us in.
/// Nothing is held after any of them.
pub async fn connect(
    options: &RedisOptions,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Engine>, LockError> {
    if options.is_of_cluster() && options.dialect() == Dialect::Native {
        return Ok(Arc::new(ClusterEngine::connect(options, clock).await?));
    }
    Ok(match options.dialect() {
        Dialect::Native => Arc::new(RedisEngine::connect(options, clock).await?),
        Dialect::Plain => Arc::new(PlainEngine::connect(options, clock).await?),
        Dialect::Redisson => Arc::new(RedissonEngine::connect(options, clock).await?),
    })
}
