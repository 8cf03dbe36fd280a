//! The engine as the suite needs it. Redisson's mutexes, read/write locks and semaphores are
//! different objects, and so are its latches; the suite uses one name for all. So each run has one
//! kind of lock, and latches and counting semaphores have names of their own.

use holdline_core::{
    AcquireReply, AcquireRequest, Answer, Capabilities, Engine, Hints, LeaseId, ListPage,
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
        let named = |name: &LockName| LockName::new(format!("{name}-other")).expect("a good name");
        let operation = match operation {
            Operation::Latch { name, command } => {
                Operation::Latch { name: named(name), command: *command }
            }
            Operation::Counting { name, command } => {
                Operation::Counting { name: named(name), command: *command }
            }
            _ => return Engine::operate(&self.engine, operation),
        };
        Answer::later(async move { Engine::operate(&self.engine, &operation).await })
    }

    fn flush(&self) -> Answer<'_, ()> {
        Engine::flush(&self.engine)
    }
}
