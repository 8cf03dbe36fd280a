//! Keeps one healthy connection: connects, waits until it fails, and reconnects.
//!
//! - Invariant S1: no command is resent. A failed one returns an error with its certainty.
//! - Invariant S2: pauses between attempts grow, with full jitter. If the server refuses us,
//!   attempts are rare, and commands fail at once with the reason. A connection that breaks soon
//!   after it was made counts as a failed attempt.
//! - Invariant S3: after each reconnect, and whenever messages may have been missed, every
//!   subscription yields `Resubscribed`. With RESP3 a connection is subscribed before it is used.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Backoff, Moment};

use super::connection::Connection;
use super::health::Health;
use super::router::{RouterChanges, RouterState};
use super::{LinkParts, connect, maintenance, resp2_subscriber};

/// Pauses between attempts while the server cannot be reached.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Pauses while the server refuses us: an operator must act first.
const FIRST_REFUSED_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Starts the supervisor.
pub(super) fn start(parts: &Arc<LinkParts>) {
    let work = Box::pin(supervise(parts.clone()));
    let owner = parts.clone();
    parts.runtime.spawn_watched(work, move || lost_runtime(&owner));
}

/// Moves the supervisor to another runtime, if its own dropped it early.
fn lost_runtime(parts: &Arc<LinkParts>) {
    if parts.router.is_closed() {
        return;
    }
    if parts.runtime.move_to_thread() {
        tracing::debug!("the runtime of a link ended: it moves to a thread");
        start(parts);
    } else {
        parts.close();
    }
}

/// Runs all tasks of a link but those of its connections; ends with the link.
async fn supervise(parts: Arc<LinkParts>) {
    let resp2_subscriber = maintain_resp2_subscriber(&parts);
    let work = keep_connected(&parts);
    let follow_master = follow_master(&parts);
    tokio::select! {
        biased;
        () = work => {}
        () = resp2_subscriber => {}
        () = follow_master => {}
    }
}

/// Closes the connection to a server that sentinels no longer name. Never ends.
async fn follow_master(parts: &LinkParts) {
    let Some(source) = &parts.discovery.master_source else { return std::future::pending().await };
    let mut master = source.master();
    let close = async {
        while master.changed().await.is_ok() {
            parts.close_others(master.borrow_and_update().as_ref());
        }
    };
    tokio::select! {
        biased;
        () = close => {}
        () = source.run(), if parts.discovery.runs_master_source => {}
    }
}

async fn keep_connected(parts: &Arc<LinkParts>) {
    let mut unreachable = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut refusing = Backoff::new(FIRST_REFUSED_PAUSE, LONGEST_REFUSED_PAUSE);
    // When the last connection was made.
    let mut connected_at: Option<Moment> = None;
    let mut previous: Option<Arc<Connection>> = None;
    loop {
        let found = parts.router.maintain();
        if let Some(gone) = previous.take_if(|connection| connection.health() == Health::Closed) {
            parts.subscriptions.lost(gone.id());
        }
        match found {
            RouterState::Closed => return,
            RouterState::Current(connection) => {
                refusing.reset();
                previous = Some(connection.clone());
                maintenance::maintain_connection(parts, &connection).await;
                continue;
            }
            RouterState::Nothing => {}
        }
        let now = parts.clock.now();
        match connected_at.take().map(|connected_at| connected_at.until(now)) {
            Some(lived) if lived < LONGEST_PAUSE => {
                let end = now.after(unreachable.next_pause(parts.random()));
                unless_changed(parts, parts.clock.sleep_until(end)).await;
                continue;
            }
            Some(_) => unreachable.reset(),
            None => {}
        }
        match unless_changed(parts, connect::connect(parts)).await {
            None => {}
            Some(Ok(())) => connected_at = Some(parts.clock.now()),
            Some(Err(error)) => {
                let refused = !error.is_transient();
                let backoff = if refused { &mut refusing } else { &mut unreachable };
                let pause = backoff.next_pause(parts.random());
                tracing::debug!(%error, ?pause, "no connection to the server");
                parts.router.record_failure(error);
                let end = parts.clock.now().after(pause);
                unless_changed(parts, parts.clock.sleep_until(end)).await;
            }
        }
    }
}

/// Runs `work` to its end, unless a connection recovers or the link is closed before.
async fn unless_changed<T>(parts: &LinkParts, work: impl Future<Output = T>) -> Option<T> {
    let changed = async {
        loop {
            parts.router.needs_supervisor().await;
            if !matches!(parts.router.maintain(), RouterState::Nothing) {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        () = changed => None,
        done = work => Some(done),
    }
}

/// Maintains the connection for subscriptions while the server is used with RESP2.
async fn maintain_resp2_subscriber(parts: &Arc<LinkParts>) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut router = parts.router.watch();
    loop {
        let resp2 = parts.router.facts().is_some_and(|facts| facts.resp == 2);
        if !resp2 || parts.subscriptions.is_empty() {
            tokio::select! {
                biased;
                () = router.changed() => {}
                () = parts.subscriptions.changed(), if resp2 => {}
            }
            continue;
        }
        let since = parts.clock.now();
        let known = parts.router.current();
        let error = resp2_subscriber::run(parts).await;
        if since.until(parts.clock.now()) > LONGEST_PAUSE {
            backoff.reset();
        }
        let pause = backoff.next_pause(parts.random());
        tracing::debug!(%error, ?pause, "the connection for subscriptions is restored");
        tokio::select! {
            biased;
            () = another_connection(parts, known, &mut router) => {}
            () = parts.clock.sleep_until(parts.clock.now().after(pause)) => {}
        }
    }
}

/// Waits for another connection than the known one: then the server is reachable, and subscribers
/// need not wait for the end of a pause.
async fn another_connection(parts: &LinkParts, known: Option<u64>, router: &mut RouterChanges<'_>) {
    while parts.router.current().is_none_or(|current| Some(current) == known) {
        router.changed().await;
    }
}
