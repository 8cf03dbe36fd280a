//! A master that Sentinels monitor: which server it is, and which replicas have its grants.
//!
//! ```text
//! watcher ── queries all sentinels: at each connect, at `+switch-master`, every few seconds
//!    │           answers: combines their views, as a pure rule
//!    └── notifies the link, which closes every connection to another server
//! replica_acks ── WAIT: how many replicas have what was just written
//! ```
//!
//! When a promoted server may grant is decided in `link::master_term`.

mod answers;
mod replica_acks;
mod watcher;

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Clock, LockError};

use crate::keys::Layout;
use crate::link::{Link, MasterSource, ServerFacts};
use crate::options::{RedisOptions, Replicas};

pub(crate) use answers::MasterView;
pub(crate) use replica_acks::ReplicaAcks;
pub(crate) use watcher::Watcher;

/// Makes a link for the server of these options: the master that their sentinels name, if they name
/// sentinels. It begins to dial at once.
///
/// # Errors
/// `Invalid` for options that do not fit together, `Refused` when the process gets no thread.
pub(crate) fn link(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<Link, LockError> {
    options.validate()?;
    let watcher = Watcher::new(options, &clock)?;
    let source = watcher.map(|watcher| Arc::new(watcher) as Arc<dyn MasterSource>);
    match source {
        Some(source) => Link::of_source(options, clock, Some(source)),
        None => Link::single(options, clock),
    }
}

/// Makes what waits for replicas, where the options require that.
pub(crate) fn replica_acks_of(
    options: &RedisOptions,
    link: &Link,
    layout: &Layout,
) -> Result<Option<ReplicaAcks>, LockError> {
    let wanted = options.failover().replicas();
    if wanted == Replicas::None {
        return Ok(None);
    }
    let deadline = options.command_timeout();
    Ok(Some(ReplicaAcks::new(
        link.new_link_to_same_server()?,
        link.master_source().cloned(),
        wanted,
        layout.master_term(),
        deadline,
    )))
}

/// Returns the run of the server that may grant now; `None` where the connection that takes the
/// request decides: on one server, unless replicas must acknowledge the grant of one run.
pub(crate) async fn granting_run(
    link: &Link,
    replica_acks: Option<&ReplicaAcks>,
    clock: &dyn Clock,
    deadline: Duration,
) -> Result<Option<Arc<ServerFacts>>, LockError> {
    if link.master_source().is_none() && replica_acks.is_none() {
        return Ok(None);
    }
    let facts = link.ready_within(deadline).await?;
    facts.check_may_grant(clock)?;
    Ok(Some(facts))
}
