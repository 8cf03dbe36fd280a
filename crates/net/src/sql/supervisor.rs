//! Keeps one good connection: connects, drives, reconnects.
//!
//! - Invariant S1: pauses between attempts grow, with full jitter. If a server refuses the
//!   connection, attempts are rare, and commands meanwhile fail at once with the reason. A
//!   connection that breaks soon after it was made counts as a failed attempt.
//! - Invariant S2: after each lost connection all watches are notified to look again.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Backoff, Certainty, LockError};

use super::server::{Driver, LinkState, Live, SqlServer, unavailable};

/// Pauses between attempts while the server is unreachable.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Pauses while the server refuses the connection: somebody must change something first.
const FIRST_REFUSED: Duration = Duration::from_secs(1);
const LONGEST_REFUSED: Duration = Duration::from_secs(5);

/// Starts the supervisor.
pub(super) fn start<S: SqlServer>(shared: &Arc<LinkState<S>>) {
    let work = Box::pin(supervise(shared.clone()));
    let guarded = shared.clone();
    shared.runtime.spawn_watched(work, move || lost_runtime(&guarded));
}

/// Moves the supervisor to another runtime, if its own dropped it early.
fn lost_runtime<S: SqlServer>(shared: &Arc<LinkState<S>>) {
    if shared.closed.is_cancelled() {
        return;
    }
    shared.state.send_replace(None);
    if shared.runtime.move_to_thread() {
        tracing::debug!("the runtime of a connection ended: it moves to a thread");
        start(shared);
        S::restart(shared);
    } else {
        shared.closed.cancel();
    }
}

/// Ends with its link.
async fn supervise<S: SqlServer>(shared: Arc<LinkState<S>>) {
    let closed = shared.closed.clone();
    tokio::select! {
        biased;
        () = closed.cancelled() => {}
        () = keep_connected(&shared) => {}
    }
    shared.state.send_replace(None);
}

async fn keep_connected<S: SqlServer>(shared: &LinkState<S>) {
    let mut near = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut far = Backoff::new(FIRST_REFUSED, LONGEST_REFUSED);
    loop {
        let pause = match shared.within(connect(shared)).await {
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
                let refused = !error.is_unavailable();
                let backoff = if refused { &mut far } else { &mut near };
                let pause = backoff.next_pause(rand::random());
                tracing::debug!(%error, ?pause, "no connection to the server");
                shared.state.send_replace(Some(Err(error)));
                pause
            }
        };
        shared.clock.sleep_until(shared.clock.now().after(pause)).await;
    }
}

/// Serves a connection until its end.
async fn drive<S: SqlServer>(shared: &LinkState<S>, live: Arc<Live<S>>, mut driver: Driver) {
    let end = live.end.clone();
    shared.state.send_replace(Some(Ok(live)));
    tokio::select! {
        biased;
        () = end.cancelled() => tracing::debug!("a connection is given up"),
        why = &mut driver => {
            end.cancel();
            tracing::debug!(why, "a connection is lost");
        }
    }
    // From here on nothing more is sent on it, and outstanding statements are unknown.
    shared.state.send_replace(None);
    shared.watches.notify_all();
}

/// Makes a connection: connects, signs in, sets the session up.
async fn connect<S: SqlServer>(shared: &LinkState<S>) -> Result<(Arc<Live<S>>, Driver), LockError> {
    let (handle, mut driver) = S::open(shared).await?;
    let (session, has_store) = tokio::select! {
        biased;
        opened = S::set_up(shared, handle) => opened?,
        why = &mut driver => {
            let message = format!("the server went away: {why}");
            return Err(unavailable::<S>(message, Certainty::NotApplied));
        }
    };
    Ok((Arc::new(Live::new(session, has_store)), driver))
}
