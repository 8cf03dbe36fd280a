//! The client: where locks come from.

use std::env::VarError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdline_core::{
    Capabilities, ClientId, Clock, Engine, LeaseId, ListPage, ListRequest, LockError, LockName,
    Mode, Operation, OperationReply, Snapshot,
};

use crate::all::{self, Guards};
use crate::client_options::ClientOptions;
use crate::core::{Core, Shared};
use crate::election::Election;
use crate::engines;
use crate::guard::Guard;
use crate::lease::{self, Lease};
use crate::mutex::Mutex;
use crate::options::LockOptions;
use crate::plan::Plan;
use crate::release::ReleaseOutcome;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;

/// The variable of the environment that [`Client::from_env`] reads.
pub const URL_VARIABLE: &str = "HOLDLINE_URL";

/// A connection to one store of locks, with what looks after them. Clones are the same client.
///
/// One client is enough for a process: its leases are renewed together, and everything it has
/// queued is heard by one heartbeat.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// use std::time::Duration;
/// use holdline::Client;
///
/// let client = Client::connect("memory:client").await?;
/// let both = client.lock_all(["accounts/7", "accounts/3"]).await?;
/// assert_eq!(both.guards()[0].name().as_str(), "accounts/3");
/// both.release().await;
///
/// drop(client.mutex("left behind")?.lock().await?);
/// let report = client.shutdown(Duration::from_secs(5)).await;
/// assert!(report.is_clean());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
}

impl Client {
    /// Connects to the engine that a URL names, with default options.
    ///
    /// `local:` is this machine, `redis://host:port` a Redis server (feature `redis`),
    /// `postgres://user@host/database` a PostgreSQL database (feature `postgres`),
    /// `mysql://user@host/database` a MariaDB database (feature `mysql`; MySQL is not tested),
    /// `etcd://host,host,host` an etcd cluster (feature `etcd`), `zk://host,host,host` a ZooKeeper
    /// ensemble (feature `zookeeper`), `http://host` and `https://host` a Holdline server (feature
    /// `http`), `memory:` this process (`memory:NAME` keeps apart what has
    /// nothing to do with each other).
    ///
    /// # Errors
    /// - `Invalid`: no such scheme or parameter; the message names the nearest.
    /// - `Unsupported`: this build was made without that engine.
    /// - what the engine says when it cannot be reached or used. Nothing is held.
    ///
    /// # Cancel safety
    /// Dropping the future leaves no client; of `local:` the directory and an empty store may be
    /// there.
    pub async fn connect(url: &str) -> Result<Client, LockError> {
        Client::connect_with(url, ClientOptions::default()).await
    }

    /// Connects to the engine that a URL names.
    ///
    /// # Errors
    /// As [`Client::connect`]; and `Invalid` for options that do not fit together.
    ///
    /// # Cancel safety
    /// As [`Client::connect`].
    pub async fn connect_with(url: &str, options: ClientOptions) -> Result<Client, LockError> {
        let engine = match options.has_own_thread() {
            true => engines::connect_apart(url).await?,
            false => engines::connect(url).await?,
        };
        Client::with_options(engine, options)
    }

    /// Connects to the engine that the variable `HOLDLINE_URL` names, or to `local:` when there
    /// is no such variable.
    ///
    /// # Errors
    /// As [`Client::connect`]; and `Invalid` when the variable is empty or no text: who sets it
    /// wants some store, and to lock in another one would exclude nobody.
    ///
    /// # Cancel safety
    /// As [`Client::connect`].
    pub async fn from_env() -> Result<Client, LockError> {
        Client::connect(&url_of_environment()?).await
    }

    /// Makes a client of an engine, with default options.
    ///
    /// # Errors
    /// As [`Client::with_options`].
    pub fn new(engine: Arc<dyn Engine>) -> Result<Client, LockError> {
        Client::with_options(engine, ClientOptions::default())
    }

    /// Makes a client of an engine. Its background work runs in the caller's runtime, if there is
    /// one, or else on a thread of its own.
    ///
    /// # Errors
    /// `Invalid` for options that do not fit together, `Refused` when the machine gives no
    /// thread, timer or randomness.
    pub fn with_options(
        engine: Arc<dyn Engine>,
        options: ClientOptions,
    ) -> Result<Client, LockError> {
        options.build(engine).map(|core| Client { core: Arc::new(core) })
    }

    /// Describes an exclusive lock. Nothing is asked of the store yet.
    ///
    /// # Errors
    /// `Invalid` when the name is no lock name.
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex, LockError> {
        self.mutex_with(name, &LockOptions::default())
    }

    /// Describes an exclusive lock with options.
    ///
    /// # Errors
    /// `Invalid` when the name is no lock name or the options do not fit together, `Unsupported`
    /// when they ask for what the engine cannot do.
    pub fn mutex_with(
        &self,
        name: impl AsRef<str>,
        options: &LockOptions,
    ) -> Result<Mutex, LockError> {
        Ok(Mutex::new(&self.core, Plan::new(&self.core, name, Mode::Exclusive, options)?))
    }

    /// Describes a lock that many may read or one may write.
    ///
    /// # Errors
    /// As [`Client::rwlock_with`].
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock, LockError> {
        self.rwlock_with(name, &LockOptions::default())
    }

    /// Describes a lock that many may read or one may write, with options.
    ///
    /// # Errors
    /// As [`Client::mutex_with`]; `Unsupported` when the engine has no shared mode.
    pub fn rwlock_with(
        &self,
        name: impl AsRef<str>,
        options: &LockOptions,
    ) -> Result<RwLock, LockError> {
        let shared = Plan::new(&self.core, name.as_ref(), Mode::Shared, options)?;
        let exclusive = Plan::new(&self.core, name.as_ref(), Mode::Exclusive, options)?;
        Ok(RwLock::new(&self.core, shared, exclusive))
    }

    /// Describes a semaphore of `permits` permits.
    ///
    /// # Errors
    /// As [`Client::semaphore_with`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Semaphore, LockError> {
        self.semaphore_with(name, permits, &LockOptions::default())
    }

    /// Describes a semaphore of `permits` permits, with options.
    ///
    /// # Errors
    /// As [`Client::mutex_with`]; `Invalid` for a number of permits out of range, `Unsupported`
    /// when the engine has no permits.
    pub fn semaphore_with(
        &self,
        name: impl AsRef<str>,
        permits: u32,
        options: &LockOptions,
    ) -> Result<Semaphore, LockError> {
        Semaphore::new(&self.core, name, permits, options.clone())
    }

    /// Describes an election: a lock whose holder leads, with a value that observers see.
    ///
    /// # Errors
    /// As [`Client::mutex`]; and `Unsupported` where the engine has no fencing tokens or keeps no
    /// metadata, `Invalid` for a name that leaves no room for the locks of
    /// [`Leadership::proclaim`](crate::Leadership::proclaim) (more than 499 bytes).
    pub fn election(&self, name: impl AsRef<str>) -> Result<Election, LockError> {
        self.election_with(name, &LockOptions::default())
    }

    /// As [`Client::election`], with the options of its campaigns.
    ///
    /// # Errors
    /// As [`Client::election`] and [`Client::mutex_with`]; and `Invalid` for options with a lease
    /// id, which is good for one campaign only.
    pub fn election_with(
        &self,
        name: impl AsRef<str>,
        options: &LockOptions,
    ) -> Result<Election, LockError> {
        Election::new(self, name, options)
    }

    /// Takes several names exclusively: all or none, in their byte order, so that two who take
    /// overlapping sets never wait for each other in a circle.
    ///
    /// # Errors
    /// As [`Mutex::lock`], for the first name that could not be had; `Invalid` for a name listed
    /// twice. None of the names is held then.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`]; what was taken is released in the background.
    pub async fn lock_all<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Guards, LockError> {
        self.lock_all_with(names, &LockOptions::default()).await
    }

    /// As [`Client::lock_all`], with options; the wait limit is one for all.
    ///
    /// # Errors
    /// As [`Client::lock_all`] and [`Client::mutex_with`].
    ///
    /// # Cancel safety
    /// As [`Client::lock_all`].
    pub async fn lock_all_with<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
        options: &LockOptions,
    ) -> Result<Guards, LockError> {
        all::all_or_none(names.into_iter().map(|name| (&self.core, name)), options).await
    }

    /// Takes up a lease that was detached: it is renewed now, and kept from then on.
    ///
    /// # Errors
    /// - `Lost`: the store no longer knows it. Nothing is held.
    /// - `Invalid`: it was granted by another store.
    /// - `Unavailable` and others: the store did not confirm; the lease is what it was.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lease: it ends with its duration.
    pub async fn attach(&self, lease: &Lease) -> Result<Guard, LockError> {
        lease::attach(&self.core, lease).await
    }

    /// Renews a detached lease, whole, and returns for how long it may be believed.
    ///
    /// # Errors
    /// As [`Client::attach`].
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only: the lease may have been renewed.
    pub async fn renew(&self, lease: &Lease) -> Result<Duration, LockError> {
        lease::renew(&self.core, lease).await
    }

    /// Releases a detached lease.
    ///
    /// # Errors
    /// `Invalid` when the lease does not fit this engine. A store that does not answer is an
    /// outcome that is not confirmed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only: the janitor goes on releasing.
    pub async fn release(&self, lease: &Lease) -> Result<ReleaseOutcome, LockError> {
        lease::release(&self.core, lease).await
    }

    /// Renews a detached lease of which only the id is known, and returns for how long it may be
    /// believed.
    ///
    /// # Errors
    /// As [`Client::attach`].
    ///
    /// # Cancel safety
    /// As [`Client::renew`].
    pub async fn renew_by_id(
        &self,
        name: &LockName,
        lease_id: LeaseId,
        lease_duration: Duration,
    ) -> Result<Duration, LockError> {
        lease::by_id::renew(&self.core, name, lease_id, lease_duration).await
    }

    /// Releases a lease of which only the id is known. If the answer is lost, the store remembers
    /// for at least 30 s that the id is dead.
    ///
    /// # Errors
    /// As [`Client::release`].
    ///
    /// # Cancel safety
    /// As [`Client::release`].
    pub async fn release_by_id(
        &self,
        name: &LockName,
        lease_id: LeaseId,
    ) -> Result<ReleaseOutcome, LockError> {
        lease::by_id::release(&self.core, name, lease_id).await
    }

    /// Shows how a name stands.
    ///
    /// # Errors
    /// What the engine says. Nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer.
    pub async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        let shared = self.shared();
        let snapshot = shared.answer(shared.engine.inspect(name)).await;
        snapshot.map_err(|error| error.with_name(name))
    }

    /// Lists the names that are held or waited for, page by page.
    ///
    /// # Errors
    /// `Unsupported` where the engine cannot list; otherwise what it says. Nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer.
    pub async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        let shared = self.shared();
        shared.answer(shared.engine.list(request)).await
    }

    /// Carries out an operator's command.
    ///
    /// # Errors
    /// `Unsupported` where the engine cannot; otherwise what it says, with its certainty.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer: the command may be carried out.
    pub async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        let shared = self.shared();
        shared.answer(shared.engine.operate(operation)).await
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.core.shared.engine
    }

    /// Returns what the engine can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.core.shared.engine.capabilities()
    }

    /// Returns the clock that leases are believed by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.core.shared.clock
    }

    /// Returns under which id the store knows this client. It is no proof of anything.
    pub fn id(&self) -> ClientId {
        self.core.shared.client
    }

    /// Draws a fresh lease id, for [`LockOptions::with_lease_id`].
    pub fn draw_lease_id(&self) -> LeaseId {
        self.core.shared.entropy.lease_id()
    }

    /// Lets no new attempt begin, waits until everything dropped or given up so far is out of the
    /// store, also where the engine tells a part of its store in the background, and reports.
    /// Guards that are still held stay held, and are kept.
    ///
    /// # Cancel safety
    /// Dropping the future loses the report; the janitor goes on.
    pub async fn shutdown(&self, limit: Duration) -> ShutdownReport {
        let shared = self.shared();
        shared.closing.store(true, Ordering::Relaxed);
        let end = shared.clock.now().after(limit);
        let deadline = shared.clock.sleep_until(end);
        let drained = async {
            loop {
                let mut told = std::pin::pin!(shared.drained.notified());
                told.as_mut().enable();
                if shared.registry.lock().undoing == 0 {
                    return;
                }
                told.await;
            }
        };
        futures_util::future::select(std::pin::pin!(drained), deadline).await;
        shared.answered(shared.engine.flush(), end).await;
        let (under_way, held, left) = shared.registry.lock().count();
        let counters = &shared.counters;
        ShutdownReport {
            dropped_guards: counters.dropped.load(Ordering::Relaxed),
            given_up: counters.given_up.load(Ordering::Relaxed),
            untold: counters.untold.load(Ordering::Relaxed),
            left,
            held,
            under_way,
        }
    }

    /// Plants a bug: validity counts from the reply. The simulation must find it.
    #[cfg(feature = "planted")]
    pub fn plant_validity_from_reply(&self) {
        self.shared().counts_from_reply.store(true, Ordering::Relaxed);
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    fn shared(&self) -> &Shared {
        &self.core.shared
    }
}

/// Reads which engine the environment names.
pub(crate) fn url_of_environment() -> Result<String, LockError> {
    let wrong = |message| Err(LockError::invalid("holdline", URL_VARIABLE, message));
    match std::env::var(URL_VARIABLE) {
        Ok(url) if url.is_empty() => wrong("is empty: unset it, or name an engine"),
        Ok(url) => Ok(url),
        Err(VarError::NotPresent) => Ok("local:".to_owned()),
        Err(VarError::NotUnicode(_)) => wrong("is not UTF-8"),
    }
}

/// What a client has behind it when it was shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownReport {
    dropped_guards: u64,
    given_up: u64,
    untold: u64,
    left: usize,
    held: usize,
    under_way: usize,
}

impl ShutdownReport {
    /// Tells whether nothing of this client is left in the store, as far as it knows.
    pub fn is_clean(&self) -> bool {
        self.untold == 0 && self.left == 0 && self.held == 0 && self.under_way == 0
    }

    /// Returns how many guards were dropped instead of released, in the client's life.
    pub fn dropped_guards(&self) -> u64 {
        self.dropped_guards
    }

    /// Returns how many attempts were given up, in the client's life.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Returns of how many of these the store could never be told: their leases ended them.
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// Returns how many were still to be given up at the deadline.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Returns how many guards are still held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Returns how many attempts are still under way.
    pub fn under_way(&self) -> usize {
        self.under_way
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("engine", &self.capabilities().engine)
            .field("identity", &self.capabilities().identity)
            .finish_non_exhaustive()
    }
}
