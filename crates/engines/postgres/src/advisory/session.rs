//! The connection of one advisory lock.
//!
//! - Invariant V1: a dropped session ends its connection at once, from any thread, whether or not a
//!   runtime runs. In a forked process it does nothing.
//! - Invariant V2: a caller that stops waiting for a session gets none, and no session is left.
//! - Invariant V3: a session connects to the server itself, never through a pooler: the server
//!   would keep the lock for the next client of the same process.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Certainty, Clock, ErrorKind, LockError, LostReason};
use holdline_net::runtime::RuntimeHandle;
use rustix::net::{Shutdown, sockopt};
use tokio::sync::{oneshot, watch};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls, Row};

use crate::error::{ENGINE, of_command, of_handshake, refused, unavailable};
use crate::link::{Parameter, dial_and, handshake, refusal};
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
    // Behind the client, which sends nothing when it is dropped.
    socket: Socket,
    end: watch::Receiver<Option<String>>,
}

/// The socket of a connection, which ends when any of its copies is dropped: that of the session,
/// or that of the task that drives it.
#[derive(Clone)]
struct Socket {
    fd: Arc<OwnedFd>,
    process: u32,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_ours() {
            // It may have ended by itself.
            let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
        }
    }
}

impl Socket {
    fn of(fd: BorrowedFd<'_>) -> std::io::Result<Socket> {
        let (fd, process) = (fd.try_clone_to_owned()?, std::process::id());
        Ok(Socket { fd: Arc::new(fd), process })
    }

    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    fn watch_peer(&self) -> std::io::Result<()> {
        sockopt::set_tcp_keepidle(&self.fd, IDLE)?;
        sockopt::set_tcp_keepintvl(&self.fd, AGAIN)?;
        let millis = u32::try_from(SILENT.as_millis()).unwrap_or(u32::MAX);
        Ok(sockopt::set_tcp_user_timeout(&self.fd, millis)?)
    }
}

impl Session {
    /// Makes a session, and the schema if it is not there yet.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was begun.
    pub(super) async fn open(
        options: &PostgresOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<Session, LockError> {
        let runtime = RuntimeHandle::find(None)
            .map_err(|error| refused(format!("no thread for the connection: {error}")))?;
        let (reply, made) = oneshot::channel();
        let work = serve(options.clone(), clock.clone(), reply);
        runtime.spawn(Box::pin(work));
        made.await.unwrap_or_else(|_| {
            Err(unavailable("the runtime of the connection ended", Certainty::NotApplied))
        })
    }

    /// Sends one statement, with a timeout; `None` if the server's own lock timeout passed. After
    /// an error the session is unusable.
    pub(super) async fn ask(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
        limit: Duration,
        clock: &dyn Clock,
    ) -> Result<Option<Vec<Row>>, LockError> {
        if !self.socket.is_ours() {
            let message = "this process was copied by fork: the lock is its parent's";
            return Err(unavailable(message, Certainty::NotApplied));
        }
        tokio::select! {
            biased;
            answered = self.client.query_typed(statement, parameters) => {
                match answered {
                    Ok(rows) => Ok(Some(rows)),
                    Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(None),
                    Err(error) => Err(of_command(&error)),
                }
            }
            () = clock.sleep_until(clock.now().after(limit)) => {
                Err(unavailable(format!("no answer within {limit:?}"), Certainty::Unknown))
            }
        }
    }

    /// Sets how long a statement may wait for a lock.
    pub(super) async fn limit_waits(
        &self,
        wait: Duration,
        limit: Duration,
        clock: &dyn Clock,
    ) -> Result<(), LockError> {
        let millis = wait.as_millis().clamp(1, i32::MAX as u128).to_string();
        let set = "select pg_catalog.set_config('lock_timeout', $1, false)";
        self.ask(set, &[(&millis, Type::TEXT)], limit, clock).await.map(drop)
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

/// Makes a session, and serves it until its end.
async fn serve(
    options: PostgresOptions,
    clock: Arc<dyn Clock>,
    mut reply: oneshot::Sender<Result<Session, LockError>>,
) {
    let limit = options.connect_timeout();
    let late = clock.sleep_until(clock.now().after(limit));
    let (ended, end) = watch::channel(None);
    let made = tokio::select! {
        biased;
        () = reply.closed() => return,
        made = connect(&options, &*clock, end) => made,
        () = late => {
            let message = format!("{}: no answer within {limit:?}", options.address());
            Err(unavailable(message, Certainty::NotApplied))
        }
    };
    match made {
        // The caller may be gone; then the session ends.
        Err(error) => drop(reply.send(Err(error))),
        Ok((session, connection)) => {
            let _ends_with_us = session.socket.clone();
            drop(reply.send(Ok(session)));
            let why = match connection.await {
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
    options: &PostgresOptions,
    clock: &dyn Clock,
    end: watch::Receiver<Option<String>>,
) -> Result<Connected, LockError> {
    let mut socket = None;
    let stream = dial_and(options, |fd| {
        socket = Some(Socket::of(fd)?);
        Ok(())
    });
    let stream = stream.await?;
    let socket = socket.ok_or_else(|| refused("the connection has no socket"))?;
    if options.is_remote() {
        let failed = |error| refused(format!("cannot set up the socket: {error}"));
        socket.watch_peer().map_err(failed)?;
    }
    let mut config = Config::new();
    config.user(options.user()).dbname(options.database()).ssl_mode(SslMode::Disable);
    config.application_name(options.application_name());
    if let Some(password) = options.password().expose() {
        config.password(password);
    }
    let connected = config.connect_raw(stream, NoTls).await;
    let (client, connection) = connected.map_err(|error| refusal(&error, options))?;
    let mut connection: Connection = Box::pin(connection);
    let opened = tokio::select! {
        biased;
        opened = prepare(&client, options, clock) => opened,
        why = &mut connection => {
            let why = why.err().map_or_else(|| "closed".to_owned(), |error| error.to_string());
            Err(unavailable(format!("the server went away: {why}"), Certainty::NotApplied))
        }
    };
    opened.map(|()| (Session { client, socket, end }, connection))
}

async fn prepare(
    client: &Client,
    options: &PostgresOptions,
    clock: &dyn Clock,
) -> Result<(), LockError> {
    let facts = handshake(client, options, clock).await?;
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
    let mut text = FOR_US.to_owned();
    if facts.version >= 170_000 {
        text.push_str("; set transaction_timeout = 0");
    }
    client.batch_execute(&text).await.map_err(|error| of_handshake(&error))
}

/// Returns the error for a lock whose session has ended.
pub(super) fn lost(reason: LostReason) -> LockError {
    LockError::new(ENGINE, ErrorKind::Lost { reason }, Certainty::NotApplied)
}
