//! Planted bugs, to prove that the simulation detects them. They are injected from outside: into
//! the scripts in transit, or between library and engine, so shipped code has none of them. One bug
//! that only the library can have is there behind its feature `_mutants`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use holdline_core::{
    AcquireReply, AcquireRequest, Answer, AuditPage, AuditRecord, AuditRequest, Capabilities,
    Certainty, CountingCommand, CountingReply, Ending, Engine, Hint, Hints, LatchCommand,
    LatchReply, LeaseId, ListPage, ListRequest, LockError, LockName, Operation, OperationReply,
    ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

use super::frame::Frame;

/// A known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    ReleaseWithoutCompare,
    ValidityFromReply,
    UndoOnAnotherConnection,
    IdAskedAgainAfterUndo,
    NoSettling,
    HandOffEndsEarly,
    ErrorReadAsBusy,
    NoRequestAfterResubscribe,
    TokenStandsStill,
    NewcomerPassesQueue,
    ReleaseForgetsQueue,
    OldDataGrantAtOnce,
}

impl Bug {
    pub(crate) const ALL: [Bug; 12] = [
        Bug::ReleaseWithoutCompare,
        Bug::ValidityFromReply,
        Bug::UndoOnAnotherConnection,
        Bug::IdAskedAgainAfterUndo,
        Bug::NoSettling,
        Bug::HandOffEndsEarly,
        Bug::ErrorReadAsBusy,
        Bug::NoRequestAfterResubscribe,
        Bug::TokenStandsStill,
        Bug::NewcomerPassesQueue,
        Bug::ReleaseForgetsQueue,
        Bug::OldDataGrantAtOnce,
    ];

    /// Returns the replacement in the scripts.
    fn change(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            // What remains of the comparison is whether a client waits.
            Bug::ReleaseWithoutCompare => {
                ("elseif value == ARGV[1] then", "elseif sub(value, WAITS, WAITS) == '-' then")
            }
            Bug::NoSettling => {
                ("local function settle(s)\n", "local function settle(s)\n  if s then return end\n")
            }
            Bug::HandOffEndsEarly => (
                "'PX', tonumber(sub(entry, HAND_OFF, HAND_OFF_END)))",
                "'PX', tonumber(sub(entry, HAND_OFF, HAND_OFF_END)) / 2)",
            ),
            Bug::TokenStandsStill => (
                "  if not last then return since end\n",
                "  if last then call('SET', COUNTER, last) return last end\n  if not last then \
                 return since end\n",
            ),
            Bug::NewcomerPassesQueue => {
                ("if not s.freeze and s.waiting == 0 and admits", "if not s.freeze and admits")
            }
            Bug::ReleaseForgetsQueue => (
                "hand_off(s)\nif queued then return 'withdrawn' end",
                "if queued then return 'withdrawn' end",
            ),
            Bug::OldDataGrantAtOnce => (
                "elseif stored_run == run and not promoted then",
                "elseif stored_run then\n  left = 0\nelseif stored_run == run and not promoted \
                 then",
            ),
            _ => return None,
        })
    }

    /// Returns the mutation of the scripts, if it is there.
    pub(crate) fn mutation(self) -> Option<Mutation> {
        self.change().map(|change| Mutation::new([change]))
    }
}

/// Changes of the scripts in transit to the servers.
pub(crate) struct Mutation {
    changes: Vec<(&'static str, &'static str)>,
    applied: Vec<bool>,
}

impl Mutation {
    /// Makes a mutation from replacements.
    pub(crate) fn new(changes: impl IntoIterator<Item = (&'static str, &'static str)>) -> Mutation {
        let changes: Vec<_> = changes.into_iter().collect();
        let applied = vec![false; changes.len()];
        Mutation { changes, applied }
    }

    /// Returns whether each replacement was applied to some script.
    pub(crate) fn is_applied(&self) -> bool {
        self.applied.iter().all(|applied| *applied)
    }

    /// Returns the changed script, if it is changed. EVALSHA passes, and the server does not know
    /// its digest.
    pub(crate) fn apply(&mut self, frame: &Frame) -> Option<Frame> {
        if &frame[0] != b"EVAL" {
            return None;
        }
        let mut text = String::from_utf8(frame[1].to_vec()).expect("Lua is text");
        for ((from, to), applied) in self.changes.iter().zip(&mut self.applied) {
            if text.contains(from) {
                *applied = true;
                text = text.replace(from, to);
            }
        }
        let words = frame.words().enumerate();
        let changed: Vec<&[u8]> =
            words.map(|(at, word)| if at == 1 { text.as_bytes() } else { word }).collect();
        Some(Frame::of(&changed))
    }
}

/// The engine with a bug between it and the library.
pub(crate) struct BuggyEngine {
    pub(crate) engine: Arc<dyn Engine>,
    /// Another connection of the same process.
    pub(crate) other: Arc<dyn Engine>,
    pub(crate) bug: Bug,
}

impl BuggyEngine {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let reply = self.engine.try_acquire(request).await;
        let unknown = reply.as_ref().is_err_and(|error| error.certainty() == Certainty::Unknown);
        match self.bug {
            Bug::ErrorReadAsBusy if unknown => {
                let next_look = Duration::from_millis(100);
                return Ok(AcquireReply::Busy { holder: None, at_most: None, next_look });
            }
            Bug::IdAskedAgainAfterUndo if unknown => {
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
                return self.other.try_acquire(request).await;
            }
            _ => {}
        }
        reply
    }
}

impl Engine for BuggyEngine {
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
        if self.bug != Bug::UndoOnAnotherConnection {
            return self.engine.release(request);
        }
        Answer::later(async {
            // The tombstone is a second protection: without it the order of connections decides.
            let ending = Ending { for_good: false, ..request.ending };
            self.other.release(&ReleaseRequest { ending, ..request.clone() }).await
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>> {
        self.engine.inspect(name)
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>> {
        self.engine.list(request)
    }

    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        let hints = self.engine.watch(name, lease_id);
        match self.bug {
            Bug::NoRequestAfterResubscribe => Box::pin(MessagesOnly(hints)),
            _ => hints,
        }
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

/// Drops the hints that make all clients look again.
struct MessagesOnly(Hints);

impl Stream for MessagesOnly {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        loop {
            match self.0.as_mut().poll_next(context) {
                Poll::Ready(Some(Hint::LookAgain)) => {}
                other => return other,
            }
            match self.0.as_mut().poll_next(context) {
                Poll::Ready(Some(Hint::CheckLease)) => {}
                _ => return Poll::Ready(Some(Hint::LookAgain)),
            }
        }
    }
}
