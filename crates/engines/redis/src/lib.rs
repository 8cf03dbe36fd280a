//! The Redis engine: locks on one Redis or Valkey server, on the one that Sentinels make the
//! master, or on the masters of a cluster.
//!
//! Each verb is one script, so that the server runs a whole step of the lock table at once, and
//! whoever is next is told by a message to its process.
//!
//! # Guarantees
//! It keeps the promises of the lock table while the server remembers and its clock does not
//! step. A server that forgot (a restart without persistence, a flush) may grant a name again;
//! the fencing token grows even then, up to the error of the server's clock. A failover to a
//! replica may lose the newest grants: where the URL names the sentinels, the promoted server
//! grants nothing until those have run out. In a cluster it may grant them again: only the tokens
//! hold there, by time.
//!
//! # Read next
//! `engine` for the verbs, `keys` for what is stored, `native` and `scripts/common.lua` for the
//! rules, `plain` for the other dialect: locks that are shared with other libraries. Then `ears`
//! and `node` for how a command travels, `sentinel` for who the master is, `cluster` for
//! names that live with several, `options` for what can
//! be set.

mod checkup;
mod cluster;
mod command;
mod engine;
mod environment;
mod error;
mod inbox;
mod keys;
mod listing;
mod native;
mod node;
mod options;
mod plain;
mod quorum;
mod sentinel;

use std::sync::Arc;

use holdline_core::{Clock, Engine, LockError};

pub use checkup::{checkup, quorum_checkup};
pub use cluster::ClusterEngine;
pub use command::{command, fail_over};
pub use engine::RedisEngine;
pub use environment::{Environment, Stream, Task, TaskSpawner};
pub use options::{Dialect, RedisOptions};
pub use plain::{LeaseFormat, PlainEngine};
pub use quorum::{
    NodeState, NodeStatus, QuorumAdmin, QuorumEngine, QuorumOptions, QuorumStatus, Replacement,
};

/// Makes the engine of the dialect that is set, and waits until it has a connection. `clock` must
/// count the time that the machine is suspended, as the server's does.
///
/// # Errors
/// `Invalid`: an option is wrong. `Unavailable`: the server cannot be reached. `NoQuorum`: others
/// of its group answer, and no master does. `Refused`: it does not let us in. Nothing is held
/// after any of them.
pub async fn connect(
    options: &RedisOptions,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Engine>, LockError> {
    if options.is_of_cluster() {
        return Ok(Arc::new(ClusterEngine::connect(options, clock).await?));
    }
    Ok(match options.dialect() {
        Dialect::Native => Arc::new(RedisEngine::connect(options, clock).await?),
        Dialect::Plain => Arc::new(PlainEngine::connect(options, clock).await?),
    })
}
