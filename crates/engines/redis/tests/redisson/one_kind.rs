//! The engine as the suite needs it. Redisson's mutexes, read/write locks and semaphores are
//! different objects, and so are its latches; the suite uses one name for all. So each run has one
//! kind of lock, and latches and counting semaphores have names of their own.

use holdline_core::{
    AcquireReply, AcquireRequest, Answer, AuditPage, AuditRecord, AuditRequest, Capabilities,
    CountingCommand, CountingReply, Engine, Hints, LatchCommand, LatchReply, LeaseId, ListPage,
    ListRequest, LockError, LockKind, LockName, Operation, OperationReply, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};
use holdline_redis::RedissonEngine;

/// Which objects the names of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    ReadWrite,
    Semaphore,
}

/// An engine whose names are of one kind.
pub(crate) struct OneKind {
    engine: RedissonEngine,
    kind: Kind,
    capabilities: Capabilities,
}

impl OneKind {
    pub(crate) fn new(engine: RedissonEngine, kind: Kind) -> OneKind {
        let capabilities = Capabilities {
            fair_on_request: kind == Kind::Mutex,
            shared: kind == Kind::ReadWrite,
            permits: kind == Kind::Semaphore,
            ..Engine::capabilities(&engine).clone()
        };
        OneKind { engine, kind, capabilities }
    }
}

impl Engine for OneKind {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Answer<'a, Result<AcquireReply, LockError>> {
        if let Err(error) = request.check(&self.capabilities) {
            return Answer::ready(Err(error.with_name(&request.name)));
        }
        let kind = match self.kind {
            Kind::ReadWrite => LockKind::ReadWrite,
            Kind::Mutex | Kind::Semaphore => LockKind::Mutex,
        };
        let request = AcquireRequest { kind, ..request.clone() };
        Answer::later(async move { self.engine.try_acquire(&request).await })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [RenewRequest],
    ) -> Answer<'a, Vec<Result<RenewReply, LockError>>> {
        Engine::renew(&self.engine, batch)
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> Answer<'a, Result<ReleaseReply, LockError>> {
        Engine::release(&self.engine, request)
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>> {
        Engine::inspect(&self.engine, name)
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>> {
        Engine::list(&self.engine, request)
    }

    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        Engine::watch(&self.engine, name, lease_id)
    }

    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Answer<'a, Result<OperationReply, LockError>> {
        Engine::operate(&self.engine, operation)
    }

    fn latch<'a>(
        &'a self,
        name: &'a LockName,
        command: LatchCommand,
    ) -> Answer<'a, Result<LatchReply, LockError>> {
        let name = other(name);
        Answer::later(async move { Engine::latch(&self.engine, &name, command).await })
    }

    fn counting<'a>(
        &'a self,
        name: &'a LockName,
        command: CountingCommand,
    ) -> Answer<'a, Result<CountingReply, LockError>> {
        let name = other(name);
        Answer::later(async move { Engine::counting(&self.engine, &name, command).await })
    }

    fn append_audit<'a>(
        &'a self,
        at_ms: u64,
        record: &'a AuditRecord,
    ) -> Answer<'a, Result<(), LockError>> {
        Engine::append_audit(&self.engine, at_ms, record)
    }

    fn read_audit<'a>(
        &'a self,
        request: &'a AuditRequest,
    ) -> Answer<'a, Result<AuditPage, LockError>> {
        Engine::read_audit(&self.engine, request)
    }

    fn flush(&self) -> Answer<'_, ()> {
        Engine::flush(&self.engine)
    }
}

/// Returns the name of a latch or semaphore beside the lock of this name.
fn other(name: &LockName) -> LockName {
    LockName::new(format!("{name}-other")).expect("a good name")
}
