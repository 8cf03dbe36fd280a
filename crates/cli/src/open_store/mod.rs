//! The store that a verb works on, and the only place that opens one.
//!
//! Read next: `connect`, which waits for a store that cannot be reached; `failure`, which explains
//! why an engine could not be opened; `requests`, what is asked of an open one.

mod connect;
mod failure;
mod no_store;
mod requests;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, ClientOptions, Guard, LockOptions, Observer, ReleaseOutcome, by_mode};
use holdline_core::lease::DEFAULT_LEASE;
use holdline_core::{
    Capabilities, Certainty, ErrorKind, HolderFields, HolderSummary, LockError, LockName, Mode,
};
use holdline_local::{LocalEngine, LocalOptions, LocalReport};
use rustix::process::Signal;
use tokio::time::Instant;

pub(crate) use failure::{install, of_url, url_failure};
pub(crate) use no_store::NoStore;

use crate::child::Signals;
use crate::config::Address;
use crate::console::Console;
use crate::duration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::holder::{self, Holder, cut};
use crate::idle::Idle;
use crate::outer_locks::OuterLocks;
use crate::user;

/// How long a verb with `--try` waits for an answer of the store, including the connection.
pub(crate) const TRY_LIMIT: Duration = Duration::from_secs(2);

/// How long a verb that was granted nothing waits at its end for a store that does not answer.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// How long a verb waits after its job for the store to confirm the release.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);

/// The pause after the first failed attempt of a verb that waits for its store. It doubles up to
/// [`MAX_OPEN_PAUSE`].
const OPEN_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause between two attempts to open a store.
const MAX_OPEN_PAUSE: Duration = Duration::from_secs(10);

/// The wait that remains when the connection used up all of it: enough for one attempt.
const MIN_WAIT: Duration = Duration::from_millis(1);

/// An open store: an engine, with a client of it.
pub(crate) struct OpenStore {
    client: Client,
    address: Address,
    /// The same engine, if it is the local one.
    local: Option<LocalEngine>,
    /// When the opening started.
    since: Instant,
    /// The deadline for everything that remains after a release.
    ends_by: Cell<Option<Instant>>,
}

/// How a store is opened, and for whom.
#[derive(Default)]
pub(crate) struct StoreOptions<'a> {
    /// Receives the events of the wait.
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// The program that the lock is for; this one unless set.
    pub(crate) program: Option<String>,
    /// The lease belongs to no process, so no process id is recorded.
    pub(crate) detached: bool,
    /// How long the verb may wait, including the connection; unlimited unless set.
    pub(crate) wait: Option<Duration>,
    /// Without a limit, whether it waits also while no server accepts the connection: for a program
    /// that runs for as long as its machine. For others, a wrong address would look like a wait
    /// that never ends.
    pub(crate) keeps_trying: bool,
    /// The console that reports the wait for a connection. `None`: the verb does not wait.
    pub(crate) progress: Option<&'a Console>,
    /// The verb changes nothing, not even the membership of a quorum.
    pub(crate) read_only: bool,
}

impl OpenStore {
    /// Opens the engine.
    pub(crate) async fn open(
        address: Address,
        options: StoreOptions<'_>,
    ) -> Result<OpenStore, Failure> {
        let since = Instant::now();
        let holder = holder(options.program.clone(), options.detached);
        let client_options = || {
            let client_options = ClientOptions::default().with_holder(holder.clone());
            match &options.observer {
                Some(observer) => client_options.with_observer(observer.clone()),
                None => client_options,
            }
        };
        if address.url.starts_with("local:") {
            let mut directory = None;
            let local = LocalOptions::from_url(&address.url)
                .and_then(|options| {
                    let open = LocalEngine::open(&options);
                    open.inspect_err(|_| directory = options.directory().ok())
                })
                .map_err(|error| failure::of_open(error, directory))?;
            // A disk that hangs blocks the thread that uses the store. Another thread renews the
            // leases, so that this one can stop a job in time (supervise, S4).
            let client_options = client_options().with_own_thread(true);
            let client = Client::with_options(Arc::new(local.clone()), client_options)?;
            return Ok(OpenStore {
                client,
                address,
                local: Some(local),
                since,
                ends_by: Cell::default(),
            });
        }
        let client = connect::connect(&address, client_options, &options).await;
        let client = client.map_err(|error| failure::of_connect(error, &address))?;
        Ok(OpenStore { client, address, local: None, since, ends_by: Cell::default() })
    }

    /// Opens the engine to read only, and waits while its store cannot be reached. `failed` is
    /// called for each attempt that failed.
    pub(crate) async fn open_when_up(
        address: &Address,
        mut failed: impl FnMut(&Failure),
    ) -> Result<OpenStore, Failure> {
        let mut pause = OPEN_PAUSE;
        loop {
            let options = StoreOptions { read_only: true, ..StoreOptions::default() };
            match OpenStore::open(address.clone(), options).await {
                Err(failure) if failure.exit == Exit::Unavailable => failed(&failure),
                outcome => return outcome,
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(MAX_OPEN_PAUSE);
        }
    }

    /// Opens the engine, unless a signal comes first that ends the verb.
    pub(crate) async fn open_unless_ended(
        address: Address,
        options: StoreOptions<'_>,
        signals: &mut Signals,
    ) -> Result<Result<OpenStore, Failure>, Signal> {
        let suspend = |signals: &mut Signals| Idle::run(None, |idle| signals.suspend(idle));
        let opened = signals.unless_ended(OpenStore::open(address, options), suspend).await?;
        // The local engine opens without a pause in which a signal could be received.
        if let Ok(store) = &opened {
            let suspend = |signals: &mut Signals| store.while_idle(|idle| signals.suspend(idle));
            signals.handle_pending(suspend).await?;
        }
        Ok(opened)
    }

    /// Waits for what `work` comes to, unless a signal comes first that ends the verb.
    pub(crate) async fn unless_ended<T>(
        &self,
        work: impl Future<Output = T>,
        signals: &mut Signals,
    ) -> Result<T, Signal> {
        let suspend = |signals: &mut Signals| self.while_idle(|idle| signals.suspend(idle));
        signals.unless_ended(work, suspend).await
    }

    /// Returns what remains of the verb's wait, which is counted from the start of the opening.
    pub(crate) fn remaining_wait(&self, wait: Duration) -> Duration {
        wait.saturating_sub(self.since.elapsed()).max(MIN_WAIT)
    }

    /// Returns how long the verb has waited, counted as its limit is.
    pub(crate) fn waited(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns the state of the local engine's directory, if this is the local engine.
    pub(crate) fn local_report(&self) -> Result<Option<LocalReport>, LockError> {
        self.local.as_ref().map(LocalEngine::report).transpose()
    }

    /// Runs what may stop this process, outside of any transaction of the local engine.
    pub(crate) fn while_idle<T>(&self, stop: impl FnOnce(&Idle) -> T) -> T {
        Idle::run(self.local.as_ref(), stop)
    }

    /// Returns the engine's URL and where it was found.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns what the engine can do.
    pub(crate) fn capabilities(&self) -> &Capabilities {
        self.client.capabilities()
    }

    /// Returns the default lease, or the longest that the store keeps if that is less.
    pub(crate) fn default_lease(&self) -> Duration {
        DEFAULT_LEASE.min(self.capabilities().lease.max)
    }

    /// Returns the client.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Refuses a request that would wait for a lock of a command above this one.
    pub(crate) async fn check_nesting(
        &self,
        outer: &OuterLocks,
        name: &LockName,
        mode: Mode,
    ) -> Result<(), Failure> {
        if !outer.may_block(self.capabilities(), name, mode) {
            return Ok(());
        }
        outer.check(self.capabilities(), &self.inspect(name).await?, mode)
    }

    /// Acquires a name. With `only_try`, a store that does not answer ends the attempt at
    /// [`TRY_LIMIT`].
    pub(crate) async fn acquire(
        &self,
        name: &LockName,
        mode: Mode,
        options: &LockOptions,
        only_try: bool,
    ) -> Result<Guard, LockError> {
        if !only_try {
            return by_mode::lock(&self.client, name.as_str(), mode, options).await;
        }
        let attempt = by_mode::try_lock(&self.client, name.as_str(), mode, options);
        // The local engine has its own limits, and its errors name the process that blocks it.
        if self.local.is_some() {
            return attempt.await;
        }
        tokio::time::timeout(self.remaining_wait(TRY_LIMIT), attempt).await.unwrap_or_else(|_| {
            let error = self.no_answer("no answer", TRY_LIMIT);
            Err(error.with_certainty(Certainty::Unknown).with_name(name))
        })
    }

    /// Finds the processes that keep a holder's grant, if the process that requested it is gone.
    pub(crate) async fn resolve_holder(&self, name: &LockName, summary: HolderSummary) -> Holder {
        if self.local.is_none() || !holder::is_gone(&summary.metadata.fields(), &[]) {
            return Holder::reported(summary);
        }
        let snapshot = self.inspect(name).await.ok();
        let mut holders = snapshot.into_iter().flat_map(|snapshot| snapshot.holders);
        match holders.find(|holder| holder.summary.lease_id == summary.lease_id) {
            Some(view) => Holder::inspected(&view),
            None => Holder { summary, keepers: Some(Vec::new()) },
        }
    }

    /// Explains why a name was not granted, and who holds it.
    pub(crate) async fn failure(&self, error: LockError) -> Failure {
        let error = self.with_total_wait(error);
        let (ErrorKind::Busy { holder } | ErrorKind::TimedOut { holder, .. }) = error.kind() else {
            return error.into();
        };
        match (holder, error.name()) {
            (Some(holder), Some(name)) => {
                let holder = self.resolve_holder(name, HolderSummary::clone(holder)).await;
                Failure::of(&error, Some(holder))
            }
            _ => error.into(),
        }
    }

    /// Replaces the wait in an error by the whole wait. The client had only what remained of the
    /// limit after the connection, so its error reports less than the user asked for.
    fn with_total_wait(&self, error: LockError) -> LockError {
        let ErrorKind::TimedOut { waited, holder } = error.kind() else { return error };
        let waited = self.waited().max(*waited);
        let kind = ErrorKind::TimedOut { waited, holder: holder.clone() };
        let total = LockError::new(error.engine(), kind, error.certainty());
        match error.name() {
            Some(name) => total.with_name(name),
            None => total,
        }
    }

    /// Draws a random number, to spread the requests of many processes over time.
    pub(crate) fn random(&self) -> u32 {
        let id = self.client.leases().draw_id();
        id.as_bytes()[..4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
    }

    /// Makes an error for a store of which there was `nothing` within a limit.
    pub(crate) fn no_answer(&self, nothing: &str, limit: Duration) -> LockError {
        let message = format!("{nothing} within {}", duration::written(limit));
        self.error(ErrorKind::Unavailable { message })
    }

    /// Makes an error for a request that was not sent to the store.
    pub(crate) fn error(&self, kind: ErrorKind) -> LockError {
        LockError::new(self.capabilities().engine, kind, Certainty::NotApplied)
    }

    /// Releases the guard of a job that ended at `ended`; `None` if the store does not answer
    /// within [`RELEASE_LIMIT`] of that. The request is repeated until the store answers or
    /// [`OpenStore::close`] returns.
    pub(crate) async fn release(&self, guard: Guard, ended: Instant) -> Option<ReleaseOutcome> {
        let end = ended + RELEASE_LIMIT;
        self.ends_by.set(Some(end));
        tokio::time::timeout_at(end, guard.release()).await.ok()
    }

    /// Begins anew after a release: the verb goes on, so its end has no limit yet.
    pub(crate) fn hold_anew(&self) {
        self.ends_by.set(None);
    }

    /// Waits for a short time until the engine has sent everything that it still owes the store.
    pub(crate) async fn flush(&self) {
        self.client.admin().engine().flush().await;
    }

    /// Waits until the janitor has removed what was given up, or until [`CLOSE_LIMIT`].
    pub(crate) async fn close(&self) {
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        self.client.shutdown(self.ends_by.get().map_or(CLOSE_LIMIT, left)).await;
    }
}

/// Returns what this process reports about itself.
pub(crate) fn holder(program: Option<String>, detached: bool) -> HolderFields {
    HolderFields {
        host: holder::host(),
        pid: (!detached).then(std::process::id),
        user: cut(&user::name(), 32),
        program: cut(&program.unwrap_or_else(|| "holdline".into()), 64),
        ..HolderFields::default()
    }
}
