//! The link to one server: it keeps a connection open, on which an engine sends its statements.
//!
//! There is one connection for each link, and no pool. A task opens it, drives it, and opens it
//! again when it is lost.
//!
//! - Invariant N1: nothing here sends a statement again. What an engine repeats, its own link says.
//! - Invariant N2: an error says whether the statement may have been sent. A statement that waited
//!   for a connection is *not applied*; one that was sent is *unknown* unless the server has
//!   reported otherwise.
//! - Invariant N3: dropping the link ends its tasks and its connections.
//! - Invariant N4: a connection is closed if a statement missed its deadline: its transaction may
//!   be open.
//!
//! Read next: `supervisor` for reconnecting.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::{Certainty, Clock, ErrorKind, LockError, Moment};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::server::{CloseOnDrop, ConnectionState, unavailable};
pub use super::server::{Driver, LinkState, Live, ServerLink, SqlServer};
use super::supervisor;
use crate::limits::Limits;
use crate::runtime::{RuntimeHandle, Task};

/// How much longer than one attempt to connect its outcome is awaited.
const CONNECT_MARGIN: Duration = Duration::from_millis(500);

impl<S: SqlServer> ServerLink<S> {
    /// Makes a link, which begins to connect at once. Its tasks run in the current runtime; without
    /// one, on a thread of their own. `exposes_password` is whether others can read it on the way.
    ///
    /// # Errors
    /// `Refused`: the process gets no thread.
    pub fn new(
        server: S,
        clock: Arc<dyn Clock>,
        watches: Arc<Watches>,
        exposes_password: bool,
    ) -> Result<ServerLink<S>, LockError> {
        if exposes_password {
            let address = server.address();
            tracing::warn!(%address, "who listens in can read along: write `sslmode=verify-full`");
        }
        let runtime = RuntimeHandle::find(None).map_err(|error| {
            let message = format!("no thread for the connection: {error}");
            LockError::new(S::ENGINE, ErrorKind::Refused { message }, Certainty::NotApplied)
        })?;
        let shared = Arc::new(LinkState {
            server,
            clock,
            runtime,
            watches,
            closed: CancellationToken::new(),
            state: watch::Sender::default(),
            took_writes: AtomicBool::new(false),
            process: std::process::id(),
        });
        supervisor::start(&shared);
        Ok(ServerLink(Arc::new(CloseOnDrop(shared))))
    }

    /// Waits until there is a connection.
    ///
    /// # Errors
    /// Why the first attempt failed, or `Unavailable`.
    pub async fn ready(&self) -> Result<Arc<Live<S>>, LockError> {
        let limit = self.limits().connect_timeout.saturating_add(CONNECT_MARGIN);
        // The error of the first failed attempt says more than a timeout.
        self.found_within(limit, |_| true).await
    }

    /// Returns whether the store exists: without it there are no holders.
    ///
    /// # Errors
    /// Those of a command.
    pub async fn has_store(&self) -> Result<bool, LockError> {
        if self.live().await?.has_store.load(Ordering::SeqCst) {
            return Ok(true);
        }
        // Another client may have created it meanwhile.
        if !S::has_store(self).await? {
            return Ok(false);
        }
        // If another version created it, what this version needs is added.
        self.make_store().await?;
        Ok(true)
    }

    /// Creates the store if it is missing.
    ///
    /// # Errors
    /// `Refused`: the account may not do it. `Foreign`: other objects are in its place. And those
    /// of a command.
    pub async fn make_store(&self) -> Result<(), LockError> {
        let shared = self.shared();
        let limit = self.limits().connect_timeout;
        let live = self.live_within(limit).await?;
        if live.has_store.load(Ordering::SeqCst) {
            return Ok(());
        }
        // No other statement is sent meanwhile. After an interruption the next client completes it.
        let _turn = live.making.lock().await;
        if live.has_store.load(Ordering::SeqCst) {
            return Ok(());
        }
        let unfinished = live.end.clone().drop_guard();
        let end = shared.clock.now().after(limit);
        tokio::select! {
            biased;
            made = shared.server.make_store(&live.session) => made?,
            () = shared.clock.sleep_until(end) => {
                let message = format!("the {} could not be made within {limit:?}", S::STORE);
                return Err(unavailable::<S>(message, Certainty::NotApplied));
            }
        }
        unfinished.disarm();
        live.has_store.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Waits for the answer to a statement that was sent. If it misses its deadline, the connection
    /// is closed. The server's own timeout is shorter; after its error nothing was applied.
    ///
    /// # Errors
    /// `Unavailable`, unknown: the deadline has passed.
    pub async fn answer<T>(
        &self,
        live: &Live<S>,
        end: Moment,
        asking: impl Future<Output = T>,
    ) -> Result<T, LockError> {
        tokio::select! {
            biased;
            answered = asking => Ok(answered),
            () = self.shared().clock.sleep_until(end) => {
                live.close();
                let message = format!("no answer within {:?}", self.limits().command_timeout);
                Err(unavailable::<S>(message, Certainty::Unknown))
            }
        }
    }

    /// Runs a task where the connection's own task runs.
    pub fn spawn(&self, task: Task<()>) {
        self.shared().runtime.spawn(task);
    }

    /// Returns the server.
    pub fn server(&self) -> &S {
        &self.shared().server
    }

    /// Returns what the tasks share.
    pub fn shared(&self) -> &Arc<LinkState<S>> {
        &self.0.0
    }

    /// Returns the limits of the engine's options.
    pub fn limits(&self) -> &Limits {
        self.server().limits()
    }

    /// Waits for a connection as long as a command may take.
    ///
    /// # Errors
    /// As [`ServerLink::live_within`].
    pub async fn live(&self) -> Result<Arc<Live<S>>, LockError> {
        self.live_within(self.limits().command_timeout).await
    }

    /// Waits for a connection. If the server refuses it, the call fails at once; an unreachable
    /// server may be back within the limit.
    ///
    /// # Errors
    /// Why the last attempt failed, or `Unavailable`; nothing was sent.
    pub async fn live_within(&self, limit: Duration) -> Result<Arc<Live<S>>, LockError> {
        let refuses = |error: &LockError| !error.is_unavailable();
        self.found_within(limit, refuses).await
    }

    /// Waits for a connection, or for a failure that ends the wait.
    async fn found_within(
        &self,
        limit: Duration,
        ends: impl Fn(&LockError) -> bool,
    ) -> Result<Arc<Live<S>>, LockError> {
        let shared = self.shared();
        if std::process::id() != shared.process {
            let message = "this process was copied by fork: it needs a client of its own";
            return Err(unavailable::<S>(message.to_owned(), Certainty::NotApplied));
        }
        let mut state = shared.state.subscribe();
        let settled = |state: &ConnectionState<S>| match state {
            Some(Ok(live)) => live.is_good(),
            Some(Err(error)) => ends(error),
            None => false,
        };
        let end = shared.clock.now().after(limit);
        let found = tokio::select! {
            biased;
            found = state.wait_for(settled) => found.ok().map(|found| found.clone()),
            () = shared.clock.sleep_until(end) => None,
        };
        match found.unwrap_or_else(|| shared.state.borrow().clone()) {
            Some(Ok(live)) if live.is_good() => Ok(live),
            Some(Err(error)) => Err(error),
            _ => {
                let address = shared.server.address();
                let message = format!("{address}: no connection within {limit:?}");
                Err(unavailable::<S>(message, Certainty::NotApplied))
            }
        }
    }
}
