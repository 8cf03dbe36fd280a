//! Notifications: one open response for each lease id that is watched, opened again when it breaks
//! off. Several watches of one lease id share it.
//!
//! A hint that is lost with a connection costs one heartbeat. A connection that has gone silent is
//! noticed, because the server writes a byte every few seconds.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::hints::{WatchStream, Watches};
use holdline_core::{Hint, Hints, LeaseId, LockError, LockName};
use holdline_net::executor::Executor;
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::client::Client;
use crate::keys::WATCH;
use crate::pool::Connection;
use crate::wire::{Watch, hint_of};

/// After how long without a byte the connection counts as broken.
const SILENCE: Duration = Duration::from_secs(15);
/// The pause before a watch is opened again: that of the heartbeat, which replaces it meanwhile.
const PAUSE: Duration = QUEUE_HEARTBEAT;

/// The watches of one engine.
#[derive(Default)]
pub(crate) struct Watcher {
    watches: Arc<Watches>,
    followers: Arc<Mutex<Followers>>,
}

type Followers = HashMap<LeaseId, Weak<Follower>>;

/// Stands for the task that follows one lease id; the last watch that drops it ends the task.
struct Follower {
    lease_id: LeaseId,
    followers: Arc<Mutex<Followers>>,
    /// The task ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut followers = lock(&self.followers);
        // A new one may stand there already.
        if followers.get(&self.lease_id).is_some_and(|follower| follower.strong_count() == 0) {
            followers.remove(&self.lease_id);
        }
    }
}

impl Watcher {
    pub(crate) fn open(
        &self,
        executor: &Executor,
        client: &Arc<Client>,
        name: &LockName,
        lease_id: LeaseId,
    ) -> Hints {
        // First of all: hints that the task receives from now on are for this watch too.
        let hints = Watches::open(&self.watches, lease_id);
        let mut followers = lock(&self.followers);
        let known = followers.get(&lease_id).and_then(Weak::upgrade);
        let follower = known.unwrap_or_else(|| {
            let (stop, stopped) = oneshot::channel::<()>();
            let client = client.clone();
            let watches = self.watches.clone();
            let request = Watch { name: name.clone(), lease_id };
            executor.spawn(async move {
                tokio::select! {
                    biased;
                    _ = stopped => {}
                    () = follow(&client, &request, &watches) => {}
                }
            });
            let followers = self.followers.clone();
            Arc::new(Follower { lease_id, followers, _stop: stop })
        });
        followers.insert(lease_id, Arc::downgrade(&follower));
        drop(followers);
        Box::pin(Watching { hints, _follower: follower })
    }
}

fn lock(followers: &Mutex<Followers>) -> MutexGuard<'_, Followers> {
    followers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes on hints for as long as somebody watches.
async fn follow(client: &Client, request: &Watch, watches: &Watches) {
    loop {
        match client.open(WATCH, request).await {
            Ok((connection, body)) => pass_on(connection, body, request.lease_id, watches).await,
            Err(error) => log(&error),
        }
        sleep(PAUSE).await;
    }
}

fn log(error: &LockError) {
    tracing::debug!(%error, "a watch could not be opened: the heartbeat replaces it");
}

/// Passes on what one response says, until it breaks off.
async fn pass_on(
    mut connection: Connection,
    mut body: Incoming,
    lease_id: LeaseId,
    watches: &Watches,
) {
    while let Ok(Some(frame)) = timeout(SILENCE, connection.frame(&mut body)).await {
        let bytes = frame.data_ref().map(AsRef::as_ref).unwrap_or_default();
        for hint in bytes.iter().copied().filter_map(hint_of) {
            watches.notify(lease_id, hint);
        }
    }
}

struct Watching {
    hints: WatchStream,
    _follower: Arc<Follower>,
}

impl Stream for Watching {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        Pin::new(&mut self.hints).poll_next(context)
    }
}
