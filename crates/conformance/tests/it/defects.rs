//! Each rule of equality must detect its defect: an engine with a right table whose replies are
//! wrong in one respect. And it must detect nothing else: an engine that reports unknown outcomes
//! correctly is equal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdline_conformance::Bench;
use holdline_conformance::history::{Hunt, hunt};
use holdline_conformance::table_engine::TableEngine;
use holdline_core::{
    AcquireReply, AcquireRequest, Answer, AuditPage, AuditRecord, AuditRequest, Capabilities,
    Certainty, CountingCommand, CountingReply, Engine, ErrorKind, GrantState, Hints, LatchCommand,
    LatchReply, LeaseId, ListPage, ListRequest, LockError, LockName, Operation, OperationReply,
    ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

use crate::table::Table;

/// In which respect the replies are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// Nothing.
    None,
    /// A grant is reported to last longer than it does.
    Left,
    /// A grant is reported with nothing left.
    NothingLeft,
    /// A position is one too small.
    Position,
    /// A contender that holds nothing is reported as blocking.
    Holder,
    /// A refusal is said to have been applied.
    Certainty,
    /// One kind of error is reported as another.
    Kind,
    /// A failed renewal is reported as successful.
    Renewed,
    /// A release of nothing is reported as successful.
    Released,
    /// A revoked grant is shown as held.
    State,
    /// A holder is not shown.
    HolderMissing,
    /// The queue is shown in the wrong order.
    QueueOrder,
    /// A token is shown that was not given.
    ShownToken,
    /// No waiter is notified, and the next look is late.
    LooksLate,
    /// A successful revoke is reported as if nothing had matched.
    Revoke,
    /// The freeze is not shown.
    Freeze,
}

const LIES: [Defect; 15] = [
    Defect::Left,
    Defect::NothingLeft,
    Defect::Position,
    Defect::Holder,
    Defect::Certainty,
    Defect::Kind,
    Defect::Renewed,
    Defect::Released,
    Defect::State,
    Defect::HolderMissing,
    Defect::QueueOrder,
    Defect::ShownToken,
    Defect::LooksLate,
    Defect::Revoke,
    Defect::Freeze,
];

/// The table with one defect in its replies, or with lost requests and replies.
struct FaultyEngine {
    table: TableEngine,
    defect: Defect,
    /// One request of this many is lost, and then one reply; 0 for none.
    forgets: usize,
    asked: AtomicUsize,
}

enum Lost {
    Nothing,
    Request,
    Reply,
}

impl FaultyEngine {
    fn lost(&self) -> Lost {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        match self.forgets {
            0 => Lost::Nothing,
            of if asked % (2 * of) == of / 2 => Lost::Request,
            of if asked % (2 * of) == of + of / 2 => Lost::Reply,
            _ => Lost::Nothing,
        }
    }

    fn unknown(&self) -> LockError {
        let kind = ErrorKind::Unavailable { message: "the connection broke".into() };
        LockError::new("table", kind, Certainty::Unknown)
    }

    fn error(&self, error: LockError) -> LockError {
        match self.defect {
            Defect::Certainty => error.with_certainty(Certainty::Applied),
            Defect::Kind => {
                let kind = ErrorKind::Protocol { message: error.to_string() };
                LockError::new("table", kind, error.certainty())
            }
            _ => error,
        }
    }

    fn left(&self, left: Option<Duration>) -> Option<Duration> {
        match self.defect {
            Defect::Left => left.map(|left| left + Duration::from_millis(5)),
            Defect::NothingLeft => left.map(|_| Duration::ZERO),
            _ => left,
        }
    }

    fn position(&self, position: Option<usize>) -> Option<usize> {
        match self.defect {
            Defect::Position => position.map(|position| position.saturating_sub(1)),
            _ => position,
        }
    }

    fn look(&self, look: Duration) -> Duration {
        if self.defect == Defect::LooksLate { Duration::from_secs(3_600) } else { look }
    }

    fn acquired(&self, reply: AcquireReply, id: LeaseId) -> AcquireReply {
        match reply {
            AcquireReply::Granted { token, left, anchor } => {
                AcquireReply::Granted { token, left: self.left(left), anchor }
            }
            AcquireReply::Queued { position, mut holder, next_look } => {
                if let (Defect::Holder, Some(holder)) = (self.defect, &mut holder) {
                    holder.lease_id = LeaseId::from_bytes([id.as_bytes()[0] ^ 1; 16]).short();
                }
                let (position, next_look) = (self.position(position), self.look(next_look));
                AcquireReply::Queued { position, holder, next_look }
            }
            other => other,
        }
    }

    fn renewed(&self, reply: RenewReply) -> RenewReply {
        match reply {
            RenewReply::Renewed { left } => RenewReply::Renewed { left: self.left(left) },
            RenewReply::Queued { position, next_look } => RenewReply::Queued {
                position: self.position(position),
                next_look: self.look(next_look),
            },
            RenewReply::Unknown if self.defect == Defect::Renewed => {
                RenewReply::Renewed { left: Some(Duration::from_secs(1)) }
            }
            other => other,
        }
    }

    fn shown(&self, mut snapshot: Snapshot) -> Snapshot {
        match self.defect {
            Defect::State => {
                let held = |state: &mut GrantState| *state = GrantState::Held;
                snapshot.holders.iter_mut().for_each(|holder| held(&mut holder.state));
            }
            Defect::HolderMissing => snapshot.holders.truncate(1),
            Defect::QueueOrder => snapshot.queue.reverse(),
            Defect::ShownToken => {
                for holder in &mut snapshot.holders {
                    let token = holder.summary.token;
                    holder.summary.token = token.and_then(|token| token.next().ok());
                }
            }
            Defect::Freeze => snapshot.freeze = None,
            _ => {}
        }
        snapshot
    }
}

impl Engine for FaultyEngine {
    fn capabilities(&self) -> &Capabilities {
        self.table.capabilities()
    }

    fn try_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Answer<'a, Result<AcquireReply, LockError>> {
        Answer::later(async move {
            let lost = self.lost();
            if let Lost::Request = lost {
                return Err(self.unknown());
            }
            let answer = self.table.try_acquire(request).await;
            if let Lost::Reply = lost {
                return Err(self.unknown());
            }
            let answer = answer.map(|reply| self.acquired(reply, request.lease_id));
            answer.map_err(|error| self.error(error))
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [RenewRequest],
    ) -> Answer<'a, Vec<Result<RenewReply, LockError>>> {
        Answer::later(async move {
            let lost = self.lost();
            if let Lost::Request = lost {
                return batch.iter().map(|_| Err(self.unknown())).collect();
            }
            let answers = self.table.renew(batch).await.into_iter();
            answers
                .map(|answer| match lost {
                    Lost::Reply => Err(self.unknown()),
                    _ => answer.map(|one| self.renewed(one)).map_err(|error| self.error(error)),
                })
                .collect()
        })
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> Answer<'a, Result<ReleaseReply, LockError>> {
        Answer::later(async move {
            let lost = self.lost();
            if let Lost::Request = lost {
                return Err(self.unknown());
            }
            match (self.table.release(request).await, lost) {
                (_, Lost::Reply) => Err(self.unknown()),
                (Ok(ReleaseReply::NotHeld { .. }), _) if self.defect == Defect::Released => {
                    Ok(ReleaseReply::Released { held_for: None })
                }
                (answer, _) => answer,
            }
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> Answer<'a, Result<Snapshot, LockError>> {
        Answer::later(async move { Ok(self.shown(self.table.inspect(name).await?)) })
    }

    fn list<'a>(&'a self, request: &'a ListRequest) -> Answer<'a, Result<ListPage, LockError>> {
        self.table.list(request)
    }

    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        self.table.watch(name, lease_id)
    }

    fn operate<'a>(
        &'a self,
        operation: &'a Operation,
    ) -> Answer<'a, Result<OperationReply, LockError>> {
        Answer::later(async move {
            let answer = self.table.operate(operation).await;
            match (self.defect, operation) {
                (Defect::Revoke, Operation::Revoke { .. }) => {
                    answer.map(|_| OperationReply::NothingThere)
                }
                _ => answer,
            }
        })
    }

    fn latch<'a>(
        &'a self,
        name: &'a LockName,
        command: LatchCommand,
    ) -> Answer<'a, Result<LatchReply, LockError>> {
        self.table.latch(name, command)
    }

    fn counting<'a>(
        &'a self,
        name: &'a LockName,
        command: CountingCommand,
    ) -> Answer<'a, Result<CountingReply, LockError>> {
        self.table.counting(name, command)
    }

    fn append_audit<'a>(
        &'a self,
        at_ms: u64,
        record: &'a AuditRecord,
    ) -> Answer<'a, Result<(), LockError>> {
        self.table.append_audit(at_ms, record)
    }

    fn read_audit<'a>(
        &'a self,
        request: &'a AuditRequest,
    ) -> Answer<'a, Result<AuditPage, LockError>> {
        self.table.read_audit(request)
    }

    fn flush(&self) -> Answer<'_, ()> {
        Answer::ready(())
    }
}

async fn hunt_in(defect: Defect, forgets: usize, histories: usize) -> Hunt {
    let table = Table::over(|clock| {
        // If the next look is late, hints must not compensate for it.
        let table = match defect {
            Defect::LooksLate => TableEngine::mute(clock),
            _ => TableEngine::new(clock),
        };
        Arc::new(FaultyEngine { table, defect, forgets, asked: AtomicUsize::new(0) })
    });
    let bench = Bench::open(Arc::new(table)).await.expect("clients");
    hunt(&bench, 1, histories).await
}

#[tokio::test]
async fn every_defect_is_detected() {
    let mut missed = Vec::new();
    for defect in LIES {
        match hunt_in(defect, 0, 500).await {
            Hunt::Found(difference) => println!("{defect:?} -> {difference}"),
            Hunt::Equal { histories, .. } => missed.push(format!("{defect:?} in {histories}")),
        }
    }
    assert!(missed.is_empty(), "not detected: {missed:?}");
}

#[tokio::test]
async fn an_engine_without_a_defect_is_equal() {
    match hunt_in(Defect::None, 0, 300).await {
        Hunt::Equal { histories, .. } => assert_eq!(histories, 300),
        Hunt::Found(difference) => panic!("{difference}"),
    }
}

/// An engine that loses one of 25 requests or replies and reports so is equal: every history ends
/// equal, or is void because more than eight states were left.
#[tokio::test]
async fn an_engine_that_reports_unknown_outcomes_is_equal() {
    match hunt_in(Defect::None, 25, 300).await {
        Hunt::Equal { histories, void, .. } => {
            assert!(histories > 200, "{histories} equal, {void} void");
        }
        Hunt::Found(difference) => panic!("{difference}"),
    }
}
