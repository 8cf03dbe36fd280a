//! Keeps one good connection: connects, drives, reconnects.
//!
//! - Invariant S1: the client never sends a statement again, unless the server has rolled it back.
//! - Invariant S2: pauses between attempts grow, with full jitter. If a server refuses the
//!   connection, attempts are rare, and commands meanwhile fail at once with the reason. A
//!   connection that breaks soon after it was made counts as a failed attempt.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdline_core::{Backoff, Certainty, ErrorKind, LockError};
use tokio_util::sync::CancellationToken;

use super::{ConnectionState, Live, Shared};
use crate::connection::{self, Driver, handshake, open};
use crate::error::unavailable;
use crate::schema::{self, Found};

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
        if shared.listen.swap(false, Ordering::SeqCst) {
            super::inbox::start(shared);
        }
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
    shared.state.send_replace(ConnectionState::Live(live));
    tokio::select! {
        biased;
        () = end.cancelled() => tracing::debug!("a connection is given up"),
        why = driver.run() => {
            end.cancel();
            tracing::debug!(?why, "a connection is lost");
        }
    }
    // From here on nothing more is sent on it, and outstanding statements are unknown.
    shared.state.send_replace(ConnectionState::Making);
    shared.watches.notify_all();
}

/// Makes a connection: connects, signs in, sets the session up.
async fn connect(shared: &Arc<Shared>) -> Result<(Arc<Live>, Driver), LockError> {
    let options = &shared.options;
    let opened = open(options).await?;
    let (handle, mut driver) = connection::on(opened.stream);
    let initial = async {
        let facts = Arc::new(handshake(&handle, opened.number, options, &*shared.clock).await?);
        let found = match shared.looks {
            true => schema::find(&handle, &shared.names).await?,
            false => Found::Missing,
        };
        Ok(Live {
            handle: handle.clone(),
            facts,
            has_store: AtomicBool::new(found == Found::Ours),
            making: tokio::sync::Mutex::default(),
            prepared: super::fast::Prepared::default(),
            end: CancellationToken::new(),
        })
    };
    let opened = tokio::select! {
        biased;
        opened = initial => opened?,
        why = driver.run() => {
            let message = format!("the server went away: {why}");
            return Err(unavailable(message, Certainty::NotApplied));
        }
    };
    Ok((Arc::new(opened), driver))
}

/// Limits a piece of work to the connect timeout.
pub(super) async fn within<T>(
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
