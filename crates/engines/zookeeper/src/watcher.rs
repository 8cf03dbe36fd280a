//! Wake-ups: who holds hears when its node changes, who waits when what stands before it goes.
//!
//! - W1: what is told is never a grant: whoever is told asks.
//! - W2: a connection that breaks is told at once, as something to check; the watches go on over
//!   the next one, and hear what went by meanwhile.
//! - W3: the own node is watched a moment later: most that wait, and most that hold, are done by
//!   then.

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

use crate::error::Trouble;
use crate::held::Held;
use crate::store::Store;
use crate::wire::Wire;
use holdline_net::workplace::Workplace;

/// How long to wait before a watch is tried again that got no answer.
const PAUSE: Duration = Duration::from_millis(200);
/// When an own node is watched: what ends it is rare, and nothing of it is missed.
const LATER: Duration = Duration::from_millis(50);

/// What comes of one watch.
type Event = BoxFuture<'static, WatchedEvent>;

/// The hints of one watch. Dropping it ends what listens for it.
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
        executor: &Workplace,
        name: &LockName,
        id: LeaseId,
    ) -> Hints {
        let stream = Watches::open(&self.watches, id);
        let (listening, mut dropped) = oneshot::channel();
        match self.held.find(name, id) {
            Some(held) => {
                let mut ear = Ear { store: self.clone(), name: name.clone(), id, held };
                executor.spawn(async move {
                    tokio::select! {
                        // Never sent, only dropped.
                        _ = &mut dropped => {}
                        () = ear.listen() => {}
                    }
                });
            }
            // There is nothing to watch.
            None => {
                self.watches.tell(id, Hint::CheckLease);
            }
        }
        Box::pin(WatchOf { stream, _listening: listening })
    }
}

/// What listens for one lease id.
struct Ear {
    store: Arc<Store>,
    name: LockName,
    id: LeaseId,
    held: Held,
}

impl Ear {
    fn tell(&self, hint: Hint) {
        self.store.watches.tell(self.id, hint);
    }

    /// Listens until the session is over.
    async fn listen(&mut self) {
        let session = self.held.session.clone();
        let changed = self.held.changed.clone();
        let (mut own, mut before): (Option<Event>, Option<Event>) = (None, None);
        let (mut wants_own, mut wants_before) = (false, true);
        let mut later = Box::pin(tokio::time::sleep(LATER));
        let mut is_later = false;
        loop {
            let Ok(wire) = session.wire() else { break };
            let mut state = wire.next_state();
            match self.arm(&wire, &mut own, &mut wants_own, &mut before, &mut wants_before).await {
                Ok(()) => {}
                Err(Trouble::SessionGone) => break,
                Err(trouble) => {
                    tracing::debug!(error = %trouble.into_error(), "no watch");
                    // The next try is a request like this one: not at once.
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            }
            // As long as nothing but watches use it, the session can be closed.
            drop(wire);
            tokio::select! {
                () = session.ended.notified() => break,
                () = changed.notified() => (before, wants_before) = (None, true),
                () = &mut later, if !is_later => (is_later, wants_own) = (true, true),
                state = &mut state => match state {
                    SessionState::Disconnected => self.tell(Hint::CheckLease),
                    state if state.is_terminated() => break,
                    _ => {}
                },
                event = some(&mut own) => {
                    self.tell(Hint::CheckLease);
                    (own, wants_own) = (None, event.event_type != EventType::NodeDeleted);
                }
                event = some(&mut before) => {
                    if event.event_type != EventType::NodeDataChanged {
                        self.tell(Hint::LookAgain);
                    }
                    (before, wants_before) = (None, event.event_type != EventType::NodeDeleted);
                }
            }
        }
        self.tell(Hint::CheckLease);
    }

    /// Opens the watches that are wanted. What is so already is told.
    async fn arm(
        &mut self,
        wire: &Wire,
        own: &mut Option<Event>,
        wants_own: &mut bool,
        before: &mut Option<Event>,
        wants_before: &mut bool,
    ) -> Result<(), Trouble> {
        if let Some(held) = self.store.held.find(&self.name, self.id) {
            self.held = held;
        }
        if *wants_before && before.is_none() {
            *before = self.arm_before(wire).await?;
            *wants_before = false;
        }
        if *wants_own && own.is_none() {
            let path = self.store.path(&self.name, &self.held);
            let found = match path {
                Some(path) => wire.watch_data(&path).await?,
                None => None,
            };
            match found {
                Some((stat, watcher)) => {
                    if stat.version != self.held.version {
                        self.tell(Hint::CheckLease);
                    }
                    *own = Some(Box::pin(watcher.changed()));
                }
                None => self.tell(Hint::CheckLease),
            }
            *wants_own = false;
        }
        Ok(())
    }

    /// Watches what stands before; of several, whether any of them goes.
    async fn arm_before(&self, wire: &Wire) -> Result<Option<Event>, Trouble> {
        if self.held.token.is_some() {
            return Ok(None);
        }
        let layout = &self.store.layout;
        match self.held.blockers.as_slice() {
            [] => {}
            [one] => {
                if let Some((_, watcher)) = wire.watch_data(&layout.child(&self.name, one)).await? {
                    return Ok(Some(Box::pin(watcher.changed())));
                }
            }
            many => {
                let found = wire.watch_children(&layout.queue(&self.name)).await?;
                if let Some((children, watcher)) = found {
                    if !many.iter().all(|child| children.contains(child)) {
                        self.tell(Hint::LookAgain);
                    }
                    return Ok(Some(Box::pin(watcher.changed())));
                }
            }
        }
        self.tell(Hint::LookAgain);
        Ok(None)
    }
}

async fn some(event: &mut Option<Event>) -> WatchedEvent {
    match event {
        Some(event) => event.await,
        None => std::future::pending().await,
    }
}
