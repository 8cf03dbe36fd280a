//! The engine: its sessions and capabilities. Each verb runs as a task.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use holdline_core::lease::{MAX_FIRST_LEASE, MIN_LEASE};
use holdline_core::{
    Capabilities, Clock, ClockKind, Expiry, HandOff, Hint, LeaseId, LeaseRange, LockError, LockName,
};

use crate::error::ENGINE;
use crate::keys::Layout;
use crate::known_contenders::{Id, KnownContender, KnownContenders};
use crate::name_cache::NameCache;
use crate::options::ZooKeeperOptions;
use crate::probe::{self, Limits};
use crate::session::ZooKeeperSession;
use crate::sessions::{Group, ZooKeeperSessions};
use crate::store::Store;
use holdline_net::executor::Executor;

/// How many leases one call renews.
const BATCH: usize = 128;
/// How much later than its lease a dead holder's name may become free, in addition to two ticks.
/// The leader checks sessions once a tick, and pings the other members twice a tick.
const LAG: Duration = Duration::from_millis(500);

/// The pause before the deletion of an expired contender is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// The engine of one ZooKeeper ensemble. Clones share its sessions.
#[derive(Clone)]
pub struct ZooKeeperEngine(Arc<ZooKeeperEngineParts>);

struct ZooKeeperEngineParts {
    store: Arc<Store>,
    executor: Executor,
}

impl ZooKeeperEngine {
    /// Makes an engine and waits until a member has answered. `clock` must include the time for
    /// which the machine is suspended, as the servers' clocks do.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unavailable`: no member can be reached. `Refused`: they
    /// refuse the user, or access to the nodes. Nothing is held after any of them.
    pub async fn connect(
        options: &ZooKeeperOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<ZooKeeperEngine, LockError> {
        options.validate()?;
        let executor = Executor::process_wide(ENGINE)?;
        let probed = options.clone();
        let probing = async move {
            let members = &probed.cluster.members;
            probe::shortest_of_any(members, probed.tls(), probed.connect_timeout()).await
        };
        let shortest = executor.run(probing).await??;
        let sessions = Arc::new(ZooKeeperSessions::new(options.clone(), shortest, clock.clone()));
        let opening = sessions.clone();
        let longest = executor.run(async move { opening.open_main().await }).await??;
        let limits = Limits { shortest, longest };
        let store = Arc::new(Store {
            capabilities: capabilities(options, limits)?,
            layout: Layout::new(options.chroot(), options.family()),
            sessions: sessions.clone(),
            contenders: KnownContenders::of(&identity(options)),
            names: NameCache::default(),
            watches: Arc::default(),
            clock,
        });
        let probing = store.clone();
        let probe = async move {
            let connection = probing.connection().await?;
            connection.children(probing.layout.root()).await?;
            Ok::<(), LockError>(())
        };
        // The request was a read, so nothing was applied.
        let probed = executor.run(probe).await?;
        probed.map_err(|error| crate::error::not_applied(error.kind().clone()))?;
        let weak = Arc::downgrade(&store);
        let contenders = Arc::downgrade(&store.contenders);
        let ending = sessions.clone();
        executor.spawn(async move {
            loop {
                let over = ending.next_over().await;
                let Some(contenders) = contenders.upgrade().filter(|_| !over.is_empty()) else {
                    return;
                };
                // At once, because the next request begins the group again.
                let ended = contenders.take_groups(&ending, &over);
                // Without the engine, a session is closed when its last contender is dropped here.
                if let Some(store) = weak.upgrade() {
                    // In a task, so that a slow deletion delays no other.
                    tokio::spawn(async move { store.end_all(&over, ended).await });
                }
            }
        });
        Ok(ZooKeeperEngine(Arc::new(ZooKeeperEngineParts { store, executor })))
    }
}

holdline_net::verbs_as_tasks!(ZooKeeperEngine, known: learned_grant);

impl Drop for ZooKeeperEngineParts {
    fn drop(&mut self) {
        self.store.sessions.shut();
    }
}

impl Store {
    /// Deletes the removed contenders, and closes the sessions that have none any more.
    async fn end_all(&self, over: &[Group], ended: Vec<(Id, KnownContender)>) {
        let unused = |session: &Arc<ZooKeeperSession>| !self.contenders.uses(session);
        let ending =
            join_all(ended.iter().map(|((id, name), contender)| self.end(name, *id, contender)));
        let closing = join_all(over.iter().map(|key| self.sessions.close(*key, unused)));
        tokio::join!(closing, ending);
    }

    /// Deletes the contender of a lease id, or closes its session.
    async fn end(&self, name: &LockName, id: LeaseId, contender: &KnownContender) {
        self.watches.notify(id, Hint::CheckLease);
        while let Ok(connection) = contender.session.connection() {
            if self.delete(&connection, name, id, contender).await.is_ok() {
                break;
            }
            // If the node cannot be deleted alone, it is deleted with its session.
            self.sessions.retire(&contender.session);
            if self.sessions.is_shut() || !self.contenders.uses(&contender.session) {
                contender.session.end();
                break;
            }
            drop(connection);
            self.clock.sleep_until(self.clock.now().after(AGAIN)).await;
        }
    }
}

fn capabilities(options: &ZooKeeperOptions, limits: Limits) -> Result<Capabilities, LockError> {
    let min = limits.shortest.max(MIN_LEASE);
    let max = limits.longest.min(MAX_FIRST_LEASE);
    if min > max {
        let message = format!(
            "the servers allow no session from {MIN_LEASE:?} to {MAX_FIRST_LEASE:?}: lower \
             minSessionTimeout, or raise maxSessionTimeout"
        );
        return Err(LockError::invalid(ENGINE, "lease_duration", message));
    }
    Ok(Capabilities {
        remove_waiter: false,
        freeze: false,
        detach: false,
        expiry: Expiry::Session,
        lease: LeaseRange { min, max, step: Duration::from_millis(1) },
        hand_off: HandOff::Direct,
        lag: limits.shortest + LAG,
        clock: ClockKind::Boottime,
        max_waiters: options.max_waiters(),
        max_batch: BATCH,
        // The next contender of this process is granted the name by the reply to a release: a
        // request that overtakes it would read the queue in vain.
        in_order: false,
        ..Capabilities::reference(ENGINE, identity(options))
    })
}

/// Identifies the nodes that the engine uses.
fn identity(options: &ZooKeeperOptions) -> String {
    let mut hosts: Vec<String> = options.cluster.members.iter().map(ToString::to_string).collect();
    hosts.sort_unstable();
    format!("{} {}", hosts.join(","), options.chroot())
}
