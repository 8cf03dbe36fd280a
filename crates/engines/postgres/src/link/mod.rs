//! The connection to one server: how a statement is sent and how its reply comes back.
//!
//! There is one connection for each engine, and no pool. A task opens it, drives it, receives its
//! notifications, and opens it again when it is lost.
//!
//! - Invariant N1: no statement is carried out twice. It is sent again only if the server has
//!   refused it for a lock, which rolls it back (`locked_rows`).
//! - Invariant N2: an error says whether the statement may have been sent. A statement that waited
//!   for a connection is *not applied*; one that was sent is *unknown* unless the server has
//!   reported otherwise.
//! - Invariant N3: dropping the link ends its task and its connection.
//! - Invariant N4: a connection is closed if a statement missed its deadline.
//!
//! Read next: `supervisor` for reconnecting, `handshake` for the first statements.

mod dial;
mod handshake;
mod locked_rows;
mod prepared;
mod supervisor;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::{Certainty, Clock, ErrorKind, LockError, LockName, Moment};
use holdline_net::runtime::{RuntimeHandle, Task};
use tokio::sync::watch;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};
use tokio_util::sync::CancellationToken;

use crate::error::{ENGINE, is_locked, is_schema_gone, of_command, unavailable};
use crate::keys;
use crate::options::PostgresOptions;
use crate::schema::{self, Found};

pub(crate) use dial::{dial_and, refusal};
pub(crate) use handshake::{Facts, handshake};
use locked_rows::LockedRows;
pub(crate) use prepared::PreparedStatements;

/// How much longer than one attempt to connect its outcome is awaited.
const CONNECT_MARGIN: Duration = Duration::from_millis(500);

/// A parameter of a statement, and its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A usable connection, until its end is signalled.
pub(crate) struct Live {
    client: Client,
    facts: Arc<Facts>,
    /// Whether it listens for notifications.
    listens: AtomicBool,
    /// Whether the schema and its functions exist.
    has_store: AtomicBool,
    /// Only one task at a time creates it.
    making: tokio::sync::Mutex<()>,
    prepared: PreparedStatements,
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

/// What the supervisor shares with the link.
struct Shared {
    options: PostgresOptions,
    clock: Arc<dyn Clock>,
    runtime: RuntimeHandle,
    state: watch::Sender<ConnectionState>,
    closed: CancellationToken,
    watches: Arc<Watches>,
    inbox: u64,
    /// Whether a new connection checks the schema.
    looks: bool,
    /// Whether there are watches: each new connection listens.
    listen: AtomicBool,
    process: u32,
    locked_rows: LockedRows,
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
    /// the schema, and fails if it is foreign. Its task runs in the current runtime; without one,
    /// on a thread of its own.
    ///
    /// # Errors
    /// `Invalid`: options contradict each other. `Refused`: the process gets no thread.
    pub(crate) fn new(
        options: &PostgresOptions,
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
            options: options.clone(),
            clock,
            runtime,
            state: watch::Sender::default(),
            closed: CancellationToken::new(),
            watches,
            // Never zero, which stands for no inbox.
            inbox: rand::random::<u64>() | 1,
            looks,
            listen: AtomicBool::new(false),
            process: std::process::id(),
            locked_rows: LockedRows::default(),
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

    /// Returns whether the schema exists: without it there are no holders.
    pub(crate) async fn has_store(&self) -> Result<bool, LockError> {
        let live = self.live_within(self.shared().options.command_timeout()).await?;
        if live.has_store.load(Ordering::SeqCst) {
            return Ok(true);
        }
        // Another client may have created it meanwhile.
        let rows = self.ask(schema::LOOK, &[(&self.shared().options.schema(), Type::TEXT)]).await?;
        match schema::found(&rows, self.shared().options.schema())? {
            Found::Missing | Found::Empty { .. } => Ok(false),
            Found::Ours(_) => {
                // If another version created it, the functions of this version are added.
                self.make_store().await?;
                Ok(true)
            }
        }
    }

    /// Creates the schema if it is missing.
    pub(crate) async fn make_store(&self) -> Result<(), LockError> {
        let shared = self.shared();
        let limit = shared.options.connect_timeout();
        let live = self.live_within(limit).await?;
        if live.has_store.load(Ordering::SeqCst) {
            return Ok(());
        }
        // No other statement is sent meanwhile. After an interruption nothing is left.
        let _turn = live.making.lock().await;
        if live.has_store.load(Ordering::SeqCst) {
            return Ok(());
        }
        let unfinished = live.end.clone().drop_guard();
        let end = shared.clock.now().after(limit);
        tokio::select! {
            biased;
            made = schema::make(&live.client, shared.options.schema()) => made?,
            () = shared.clock.sleep_until(end) => {
                let message = format!("the schema could not be made within {limit:?}");
                return Err(unavailable(message, Certainty::NotApplied));
            }
        }
        unfinished.disarm();
        live.has_store.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Sends a statement that concerns no single name. As [`Link::ask_about`].
    pub(crate) async fn ask(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, LockError> {
        self.ask_about(None, statement, parameters).await
    }

    /// Sends a statement about a name. If the server refuses it because another session has locked
    /// the row, it is sent again, for a part of the limit.
    ///
    /// # Cancel safety
    /// Dropping the future loses only the reply: the statement may be carried out.
    pub(crate) async fn ask_about(
        &self,
        name: Option<&LockName>,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, LockError> {
        let shared = self.shared();
        let (start, limit) = (shared.clock.now(), shared.options.command_timeout());
        let (end, row_end) = (start.after(limit), start.after(limit * 6 / 10));
        let mut turn = shared.locked_rows.enter(name, &*shared.clock, row_end).await?;
        let mut repeats = None;
        loop {
            let refused = match self.send(statement, parameters, end).await? {
                Ok(rows) => return Ok(rows),
                Err(error) if is_locked(&error) => error,
                Err(error) => return Err(of_command(&error)),
            };
            drop(repeats.take());
            repeats = turn.again().await;
            if repeats.is_none() {
                return Err(of_command(&refused));
            }
        }
    }

    /// Sends a statement, once. The inner error is the server's, or of a connection that broke.
    async fn send(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
        end: Moment,
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>, LockError> {
        let shared = self.shared();
        let limit = shared.options.command_timeout();
        let live = self.live_within(shared.clock.now().until(end)).await?;
        // The server's timeout is shorter than ours; after its error nothing was applied.
        let answered = tokio::select! {
            biased;
            answered = live.query(statement, parameters) => answered,
            () = shared.clock.sleep_until(end) => {
                live.end.cancel();
                let message = format!("no answer within {limit:?}");
                return Err(unavailable(message, Certainty::Unknown));
            }
        };
        if answered.as_ref().is_err_and(is_schema_gone) {
            // The next connection checks the schema, and creates it if it may.
            live.end.cancel();
        }
        Ok(answered)
    }

    /// Returns the inbox for notifications: 0 if nothing can be received. A new connection listens
    /// before its first command.
    pub(crate) fn inbox(&self) -> u64 {
        let shared = self.shared();
        let listens = match &*shared.state.borrow() {
            ConnectionState::Live(live) => live.listens.load(Ordering::SeqCst),
            ConnectionState::Making | ConnectionState::Failed(_) => {
                shared.listen.load(Ordering::SeqCst)
            }
        };
        if listens { shared.inbox } else { 0 }
    }

    /// Begins to listen, and returns the inbox as [`Link::inbox`].
    pub(crate) async fn inbox_opened(&self) -> u64 {
        let shared = self.shared();
        if !shared.listen.swap(true, Ordering::SeqCst) || self.inbox() == 0 {
            let limit = shared.options.command_timeout();
            let end = shared.clock.now().after(limit);
            let listening = async {
                if let Ok(live) = self.live_within(limit).await {
                    handshake::listen(&live, shared).await;
                }
            };
            tokio::select! {
                biased;
                () = listening => {}
                () = shared.clock.sleep_until(end) => {}
            }
        }
        self.inbox()
    }

    /// Begins to listen, without waiting for it.
    pub(crate) fn open_inbox(&self) {
        if self.shared().listen.swap(true, Ordering::SeqCst) {
            return;
        }
        let shared = self.shared().clone();
        self.spawn(Box::pin(async move {
            let live = match &*shared.state.borrow() {
                ConnectionState::Live(live) => live.clone(),
                // A connection that is being made listens from its beginning.
                _ => return,
            };
            handshake::listen(&live, &shared).await;
        }));
    }

    /// Runs a task where the connection's own task runs.
    pub(crate) fn spawn(&self, task: Task<()>) {
        self.shared().runtime.spawn(task);
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
            ConnectionState::Live(live) => !live.client.is_closed() && !live.end.is_cancelled(),
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
            ConnectionState::Live(live) if !live.client.is_closed() => Ok(live),
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
    /// Sends a statement; it is prepared the first time on this connection.
    async fn query(
        &self,
        text: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if self.facts.pooled {
            // Another process of the server would not know a prepared statement.
            return self.client.query_typed(text, parameters).await;
        }
        self.prepared.query(&self.client, text, parameters).await
    }

    /// Sends a statement during the handshake, before other callers use the connection.
    async fn listen_on(&self, inbox: u64) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(&format!("listen {}", keys::channel(inbox))).await?;
        self.listens.store(true, Ordering::SeqCst);
        Ok(())
    }
}
