//! One server: how a statement travels to it and what comes back.
//!
//! One connection for each engine, and no pool. A task of its own makes it, drives it, hears its
//! notifications, and makes it anew when it is lost.
//!
//! - Invariant N1: no statement is ever sent twice.
//! - Invariant N2: an error tells whether the statement may have left: what still waited for a
//!   connection was *not applied*; what was sent is *unknown* unless the server has said otherwise.
//! - Invariant N3: dropping the link ends its task and its connection.
//! - Invariant N4: a connection on which a statement missed its deadline is given up.
//!
//! Read next: `supervisor` for how connections come and go, `greet` for what is said first.

mod dial;
mod greet;
mod supervisor;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::{Certainty, Clock, ErrorKind, LockError};
use holdline_net::home::{Home, Task};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};
use tokio_util::sync::CancellationToken;

use crate::error::{ENGINE, is_schema_gone, of_command, unavailable};
use crate::keys;
use crate::options::PostgresOptions;
use crate::schema::{self, Found};

pub(crate) use dial::{dial_and, refusal};
pub(crate) use greet::{Facts, greet};

/// How much longer than a try to connect its outcome is waited for.
const HEARD_OUT: Duration = Duration::from_millis(500);

/// A parameter of a statement, and its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A connection that is good, until its end is told.
pub(crate) struct Live {
    client: Client,
    facts: Arc<Facts>,
    /// Notifications of our inbox come.
    listens: AtomicBool,
    /// The schema is there, with all that we call.
    has_store: AtomicBool,
    /// One task at a time makes it.
    making: tokio::sync::Mutex<()>,
    /// What was sent before, by its text: the server has read and planned it.
    prepared: Mutex<HashMap<String, Statement>>,
    end: CancellationToken,
}

/// How it stands with the connection.
#[derive(Clone, Default)]
enum Stand {
    /// There is none; the error is why the last try failed.
    #[default]
    Making,
    Failed(LockError),
    Live(Arc<Live>),
}

/// What the supervisor shares with the link.
struct Shared {
    options: PostgresOptions,
    clock: Arc<dyn Clock>,
    home: Home,
    stand: watch::Sender<Stand>,
    closed: CancellationToken,
    watches: Arc<Watches>,
    inbox: u64,
    /// A new connection looks for the schema.
    looks: bool,
    /// Somebody wants to be told: each new connection listens.
    listen: AtomicBool,
    moves: AtomicU32,
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
    /// Makes a link, which begins to dial at once; `looks` is whether a new connection looks for
    /// the schema, and is refused by what is not ours. Its task runs in the current runtime;
    /// outside of any, on a thread of its own.
    ///
    /// # Errors
    /// `Invalid` for options that do not fit together, `Refused` when the process gets no thread.
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
        let home = Home::find(None).map_err(|error| {
            let message = format!("no thread for the connection: {error}");
            LockError::new(ENGINE, ErrorKind::Refused { message }, Certainty::NotApplied)
        })?;
        let shared = Arc::new(Shared {
            options: options.clone(),
            clock,
            home,
            stand: watch::Sender::default(),
            closed: CancellationToken::new(),
            watches,
            // Never zero, which stands for who hears nothing.
            inbox: rand::random::<u64>() | 1,
            looks,
            listen: AtomicBool::new(false),
            moves: AtomicU32::new(0),
            process: std::process::id(),
        });
        supervisor::start(&shared);
        Ok(Link(Arc::new(Owner(shared))))
    }

    /// Waits until there is a connection, and returns what is known of the server.
    pub(crate) async fn ready(&self) -> Result<Arc<Facts>, LockError> {
        let limit = self.shared().options.connect_timeout().saturating_add(HEARD_OUT);
        // The first try that fails tells more than that nothing came.
        Ok(self.found_within(limit, |_| true).await?.facts.clone())
    }

    /// Tells whether the schema is there: where it is not, nobody holds anything.
    pub(crate) async fn has_store(&self) -> Result<bool, LockError> {
        let live = self.live_within(self.shared().options.command_timeout()).await?;
        if live.has_store.load(Ordering::SeqCst) {
            return Ok(true);
        }
        // Somebody else may have made it meanwhile.
        let rows = self.ask(schema::LOOK, &[(&self.shared().options.schema(), Type::TEXT)]).await?;
        match schema::found(&rows, self.shared().options.schema())? {
            Found::Missing | Found::Empty { .. } => Ok(false),
            Found::Ours(_) => {
                // Where another version made it, what we call is added.
                self.make_store().await?;
                Ok(true)
            }
        }
    }

    /// Sees to it that the schema is there.
    pub(crate) async fn make_store(&self) -> Result<(), LockError> {
        let shared = self.shared();
        let limit = shared.options.connect_timeout();
        let live = self.live_within(limit).await?;
        if live.has_store.load(Ordering::SeqCst) {
            return Ok(());
        }
        // Nothing else is asked meanwhile, and nothing is left of it if it is given up.
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

    /// Sends a statement, once.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only: the statement may be carried out.
    pub(crate) async fn ask(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, LockError> {
        let shared = self.shared();
        let limit = shared.options.command_timeout();
        let end = shared.clock.now().after(limit);
        let live = self.live_within(limit).await?;
        // The server ends what takes long before we do; then it is certain that nothing was done.
        let answered = tokio::select! {
            biased;
            answered = live.query(statement, parameters) => answered,
            () = shared.clock.sleep_until(end) => {
                live.end.cancel();
                let message = format!("no answer within {limit:?}");
                return Err(unavailable(message, Certainty::Unknown));
            }
        };
        answered.map_err(|error| {
            if is_schema_gone(&error) {
                // The next connection looks what is there, and makes it anew if it may.
                live.end.cancel();
            }
            of_command(&error)
        })
    }

    /// Returns the inbox to be told in: 0 when nothing would be heard there. A connection that is
    /// still to come listens before anything is asked on it.
    pub(crate) fn inbox(&self) -> u64 {
        let shared = self.shared();
        let hears = match &*shared.stand.borrow() {
            Stand::Live(live) => live.listens.load(Ordering::SeqCst),
            Stand::Making | Stand::Failed(_) => shared.listen.load(Ordering::SeqCst),
        };
        if hears { shared.inbox } else { 0 }
    }

    /// Begins to listen, and returns the inbox as [`Link::inbox`].
    pub(crate) async fn inbox_opened(&self) -> u64 {
        let shared = self.shared();
        if !shared.listen.swap(true, Ordering::SeqCst) || self.inbox() == 0 {
            let limit = shared.options.command_timeout();
            let end = shared.clock.now().after(limit);
            let listening = async {
                if let Ok(live) = self.live_within(limit).await {
                    greet::listen(&live, shared).await;
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
            let live = match &*shared.stand.borrow() {
                Stand::Live(live) => live.clone(),
                // A connection that is being made listens from its beginning.
                _ => return,
            };
            greet::listen(&live, &shared).await;
        }));
    }

    /// Runs a task where the connection's own task runs.
    pub(crate) fn spawn(&self, task: Task<()>) {
        self.shared().home.spawn(task);
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Waits for a connection. A server that refuses us is told at once; one that cannot be
    /// reached may be back within the limit.
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
        let mut stand = shared.stand.subscribe();
        let settled = |stand: &Stand| match stand {
            Stand::Live(live) => !live.client.is_closed() && !live.end.is_cancelled(),
            Stand::Failed(error) => ends(error),
            Stand::Making => false,
        };
        let end = shared.clock.now().after(limit);
        let found = tokio::select! {
            biased;
            found = stand.wait_for(settled) => found.ok().map(|found| found.clone()),
            () = shared.clock.sleep_until(end) => None,
        };
        match found.unwrap_or_else(|| shared.stand.borrow().clone()) {
            Stand::Live(live) if !live.client.is_closed() => Ok(live),
            Stand::Failed(error) => Err(error),
            _ => {
                let message =
                    format!("{}: no connection within {limit:?}", shared.options.address());
                Err(unavailable(message, Certainty::NotApplied))
            }
        }
    }
}

impl Live {
    /// Sends a statement; the first time on this connection the server reads it before.
    async fn query(
        &self,
        text: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if self.facts.pooled {
            // Another process of the server would not know it the next time.
            return self.client.query_typed(text, parameters).await;
        }
        let known = self.prepared.lock().get(text).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let types: Vec<Type> = parameters.iter().map(|(_, of)| of.clone()).collect();
                let statement = self.client.prepare_typed(text, &types).await?;
                self.prepared.lock().insert(text.to_owned(), statement.clone());
                statement
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|(value, _)| *value).collect();
        self.client.query(&statement, &values).await
    }

    /// Asks in the greeting, where nobody else asks.
    async fn listen_on(&self, inbox: u64) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(&format!("listen {}", keys::channel(inbox))).await?;
        self.listens.store(true, Ordering::SeqCst);
        Ok(())
    }
}
