//! The engine: each verb runs as a task of its own, where the engine is at home.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::{
    Capabilities, Clock, ClockKind, ErrorKind, Expiry, HandOff, LeaseRange, LockError,
};
use tokio::sync::Mutex;

use crate::client::Client;
use crate::error::{ENGINE, Trouble, not_applied};
use crate::held::HeldIds;
use crate::keys::Layout;
use crate::options::EtcdOptions;
use crate::proto::RangeRequest;
use crate::sessions::Sessions;
use crate::store::Store;
use crate::watcher::Watcher;
use holdline_net::workplace::Workplace;

/// How many lines one call renews.
const BATCH: usize = 128;
/// How much later than its lease a dead holder's name may become free: the leader looks for
/// leases that are over every half second, and deletes them by consensus. An election gives each
/// lease its whole time once more.
pub(crate) const LAG: Duration = Duration::from_secs(1);

/// The engine of one etcd cluster. Clones share its connection.
#[derive(Clone)]
pub struct EtcdEngine(Arc<Inner>);

struct Inner {
    store: Arc<Store>,
    workplace: Workplace,
}

impl EtcdEngine {
    /// Makes an engine and waits until a member has answered. `clock` must count the time that the
    /// machine is suspended, as the servers' do.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unavailable`: no member can be reached. `Refused`: they do
    /// not let us in, or not to our keys. Nothing is held after any of them.
    pub async fn connect(
        options: &EtcdOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<EtcdEngine, LockError> {
        options.validate()?;
        let workplace = Workplace::here(ENGINE)?;
        let client = Client::new(options)?;
        let layout = Layout::new(options.prefix());
        let (key, range_end) = layout.names("");
        let probe =
            RangeRequest { key, range_end, limit: 1, keys_only: true, ..Default::default() };
        let asking = client.clone();
        let reply = workplace.run(async move { asking.range(probe).await }).await?;
        // It only asked, so nothing was applied.
        let reply = reply.map_err(|trouble| at_first(trouble, options))?;
        let cluster = reply.header.map_or(0, |header| header.cluster_id);
        let store = Store {
            capabilities: capabilities(options, cluster),
            watcher: Watcher::start(&workplace, client.clone()),
            sessions: Sessions::new(client.clone(), clock.clone()),
            held: HeldIds::default(),
            grave: Mutex::default(),
            client,
            clock,
            layout,
        };
        Ok(EtcdEngine(Arc::new(Inner { store: Arc::new(store), workplace })))
    }
}

holdline_net::verbs_as_tasks!(EtcdEngine);

/// What is told when the first question fails.
fn at_first(trouble: Trouble, options: &EtcdOptions) -> LockError {
    match trouble.into_error().kind().clone() {
        // A server that asks for a certificate just closes.
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
        freeze: false,
        expiry: Expiry::Session,
        lease: LeaseRange { min: second, max: MAX_FIRST_LEASE, step: second },
        hand_off: HandOff::Direct,
        lag: LAG,
        clock: ClockKind::Boottime,
        max_waiters: options.cluster.max_waiters,
        max_batch: BATCH,
        ..Capabilities::reference(ENGINE, identity)
    }
}
