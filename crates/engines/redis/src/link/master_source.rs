//! Who names the master, where a server is found by others.

use std::pin::Pin;

use holdline_core::LockError;
use tokio::sync::watch;

use super::HostPort;

/// A pending answer of a [`MasterSource`].
pub(crate) type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Names the master of a group of servers.
pub(crate) trait MasterSource: Send + Sync {
    /// Returns whether the source names a master, whether that answers or not.
    fn answers(&self) -> bool;

    /// Returns a receiver of the master's address, which is notified of each change.
    fn master(&self) -> watch::Receiver<Option<HostPort>>;

    /// Returns how many replicas the master has, by the last result.
    fn replicas(&self) -> u64;

    /// Queries the source for the master.
    fn query(&self) -> SourceFuture<'_, Result<HostPort, LockError>>;

    /// Makes the source query soon: the master does not act as one.
    fn query_soon(&self);

    /// Queries whenever there is a reason, for as long as it is polled.
    fn run(&self) -> SourceFuture<'_, ()>;
}
