//! The contract between the library and an engine.
//!
//! Object-safe, without default bodies: a layer that forgets to forward one does
//! not compile. Why these methods, and how each maps onto each store, is in
//! `docs/decisions/0001-engine-contract.md`.
//!
//! Rules for engines:
//! - G1: a reply to `try_acquire` is about the lease id of the request, never about another.
//! - G2: only the lease id that was granted renews or releases.
//! - G3: if a future is dropped, its request may still be applied; the caller gives the id up.
//! - G4: a watch reports everything that has happened to its lease id since the last reply about
//!   it, also what happened before the watch was opened. A contender learns of the hand-off after
//!   `Queued`; a holder learns of a revoke, polite or forced, after `Granted` or `Renewed`. The
//!   engine keeps such hints ([`crate::hints`]) or reads the id's state when the watch opens.
//! - G5: data under a name that is not ours is reported as `Foreign` and never overwritten.
//! - G6: an engine sends a request again by itself in two cases only. The store has certainly not
//!   applied it, such as after a redirect or a rollback. Or it may be applied twice without a
//!   difference: a read, a keepalive, or the undo of a request that was given up.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::audit::{AuditPage, AuditRecord, AuditRequest};
use crate::capabilities::Capabilities;
use crate::contract::{
    AcquireReply, AcquireRequest, Hint, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest,
};
use crate::counting::{CountingCommand, CountingReply};
use crate::error::LockError;
use crate::latch::{LatchCommand, LatchReply};
use crate::lease_id::LeaseId;
use crate::name::LockName;
use crate::operation::{Operation, OperationReply};
use crate::snapshot::{ListPage, ListRequest, Snapshot};

/// A store of locks, as the library sees it.
///
/// # Cancel safety
/// Dropping any future loses the reply only: the request may still be applied.
pub trait Engine: Send + Sync + 'static {
    /// Returns what this engine can do. Never does I/O.
    fn capabilities(&self) -> &Capabilities;

    /// Requests a name: for the first time, or again under the same lease id.
    fn try_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Answer<'a, Result<AcquireReply, LockError>>;

    /// Renews held leases, and keeps queue entries alive. Returns one reply for each renewal, in
    /// order.
    fn renew<'a>(
        &'a self,
        batch: &'a [RenewRequest],
    ) -> Answer<'a, Vec<Result<RenewReply, LockError>>>;

    /// Ends the grant or the queue entry of a lease id.
    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> Answer<'a, Result<ReleaseReply, LockError>>;

    /// Returns the state of a name.
    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>>;

    /// Lists the names that are held or waited for, page by page.
    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>>;

    /// Subscribes to the hints for this lease id, among them its grant by a hand-off. They may come
    /// too often or late, or be lost with a connection; the queue heartbeat compensates. Dropping
    /// the stream ends the watch.
    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints;

    /// Carries out an operator's command.
    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Answer<'a, Result<OperationReply, LockError>>;

    /// Sends a command to the count-down latch of this name, which is no lock.
    fn latch<'a>(
        &'a self,
        name: &'a LockName,
        command: LatchCommand,
    ) -> Answer<'a, Result<LatchReply, LockError>>;

    /// Sends a command to the counting semaphore of this name, which is no lock and has no leases.
    fn counting<'a>(
        &'a self,
        name: &'a LockName,
        command: CountingCommand,
    ) -> Answer<'a, Result<CountingReply, LockError>>;

    /// Appends a record to the audit trail of the store. `at_ms` is the time of the caller, in Unix
    /// milliseconds; a store that has a clock uses its own.
    fn append_audit<'a>(
        &'a self,
        at_ms: u64,
        record: &'a AuditRecord,
    ) -> Answer<'a, Result<(), LockError>>;

    /// Returns a page of the audit trail of the store.
    fn read_audit<'a>(
        &'a self,
        request: &'a AuditRequest,
    ) -> Answer<'a, Result<AuditPage, LockError>>;

    /// Waits, for a short time at most, until requests that earlier commands left unsent have
    /// reached every node that answers. Ready at once for engines that leave none. Called before a
    /// process ends.
    fn flush(&self) -> Answer<'_, ()>;
}

/// The hints of one watch.
pub type Hints = Pin<Box<dyn Stream<Item = Hint> + Send + 'static>>;

/// The reply of an engine: ready at once, or a future. An engine that needs no I/O replies without
/// an allocation and without waking a task.
pub enum Answer<'a, T> {
    /// The reply is ready; `None` once it was taken.
    Ready(Option<T>),
    /// The reply is pending.
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> Answer<'a, T> {
    /// Wraps a reply that is ready.
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
