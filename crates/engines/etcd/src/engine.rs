//! The engine: each verb runs as a task of its own, where the engine is at home.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::lease::MAX_FIRST_LEASE;
use holdline_core::{
    AcquireReply, AcquireRequest, Capabilities, Clock, ClockKind, ErrorKind, Expiry, HandOff,
    Hints, LeaseId, LeaseRange, ListPage, ListRequest, LockError, LockName, Operation,
    OperationReply, ReleaseReply, ReleaseRequest, RenewRequest, Renewed, Snapshot, Verbs,
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
use crate::watcher::{Wanted, Watcher};
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
    home: Workplace,
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
        let home = Workplace::here(ENGINE)?;
        let client = Client::new(options)?;
        let layout = Layout::new(options.prefix());
        let (key, range_end) = layout.names("");
        let probe =
            RangeRequest { key, range_end, limit: 1, keys_only: true, ..Default::default() };
        let asking = client.clone();
        let reply = home.run(async move { asking.range(probe).await }).await?;
        // It only asked, so nothing was applied.
        let reply = reply.map_err(|trouble| at_first(trouble, options))?;
        let cluster = reply.header.map_or(0, |header| header.cluster_id);
        let store = Store {
            capabilities: capabilities(options, cluster),
            watcher: Watcher::start(&home, client.clone()),
            sessions: Sessions::new(client.clone(), clock.clone()),
            held: HeldIds::default(),
            grave: Mutex::default(),
            client,
            clock,
            layout,
        };
        Ok(EtcdEngine(Arc::new(Inner { store: Arc::new(store), home })))
    }

    /// Runs a verb as a task. Dropping the answer does not end it.
    async fn run<T, F>(&self, verb: impl FnOnce(Arc<Store>) -> F) -> Result<T, LockError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, LockError>> + Send + 'static,
    {
        self.0.home.run(verb(self.0.store.clone())).await?
    }
}

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
        max_waiters: options.max_waiters(),
        max_batch: BATCH,
        ..Capabilities::reference(ENGINE, identity)
    }
}

impl Verbs for EtcdEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.store.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let request = request.clone();
        self.run(async move |store| store.acquire(&request).await).await
    }

    async fn renew(&self, lines: &[&RenewRequest]) -> Renewed {
        let lines: Vec<RenewRequest> = lines.iter().copied().cloned().collect();
        self.run(async move |store| store.renew(&lines).await).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        let request = request.clone();
        self.run(async move |store| store.release(&request).await).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        let name = name.clone();
        self.run(async move |store| store.inspect(&name).await).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        let request = request.clone();
        self.run(async move |store| store.list(&request).await).await
    }

    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        let store = &self.0.store;
        let wanted = store.held.find(name, lease_id).map(|held| Wanted {
            own: (held.key.clone(), held.written + 1),
            before: store.before(name, &held.blockers, held.read_at),
        });
        Box::pin(store.watcher.open(lease_id, wanted))
    }

    fn check_operation(&self, operation: &Operation) -> Result<(), LockError> {
        match operation {
            // Why it lacks them the store says in words of its own.
            Operation::Freeze { .. } | Operation::Unfreeze { .. } => Ok(()),
            _ => operation.check(&self.0.store.capabilities),
        }
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        let operation = operation.clone();
        self.run(async move |store| store.operate(&operation).await).await
    }
}

impl fmt::Debug for EtcdEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdEngine")
            .field("identity", &self.0.store.capabilities.identity)
            .finish_non_exhaustive()
    }
}
