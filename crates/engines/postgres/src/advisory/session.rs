//! A session of the server, which holds at most one advisory lock.
//!
//! - Invariant V1: a dropped session ends its connection at once, from any thread, whether or not a
//!   runtime runs. In a forked process it does nothing.
//! - Invariant V2: a caller that stops waiting for a session gets none, and no session is left.
//! - Invariant V3: a session connects to the server itself, never through a pooler: the server
//!   would keep the lock for the next client of the same process.

use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Certainty, Clock, ErrorKind, LockError, LostReason, Moment};
use holdline_net::runtime::RuntimeHandle;
use socket2::{SockRef, TcpKeepalive};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::error::{ENGINE, is_locked, of_command, of_handshake, refused, unavailable};
use crate::keys::quoted;
use crate::link::{Parameter, PreparedStatements, choose, dial_and, handshake, sign_in};
use crate::options::PostgresOptions;
use crate::schema;

/// TCP keepalive of our side: idle time, interval, and timeout. The server's own limits are longer,
/// so that the holder notices first.
const IDLE: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_secs(1);
const SILENT: Duration = Duration::from_secs(5);
/// The server's keepalive settings for this session, in its own units, and no idle timeouts.
const FOR_US: &str = "set tcp_keepalives_idle = 6; set tcp_keepalives_interval = 2; \
    set tcp_keepalives_count = 2; set tcp_user_timeout = 10000; \
    set idle_session_timeout = 0; set statement_timeout = 0";
/// Within which time the server notices that a waiter is gone. Not every system supports it.
const NOTICE: &str = "set client_connection_check_interval = 1000";

/// A connection to the server, until it is dropped.
pub(super) struct Session {
    client: Client,
    prepared: PreparedStatements,
    // Behind the client, which sends nothing when it is dropped.
    socket: Socket,
    end: watch::Receiver<Option<String>>,
    opened: Moment,
    /// The runtime that drives the connection; none is the thread of the process.
    runtime: Option<tokio::runtime::Id>,
    has_blocks: bool,
}

/// How a statement draws a token.
pub(super) struct Draw {
    /// Gives the number.
    pub(super) number: String,
    /// Whether the number `d.number` is a token. If it is none, `draw_block_1` draws one.
    pub(super) counts: String,
    /// What both read.
    pub(super) from: String,
}

/// The socket of a connection, which ends when any of its copies is dropped: that of the session,
/// or that of the task that drives it.
#[derive(Clone)]
struct Socket {
    open: Arc<socket2::Socket>,
    process: u32,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_ours() {
            // It may have ended by itself.
            let _ = self.open.shutdown(Shutdown::Both);
        }
    }
}

impl Socket {
    fn of(socket: &SockRef<'_>) -> std::io::Result<Socket> {
        Ok(Socket { open: Arc::new(socket.try_clone()?), process: std::process::id() })
    }

    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    fn watch_peer(&self) -> std::io::Result<()> {
        let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(AGAIN);
        holdline_net::socket::watch_peer(&SockRef::from(&*self.open), &keepalive, SILENT)
    }
}

impl Session {
    /// Makes a session, and the schema if it is not there yet. While the session is open, `look` is
    /// called after each `pause`.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was begun.
    pub(super) async fn open(
        options: &PostgresOptions,
        clock: &Arc<dyn Clock>,
        pause: Duration,
        look: impl Fn() + Send + Sync + 'static,
    ) -> Result<Session, LockError> {
        let runtime = RuntimeHandle::find(None)
            .map_err(|error| refused(format!("no thread for the connection: {error}")))?;
        let (reply, made) = oneshot::channel();
        let (options, clock) = (options.clone(), clock.clone());
        let opening = Opening { options, clock, runtime: current_runtime() };
        runtime.spawn(Box::pin(serve(opening, reply, pause, look)));
        made.await.unwrap_or_else(|_| {
            Err(unavailable("the runtime of the connection ended", Certainty::NotApplied))
        })
    }

    /// Sends one statement, which is prepared at its first use; `None` if the server's own lock
    /// timeout passed. After an error, or if the future is dropped, the session is unusable.
    pub(super) async fn ask(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<Vec<Row>>, LockError> {
        if !self.socket.is_ours() {
            let message = "this process was copied by fork: the lock is its parent's";
            return Err(unavailable(message, Certainty::NotApplied));
        }
        match self.prepared.query(&self.client, statement, parameters).await {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if is_locked(&error) => Ok(None),
            Err(error) => Err(of_command(&error)),
        }
    }

    /// Returns how to draw a token here. The block is read before the wait for the lock, so it may
    /// be an old one: then the number is above it.
    pub(super) fn draw(&self, schema: &str) -> Draw {
        let schema = quoted(schema);
        if !self.has_blocks {
            let number = format!("{schema}.draw_1()");
            return Draw { number, counts: "true".to_owned(), from: String::new() };
        }
        let counts = format!(
            "d.number > d.below and d.number <= d.last \
             and pg_catalog.current_setting('synchronous_standby_names') = '' \
             and pg_catalog.pg_sequence_last_value('{schema}.fence') = d.last"
        );
        Draw {
            number: format!("pg_catalog.nextval('{schema}.fence_next')"),
            counts,
            from: format!(", b.below, b.last from {schema}.fence_block b"),
        }
    }

    /// Returns when the session was opened.
    pub(super) fn opened(&self) -> Moment {
        self.opened
    }

    /// Returns the runtime that drives the connection, as [`current_runtime`] does.
    pub(super) fn runtime(&self) -> Option<tokio::runtime::Id> {
        self.runtime
    }

    /// Returns whether the connection is open, as far as this process knows.
    pub(super) fn is_connected(&self) -> bool {
        self.socket.is_ours()
            && !self.client.is_closed()
            && self.end.borrow().is_none()
            && self.end.has_changed().is_ok()
    }

    /// Waits for the connection's end.
    pub(super) async fn ended(&self) -> LostReason {
        let mut end = self.end.clone();
        let why = match end.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => "the runtime of the connection ended".to_owned(),
        };
        LostReason::StoreGone(why)
    }
}

/// Returns the runtime in which a session would be opened here; none is the thread of the process.
pub(super) fn current_runtime() -> Option<tokio::runtime::Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

/// Waits for an answer, with a limit.
pub(super) async fn within<T>(
    limit: Duration,
    clock: &dyn Clock,
    asked: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    tokio::select! {
        biased;
        answered = asked => answered,
        () = clock.sleep_until(clock.now().after(limit)) => {
            Err(unavailable(format!("no answer within {limit:?}"), Certainty::Unknown))
        }
    }
}

/// What a session is made of.
struct Opening {
    options: PostgresOptions,
    clock: Arc<dyn Clock>,
    runtime: Option<tokio::runtime::Id>,
}

/// Makes a session, and serves it until its end.
async fn serve(
    opening: Opening,
    mut reply: oneshot::Sender<Result<Session, LockError>>,
    pause: Duration,
    look: impl Fn() + Send + Sync,
) {
    let (options, clock) = (&opening.options, &*opening.clock);
    let limit = options.connect_timeout();
    let late = clock.sleep_until(clock.now().after(limit));
    let (ended, end) = watch::channel(None);
    let made = tokio::select! {
        biased;
        () = reply.closed() => return,
        made = connect(&opening, end) => made,
        () = late => {
            let message = format!("{}: no answer within {limit:?}", options.place());
            Err(unavailable(message, Certainty::NotApplied))
        }
    };
    match made {
        // The caller may be gone; then the session ends.
        Err(error) => drop(reply.send(Err(error))),
        Ok((session, mut connection)) => {
            let _ends_with_us = session.socket.clone();
            drop(reply.send(Ok(session)));
            let served = loop {
                tokio::select! {
                    biased;
                    served = &mut connection => break served,
                    () = clock.sleep_until(clock.now().after(pause)) => look(),
                }
            };
            let why = match served {
                Ok(()) => "the connection was closed".to_owned(),
                Err(error) => of_command(&error).kind().to_string(),
            };
            tracing::debug!(why, "the connection of an advisory lock ended");
            ended.send_replace(Some(why));
        }
    }
}

type Connected = (Session, Connection);
type Connection =
    std::pin::Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static>>;

async fn connect(
    opening: &Opening,
    end: watch::Receiver<Option<String>>,
) -> Result<Connected, LockError> {
    let Opening { options, clock, runtime } = opening;
    let opened = clock.now();
    let options = &choose(options, &**clock, false).await?;
    let mut socket = None;
    let stream = dial_and(options, |of| {
        socket = Some(Socket::of(&of)?);
        Ok(())
    });
    let stream = stream.await?;
    let socket = socket.ok_or_else(|| refused("the connection has no socket"))?;
    if options.is_remote() {
        let failed = |error| refused(format!("cannot set up the socket: {error}"));
        socket.watch_peer().map_err(failed)?;
    }
    let (client, connection) = sign_in(options, stream).await?;
    let mut connection: Connection = Box::pin(connection);
    let made = tokio::select! {
        biased;
        made = prepare(&client, options, &**clock) => made,
        why = &mut connection => {
            let why = why.err().map_or_else(|| "closed".to_owned(), |error| error.to_string());
            Err(unavailable(format!("the server went away: {why}"), Certainty::NotApplied))
        }
    };
    let (prepared, runtime) = (PreparedStatements::default(), *runtime);
    made.map(|has_blocks| {
        (Session { client, prepared, socket, end, opened, runtime, has_blocks }, connection)
    })
}

/// Sets a session up; returns whether the schema has blocks of tokens.
async fn prepare(
    client: &Client,
    options: &PostgresOptions,
    clock: &dyn Clock,
) -> Result<bool, LockError> {
    let facts = handshake(client, options, clock, false).await?;
    if facts.pooled {
        return Err(refused(
            "a pooler is between us and the server, and an advisory lock lives in a session: name \
             the server itself, or take a lock of the table (`Client::mutex`)",
        ));
    }
    if client.batch_execute(NOTICE).await.is_err() {
        tracing::debug!("the server cannot notice that a waiter is gone: it waits out its limit");
    }
    if schema::find(client, options.schema()).await?
        != schema::Found::Ours(schema::Functions::Current)
    {
        schema::make(client, options.schema()).await?;
    }
    // For the fencing token; a wait for the lock sets its own, for its statement alone.
    let millis = token_wait(options).as_millis();
    let mut text = format!("{FOR_US}; set lock_timeout = {millis}");
    if facts.version >= 170_000 {
        text.push_str("; set transaction_timeout = 0");
    }
    client.batch_execute(&text).await.map_err(|error| of_handshake(&error))?;
    // A server before 15 has no such sequence. In a standby that was promoted soon after the
    // sequence was made, it may be damaged: PostgreSQL 15.18 reports "bad magic number" there.
    let ask = "select pg_catalog.pg_sequence_last_value($1::pg_catalog.text::pg_catalog.regclass)";
    let name = format!("{}.fence_next", quoted(options.schema()));
    match client.query_typed(ask, &[(&name, Type::TEXT)]).await {
        Ok(_) => Ok(true),
        Err(error) if error.as_db_error().is_some() => {
            tracing::debug!(%error, "tokens of advisory locks come without blocks");
            Ok(false)
        }
        Err(error) => Err(of_handshake(&error)),
    }
}

/// Returns how long a session waits for a fencing token. No token can be drawn while an operator
/// raises the fence. It is shorter than the limit of our own, so that the server's answer arrives.
pub(super) fn token_wait(options: &PostgresOptions) -> Duration {
    options.command_timeout() * 8 / 10
}

/// Returns the error for a lock whose session has ended.
pub(super) fn lost(reason: LostReason) -> LockError {
    LockError::new(ENGINE, ErrorKind::Lost { reason }, Certainty::NotApplied)
}
