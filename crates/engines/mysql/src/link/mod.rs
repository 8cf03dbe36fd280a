//! The link to one server: it keeps a connection open, and sends each statement on it.
//!
//! There is one connection for each engine, and no pool. A second one is opened for wake-ups, and a
//! third when a renewal waits for a row (`waiting_renewals`). A task opens a connection, drives it,
//! and opens it again when it is lost.
//!
//! - Invariant N1: no statement is sent twice, unless the server has reported that it rolled the
//!   first one back.
//! - Invariant N2: an error says whether the statement may have been sent. A statement that waited
//!   for a connection is *not applied*; one that was sent is *unknown* unless the server has
//!   reported otherwise.
//! - Invariant N3: dropping the link ends its tasks and its connections.
//! - Invariant N4: a connection is closed if a statement missed its deadline or was killed: its
//!   transaction may be open.
//!
//! Read next: `supervisor` for reconnecting, `inbox` for how waiters are woken, and the module
//! `connection` for one connection.

mod fast;
mod inbox;
mod supervisor;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::{Certainty, Clock, ErrorKind, LockError};
use holdline_net::runtime::{RuntimeHandle, Task};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::connection::{ConnectionHandle, Facts, Statement};
use crate::error::{
    DEADLOCK, ENGINE, Failed, is_stopped, is_store_gone, of_command, takes_no_writes, unavailable,
};
use crate::keys::Names;
use crate::options::MysqlOptions;
use crate::rows::Answer;
use crate::schema::{self, Found};

/// How much longer than one attempt to connect its outcome is awaited.
const CONNECT_MARGIN: Duration = Duration::from_millis(500);
/// How often a statement is sent that the server rolled back to break a deadlock.
const TRIES: usize = 4;

pub(crate) use fast::FastStatement;

/// A usable connection, until its end is signalled.
pub(crate) struct Live {
    handle: ConnectionHandle,
    facts: Arc<Facts>,
    /// Whether the tables and procedures exist.
    has_store: AtomicBool,
    /// Only one task at a time creates them.
    making: tokio::sync::Mutex<()>,
    prepared: fast::Prepared,
    end: CancellationToken,
}

/// The state of the connection.
#[derive(Clone, Default)]
enum ConnectionState {
    /// Not connected; the error is why the last attempt failed.
    #[default]
    Making,
    Failed(LockError),
    Live(Arc<Live>),
}

/// What the tasks share with the link.
struct Shared {
    options: MysqlOptions,
    names: Names,
    clock: Arc<dyn Clock>,
    runtime: RuntimeHandle,
    state: watch::Sender<ConnectionState>,
    closed: CancellationToken,
    watches: Arc<Watches>,
    /// The current inbox; 0 if nothing can be received.
    inbox: watch::Sender<u64>,
    /// How often listening has failed or ended.
    closed_inboxes: watch::Sender<u64>,
    /// Whether a new connection checks the tables.
    looks: bool,
    /// Whether there are watches: the inbox's task runs.
    listen: AtomicBool,
    process: u32,
}

/// A server, and one logical connection to it. Clones share it; the last one ends it.
#[derive(Clone)]
pub(crate) struct Link(Arc<Owner>);

struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.closed.cancel();
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("options", &self.0.0.options).finish_non_exhaustive()
    }
}

impl Link {
    /// Makes a link, which begins to connect at once. `looks` is whether a new connection checks
    /// the tables, and fails if they are foreign. Its tasks run in the current runtime; without
    /// one, on a thread of their own.
    ///
    /// # Errors
    /// `Invalid`: options contradict each other. `Refused`: the process gets no thread.
    pub(crate) fn new(
        options: &MysqlOptions,
        clock: Arc<dyn Clock>,
        watches: Arc<Watches>,
        looks: bool,
    ) -> Result<Link, LockError> {
        options.validate()?;
        if options.exposes_password() {
            let address = options.address();
            tracing::warn!(%address, "who listens in can read along: write `sslmode=verify-full`");
        }
        let runtime = RuntimeHandle::find(None).map_err(|error| {
            let message = format!("no thread for the connection: {error}");
            LockError::new(ENGINE, ErrorKind::Refused { message }, Certainty::NotApplied)
        })?;
        let shared = Arc::new(Shared {
            names: Names::new(options.prefix()),
            options: options.clone(),
            clock,
            runtime,
            state: watch::Sender::default(),
            closed: CancellationToken::new(),
            watches,
            inbox: watch::Sender::new(0),
            closed_inboxes: watch::Sender::new(0),
            looks,
            listen: AtomicBool::new(false),
            process: std::process::id(),
        });
        supervisor::start(&shared);
        Ok(Link(Arc::new(Owner(shared))))
    }

    /// Waits until there is a connection, and returns what is known of the server.
    pub(crate) async fn ready(&self) -> Result<Arc<Facts>, LockError> {
        let limit = self.shared().options.connect_timeout().saturating_add(CONNECT_MARGIN);
        // The error of the first failed attempt says more than a timeout.
        Ok(self.found_within(limit, |_| true).await?.facts.clone())
    }

    /// Returns whether the tables exist: without them there are no holders.
    pub(crate) async fn has_store(&self) -> Result<bool, LockError> {
        let live = self.live_within(self.shared().options.command_timeout()).await?;
        if live.has_store.load(Ordering::SeqCst) {
            return Ok(true);
        }
        // Another client may have created them meanwhile.
        let reply = self.ask(&schema::look(self.names())).await?;
        match schema::found(&reply)? {
            Found::Missing => Ok(false),
            Found::Older | Found::Ours => {
                // If another version created them, the procedures of this version are added.
                self.make_store().await?;
                Ok(true)
            }
        }
    }

    /// Creates the tables if they are missing.
    pub(crate) async fn make_store(&self) -> Result<(), LockError> {
        let shared = self.shared();
        let limit = shared.options.connect_timeout();
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
            made = schema::make(&live.handle, &shared.names, limit) => made?,
            () = shared.clock.sleep_until(end) => {
                let message = format!("the tables could not be made within {limit:?}");
                return Err(unavailable(message, Certainty::NotApplied));
            }
        }
        unfinished.disarm();
        live.has_store.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Sends a statement; again only if the server rolled it back to break a deadlock.
    ///
    /// # Cancel safety
    /// Dropping the future loses only the reply: the statement may be carried out.
    pub(crate) async fn ask(&self, statement: &str) -> Result<Answer, LockError> {
        let live = self.live_within(self.shared().options.command_timeout()).await?;
        self.ask_on(&live, &Statement::from(statement)).await
    }

    async fn ask_on(&self, live: &Live, statement: &Statement) -> Result<Answer, LockError> {
        let shared = self.shared();
        let limit = shared.options.command_timeout();
        let end = shared.clock.now().after(limit);
        let asking = async {
            let mut tries = 1;
            loop {
                match live.handle.ask(statement.clone()).await {
                    Err(Failed::Server(words)) if words.code == DEADLOCK && tries < TRIES => {
                        tries += 1;
                    }
                    answered => return answered,
                }
            }
        };
        // The server's timeout is shorter than ours; after its error nothing was applied.
        let answered = tokio::select! {
            biased;
            answered = asking => answered,
            () = shared.clock.sleep_until(end) => {
                live.end.cancel();
                let message = format!("no answer within {limit:?}");
                return Err(unavailable(message, Certainty::Unknown));
            }
        };
        answered.map_err(|failed| {
            if is_store_gone(&failed) || is_stopped(&failed) || takes_no_writes(&failed) {
                // The next connection checks the tables, and creates them if it may; the name of
                // the server may lead to another by then.
                live.end.cancel();
            }
            of_command(&failed)
        })
    }

    /// Returns the current inbox: 0 if nothing can be received.
    pub(crate) fn inbox(&self) -> u64 {
        *self.shared().inbox.borrow()
    }

    /// Begins to listen, and returns the inbox as [`Link::inbox`].
    pub(crate) async fn inbox_opened(&self) -> u64 {
        let shared = self.shared();
        let mut closed_inboxes = shared.closed_inboxes.subscribe();
        closed_inboxes.mark_unchanged();
        if shared.listen.load(Ordering::SeqCst) && self.inbox() != 0 {
            return self.inbox();
        }
        let first = !shared.listen.load(Ordering::SeqCst);
        inbox::start(shared);
        let mut inbox = shared.inbox.subscribe();
        // Only the first caller waits for it: if it cannot be opened now, the others lose no time.
        if first {
            let end = shared.clock.now().after(shared.options.command_timeout());
            tokio::select! {
                biased;
                _ = inbox.wait_for(|inbox| *inbox != 0) => {}
                _ = closed_inboxes.changed() => {}
                () = shared.clock.sleep_until(end) => {}
            }
        }
        self.inbox()
    }

    /// Begins to listen, without waiting for it.
    pub(crate) fn open_inbox(&self) {
        inbox::start(self.shared());
    }

    /// Runs a task where the connection's own task runs.
    pub(crate) fn spawn(&self, task: Task<()>) {
        self.shared().runtime.spawn(task);
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.shared().clock
    }

    pub(crate) fn command_timeout(&self) -> Duration {
        self.shared().options.command_timeout()
    }

    /// Returns the names of tables and procedures.
    pub(crate) fn names(&self) -> &Names {
        &self.shared().names
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Waits for a connection. If the server refuses it, the call fails at once; an unreachable
    /// server may be back within the limit.
    async fn live_within(&self, limit: Duration) -> Result<Arc<Live>, LockError> {
        let refuses = |error: &LockError| !matches!(error.kind(), ErrorKind::Unavailable { .. });
        self.found_within(limit, refuses).await
    }

    /// Waits for a connection, or for a failure that ends the wait.
    async fn found_within(
        &self,
        limit: Duration,
        ends: impl Fn(&LockError) -> bool,
    ) -> Result<Arc<Live>, LockError> {
        let shared = self.shared();
        if std::process::id() != shared.process {
            let message = "this process was copied by fork: it needs a client of its own";
            return Err(unavailable(message, Certainty::NotApplied));
        }
        let mut state = shared.state.subscribe();
        let settled = |state: &ConnectionState| match state {
            ConnectionState::Live(live) => live.is_good(),
            ConnectionState::Failed(error) => ends(error),
            ConnectionState::Making => false,
        };
        let end = shared.clock.now().after(limit);
        let found = tokio::select! {
            biased;
            found = state.wait_for(settled) => found.ok().map(|found| found.clone()),
            () = shared.clock.sleep_until(end) => None,
        };
        match found.unwrap_or_else(|| shared.state.borrow().clone()) {
            ConnectionState::Live(live) if live.is_good() => Ok(live),
            ConnectionState::Failed(error) => Err(error),
            _ => {
                let message =
                    format!("{}: no connection within {limit:?}", shared.options.address());
                Err(unavailable(message, Certainty::NotApplied))
            }
        }
    }
}

impl Live {
    fn is_good(&self) -> bool {
        !self.handle.is_closed() && !self.end.is_cancelled()
    }
}
