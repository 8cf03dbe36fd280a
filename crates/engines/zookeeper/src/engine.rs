//! The engine: each verb runs as a task of its own, where the engine is at home.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use holdline_core::lease::{MAX_FIRST_LEASE, MIN_LEASE};
use holdline_core::{
    Capabilities, Certainty, Clock, ClockKind, Expiry, HandOff, Hint, LeaseId, LeaseRange,
    LockError, LockName,
};
use tokio::sync::Mutex;

use crate::error::{ENGINE, unavailable};
use crate::held::{Held, HeldIds, Id};
use crate::keys::Layout;
use crate::options::ZooKeeperOptions;
use crate::probe::{self, Limits};
use crate::seen::Seen;
use crate::session::Session;
use crate::sessions::{Key, Sessions};
use crate::store::Store;
use holdline_net::workplace::Workplace;

/// How many lines one call renews.
const BATCH: usize = 128;
/// How much later than its lease a dead holder's name may become free, beside two ticks: the
/// leader looks once a tick, and hears from the other members twice in it.
const LAG: Duration = Duration::from_millis(500);

/// When it is tried again to delete what nobody keeps.
const AGAIN: Duration = Duration::from_millis(500);

/// The engine of one ZooKeeper ensemble. Clones share its sessions.
#[derive(Clone)]
pub struct ZooKeeperEngine(Arc<Inner>);

struct Inner {
    store: Arc<Store>,
    workplace: Workplace,
}

impl ZooKeeperEngine {
    /// Makes an engine and waits until a member has answered. `clock` must count the time that the
    /// machine is suspended, as the servers' do.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unavailable`: no member can be reached. `Refused`: they do
    /// not let us in, or not to our nodes. Nothing is held after any of them.
    pub async fn connect(
        options: &ZooKeeperOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<ZooKeeperEngine, LockError> {
        options.validate()?;
        let workplace = Workplace::of_process(ENGINE)?;
        let (members, limit) = (options.cluster.members.clone(), options.cluster.connect_timeout);
        let limits =
            workplace.run(async move { probe::limits_of_any(&members, limit).await }).await?;
        let limits = limits.map_err(|why| unavailable(why, Certainty::NotApplied))?;
        let sessions = Arc::new(Sessions::new(options.clone(), limits.shortest, clock.clone()));
        let store = Arc::new(Store {
            capabilities: capabilities(options, limits)?,
            layout: Layout::new(options.chroot(), options.family()),
            sessions: sessions.clone(),
            held: HeldIds::of(&identity(options)),
            seen: Seen::default(),
            watches: Arc::default(),
            main: Mutex::default(),
            main_time: limits.longest.min(MAX_FIRST_LEASE),
            clock,
        });
        let looking = store.clone();
        let look = async move {
            let wire = looking.wire().await?;
            wire.children(looking.layout.root()).await?;
            Ok::<(), LockError>(())
        };
        // It only asked, so nothing was applied.
        let looked = workplace.run(look).await?;
        looked.map_err(|error| crate::error::not_applied(error.kind().clone()))?;
        let weak = Arc::downgrade(&store);
        let ending = sessions.clone();
        workplace.spawn(async move {
            loop {
                let over = ending.next_over().await;
                let Some(store) = weak.upgrade().filter(|_| !over.is_empty()) else { return };
                // At once: whoever asks next begins the group anew.
                let ended = store.take_out(&over);
                // What is slow to end keeps nothing else from ending.
                tokio::spawn(async move { store.end_all(&over, ended).await });
            }
        });
        Ok(ZooKeeperEngine(Arc::new(Inner { store, workplace })))
    }
}

holdline_net::verbs_as_tasks!(ZooKeeperEngine);

impl Drop for Inner {
    fn drop(&mut self) {
        self.store.sessions.shut();
    }
}

impl Store {
    /// Takes out what nobody has kept in its time.
    fn take_out(&self, over: &[Key]) -> Vec<(Id, Held)> {
        let ours = |held: &Held| Arc::ptr_eq(&held.sessions, &self.sessions);
        self.held.take(|held| ours(held) && over.contains(&held.group))
    }

    /// Ends what was taken out, and the sessions that nothing hangs on any more.
    async fn end_all(&self, over: &[Key], ended: Vec<(Id, Held)>) {
        let unused = |session: &Arc<Session>| !self.held.uses(session);
        let ending = join_all(ended.iter().map(|((id, name), held)| self.end(name, *id, held)));
        let closing = join_all(over.iter().map(|key| self.sessions.close(*key, unused)));
        tokio::join!(closing, ending);
    }

    /// Deletes what stands under a lease id, or ends the session that it hangs on.
    async fn end(&self, name: &LockName, id: LeaseId, held: &Held) {
        self.watches.tell(id, Hint::CheckLease);
        while let Ok(wire) = held.session.wire() {
            if self.delete(&wire, name, id, held).await.is_ok() {
                break;
            }
            // What cannot be deleted alone goes with all that hangs on the session.
            self.sessions.retire(&held.session);
            if self.sessions.is_shut() || !self.held.uses(&held.session) {
                held.session.end();
                break;
            }
            drop(wire);
            self.clock.sleep_until(self.clock.now().after(AGAIN)).await;
        }
    }
}

fn capabilities(options: &ZooKeeperOptions, limits: Limits) -> Result<Capabilities, LockError> {
    let (min, max) = (limits.shortest.max(MIN_LEASE), limits.longest.min(MAX_FIRST_LEASE));
    if min > max {
        let message = format!(
            "the servers give no session from {MIN_LEASE:?} to {MAX_FIRST_LEASE:?}: lower \
             minSessionTimeout, or raise maxSessionTimeout"
        );
        return Err(LockError::invalid(ENGINE, "lease_duration", message));
    }
    Ok(Capabilities {
        freeze: false,
        detach: false,
        expiry: Expiry::Session,
        lease: LeaseRange { min, max, step: Duration::from_millis(1) },
        hand_off: HandOff::Direct,
        lag: limits.shortest + LAG,
        clock: ClockKind::Boottime,
        max_waiters: options.cluster.max_waiters,
        max_batch: BATCH,
        ..Capabilities::reference(ENGINE, identity(options))
    })
}

/// Which nodes they are.
fn identity(options: &ZooKeeperOptions) -> String {
    let mut hosts: Vec<String> = options.cluster.members.iter().map(ToString::to_string).collect();
    hosts.sort_unstable();
    format!("{} {}", hosts.join(","), options.chroot())
}
