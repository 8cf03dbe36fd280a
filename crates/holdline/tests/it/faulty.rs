//! A memory engine behind a bad line: it loses requests and replies, is slow, hangs, refuses.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdline::admin::{ListPage, ListRequest, Operation, OperationReply, Snapshot};
use holdline::clock::{Clock, ManualClock};
use holdline::engine::{Capabilities, Engine};
use holdline::memory::MemoryEngine;
use holdline::{Certainty, ErrorKind, LeaseId, LockError, LockName};
use holdline_core::{
    AcquireReply, AcquireRequest, Answer, AuditPage, AuditRecord, AuditRequest, CountingCommand,
    CountingReply, Hint, Hints, LatchCommand, LatchReply, Purpose, ReleaseReply, ReleaseRequest,
    RenewReply, RenewRequest,
};
use parking_lot::Mutex;

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Call {
    Acquire,
    /// An acquire under an id that the store has answered.
    Again,
    Renew,
    Beat,
    Release,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is carried out and answered.
    Good,
    /// It never reaches the store; nothing is answered.
    RequestLost,
    /// It is carried out; nothing is answered.
    ReplyLost,
    /// It never reaches the store, and an error says that nobody knows.
    RequestUnknown,
    /// It is carried out, and an error says that nobody knows.
    ReplyUnknown,
    /// An error says that nothing was done.
    Unavailable,
    /// An error says that nothing was done, for want of a quorum.
    NoQuorum,
    /// Nothing is answered, and the request reaches the store when the test delivers it.
    Late,
    /// The store refuses.
    Refused,
    /// The store answers what nobody can read.
    Protocol,
    /// Something that is not ours stands under the name.
    Foreign,
}

impl Fate {
    pub(crate) const BAD: [Fate; 5] = [
        Fate::RequestLost,
        Fate::ReplyLost,
        Fate::RequestUnknown,
        Fate::ReplyUnknown,
        Fate::Unavailable,
    ];

    fn is_carried_out(self) -> bool {
        matches!(self, Fate::Good | Fate::ReplyLost | Fate::ReplyUnknown)
    }
}

type Judge = dyn Fn(Call, usize) -> Fate + Send + Sync;

/// What happened, and what is to happen.
pub(crate) struct Line {
    judge: Mutex<Box<Judge>>,
    pub(crate) calls: Mutex<Vec<Call>>,
    pub(crate) batches: Mutex<Vec<usize>>,
    pub(crate) acquired: Mutex<Vec<(LeaseId, bool)>>,
    pub(crate) deaf: AtomicBool,
    /// Each watch says once, for nothing, that a lease should be looked at.
    pub(crate) nagging: AtomicBool,
    /// Each watch ends at once.
    pub(crate) ending: AtomicBool,
    /// Inspecting a name is never answered.
    pub(crate) mute: AtomicBool,
    /// What the next looks at names are answered with.
    pub(crate) looks: Mutex<VecDeque<Result<Snapshot, LockError>>>,
    /// What the next operations are refused with.
    pub(crate) refused_operations: Mutex<VecDeque<LockError>>,
    /// What every renewal is answered with, if anything.
    pub(crate) nonsense: Mutex<Option<RenewReply>>,
    late: Mutex<Vec<AcquireRequest>>,
    /// How long a message is on its way, each way.
    delay: Mutex<Option<(ManualClock, Duration)>>,
}

impl Line {
    /// Says from now on what becomes of the n-th call of a kind, counted from the start.
    pub(crate) fn judge(&self, judge: impl Fn(Call, usize) -> Fate + Send + Sync + 'static) {
        *self.judge.lock() = Box::new(judge);
    }

    pub(crate) fn count(&self, call: Call) -> usize {
        self.calls.lock().iter().filter(|seen| **seen == call).count()
    }

    async fn travel(&self) {
        tokio::task::yield_now().await;
        let delay = self.delay.lock().clone();
        if let Some((clock, delay)) = delay {
            clock.sleep_until(clock.now().after(delay)).await;
        }
    }

    fn fate(&self, call: Call) -> Fate {
        let number = self.count(call);
        self.calls.lock().push(call);
        (self.judge.lock())(call, number)
    }
}

/// The memory engine at the other end of the line. Clones share both.
#[derive(Clone)]
pub(crate) struct Faulty {
    inner: Arc<Mutex<MemoryEngine>>,
    pub(crate) line: Arc<Line>,
    capabilities: Capabilities,
}

impl Faulty {
    pub(crate) fn new(inner: MemoryEngine) -> Faulty {
        let line = Line {
            judge: Mutex::new(Box::new(|_, _| Fate::Good)),
            calls: Mutex::default(),
            batches: Mutex::default(),
            acquired: Mutex::default(),
            deaf: AtomicBool::new(false),
            nagging: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            mute: AtomicBool::new(false),
            looks: Mutex::default(),
            refused_operations: Mutex::default(),
            nonsense: Mutex::new(None),
            late: Mutex::default(),
            delay: Mutex::new(None),
        };
        let capabilities = inner.capabilities().clone();
        Faulty { inner: Arc::new(Mutex::new(inner)), line: Arc::new(line), capabilities }
    }

    fn inner(&self) -> MemoryEngine {
        self.inner.lock().clone()
    }

    fn operation<'a, T: Send + Unpin>(
        &'a self,
        ask: impl FnOnce(&MemoryEngine) -> Result<T, LockError> + Send + 'a,
    ) -> Answer<'a, Result<T, LockError>> {
        let refused = self.line.refused_operations.lock().pop_front();
        Answer::later(async move {
            self.line.travel().await;
            let reply = match refused {
                Some(error) => Err(error),
                None => ask(&self.inner()),
            };
            self.line.travel().await;
            reply
        })
    }

    /// The requests that are late arrive now. Returns what the store says to them.
    pub(crate) fn deliver(&self) -> Vec<Result<AcquireReply, LockError>> {
        let late = std::mem::take(&mut *self.line.late.lock());
        late.iter().map(|request| now(self.inner().try_acquire(request))).collect()
    }

    /// Each message is on its way for so long.
    pub(crate) fn slow(&self, clock: ManualClock, delay: Duration) {
        *self.line.delay.lock() = Some((clock, delay));
    }

    /// The store forgets everything and goes on with another table.
    pub(crate) fn flush(&self, fresh: MemoryEngine) {
        *self.inner.lock() = fresh;
    }

    pub(crate) fn with_capabilities(mut self, change: impl FnOnce(&mut Capabilities)) -> Faulty {
        change(&mut self.capabilities);
        self
    }
}

fn fails(certainty: Certainty) -> LockError {
    LockError::new("faulty", ErrorKind::Unavailable { message: "bad line".into() }, certainty)
}

/// Carries a call over the line: the store acts at the second poll, the reply comes at the third.
fn carry<'a, T: Send + 'a>(
    line: &'a Line,
    fate: Fate,
    act: impl FnOnce() -> Result<T, LockError> + Send + 'a,
) -> Answer<'a, Result<T, LockError>> {
    Answer::later(async move {
        line.travel().await;
        let reply = if fate.is_carried_out() { Some(act()) } else { None };
        line.travel().await;
        match fate {
            Fate::Good => match reply {
                Some(reply) => reply,
                None => Err(fails(Certainty::NotApplied)),
            },
            Fate::RequestLost | Fate::ReplyLost | Fate::Late => std::future::pending().await,
            Fate::RequestUnknown | Fate::ReplyUnknown => Err(fails(Certainty::Unknown)),
            Fate::Unavailable => Err(fails(Certainty::NotApplied)),
            Fate::NoQuorum => {
                let kind = ErrorKind::NoQuorum { nodes: vec!["it elects".into()] };
                Err(LockError::new("faulty", kind, Certainty::NotApplied))
            }
            Fate::Refused => {
                let kind = ErrorKind::Refused { message: "read-only".into() };
                Err(LockError::new("faulty", kind, Certainty::NotApplied))
            }
            Fate::Protocol => {
                let kind = ErrorKind::Protocol { message: "gibberish".into() };
                Err(LockError::new("faulty", kind, Certainty::Unknown))
            }
            Fate::Foreign => {
                let kind = ErrorKind::Foreign { found: "a list".into() };
                Err(LockError::new("faulty", kind, Certainty::NotApplied))
            }
        }
    })
}

pub(crate) fn now<T: Unpin>(answer: Answer<'_, T>) -> T {
    match answer {
        Answer::Ready(Some(value)) => value,
        _ => panic!("memory answers at once"),
    }
}

impl Engine for Faulty {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Answer<'a, Result<AcquireReply, LockError>> {
        self.line.acquired.lock().push((request.lease_id, request.known));
        let fate = self.line.fate(if request.known { Call::Again } else { Call::Acquire });
        if fate == Fate::Late {
            self.line.late.lock().push(request.clone());
        }
        carry(&self.line, fate, move || now(self.inner().try_acquire(request)))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [RenewRequest],
    ) -> Answer<'a, Vec<Result<RenewReply, LockError>>> {
        let beats = batch.iter().all(|line| line.purpose == Purpose::Wait);
        let fate = self.line.fate(if beats { Call::Beat } else { Call::Renew });
        self.line.batches.lock().push(batch.len());
        let reply = carry(&self.line, fate, move || Ok(now(self.inner().renew(batch))));
        let count = batch.len();
        Answer::later(async move {
            match reply.await {
                Ok(replies) => match &*self.line.nonsense.lock() {
                    Some(nonsense) => vec![Ok(nonsense.clone()); count],
                    None => replies,
                },
                Err(error) => vec![Err(error); count],
            }
        })
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> Answer<'a, Result<ReleaseReply, LockError>> {
        let fate = self.line.fate(Call::Release);
        carry(&self.line, fate, move || now(self.inner().release(request)))
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>> {
        if self.line.mute.load(Ordering::Relaxed) {
            return Answer::later(std::future::pending());
        }
        if let Some(look) = self.line.looks.lock().pop_front() {
            return Answer::ready(look);
        }
        Answer::ready(now(self.inner().inspect(name)))
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>> {
        Answer::ready(now(self.inner().list(request)))
    }

    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        if self.line.deaf.load(Ordering::Relaxed) {
            return Box::pin(futures_util::stream::pending());
        }
        if self.line.ending.load(Ordering::Relaxed) {
            return Box::pin(futures_util::stream::empty());
        }
        let hints = self.inner().watch(name, lease_id);
        if self.line.nagging.load(Ordering::Relaxed) {
            let nag = futures_util::stream::iter([Hint::CheckLease]);
            return Box::pin(futures_util::StreamExt::chain(nag, hints));
        }
        hints
    }

    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Answer<'a, Result<OperationReply, LockError>> {
        self.operation(move |engine| now(engine.operate(operation)))
    }

    fn latch<'a>(
        &'a self,
        name: &'a LockName,
        command: LatchCommand,
    ) -> Answer<'a, Result<LatchReply, LockError>> {
        self.operation(move |engine| now(engine.latch(name, command)))
    }

    fn counting<'a>(
        &'a self,
        name: &'a LockName,
        command: CountingCommand,
    ) -> Answer<'a, Result<CountingReply, LockError>> {
        self.operation(move |engine| now(engine.counting(name, command)))
    }

    fn append_audit<'a>(
        &'a self,
        at_ms: u64,
        record: &'a AuditRecord,
    ) -> Answer<'a, Result<(), LockError>> {
        self.operation(move |engine| now(engine.append_audit(at_ms, record)))
    }

    fn read_audit<'a>(
        &'a self,
        request: &'a AuditRequest,
    ) -> Answer<'a, Result<AuditPage, LockError>> {
        self.operation(move |engine| now(engine.read_audit(request)))
    }

    fn flush(&self) -> Answer<'_, ()> {
        Answer::ready(())
    }
}
