//! Watches: a holder is notified when its node changes, a waiter when a node before it is deleted.
//!
//! - W1: a hint is never a grant: its receiver asks the store.
//! - W2: if the connection breaks, a hint to check the lease is sent at once. The watches continue
//!   over the next connection, and report what has changed meanwhile.
//! - W3: the own node is watched a little later: most waits and leases are over by then.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::future::BoxFuture;
use holdline_core::hints::{WatchStream, Watches};
use holdline_core::{Hint, Hints, LeaseId, LockName};
use tokio::sync::oneshot;
use zookeeper_client::{EventType, SessionState, WatchedEvent};

use crate::connection::Connection;
use crate::error::RequestError;
use crate::held::Held;
use crate::store::Store;
use holdline_net::executor::Executor;

/// The pause before a watch that was not answered is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// The delay before the own node is watched. Changes of it are rare, and none is missed.
const LATER: Duration = Duration::from_millis(50);

/// The event of one watch.
type Event = BoxFuture<'static, WatchedEvent>;

/// The hints of one watch. Dropping it ends its task.
struct WatchOf {
    stream: WatchStream,
    _listening: oneshot::Sender<()>,
}

impl Stream for WatchOf {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        Pin::new(&mut self.stream).poll_next(context)
    }
}

impl Store {
    pub(crate) fn watch(
        self: &Arc<Self>,
        executor: &Executor,
        name: &LockName,
        id: LeaseId,
    ) -> Hints {
        let stream = Watches::open(&self.watches, id);
        let (listening, mut dropped) = oneshot::channel();
        match self.held.find(name, id) {
            Some(held) => {
                let mut task = WatchTask { store: self.clone(), name: name.clone(), id, held };
                executor.spawn(async move {
                    tokio::select! {
                        // Nothing is ever sent: it completes when the stream is dropped.
                        _ = &mut dropped => {}
                        () = task.listen() => {}
                    }
                });
            }
            // There is nothing to watch.
            None => {
                self.watches.notify(id, Hint::CheckLease);
            }
        }
        Box::pin(WatchOf { stream, _listening: listening })
    }
}

/// The task that watches the nodes for one lease id.
struct WatchTask {
    store: Arc<Store>,
    name: LockName,
    id: LeaseId,
    held: Held,
}

impl WatchTask {
    fn notify(&self, hint: Hint) {
        self.store.watches.notify(self.id, hint);
    }

    /// Watches until the session ends.
    async fn listen(&mut self) {
        let session = self.held.session.clone();
        let changed = self.held.changed.clone();
        let (mut own, mut before): (Option<Event>, Option<Event>) = (None, None);
        let (mut wants_own, mut wants_before) = (false, true);
        let mut later = Box::pin(tokio::time::sleep(LATER));
        let mut is_later = false;
        loop {
            let Ok(connection) = session.connection() else { break };
            let mut state = connection.next_state();
            match self
                .arm(&connection, &mut own, &mut wants_own, &mut before, &mut wants_before)
                .await
            {
                Ok(()) => {}
                Err(RequestError::SessionGone) => break,
                Err(failure) => {
                    tracing::debug!(error = %failure.into_error(), "a watch could not be opened");
                    // The next try would fail in the same way if it were sent at once.
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            }
            // A watch does not keep the session open.
            drop(connection);
            tokio::select! {
                () = session.ended.notified() => break,
                () = changed.notified() => (before, wants_before) = (None, true),
                () = &mut later, if !is_later => (is_later, wants_own) = (true, true),
                state = &mut state => match state {
                    SessionState::Disconnected => self.notify(Hint::CheckLease),
                    state if state.is_terminated() => break,
                    _ => {}
                },
                event = some(&mut own) => {
                    self.notify(Hint::CheckLease);
                    (own, wants_own) = (None, event.event_type != EventType::NodeDeleted);
                }
                event = some(&mut before) => {
                    if event.event_type != EventType::NodeDataChanged {
                        self.notify(Hint::LookAgain);
                    }
                    (before, wants_before) = (None, event.event_type != EventType::NodeDeleted);
                }
            }
        }
        self.notify(Hint::CheckLease);
    }

    /// Opens the wanted watches. What has changed before is reported as a hint.
    async fn arm(
        &mut self,
        connection: &Connection,
        own: &mut Option<Event>,
        wants_own: &mut bool,
        before: &mut Option<Event>,
        wants_before: &mut bool,
    ) -> Result<(), RequestError> {
        if let Some(held) = self.store.held.find(&self.name, self.id) {
            self.held = held;
        }
        if *wants_before && before.is_none() {
            *before = self.arm_before(connection).await?;
            *wants_before = false;
        }
        if *wants_own && own.is_none() {
            let path = self.store.path(&self.name, &self.held);
            let found = match path {
                Some(path) => connection.watch_data(&path).await?,
                None => None,
            };
            match found {
                Some((stat, watcher)) => {
                    if stat.version != self.held.version {
                        self.notify(Hint::CheckLease);
                    }
                    *own = Some(Box::pin(watcher.changed()));
                }
                None => self.notify(Hint::CheckLease),
            }
            *wants_own = false;
        }
        Ok(())
    }

    /// Watches the node before; if there are several, watches whether any is deleted.
    async fn arm_before(&self, connection: &Connection) -> Result<Option<Event>, RequestError> {
        if self.held.token.is_some() {
            return Ok(None);
        }
        let layout = &self.store.layout;
        match self.held.blockers.as_slice() {
            [] => {}
            [one] => {
                if let Some((_, watcher)) =
                    connection.watch_data(&layout.child(&self.name, one)).await?
                {
                    return Ok(Some(Box::pin(watcher.changed())));
                }
            }
            many => {
                let found = connection.watch_children(&layout.queue(&self.name)).await?;
                if let Some((children, watcher)) = found {
                    if !many.iter().all(|child| children.contains(child)) {
                        self.notify(Hint::LookAgain);
                    }
                    return Ok(Some(Box::pin(watcher.changed())));
                }
            }
        }
        self.notify(Hint::LookAgain);
        Ok(None)
    }
}

async fn some(event: &mut Option<Event>) -> WatchedEvent {
    match event {
        Some(event) => event.await,
        None => std::future::pending().await,
    }
}
