//! Watches: a holder is notified when its node changes, a waiter when a node before it is deleted.
//!
//! - W1: a hint is never a grant: its receiver asks the store.
//! - W2: if the connection breaks or is restored, a hint to check the lease is sent at once. The
//!   watches end with the connection. They are opened again on the next one, by reads that show
//!   what has changed meanwhile.
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

use crate::client::messages::Event;
use crate::client::{SessionState, Watch};
use crate::connection::Connection;
use crate::error::RequestError;
use crate::known_contenders::KnownContender;
use crate::store::Store;
use holdline_net::executor::Executor;

/// The pause before a watch that was not answered is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// The delay before the own node is watched. Changes of it are rare, and none is missed.
const LATER: Duration = Duration::from_millis(50);

/// The event of an open watch.
type NextEvent = BoxFuture<'static, Event>;

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
        match self.contenders.find(name, id) {
            Some(contender) => {
                let mut task = WatchTask { store: self.clone(), name: name.clone(), id, contender };
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
    contender: KnownContender,
}

impl WatchTask {
    fn notify(&self, hint: Hint) {
        self.store.watches.notify(self.id, hint);
    }

    /// Watches until the session ends.
    async fn listen(&mut self) {
        let session = self.contender.session.clone();
        let changed = self.contender.changed.clone();
        let mut own: Option<NextEvent> = None;
        let mut before: Option<NextEvent> = None;
        let mut wants_own = false;
        let mut wants_before = true;
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
                    SessionState::Ended => break,
                    // A connection that was restored at once is noticed only then.
                    SessionState::Disconnected | SessionState::Connected => {
                        self.notify(Hint::CheckLease);
                    }
                },
                event = some(&mut own) => {
                    self.notify(Hint::CheckLease);
                    (own, wants_own) = (None, event != Event::Deleted);
                }
                event = some(&mut before) => {
                    // After a break the read that opens the watch again shows what has changed.
                    if !matches!(event, Event::DataChanged | Event::Disconnected) {
                        self.notify(Hint::LookAgain);
                    }
                    (before, wants_before) = (None, event != Event::Deleted);
                }
            }
        }
        self.notify(Hint::CheckLease);
    }

    /// Opens the wanted watches. What has changed before is reported as a hint.
    async fn arm(
        &mut self,
        connection: &Connection,
        own: &mut Option<NextEvent>,
        wants_own: &mut bool,
        before: &mut Option<NextEvent>,
        wants_before: &mut bool,
    ) -> Result<(), RequestError> {
        if let Some(contender) = self.store.contenders.find(&self.name, self.id) {
            self.contender = contender;
        }
        if *wants_before && before.is_none() {
            *before = self.arm_before(connection).await?;
            *wants_before = false;
        }
        if *wants_own && own.is_none() {
            let path = self.store.path(&self.name, &self.contender);
            let found = match path {
                Some(path) => connection.watch_data(&path).await?,
                None => None,
            };
            match found {
                Some((stat, watch)) => {
                    if stat.version != self.contender.version {
                        self.notify(Hint::CheckLease);
                    }
                    *own = Some(next_event(watch));
                }
                None => self.notify(Hint::CheckLease),
            }
            *wants_own = false;
        }
        Ok(())
    }

    /// Watches the node before; if there are several, watches whether any is deleted.
    async fn arm_before(&self, connection: &Connection) -> Result<Option<NextEvent>, RequestError> {
        if self.contender.token.is_some() {
            return Ok(None);
        }
        let layout = &self.store.layout;
        match self.contender.blockers.as_slice() {
            [] => {}
            [one] => {
                if let Some((_, watch)) =
                    connection.watch_data(&layout.child(&self.name, one)).await?
                {
                    return Ok(Some(next_event(watch)));
                }
            }
            many => {
                let found = connection.watch_children(&layout.queue(&self.name)).await?;
                if let Some((children, watch)) = found {
                    if !many.iter().all(|child| children.contains(child)) {
                        self.notify(Hint::LookAgain);
                    }
                    return Ok(Some(next_event(watch)));
                }
            }
        }
        self.notify(Hint::LookAgain);
        Ok(None)
    }
}

fn next_event(watch: Watch) -> NextEvent {
    Box::pin(watch.event())
}

async fn some(event: &mut Option<NextEvent>) -> Event {
    match event {
        Some(event) => event.await,
        None => std::future::pending().await,
    }
}
