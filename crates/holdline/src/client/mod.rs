//! The client: connects to an engine, and has the calls that are about the store as a whole.
//!
//! What it locks with is described by methods that stand with their primitives (`primitives`,
//! `election`, `once`).
//! Read next: `options`, which makes the [`Core`] of a client.

pub(crate) mod options;
pub(crate) mod process;

use std::env::VarError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdline_core::{Capabilities, Clock, Engine, LockError, accept_url};

use crate::admin::Admin;
use crate::core::{ClientState, Core};
use crate::engines;
use crate::lease::Leases;
use options::ClientOptions;

/// The variable of the environment that refuses a store without a server.
const REQUIRE_SERVER: &str = "HOLDLINE_REQUIRE_SERVER";

/// A connection to one store of locks, with the background work for them. Clones are the same
/// client.
///
/// One client is enough for a process: its leases are renewed in batches, and one heartbeat serves
/// all its queue entries.
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
/// for outcome in both.release().await {
///     outcome.into_result()?;
/// }
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
    /// The variable of the environment that [`Client::from_env`] reads.
    pub const URL_VARIABLE: &str = "HOLDLINE_URL";

    /// Connects to the engine that a URL names, with default options.
    ///
    /// `local:` is this machine, `redis://host:port` a Redis server (feature `redis`),
    /// `postgres://user@host/database` a PostgreSQL database (feature `postgres`),
    /// `mysql://user@host/database` a MariaDB database (feature `mysql`; MySQL is not tested),
    /// `etcd://host,host,host` an etcd cluster (feature `etcd`), `zk://host,host,host` a ZooKeeper
    /// ensemble (feature `zookeeper`), `http://host` and `https://host` a Holdline server (feature
    /// `http`), `memory:` this process (`memory:NAME` makes separate stores).
    ///
    /// # Errors
    /// - `Invalid`: no such scheme or parameter; the message names the nearest.
    /// - `Unsupported`: this build does not have that engine.
    /// - the engine's own error if it cannot be reached or used. Nothing is held.
    ///
    /// # Cancel safety
    /// Dropping the future leaves no client; for `local:`, the directory and an empty store may
    /// exist.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// let client = holdline::Client::connect("memory:").await?;
    /// client.mutex("nightly-backup")?.lock().await?.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(url: &str) -> Result<Client, LockError> {
        Client::connect_with(url, ClientOptions::default()).await
    }

    /// Connects to the engine that a URL names.
    ///
    /// # Errors
    /// As [`Client::connect`]; and `Invalid` for options that contradict each other.
    ///
    /// # Cancel safety
    /// As [`Client::connect`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// use std::time::Duration;
    /// use holdline::{Client, ClientOptions};
    ///
    /// // The lease of all locks that set no other.
    /// let options = ClientOptions::default().with_lease_duration(Duration::from_secs(10));
    /// let client = Client::connect_with("memory:", options).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_with(url: &str, options: ClientOptions) -> Result<Client, LockError> {
        let connected = if options.has_own_thread() {
            engines::connect_apart(url).await?
        } else {
            engines::connect(url).await?
        };
        let options = options.with_quorum_health_of(&connected);
        Client::with_options(connected.engine, options)
    }

    /// Connects to the engine that the variable `HOLDLINE_URL` names, or to `local:` if it is not
    /// set.
    ///
    /// If `HOLDLINE_REQUIRE_SERVER` is `1`, `local:` and `memory:` are refused, so that a variable
    /// that was lost on the way is an error.
    ///
    /// # Errors
    /// As [`Client::connect`]; and `Invalid` if the variable is empty or not UTF-8, or names no
    /// server where one is required. A fallback to another store would exclude nobody.
    ///
    /// # Cancel safety
    /// As [`Client::connect`].
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// // HOLDLINE_URL=redis://db.example:6379
    /// let client = holdline::Client::from_env().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn from_env() -> Result<Client, LockError> {
        Client::connect(&url_of_environment()?).await
    }

    /// Makes a client of an engine. Its background work runs in the caller's runtime, or on a
    /// thread of its own if there is none.
    ///
    /// # Errors
    /// `Invalid` for options that contradict each other, `Refused` if the machine has no thread,
    /// timer or randomness left.
    pub fn with_options(
        engine: Arc<dyn Engine>,
        options: ClientOptions,
    ) -> Result<Client, LockError> {
        options.build(engine).map(|core| Client { core: Arc::new(core) })
    }

    /// Returns what operators see and do in this store: list, inspect, revoke, freeze, audit.
    pub fn admin(&self) -> Admin<'_> {
        Admin::new(&self.core)
    }

    /// Returns the calls for leases that no guard of this process holds: attach, renew, release.
    pub fn leases(&self) -> Leases<'_> {
        Leases::new(&self.core)
    }

    /// Returns what the engine can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.core.state.engine.capabilities()
    }

    /// Returns the clock that leases are measured by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.core.state.clock
    }

    /// Refuses new attempts, waits until everything that was dropped or given up is removed from
    /// the store, and returns a report. Guards that are still held stay held, and are renewed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the report; the janitor continues.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:client_shutdown").await?;
    /// use std::time::Duration;
    ///
    /// drop(client.mutex("left behind")?.lock().await?);
    /// let report = client.shutdown(Duration::from_secs(5)).await;
    /// assert!(report.is_clean());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn shutdown(&self, limit: Duration) -> ShutdownReport {
        let state = self.state();
        state.closing.store(true, Ordering::Relaxed);
        if !state.is_own_process() {
            // What is held and given up belongs to the parent, and no worker is here.
            return ShutdownReport::default();
        }
        let end = state.clock.now().after(limit);
        let deadline = state.clock.sleep_until(end);
        let drained = async {
            loop {
                let mut notified = std::pin::pin!(state.drained.notified());
                notified.as_mut().enable();
                if state.registry.lock().releasing == 0 {
                    return;
                }
                notified.await;
            }
        };
        futures_util::future::select(std::pin::pin!(drained), deadline).await;
        state.await_answer(state.engine.flush(), end).await;
        let registry = state.registry.lock();
        let counters = &state.counters;
        ShutdownReport {
            dropped_guards: counters.dropped.load(Ordering::Relaxed),
            given_up: counters.given_up.load(Ordering::Relaxed),
            unconfirmed: counters.unconfirmed.load(Ordering::Relaxed),
            left: registry.releasing,
            held: registry.count_held(),
            under_way: registry.count_under_way(),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    fn state(&self) -> &ClientState {
        &self.core.state
    }
}

/// Reads the URL of the engine from the environment.
pub(crate) fn url_of_environment() -> Result<String, LockError> {
    let wrong = |message: &str| Err(LockError::invalid("holdline", Client::URL_VARIABLE, message));
    let required = std::env::var_os(REQUIRE_SERVER);
    let required =
        !required.is_none_or(|value| ["", "0", "false", "no", "off"].iter().any(|no| value == *no));
    match std::env::var(Client::URL_VARIABLE) {
        Err(VarError::NotPresent) if required => {
            wrong("is not set, and HOLDLINE_REQUIRE_SERVER requires a server")
        }
        Ok(url) if url.is_empty() => wrong("is empty: unset it, or name an engine"),
        Ok(url) => match accept_url(&url) {
            Ok(url) if required && (url.starts_with("local:") || url.starts_with("memory:")) => {
                wrong("names no server, and HOLDLINE_REQUIRE_SERVER requires one")
            }
            Ok(url) => Ok(url.into_owned()),
            Err(why) => wrong(&why),
        },
        Err(VarError::NotPresent) => Ok("local:".to_owned()),
        Err(VarError::NotUnicode(_)) => wrong("is not UTF-8"),
    }
}

/// What a client has done, and what is left, when it was shut down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    dropped_guards: u64,
    given_up: u64,
    unconfirmed: u64,
    left: usize,
    held: usize,
    under_way: usize,
}

impl ShutdownReport {
    /// Returns whether nothing of this client is left in the store, as far as it knows.
    pub fn is_clean(&self) -> bool {
        self.unconfirmed == 0 && self.left == 0 && self.held == 0 && self.under_way == 0
    }

    /// Returns how many guards were dropped instead of released, in the client's life.
    pub fn dropped_guards(&self) -> u64 {
        self.dropped_guards
    }

    /// Returns how many attempts were given up, in the client's life.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Returns how many of these the store never confirmed: they ended with their leases.
    pub fn unconfirmed(&self) -> u64 {
        self.unconfirmed
    }

    /// Returns how many were still to be given up at the deadline.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Returns how many guards are still held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Returns how many attempts are still in progress.
    pub fn under_way(&self) -> usize {
        self.under_way
    }
}

crate::debug::debug_of!(Client, |it|
    engine: it.capabilities().engine, identity: it.capabilities().identity
);
