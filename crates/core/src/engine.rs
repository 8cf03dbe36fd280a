//! The contract between the library and an engine.
//!
//! Nine methods, object-safe, without default bodies: a layer that forgets to forward one does
//! not compile. Why these nine, and how each maps onto each store, is in
//! `docs/decisions/0001-engine-contract.md`.
//!
//! Rules for engines:
//! - G1: a reply to `try_acquire` is about the lease id that was asked, never about another.
//! - G2: only the lease id that was granted renews or releases.
//! - G3: a dropped future may leave a request applied; the caller gives the id up.
//! - G4: a watch tells what has happened to its lease id since the last answer about it, also when
//!   that was before the watch was opened: to a contender after `Queued` the hand-off, to a holder
//!   after `Granted` or `Renewed` the revoke, polite or forced. The engine keeps such hints
//!   ([`crate::hints`]) or looks how the id stands when the watch opens.
//! - G5: what is not ours under a name is reported as `Foreign` and never overwritten.
//! - G6: an engine never repeats a request by itself.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::capabilities::Capabilities;
use crate::contract::{
    AcquireReply, AcquireRequest, Hint, Operation, OperationReply, ReleaseReply, ReleaseRequest,
    RenewReply, RenewRequest,
};
use crate::error::LockError;
use crate::lease_id::LeaseId;
use crate::name::LockName;
use crate::snapshot::{ListPage, ListRequest, Snapshot};

/// A store of locks, as the library sees it.
///
/// # Cancel safety
/// Dropping any future loses the reply only: the request may still be applied.
pub trait Engine: Send + Sync + 'static {
    /// Returns what this engine can do. Never does I/O.
    fn capabilities(&self) -> &Capabilities;

    /// Asks for a name once, or asks again, or claims.
    fn try_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Answer<'a, Result<AcquireReply, LockError>>;

    /// Renews held leases and queued entries alike; answers line by line, in the same order.
    fn renew<'a>(
        &'a self,
        batch: &'a [RenewRequest],
    ) -> Answer<'a, Vec<Result<RenewReply, LockError>>>;

    /// Ends whatever the lease id has.
    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> Answer<'a, Result<ReleaseReply, LockError>>;

    /// Shows how a name stands.
    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>>;

    /// Lists the names that are held or waited for, page by page.
    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>>;

    /// Hears what concerns this lease id. Hints may come too often, late, or be lost with a
    /// connection; the heartbeat makes up for it. Dropping the stream ends the watch.
    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints;

    /// Carries out an operator's command.
    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Answer<'a, Result<OperationReply, LockError>>;

    /// Waits until what earlier commands still owe the store is delivered to all of it that
    /// answers, for a short time at most. Ready at once where a command owes nothing once it is
    /// answered. Called before a process ends.
    fn flush(&self) -> Answer<'_, ()>;
}

/// The hints of one watch.
pub type Hints = Pin<Box<dyn Stream<Item = Hint> + Send + 'static>>;

/// The answer of an engine: there at once, or a future. An engine that needs no I/O answers
/// without an allocation and without waking a task.
pub enum Answer<'a, T> {
    /// The answer is there; `None` once it was taken.
    Ready(Option<T>),
    /// The answer is to come.
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> Answer<'a, T> {
    /// Wraps an answer that is there.
    pub fn ready(answer: T) -> Answer<'a, T> {
        Answer::Ready(Some(answer))
    }

    /// Wraps a future.
    pub fn later(future: impl Future<Output = T> + Send + 'a) -> Answer<'a, T> {
        Answer::Later(Box::pin(future))
    }
}

impl<T: Unpin> Future for Answer<'_, T> {
    type Output = T;

    /// # Panics
    /// When polled again after it was ready, as futures may.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            Answer::Ready(answer) => match answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => panic!("an answer was polled after it was taken"),
            },
            Answer::Later(future) => future.as_mut().poll(context),
        }
    }
}
