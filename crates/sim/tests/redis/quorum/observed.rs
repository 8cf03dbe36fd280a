//! The engine with an observer that records each token, and optionally with a planted bug between
//! engine and library.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use holdline_core::{
    AcquireReply, AcquireRequest, Answer, AuditPage, AuditRecord, AuditRequest, Capabilities,
    Certainty, Clock, CountingCommand, CountingReply, Ending, Engine, ErrorKind, Hints,
    LatchCommand, LatchReply, LeaseId, ListPage, ListRequest, LockError, LockName, Operation,
    OperationReply, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

use super::bugs::Bug;
use super::recorder::SharedRecorder;

/// An engine under observation.
pub(crate) struct ObservedEngine {
    pub(crate) engine: Arc<dyn Engine>,
    /// Other connections of the same process, where a bug needs them.
    pub(crate) other: Option<Arc<dyn Engine>>,
    pub(crate) bug: Option<Bug>,
    pub(crate) recorder: SharedRecorder,
    pub(crate) clock: Arc<dyn Clock>,
}

impl ObservedEngine {
    /// With the planted bug, one server of another set stops every client.
    fn is_stopped(&self) -> Result<(), LockError> {
        match self.bug == Some(Bug::OneStopsAll) && self.recorder.lock().odd {
            true => {
                let message = "these servers are not one set".to_owned();
                let kind = ErrorKind::Refused { message };
                Err(LockError::new("watched", kind, Certainty::NotApplied))
            }
            false => Ok(()),
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        self.is_stopped()?;
        let floor = self.recorder.lock().floor(request.name.as_str());
        let mut reply = self.engine.try_acquire(request).await;
        if let (Some(other), Some(Bug::IdAskedAgainAfterUndo)) = (&self.other, self.bug)
            && !matches!(reply, Ok(AcquireReply::Granted { .. }))
        {
            let ending = Ending { for_good: false, hold: request.hold };
            let (name, lease_id) = (request.name.clone(), request.lease_id);
            let undo = ReleaseRequest { name, lease_id, ending };
            // The request is sent, and its answer is not awaited.
            let mut undone = self.engine.release(&undo);
            std::future::poll_fn(|context| {
                let _ = Pin::new(&mut undone).poll(context);
                Poll::Ready(())
            })
            .await;
            reply = other.try_acquire(request).await;
        }
        if let Ok(AcquireReply::Granted { token, .. }) = &reply
            && !request.known
        {
            let mut recorder = self.recorder.lock();
            recorder.granted(self.clock.now(), request.name.as_str(), token.get(), floor);
        }
        reply
    }
}

impl Engine for ObservedEngine {
    fn capabilities(&self) -> &Capabilities {
        self.engine.capabilities()
    }

    fn try_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Answer<'a, Result<AcquireReply, LockError>> {
        Answer::later(self.acquire(request))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [RenewRequest],
    ) -> Answer<'a, Vec<Result<RenewReply, LockError>>> {
        self.engine.renew(batch)
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> Answer<'a, Result<ReleaseReply, LockError>> {
        if let (Some(other), Some(Bug::UndoOnAnotherConnection)) = (&self.other, self.bug) {
            return Answer::later(async {
                // The tombstone is a second protection: without it the order of connections
                // decides.
                let ending = Ending { for_good: false, ..request.ending };
                other.release(&ReleaseRequest { ending, ..request.clone() }).await
            });
        }
        self.engine.release(request)
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>> {
        self.engine.inspect(name)
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>> {
        self.engine.list(request)
    }

    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        self.engine.watch(name, lease_id)
    }

    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Answer<'a, Result<OperationReply, LockError>> {
        self.engine.operate(operation)
    }

    fn latch<'a>(
        &'a self,
        name: &'a LockName,
        command: LatchCommand,
    ) -> Answer<'a, Result<LatchReply, LockError>> {
        self.engine.latch(name, command)
    }

    fn counting<'a>(
        &'a self,
        name: &'a LockName,
        command: CountingCommand,
    ) -> Answer<'a, Result<CountingReply, LockError>> {
        self.engine.counting(name, command)
    }

    fn append_audit<'a>(
        &'a self,
        at_ms: u64,
        record: &'a AuditRecord,
    ) -> Answer<'a, Result<(), LockError>> {
        self.engine.append_audit(at_ms, record)
    }

    fn read_audit<'a>(
        &'a self,
        request: &'a AuditRequest,
    ) -> Answer<'a, Result<AuditPage, LockError>> {
        self.engine.read_audit(request)
    }

    fn flush(&self) -> Answer<'_, ()> {
        self.engine.flush()
    }
}
