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

use holdline_core::{Clock, LockError};

use crate::link::{Link, MasterSource};
use crate::options::RedisOptions;

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
