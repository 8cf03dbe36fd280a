//! Watches: a holder is notified when its node changes, a waiter when a node before it is deleted.
//!
//! - W1: a hint is never a grant: its receiver asks the store.
//! - W2: if the connection breaks or is restored, a hint to check the lease is sent at once. The
//!   watches end with the connection. They are opened again on the next one, by reads that show
//!   what has changed meanwhile.
//! - W3: the own node is watched a little later: most waits and leases are over by then.
//! - W4: a waiter watches the nodes that together exclude it, the nearest before its own: only if
//!   one of them is deleted can it be next. So a deletion wakes no more waiters than the semaphore
//!   has permits, and one for a lock. If they are too many, it watches the whole queue. Those of
//!   this process it watches a little later, too: their releases wake it without an event.
//! - W5: before the waiter is woken by an event, its grant is learned: without a read if it was
//!   next (H5 of `known_contenders`), otherwise by a read at once.

use std::collections::HashSet;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use holdline_core::hints::{WatchStream, Watches};
use holdline_core::{Hint, Hints, LeaseId, LockName, Mode};
use tokio::join;
use tokio::sync::oneshot;

use crate::client::messages::Event;
use crate::client::{SessionState, Watch};
use crate::connection::Connection;
use crate::error::RequestError;
use crate::known_contenders::{KnownContender, MOST_BLOCKERS};
use crate::store::Store;
use holdline_net::executor::Executor;

/// The pause before a watch that was not answered is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// The delay before nodes of this process are watched. Their changes by others are rare, and none
/// is missed.
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

/// The watch of a node before the own one.
struct BlockerWatch {
    child: String,
    event: NextEvent,
}

/// The watches that are open, and which are to be opened.
struct OpenWatches {
    own: Option<NextEvent>,
    wants_own: bool,
    /// Of the nodes that exclude the contender.
    blockers: Vec<BlockerWatch>,
    /// Of the whole queue, in place of them.
    queue: Option<NextEvent>,
    wants_blockers: bool,
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
        let is_behind_ours = self.contender.is_behind_ours();
        let mut open = OpenWatches { wants_blockers: !is_behind_ours, ..OpenWatches::default() };
        let mut later = Box::pin(tokio::time::sleep(LATER));
        let mut is_later = false;
        loop {
            let Ok(connection) = session.connection() else { break };
            let mut state = connection.next_state();
            match self.arm(&connection, &mut open).await {
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
                () = changed.notified() => {
                    if self.store.contenders.holds(&self.name, self.id) {
                        self.notify(Hint::LookAgain);
                    }
                    // Its blockers may be those of a read before this watch was opened.
                    open.queue = None;
                    open.wants_blockers = is_later || !self.present().is_behind_ours();
                }
                () = &mut later, if !is_later => {
                    is_later = true;
                    open.wants_own = true;
                    open.wants_blockers = true;
                }
                state = &mut state => match state {
                    SessionState::Ended => break,
                    // A connection that was restored at once is noticed only then.
                    SessionState::Disconnected | SessionState::Connected => {
                        self.notify(Hint::CheckLease);
                    }
                },
                event = some(&mut open.own) => {
                    if event == Event::Deleted {
                        self.store.contenders.update(&self.name, self.id, KnownContender::doubt);
                    }
                    self.notify(Hint::CheckLease);
                    open.own = None;
                    open.wants_own = event != Event::Deleted;
                }
                (child, event) = next_of_blockers(&mut open.blockers) => {
                    if event == Event::Deleted {
                        self.learn_grant(&child).await;
                    }
                    self.blocker_event(event, &mut open);
                }
                event = some(&mut open.queue) => {
                    open.queue = None;
                    self.blocker_event(event, &mut open);
                }
            }
        }
        self.notify(Hint::CheckLease);
    }

    /// Returns what is known about the contender now.
    fn present(&self) -> KnownContender {
        let known = self.store.contenders.find(&self.name, self.id);
        known.unwrap_or_else(|| self.contender.clone())
    }

    /// Learns whether the waiter holds the name, now that a node is deleted that excluded it (W5).
    /// If it cannot be learned, the waiter itself asks, and gets the error.
    async fn learn_grant(&self, child: &str) {
        let now = self.store.clock.now();
        if self.store.contenders.outlive(&self.name, self.id, child, now) {
            return;
        }
        // A permit that comes back often leaves too few.
        let contender = self.present();
        if matches!(contender.mode(), None | Some(Mode::Permits { .. })) {
            return;
        }
        let Ok(connection) = contender.session.connection() else { return };
        let proving = contender.session.prove_for_grant(&*self.store.clock, now);
        let (queue, _) = join!(self.store.queue(&connection, &self.name), proving);
        let Ok(queue) = queue else { return };
        let is_present =
            queue.find(self.id).map(|(entry, _)| &entry.child) == contender.child.as_ref();
        if is_present && self.present().has_node_of(&contender) {
            // It is reported when the waiter asks.
            let _ = self.store.learn(&self.name, self.id, &queue);
        }
    }

    /// Handles the event of a watch that was open for a node before the own one, or for the queue.
    fn blocker_event(&self, event: Event, open: &mut OpenWatches) {
        match event {
            // The read that opens the watches again shows what has changed.
            Event::Disconnected => {
                open.blockers.clear();
                open.queue = None;
                open.wants_blockers = true;
            }
            Event::DataChanged => open.wants_blockers = true,
            // The waiter asks. If it does not hold the name, it learns which nodes exclude it now.
            Event::Deleted => self.notify(Hint::LookAgain),
            Event::Created | Event::ChildrenChanged => {
                self.notify(Hint::LookAgain);
                open.wants_blockers = true;
            }
        }
    }

    /// Opens the wanted watches. What has changed before is reported as a hint.
    async fn arm(
        &mut self,
        connection: &Connection,
        open: &mut OpenWatches,
    ) -> Result<(), RequestError> {
        if let Some(contender) = self.store.contenders.find(&self.name, self.id) {
            self.contender = contender;
        }
        if open.wants_blockers {
            self.arm_blockers(connection, open).await?;
            open.wants_blockers = false;
        }
        if open.wants_own && open.own.is_none() {
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
                    open.own = Some(next_event(watch));
                }
                None => self.notify(Hint::CheckLease),
            }
            open.wants_own = false;
        }
        Ok(())
    }

    /// Watches the nodes that exclude the contender (W4). Those that are watched already stay so.
    async fn arm_blockers(
        &self,
        connection: &Connection,
        open: &mut OpenWatches,
    ) -> Result<(), RequestError> {
        let wanted = &self.contender.blockers;
        if self.contender.token.is_some() {
            open.blockers.clear();
            open.queue = None;
            return Ok(());
        }
        if wanted.len() > MOST_BLOCKERS {
            open.blockers.clear();
            return self.arm_queue(connection, open).await;
        }
        open.queue = None;
        open.blockers.retain(|watched| wanted.contains(&watched.child));
        let watched: HashSet<&String> = open.blockers.iter().map(|one| &one.child).collect();
        let missing: Vec<&String> =
            wanted.iter().filter(|child| !watched.contains(child)).collect();
        drop(watched);
        let opening = missing.into_iter().map(async |child| {
            let path = self.store.layout.child(&self.name, child);
            (child, connection.watch_data(&path).await)
        });
        let mut one_is_gone = wanted.is_empty();
        for (child, opened) in join_all(opening).await {
            match opened? {
                Some((_, watch)) => {
                    let event = next_event(watch);
                    open.blockers.push(BlockerWatch { child: child.clone(), event });
                }
                None => one_is_gone = true,
            }
        }
        if one_is_gone {
            self.notify(Hint::LookAgain);
        }
        Ok(())
    }

    /// Watches the whole queue.
    async fn arm_queue(
        &self,
        connection: &Connection,
        open: &mut OpenWatches,
    ) -> Result<(), RequestError> {
        let path = self.store.layout.queue(&self.name);
        let found = connection.watch_children(&path).await?;
        let children = match found {
            Some((children, watch)) => {
                open.queue = Some(next_event(watch));
                children
            }
            None => Vec::new(),
        };
        if !self.contender.blockers.iter().all(|child| children.contains(child)) {
            self.notify(Hint::LookAgain);
        }
        Ok(())
    }
}

impl Default for OpenWatches {
    fn default() -> OpenWatches {
        OpenWatches {
            own: None,
            wants_own: false,
            blockers: Vec::new(),
            queue: None,
            wants_blockers: true,
        }
    }
}

fn next_event(watch: Watch) -> NextEvent {
    Box::pin(watch.event())
}

async fn some(event: &mut Option<NextEvent>) -> Event {
    match event {
        Some(event) => event.await,
        None => pending().await,
    }
}

/// Waits for the next event of any of these watches, and removes that watch.
async fn next_of_blockers(watches: &mut Vec<BlockerWatch>) -> (String, Event) {
    poll_fn(|context| {
        for at in 0..watches.len() {
            if let Poll::Ready(event) = watches[at].event.poll_unpin(context) {
                return Poll::Ready((watches.swap_remove(at).child, event));
            }
        }
        Poll::Pending
    })
    .await
}
