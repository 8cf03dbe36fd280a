//! The lock table as an engine, with a bug planted into it if wanted: the suite's own reference.
//!
//! Without a bug it must pass the suite; with one it must be told apart, or the suite is blind.
//! Bugs take effect only where the feature `planted` of `holdline-core` is on, as in this
//! crate's tests.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use holdline_core::table::{Command, LockState, Planted, Reply, WakeUp};
use holdline_core::{
    AcquireReply, AcquireRequest, Answer, Capabilities, Clock, Engine, GrantState, Hint, Hints,
    LeaseId, ListPage, ListRequest, LockError, LockName, Operation, OperationReply, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

/// The table behind a mutex. Clones share their names.
#[derive(Clone)]
pub struct TableEngine(Arc<Shared>);

struct Shared {
    /// What the engine says, and what the table is told.
    capabilities: Capabilities,
    profile: Capabilities,
    clock: Arc<dyn Clock>,
    planted: Option<Planted>,
    deaf: bool,
    store: Mutex<Store>,
}

#[derive(Default)]
struct Store {
    names: BTreeMap<LockName, LockState>,
    counter: u64,
    watches: HashMap<LeaseId, Watch>,
}

#[derive(Default)]
struct Watch {
    hints: Vec<Hint>,
    waker: Option<Waker>,
}

/// Everything that the table can do, with a queue short enough that the suite can fill it.
pub fn capabilities() -> Capabilities {
    let mut capabilities = Capabilities::reference("table", "the suite's own");
    capabilities.max_waiters = 100;
    capabilities
}

impl TableEngine {
    /// Makes an engine with no names.
    pub fn new(clock: Arc<dyn Clock>, planted: Option<Planted>) -> TableEngine {
        TableEngine::make(clock, planted, false, capabilities(), capabilities())
    }

    /// Makes an engine that can do no more than `profile`, and says so.
    pub fn lean(clock: Arc<dyn Clock>, profile: Capabilities) -> TableEngine {
        TableEngine::make(clock, None, false, profile.clone(), profile)
    }

    /// Makes an engine that can do everything and says that it is `profile`.
    pub fn modest(clock: Arc<dyn Clock>, profile: Capabilities) -> TableEngine {
        TableEngine::make(clock, None, false, profile, capabilities())
    }

    /// Makes an engine whose watches never say anything: a bug that answers alone do not show.
    pub fn deaf(clock: Arc<dyn Clock>) -> TableEngine {
        TableEngine::make(clock, None, true, capabilities(), capabilities())
    }

    fn make(
        clock: Arc<dyn Clock>,
        planted: Option<Planted>,
        deaf: bool,
        capabilities: Capabilities,
        profile: Capabilities,
    ) -> TableEngine {
        let store = Mutex::default();
        TableEngine(Arc::new(Shared { capabilities, profile, clock, planted, deaf, store }))
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // A case that panics elsewhere leaves no half-done step here.
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, name: &LockName, command: &Command) -> Reply {
        let now = self.0.clock.now();
        let mut store = self.store();
        let Store { names, counter, watches } = &mut *store;
        let state = names.entry(name.clone()).or_default();
        let profile = &self.0.profile;
        let (reply, wake_ups) = state.apply_planted(counter, profile, command, now, self.0.planted);
        for WakeUp { lease_id, hint, .. } in wake_ups {
            if let Some(watch) = watches.get_mut(&lease_id) {
                watch.tell(hint);
            }
        }
        reply
    }
}

impl Watch {
    fn tell(&mut self, hint: Hint) {
        if !self.hints.contains(&hint) {
            self.hints.push(hint);
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Engine for TableEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    fn try_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Answer<'a, Result<AcquireReply, LockError>> {
        match self.apply(&request.name, &Command::Acquire(request.clone())) {
            Reply::Acquire(answer) => Answer::ready(answer),
            other => unreachable!("an acquire was answered by {other:?}"),
        }
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [RenewRequest],
    ) -> Answer<'a, Vec<Result<RenewReply, LockError>>> {
        let renew =
            |line: &RenewRequest| match self.apply(&line.name, &Command::Renew(line.clone())) {
                Reply::Renew(answer) => answer,
                other => unreachable!("a renewal was answered by {other:?}"),
            };
        Answer::ready(batch.iter().map(renew).collect())
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> Answer<'a, Result<ReleaseReply, LockError>> {
        match self.apply(&request.name, &Command::Release(request.clone())) {
            Reply::Release(answer) => Answer::ready(Ok(answer)),
            other => unreachable!("a release was answered by {other:?}"),
        }
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>> {
        match self.apply(name, &Command::Inspect(name.clone())) {
            Reply::Inspect(snapshot) => Answer::ready(Ok(snapshot)),
            other => unreachable!("a look was answered by {other:?}"),
        }
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>> {
        if !self.0.profile.list {
            return Answer::ready(Err(self.0.profile.lacks("list")));
        }
        let names: Vec<LockName> = self.store().names.keys().cloned().collect();
        let mut page = ListPage::default();
        for name in names {
            let wanted = name.as_str().starts_with(&request.prefix)
                && request.after.as_ref().is_none_or(|after| name > *after);
            if !wanted {
                continue;
            }
            let Reply::Inspect(snapshot) = self.apply(&name, &Command::Inspect(name.clone()))
            else {
                unreachable!("a look is answered by a snapshot")
            };
            if !snapshot.is_held() && snapshot.queue_length == 0 && snapshot.freeze.is_none() {
                continue;
            }
            if page.names.len() == request.limit.clamp(1, 1_000) {
                page.after = page.names.last().map(|last| last.name.clone());
                break;
            }
            page.names.push(snapshot);
        }
        Answer::ready(Ok(page))
    }

    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        self.store().watches.entry(lease_id).or_default();
        if let Reply::Inspect(snapshot) = self.apply(name, &Command::Inspect(name.clone())) {
            let holder =
                snapshot.holders.iter().find(|holder| holder.summary.lease_id == lease_id.short());
            let pending = match holder.map(|holder| &holder.state) {
                Some(GrantState::Handed) => Some(Hint::LookAgain),
                Some(GrantState::Revoked(_)) => Some(Hint::CheckLease),
                Some(GrantState::Held) | None => None,
            };
            let mut store = self.store();
            if let (Some(hint), Some(watch)) = (pending, store.watches.get_mut(&lease_id)) {
                watch.tell(hint);
            }
        }
        Box::pin(WatchStream { engine: self.clone(), lease_id })
    }

    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Answer<'a, Result<OperationReply, LockError>> {
        let everywhere = match LockName::new("every name") {
            Ok(name) => name,
            Err(error) => unreachable!("a good name: {error}"),
        };
        let name = match operation {
            Operation::Revoke { name, .. }
            | Operation::Freeze { name, .. }
            | Operation::Unfreeze { name } => name,
            Operation::RaiseFence { .. } => &everywhere,
        };
        match self.apply(name, &Command::Operate(operation.clone())) {
            Reply::Operate(answer) => Answer::ready(answer),
            other => unreachable!("an operation was answered by {other:?}"),
        }
    }
}

/// The hints of one lease id. Two watches of one id share them, which the suite never needs.
struct WatchStream {
    engine: TableEngine,
    lease_id: LeaseId,
}

impl Stream for WatchStream {
    type Item = Hint;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        let mut store = self.engine.store();
        let Some(watch) = store.watches.get_mut(&self.lease_id) else { return Poll::Ready(None) };
        match watch.hints.pop() {
            Some(hint) if !self.engine.0.deaf => Poll::Ready(Some(hint)),
            _ => {
                watch.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.engine.store().watches.remove(&self.lease_id);
    }
}
