//! Keeps one good connection: connects, drives, reconnects.
//!
//! - Invariant S1: the client never sends a statement again.
//! - Invariant S2: pauses between attempts grow, with full jitter. If a server refuses the
//!   connection, attempts are rare, and commands meanwhile fail at once with the reason. A
//!   connection that breaks soon after it was made counts as a failed attempt.
//! - Invariant S3: after each new connection that listens, all watches are notified to look again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::{Backoff, Certainty, ErrorKind, LockError};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Config, Connection, NoTls};
use tokio_util::sync::CancellationToken;

use super::dial::{Stream, dial, refusal};
use super::handshake::{handshake, listen};
use super::{ConnectionState, Live, PreparedStatements, Shared};
use crate::error::unavailable;
use crate::schema::{self, Found, Functions};

/// Pauses between attempts while the server is unreachable.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Pauses while the server refuses the connection: somebody must change something first.
const FIRST_REFUSED: Duration = Duration::from_secs(1);
const LONGEST_REFUSED: Duration = Duration::from_secs(5);

/// Starts the supervisor.
pub(super) fn start(shared: &Arc<Shared>) {
    let (work, owner) = (Box::pin(supervise(shared.clone())), shared.clone());
    shared.runtime.spawn_watched(work, move || lost_runtime(&owner));
}

/// Moves the supervisor to another runtime, if its own dropped it early.
fn lost_runtime(shared: &Arc<Shared>) {
    if shared.closed.is_cancelled() {
        return;
    }
    shared.state.send_replace(ConnectionState::Making);
    if shared.runtime.move_to_thread() {
        tracing::debug!("the runtime of a connection ended: it moves to a thread");
        start(shared);
    } else {
        shared.closed.cancel();
    }
}

/// Ends with its link.
async fn supervise(shared: Arc<Shared>) {
    let closed = shared.closed.clone();
    tokio::select! {
        biased;
        () = closed.cancelled() => {}
        () = keep_connected(&shared) => {}
    }
    shared.state.send_replace(ConnectionState::Making);
}

async fn keep_connected(shared: &Arc<Shared>) {
    let mut near = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut far = Backoff::new(FIRST_REFUSED, LONGEST_REFUSED);
    loop {
        let pause = match within(shared, connect(shared)).await {
            Ok((live, driver)) => {
                far.reset();
                let born = shared.clock.now();
                drive(shared, live, driver).await;
                if born.until(shared.clock.now()) >= LONGEST_PAUSE {
                    near.reset();
                    continue;
                }
                near.next_pause(rand::random())
            }
            Err(error) => {
                let refused = !matches!(error.kind(), ErrorKind::Unavailable { .. });
                let backoff = if refused { &mut far } else { &mut near };
                let pause = backoff.next_pause(rand::random());
                tracing::debug!(%error, ?pause, "no connection to the server");
                shared.state.send_replace(ConnectionState::Failed(error));
                pause
            }
        };
        shared.clock.sleep_until(shared.clock.now().after(pause)).await;
    }
}

/// Serves a connection until its end.
async fn drive(shared: &Shared, live: Arc<Live>, mut driver: Driver) {
    let end = live.end.clone();
    if live.listens.load(Ordering::SeqCst) {
        shared.watches.notify_all();
    }
    shared.state.send_replace(ConnectionState::Live(live));
    tokio::select! {
        biased;
        () = end.cancelled() => tracing::debug!("a connection is given up"),
        why = &mut driver => tracing::debug!(?why, "a connection is lost"),
    }
    // From here on nothing more is sent on it, and outstanding statements are unknown.
    shared.state.send_replace(ConnectionState::Making);
    shared.watches.notify_all();
}

/// Makes a connection: connects, signs in, sets the session up.
async fn connect(shared: &Arc<Shared>) -> Result<(Arc<Live>, Driver), LockError> {
    let options = &shared.options;
    let stream = dial(options).await?;
    let mut config = Config::new();
    config.user(options.user()).dbname(options.database()).ssl_mode(SslMode::Disable);
    config.application_name(options.application_name());
    if let Some(password) = options.password().expose() {
        config.password(password);
    }
    let connected = config.connect_raw(stream, NoTls).await;
    let (client, connection) = connected.map_err(|error| refusal(&error, options))?;
    let mut driver = Driver { connection, watches: shared.watches.clone() };
    let initial = async {
        let facts = Arc::new(handshake(&client, options, &*shared.clock).await?);
        let found = match shared.looks {
            true => schema::find(&client, options.schema()).await?,
            false => Found::Missing,
        };
        let live = Live {
            client,
            facts,
            listens: AtomicBool::new(false),
            has_store: AtomicBool::new(found == Found::Ours(Functions::Current)),
            making: tokio::sync::Mutex::default(),
            prepared: PreparedStatements::default(),
            end: CancellationToken::new(),
        };
        if shared.listen.load(Ordering::SeqCst) {
            listen(&live, shared).await;
        }
        Ok(live)
    };
    tokio::select! {
        biased;
        opened = initial => Ok((Arc::new(opened?), driver)),
        why = &mut driver => {
            let why = why.map_or_else(|| "closed".to_owned(), |error| error.to_string());
            Err(unavailable(format!("the server went away: {why}"), Certainty::NotApplied))
        }
    }
}

/// Limits a piece of work to the connect timeout.
async fn within<T>(
    shared: &Shared,
    work: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    let limit = shared.options.connect_timeout();
    let end = shared.clock.now().after(limit);
    tokio::select! {
        biased;
        done = work => done,
        () = shared.clock.sleep_until(end) => {
            let message = format!("{}: no answer within {limit:?}", shared.options.address());
            Err(unavailable(message, Certainty::NotApplied))
        }
    }
}

/// Writes, reads, and hands notifications on; it is ready when the connection is over.
struct Driver {
    connection: Connection<Box<dyn Stream>, NoTlsStream>,
    watches: Arc<Watches>,
}

impl Future for Driver {
    type Output = Option<tokio_postgres::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match ready!(self.connection.poll_message(context)) {
                Some(Ok(AsyncMessage::Notification(reply))) => {
                    self.watches.deliver(reply.payload().as_bytes());
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Some(error)),
                None => return Poll::Ready(None),
            }
        }
    }
}
