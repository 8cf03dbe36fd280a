//! What a link needs of its server, and what its tasks share.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdline_core::hints::Watches;
use holdline_core::{Certainty, Clock, ErrorKind, LockError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;
use crate::runtime::RuntimeHandle;

/// Serves a connection until its end, and returns the reason.
pub type Driver = Pin<Box<dyn Future<Output = String> + Send>>;

/// A server with one store of locks, and how a connection to it is made.
pub trait SqlServer: Send + Sync + Sized + 'static {
    /// The engine's short name.
    const ENGINE: &'static str;
    /// What the locks are stored in, for messages.
    const STORE: &'static str;
    /// Sends statements on a new connection, while its driver runs.
    type Handle: Send;
    /// A connection that is set up.
    type Session: Send + Sync + 'static;

    /// Returns the server's address, for messages.
    fn address(&self) -> String;

    /// Returns the limits of the engine's options.
    fn limits(&self) -> &Limits;

    /// Connects and signs in.
    fn open(
        shared: &LinkState<Self>,
    ) -> impl Future<Output = Result<(Self::Handle, Driver), LockError>> + Send;

    /// Sets a new connection up, and returns whether the whole store is there.
    fn set_up(
        shared: &LinkState<Self>,
        handle: Self::Handle,
    ) -> impl Future<Output = Result<(Self::Session, bool), LockError>> + Send;

    /// Returns whether the connection is lost.
    fn is_closed(session: &Self::Session) -> bool;

    /// Asks whether the store is there, maybe as another version has made it.
    fn has_store(link: &ServerLink<Self>) -> impl Future<Output = Result<bool, LockError>> + Send;

    /// Creates what is missing of the store. If the future is dropped, the connection is closed.
    fn make_store(
        &self,
        session: &Self::Session,
    ) -> impl Future<Output = Result<(), LockError>> + Send;

    /// Starts the engine's other tasks again: the tasks of the link move to another runtime.
    fn restart(shared: &Arc<LinkState<Self>>);
}

/// A usable connection, until its end is signalled.
pub struct Live<S: SqlServer> {
    /// The connection.
    pub session: S::Session,
    /// Whether the whole store exists.
    pub(super) has_store: AtomicBool,
    /// Only one task at a time creates it.
    pub(super) making: tokio::sync::Mutex<()>,
    pub(super) end: CancellationToken,
}

/// The connection, or why the last attempt failed; `None` while one is made.
pub(super) type ConnectionState<S> = Option<Result<Arc<Live<S>>, LockError>>;

/// What the tasks share with the link.
pub struct LinkState<S: SqlServer> {
    /// The server, and what else the engine's tasks share.
    pub server: S,
    /// Measures all limits.
    pub clock: Arc<dyn Clock>,
    /// Where the tasks run.
    pub runtime: RuntimeHandle,
    /// The waiters and holders to notify.
    pub watches: Arc<Watches>,
    /// Cancelled when the link is dropped.
    pub closed: CancellationToken,
    pub(super) state: watch::Sender<ConnectionState<S>>,
    pub(super) took_writes: AtomicBool,
    pub(super) process: u32,
}

/// A server, and one logical connection to it. Clones share it; the last one ends it.
pub struct ServerLink<S: SqlServer>(pub(super) Arc<CloseOnDrop<S>>);

pub(super) struct CloseOnDrop<S: SqlServer>(pub(super) Arc<LinkState<S>>);

impl<S: SqlServer> Drop for CloseOnDrop<S> {
    fn drop(&mut self) {
        self.0.closed.cancel();
    }
}

impl<S: SqlServer> Clone for ServerLink<S> {
    fn clone(&self) -> ServerLink<S> {
        ServerLink(self.0.clone())
    }
}

pub(super) fn unavailable<S: SqlServer>(message: String, certainty: Certainty) -> LockError {
    LockError::new(S::ENGINE, ErrorKind::Unavailable { message }, certainty)
}

impl<S: SqlServer> LinkState<S> {
    /// Returns the connection that there is now.
    pub fn current(&self) -> Option<Arc<Live<S>>> {
        self.state.borrow().clone()?.ok()
    }

    /// Records that a connection has reached a server that takes writes.
    pub fn note_writes(&self) {
        self.took_writes.store(true, Ordering::SeqCst);
    }

    /// Returns whether a connection of this link has reached a server that took writes. A server
    /// that takes none after that is being switched over: the next connection may find writes
    /// again, so callers wait. Without it, the URL names the wrong server.
    pub fn took_writes(&self) -> bool {
        self.took_writes.load(Ordering::SeqCst)
    }

    /// Limits a piece of work to the connect timeout.
    ///
    /// # Errors
    /// Those of the work, or `Unavailable`.
    pub async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, LockError>>,
    ) -> Result<T, LockError> {
        let limit = self.server.limits().connect_timeout;
        let end = self.clock.now().after(limit);
        tokio::select! {
            biased;
            done = work => done,
            () = self.clock.sleep_until(end) => {
                let message = format!("{}: no answer within {limit:?}", self.server.address());
                Err(unavailable::<S>(message, Certainty::NotApplied))
            }
        }
    }
}

impl<S: SqlServer> Live<S> {
    /// A connection that is usable from now on.
    pub(super) fn new(session: S::Session, has_store: bool) -> Live<S> {
        Live {
            session,
            has_store: AtomicBool::new(has_store),
            making: tokio::sync::Mutex::default(),
            end: CancellationToken::new(),
        }
    }

    /// Gives the connection up: another one is opened.
    pub fn close(&self) {
        self.end.cancel();
    }

    pub(super) fn is_good(&self) -> bool {
        !S::is_closed(&self.session) && !self.end.is_cancelled()
    }
}
