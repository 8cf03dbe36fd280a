//! The link to a PostgreSQL server: how a connection is made, and how statements are sent on it.
//!
//! `holdline_net::sql` keeps the connection. It also receives the notifications for waiters.
//!
//! - Invariant L1: no statement is carried out twice. It is sent again only if the server has
//!   refused it for a lock, which rolls it back (`locked_rows`).
//! - Invariant L2: after each new connection that listens, all watches are notified to look again.
//!
//! Read next: `handshake` for the first statements, `locked_rows` for names whose rows others have
//! locked.

mod binding;
mod dial;
mod handshake;
mod hosts;
mod locked_rows;
mod prepared;

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use holdline_core::hints::Watches;
use holdline_core::{Clock, LockError, LockName, Moment};
use holdline_net::limits::Limits;
use holdline_net::sql::link::{Driver, LinkState, ServerLink, SqlServer};
use tokio_postgres::config::{SslMode, SslNegotiation};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Row};

use crate::error::{
    ENGINE, is_locked, is_read_only, is_schema_gone, of_command, plain, takes_no_writes,
};
use crate::keys;
use crate::options::PostgresOptions;
use crate::schema::{self, Found, Functions};

use binding::{BoundStream, Negotiated};
use dial::dial;
pub(crate) use handshake::Facts;
use handshake::handshake;
use hosts::choose;
use locked_rows::LockedRows;
use prepared::PreparedStatements;

/// A parameter of a statement, and its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A database with one schema of locks, and what the tasks of its link share.
pub(crate) struct Database {
    options: PostgresOptions,
    /// Whether a new connection checks the schema.
    looks: bool,
    inbox: u64,
    /// Whether there are watches: each new connection listens.
    listen: AtomicBool,
    locked_rows: LockedRows,
}

/// A connection that is set up.
pub(crate) struct Session {
    client: Client,
    pub(crate) facts: Facts,
    /// Whether it listens for notifications.
    listens: AtomicBool,
    prepared: PreparedStatements,
}

impl SqlServer for Database {
    const ENGINE: &'static str = ENGINE;
    const STORE: &'static str = "schema";
    type Handle = Client;
    type Session = Session;

    fn address(&self) -> String {
        self.options.place()
    }

    fn limits(&self) -> &Limits {
        self.options.limits()
    }

    async fn open(shared: &LinkState<Database>) -> Result<(Client, Driver), LockError> {
        let options = &choose(&shared.server.options, &*shared.clock, shared.took_writes()).await?;
        let (client, connection) = sign_in(options, dial(options).await?).await?;
        Ok((client, Box::pin(Receiver { connection, watches: shared.watches.clone() })))
    }

    async fn set_up(
        shared: &LinkState<Database>,
        client: Client,
    ) -> Result<(Session, bool), LockError> {
        let Database { options, looks, listen, .. } = &shared.server;
        let facts = handshake(&client, options, &*shared.clock, shared.took_writes()).await?;
        if facts.takes_writes {
            shared.note_writes();
        }
        let ours = Found::Ours(Functions::Current);
        let has_store = *looks && schema::find(&client, options.schema()).await? == ours;
        let listens = AtomicBool::new(false);
        let prepared = PreparedStatements::default();
        let session = Session { client, facts, listens, prepared };
        if listen.load(Ordering::SeqCst) {
            session.listen(shared.server.inbox).await;
            if session.listens.load(Ordering::SeqCst) {
                shared.watches.notify_all();
            }
        }
        Ok((session, has_store))
    }

    fn is_closed(session: &Session) -> bool {
        session.client.is_closed()
    }

    async fn has_store(link: &ServerLink<Database>) -> Result<bool, LockError> {
        let schema = link.server().options.schema();
        let rows = Link(link.clone()).ask(schema::LOOK, &[(&schema, Type::TEXT)]).await?;
        Ok(matches!(schema::found(&rows, schema)?, Found::Ours(_)))
    }

    async fn make_store(&self, session: &Session) -> Result<(), LockError> {
        schema::make(&session.client, self.options.schema()).await
    }

    fn restart(_shared: &Arc<LinkState<Database>>) {}
}

/// The other half of a client: it must be polled for anything to be sent or received.
pub(crate) type ServerConnection = Connection<BoundStream, BoundStream>;

/// Begins a connection on a stream to the server.
pub(crate) async fn sign_in(
    options: &PostgresOptions,
    stream: BoundStream,
) -> Result<(Client, ServerConnection), LockError> {
    let connected = startup(options).await.connect_raw(stream, Negotiated).await;
    connected.map_err(|error| dial::refusal(&error, options))
}

/// Returns what is sent to begin a connection.
async fn startup(options: &PostgresOptions) -> Config {
    let mut config = Config::new();
    config.user(options.user()).dbname(options.database());
    // The stream has TLS already, if the options ask for it: the client crate negotiates nothing.
    config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    config.channel_binding(options.channel_binding());
    config.application_name(options.application_name());
    if let Some(text) = options.startup() {
        config.options(text);
    }
    if let Some(password) = options.password().read().await {
        config.password(password);
    }
    config
}

/// A server, and one logical connection to it. Clones share it; the last one ends it.
#[derive(Clone)]
pub(crate) struct Link(ServerLink<Database>);

impl Deref for Link {
    type Target = ServerLink<Database>;

    fn deref(&self) -> &ServerLink<Database> {
        &self.0
    }
}

impl Link {
    /// Makes a link, which begins to connect at once. `looks` is whether a new connection checks
    /// the schema, and fails if it is foreign.
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
        let database = Database {
            options: options.clone(),
            looks,
            // Never zero, which stands for no inbox.
            inbox: rand::random::<u64>() | 1,
            listen: AtomicBool::new(false),
            locked_rows: LockedRows::default(),
        };
        ServerLink::new(database, clock, watches, options.exposes_password()).map(Link)
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
        let start = shared.clock.now();
        let limit = self.limits().command_timeout;
        let end = start.after(limit);
        let row_end = start.after(limit * 6 / 10);
        let mut turn = shared.server.locked_rows.enter(name, &*shared.clock, row_end).await?;
        let mut repeats = None;
        loop {
            let refused = match self.send(statement, parameters, end).await? {
                Ok(rows) => return Ok(rows),
                Err(error) if is_locked(&error) => error,
                Err(error) if is_read_only(&error) && shared.took_writes() => {
                    return Err(takes_no_writes(true, &plain(&error)));
                }
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
        let live = self.live_within(self.shared().clock.now().until(end)).await?;
        let answered = self.answer(&live, end, live.session.query(statement, parameters)).await?;
        let is_switched_over = |error| is_read_only(error) && self.shared().took_writes();
        if answered.as_ref().is_err_and(|error| is_schema_gone(error) || is_switched_over(error)) {
            // The next connection checks the schema, and creates it if it may; the name of the
            // server may lead to another by then.
            live.close();
        }
        Ok(answered)
    }

    /// Returns the inbox for notifications: 0 if nothing can be received. A new connection listens
    /// before its first command.
    pub(crate) fn inbox(&self) -> u64 {
        let Database { inbox, listen, .. } = self.server();
        let listens = match self.shared().current() {
            Some(live) => live.session.listens.load(Ordering::SeqCst),
            None => listen.load(Ordering::SeqCst),
        };
        if listens { *inbox } else { 0 }
    }

    /// Begins to listen, and returns the inbox as [`Link::inbox`].
    pub(crate) async fn inbox_opened(&self) -> u64 {
        let shared = self.shared();
        let database = self.server();
        if !database.listen.swap(true, Ordering::SeqCst) || self.inbox() == 0 {
            let end = shared.clock.now().after(self.limits().command_timeout);
            let listening = async {
                if let Ok(live) = self.live().await {
                    live.session.listen(database.inbox).await;
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
        if self.server().listen.swap(true, Ordering::SeqCst) {
            return;
        }
        let shared = self.shared().clone();
        self.spawn(Box::pin(async move {
            // A connection that is being made listens from its beginning.
            if let Some(live) = shared.current() {
                live.session.listen(shared.server.inbox).await;
            }
        }));
    }
}

impl Session {
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

    /// Listens for notifications, unless a pooler is in between.
    async fn listen(&self, inbox: u64) {
        if self.facts.pooled || self.listens.load(Ordering::SeqCst) {
            return;
        }
        match self.client.batch_execute(&format!("listen {}", keys::channel(inbox))).await {
            Ok(()) => self.listens.store(true, Ordering::SeqCst),
            Err(error) => {
                tracing::warn!(%error, "no notifications: waiters rely on their heartbeat");
            }
        }
    }
}

/// Writes, reads, and hands notifications on; it is ready when the connection is over.
struct Receiver {
    connection: ServerConnection,
    watches: Arc<Watches>,
}

impl Future for Receiver {
    type Output = String;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match ready!(self.connection.poll_message(context)) {
                Some(Ok(AsyncMessage::Notification(reply))) => {
                    self.watches.deliver(reply.payload().as_bytes());
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(error.to_string()),
                None => return Poll::Ready("closed".to_owned()),
            }
        }
    }
}
