//! The engine: its connection and capabilities. Each verb runs as a task.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::{
    Capabilities, Clock, ClockKind, ErrorKind, Expiry, HandOff, LeaseRange, LockError,
};
use holdline_net::fast_path::BusyNames;
use tokio::sync::Mutex;

use crate::client::Client;
use crate::error::{ENGINE, RequestError, not_applied};
use crate::keys::Layout;
use crate::known_contenders::KnownContenders;
use crate::options::EtcdOptions;
use crate::proto::RangeRequest;
use crate::sessions::EtcdSessions;
use crate::store::Store;
use crate::watcher::Watcher;
use holdline_net::executor::Executor;

/// How many leases one call renews.
const BATCH: usize = 128;
/// How much later than its lease a dead holder's name may become free. The leader checks for
/// expired leases every half second, and revokes them by consensus. An election restarts the timer
/// of each lease.
pub(crate) const LAG: Duration = Duration::from_secs(1);

/// The engine of one etcd cluster. Clones share its connection.
#[derive(Clone)]
pub struct EtcdEngine(Arc<EtcdEngineParts>);

struct EtcdEngineParts {
    store: Arc<Store>,
    executor: Executor,
}

impl EtcdEngine {
    /// Makes an engine and waits until a member has answered. `clock` must include the time for
    /// which the machine is suspended, as the servers' clocks do.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unavailable`: no member can be reached. `Refused`: they
    /// refuse the user, or access to the keys. Nothing is held after any of them.
    pub async fn connect(
        options: &EtcdOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<EtcdEngine, LockError> {
        options.validate()?;
        let executor = Executor::current(ENGINE)?;
        let client = Client::new(options)?;
        let layout = Layout::new(options.prefix());
        let (key, range_end) = layout.names("");
        let probe =
            RangeRequest { key, range_end, limit: 1, keys_only: true, ..Default::default() };
        let asking = client.clone();
        let reply = executor.run(async move { asking.range(probe).await }).await?;
        // The request was a read, so nothing was applied.
        let reply = reply.map_err(|failure| at_first(failure, options))?;
        let cluster = reply.header.map_or(0, |header| header.cluster_id);
        let store = Store {
            capabilities: capabilities(options, cluster),
            watcher: Watcher::start(&executor, client.clone()),
            sessions: EtcdSessions::new(client.clone(), clock.clone()),
            contenders: KnownContenders::default(),
            busy: BusyNames::default(),
            marks_lease: Mutex::default(),
            client,
            clock,
            layout,
        };
        Ok(EtcdEngine(Arc::new(EtcdEngineParts { store: Arc::new(store), executor })))
    }

    #[cfg(test)]
    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }
}

holdline_net::verbs_as_tasks!(EtcdEngine);

/// Returns the error for a first request that failed.
fn at_first(failure: RequestError, options: &EtcdOptions) -> LockError {
    match failure.into_error().kind().clone() {
        // A server that requires a client certificate just closes the connection.
        ErrorKind::Unavailable { message } if options.shows_no_certificate() => {
            let advice = "if it asks clients for a certificate, set `cert` and `key`";
            not_applied(ErrorKind::Unavailable { message: format!("{message}; {advice}") })
        }
        kind => not_applied(kind),
    }
}

fn capabilities(options: &EtcdOptions, cluster: u64) -> Capabilities {
    let identity = format!("{cluster:x} {}", options.prefix());
    let second = Duration::from_secs(1);
    Capabilities {
        remove_waiter: false,
        freeze: false,
        expiry: Expiry::Session,
        lease: LeaseRange { min: second, max: MAX_FIRST_LEASE, step: second },
        hand_off: HandOff::Direct,
        // The server works on the requests of one connection at the same time.
        in_order: false,
        lag: LAG,
        clock: ClockKind::Boottime,
        max_waiters: options.max_waiters(),
        max_batch: BATCH,
        ..Capabilities::reference(ENGINE, identity)
    }
}
