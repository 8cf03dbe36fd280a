//! A layer over an engine that measures how long the store takes to answer.
//!
//! Invariant M1: it changes no answer, and forwards every method.

use std::array;
use std::sync::{Arc, OnceLock};

use ::metrics::{Histogram, histogram};
use holdline_core::{
    AcquireReply, AcquireRequest, Answer, AuditPage, AuditRecord, AuditRequest, Capabilities,
    Clock, CountingCommand, CountingReply, Engine, Hints, LatchCommand, LatchReply, LeaseId,
    ListPage, ListRequest, LockError, LockName, Operation, OperationReply, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

use super::names;

/// The requests that are measured.
const OPS: [&str; 6] = ["acquire", "renew", "release", "inspect", "list", "operate"];
const OUTCOMES: [&str; 2] = ["ok", "error"];

/// An engine, and how long it takes to answer.
pub(super) struct MeteredEngine {
    inner: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    /// By request and outcome.
    histograms: [[OnceLock<Histogram>; OUTCOMES.len()]; OPS.len()],
}

impl MeteredEngine {
    pub(super) fn new(inner: Arc<dyn Engine>, clock: Arc<dyn Clock>) -> MeteredEngine {
        let histograms = array::from_fn(|_| array::from_fn(|_| OnceLock::new()));
        MeteredEngine { inner, clock, histograms }
    }

    fn histogram(&self, op: usize, failed: bool) -> &Histogram {
        let outcome = usize::from(failed);
        self.histograms[op][outcome].get_or_init(|| {
            histogram!(
                names::STORE_OP_SECONDS,
                "engine" => self.inner.capabilities().engine,
                "op" => OPS[op],
                "outcome" => OUTCOMES[outcome],
            )
        })
    }

    /// Measures an answer that is to come; one that is there cost no request.
    fn measure<'a, T: Send + 'a>(
        &'a self,
        op: usize,
        answer: Answer<'a, T>,
        failed: fn(&T) -> bool,
    ) -> Answer<'a, T> {
        match answer {
            Answer::Ready(answer) => Answer::Ready(answer),
            Answer::Later(future) => Answer::later(async move {
                let sent = self.clock.now();
                let answer = future.await;
                let took = sent.until(self.clock.now());
                self.histogram(op, failed(&answer)).record(took);
                answer
            }),
        }
    }
}

impl Engine for MeteredEngine {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn try_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Answer<'a, Result<AcquireReply, LockError>> {
        self.measure(0, self.inner.try_acquire(request), Result::is_err)
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [RenewRequest],
    ) -> Answer<'a, Vec<Result<RenewReply, LockError>>> {
        self.measure(1, self.inner.renew(batch), |replies| replies.iter().any(Result::is_err))
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> Answer<'a, Result<ReleaseReply, LockError>> {
        self.measure(2, self.inner.release(request), Result::is_err)
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>> {
        self.measure(3, self.inner.inspect(name), Result::is_err)
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>> {
        self.measure(4, self.inner.list(request), Result::is_err)
    }

    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        self.inner.watch(name, lease_id)
    }

    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Answer<'a, Result<OperationReply, LockError>> {
        self.measure(5, self.inner.operate(operation), Result::is_err)
    }

    fn latch<'a>(
        &'a self,
        name: &'a LockName,
        command: LatchCommand,
    ) -> Answer<'a, Result<LatchReply, LockError>> {
        self.measure(5, self.inner.latch(name, command), Result::is_err)
    }

    fn counting<'a>(
        &'a self,
        name: &'a LockName,
        command: CountingCommand,
    ) -> Answer<'a, Result<CountingReply, LockError>> {
        self.measure(5, self.inner.counting(name, command), Result::is_err)
    }

    fn append_audit<'a>(
        &'a self,
        at_ms: u64,
        record: &'a AuditRecord,
    ) -> Answer<'a, Result<(), LockError>> {
        self.measure(5, self.inner.append_audit(at_ms, record), Result::is_err)
    }

    fn read_audit<'a>(
        &'a self,
        request: &'a AuditRequest,
    ) -> Answer<'a, Result<AuditPage, LockError>> {
        self.measure(5, self.inner.read_audit(request), Result::is_err)
    }

    fn flush(&self) -> Answer<'_, ()> {
        self.inner.flush()
    }
}
