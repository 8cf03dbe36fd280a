//! The lock table as an engine: the suite's own reference.
//!
//! With the rules of the table it must pass the suite. With the rules of a mutant, which breaks
//! one rule, it must fail, or the suite is blind.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdline_core::hints::Watches;
use holdline_core::table::{Command, LockState, MemoryStore, Reply, Table, WakeUp};
use holdline_core::{
    AcquireReply, AcquireRequest, Answer, AuditPage, AuditRecord, AuditRequest, Capabilities,
    Clock, CountingCommand, CountingReply, Engine, Hints, LatchCommand, LatchReply, LeaseId,
    ListPage, ListRequest, LockError, LockName, Moment, Operation, OperationReply, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

/// Carries out a command: [`LockState::apply`], or a mutant of it.
pub type Rules = Arc<
    dyn Fn(&mut LockState, &mut u64, &Capabilities, &Command, Moment) -> (Reply, Vec<WakeUp>)
        + Send
        + Sync,
>;

/// The table behind a mutex. Clones share their names.
#[derive(Clone)]
pub struct TableEngine(Arc<TableEngineParts>);

struct TableEngineParts {
    /// The capabilities that the engine states, and the table's profile.
    capabilities: Capabilities,
    profile: Capabilities,
    clock: Arc<dyn Clock>,
    rules: Rules,
    mute: bool,
    store: Mutex<Store>,
    watches: Arc<Watches>,
}

#[derive(Default)]
struct Store {
    names: BTreeMap<LockName, LockState>,
    counter: u64,
}

/// Everything that the table can do, with a queue short enough that the suite can fill it.
pub fn capabilities() -> Capabilities {
    let mut capabilities = Capabilities::reference("table", "the suite's own");
    capabilities.max_waiters = 100;
    capabilities
}

impl TableEngine {
    /// Makes an engine with no names, and with the rules of the table.
    pub fn new(clock: Arc<dyn Clock>) -> TableEngine {
        TableEngine::with_rules(clock, Arc::new(LockState::apply))
    }

    /// Makes an engine with no names.
    pub fn with_rules(clock: Arc<dyn Clock>, rules: Rules) -> TableEngine {
        TableEngine::make(clock, rules, false, capabilities(), capabilities())
    }

    /// Makes an engine with the capabilities `profile` only.
    pub fn limited(clock: Arc<dyn Clock>, profile: Capabilities) -> TableEngine {
        TableEngine::make(clock, Arc::new(LockState::apply), false, profile.clone(), profile)
    }

    /// Makes an engine that can do everything and states the capabilities `profile`.
    pub fn understated(clock: Arc<dyn Clock>, profile: Capabilities) -> TableEngine {
        TableEngine::make(clock, Arc::new(LockState::apply), false, profile, capabilities())
    }

    /// Makes an engine whose watches never say anything: a bug that answers alone do not show.
    pub fn mute(clock: Arc<dyn Clock>) -> TableEngine {
        TableEngine::make(clock, Arc::new(LockState::apply), true, capabilities(), capabilities())
    }

    fn make(
        clock: Arc<dyn Clock>,
        rules: Rules,
        mute: bool,
        capabilities: Capabilities,
        profile: Capabilities,
    ) -> TableEngine {
        let store = Mutex::default();
        let watches = Arc::default();
        let parts = TableEngineParts { capabilities, profile, clock, rules, mute, store, watches };
        TableEngine(Arc::new(parts))
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // A case that panics elsewhere leaves no half-done step here.
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, name: &LockName, command: &Command) -> Reply {
        let now = self.0.clock.now();
        let mut store = self.store();
        let Store { names, counter } = &mut *store;
        let state = names.entry(name.clone()).or_default();
        let profile = &self.0.profile;
        let (reply, wake_ups) = (self.0.rules)(state, counter, profile, command, now);
        drop(store);
        self.notify(wake_ups);
        reply
    }

    fn notify(&self, wake_ups: impl IntoIterator<Item = WakeUp>) {
        for wake_up in wake_ups.into_iter().filter(|_| !self.0.mute) {
            self.0.watches.notify(wake_up.lease_id, wake_up.hint);
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
        let renew = |renewal: &RenewRequest| {
            let reply = self.apply(&renewal.name, &Command::Renew(renewal.clone()));
            match reply {
                Reply::Renew(answer) => answer,
                other => unreachable!("a renewal was answered by {other:?}"),
            }
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
            if !request.covers(&name) {
                continue;
            }
            let Reply::Inspect(snapshot) = self.apply(&name, &Command::Inspect(name.clone()))
            else {
                unreachable!("a look is answered by a snapshot")
            };
            if !snapshot.is_used() {
                continue;
            }
            if page.names.len() == request.limit() {
                page.after = page.names.last().map(|last| last.name.clone());
                break;
            }
            page.names.push(snapshot);
        }
        Answer::ready(Ok(page))
    }

    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        let stream = Watches::open(&self.0.watches, lease_id);
        let now = self.0.clock.now();
        let mut store = self.store();
        let Store { names, counter } = &mut *store;
        let state = names.entry(name.clone()).or_default();
        let mut queue = MemoryStore { queue: &mut state.queue, counter };
        let mut table = Table::new(&mut state.head, &mut queue, &self.0.profile, now);
        let Ok(pending) = table.pending_hint(lease_id);
        let wake_ups = table.into_wake_ups();
        drop(store);
        self.notify(wake_ups);
        if let Some(hint) = pending.filter(|_| !self.0.mute) {
            self.0.watches.notify(lease_id, hint);
        }
        Box::pin(stream)
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
            | Operation::RevokeHolder { name, .. }
            | Operation::RemoveWaiter { name, .. }
            | Operation::Freeze { name, .. }
            | Operation::Unfreeze { name } => name,
            Operation::RaiseFence { .. } => &everywhere,
        };
        match self.apply(name, &Command::Operate(operation.clone())) {
            Reply::Operate(answer) => Answer::ready(answer),
            other => unreachable!("an operation was answered by {other:?}"),
        }
    }

    fn latch<'a>(
        &'a self,
        name: &'a LockName,
        _: LatchCommand,
    ) -> Answer<'a, Result<LatchReply, LockError>> {
        Answer::ready(Err(self.0.profile.lacks("latches").with_name(name)))
    }

    fn counting<'a>(
        &'a self,
        name: &'a LockName,
        _: CountingCommand,
    ) -> Answer<'a, Result<CountingReply, LockError>> {
        Answer::ready(Err(self.0.profile.lacks_counting().with_name(name)))
    }

    fn append_audit<'a>(&'a self, _: u64, _: &'a AuditRecord) -> Answer<'a, Result<(), LockError>> {
        Answer::ready(Err(self.0.profile.lacks_audit()))
    }

    fn read_audit<'a>(&'a self, _: &'a AuditRequest) -> Answer<'a, Result<AuditPage, LockError>> {
        Answer::ready(Err(self.0.profile.lacks_audit()))
    }

    fn flush(&self) -> Answer<'_, ()> {
        Answer::ready(())
    }
}
