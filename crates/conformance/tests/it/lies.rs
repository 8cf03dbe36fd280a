//! Each rule of equality must bite: an engine whose table is right, but whose answers lie in one
//! respect, is told apart. And nothing else may bite: an engine that honestly does not know what
//! became of a request is equal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdline_conformance::Bench;
use holdline_conformance::history::{Hunt, hunt};
use holdline_conformance::table_engine::TableEngine;
use holdline_core::{
    AcquireReply, AcquireRequest, Answer, Capabilities, Certainty, Engine, ErrorKind, GrantState,
    Hints, LeaseId, ListPage, ListRequest, LockError, LockName, Operation, OperationReply,
    ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

use crate::table::Table;

/// In what the answers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Nothing.
    None,
    /// A grant is said to last longer than it does.
    Left,
    /// A grant is told with nothing left of it.
    NothingLeft,
    /// A position is one too small.
    Position,
    /// Somebody who holds nothing is said to be in the way.
    Holder,
    /// A refusal is said to have been applied.
    Certainty,
    /// One kind of error is told as another.
    Kind,
    /// A renewal that failed is told as good.
    Renewed,
    /// A release of nothing is told as good.
    Released,
    /// A revoked grant is shown as held.
    State,
    /// A holder is not shown.
    HolderMissing,
    /// The queue is shown in the wrong order.
    QueueOrder,
    /// A token is shown that was not given.
    ShownToken,
    /// Nobody is told, and nobody is to look soon.
    LooksLate,
    /// A good revoke is told as if nothing had matched.
    Revoke,
    /// The freeze is not shown.
    Freeze,
}

const LIES: [Lie; 15] = [
    Lie::Left,
    Lie::NothingLeft,
    Lie::Position,
    Lie::Holder,
    Lie::Certainty,
    Lie::Kind,
    Lie::Renewed,
    Lie::Released,
    Lie::State,
    Lie::HolderMissing,
    Lie::QueueOrder,
    Lie::ShownToken,
    Lie::LooksLate,
    Lie::Revoke,
    Lie::Freeze,
];

/// The table behind a mouth that lies, or that now and then cannot tell.
struct Mouth {
    table: TableEngine,
    lie: Lie,
    /// Of so many requests one is lost, and then one reply; 0 for none.
    forgets: usize,
    asked: AtomicUsize,
}

enum Lost {
    Nothing,
    Request,
    Reply,
}

impl Mouth {
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
        let kind = ErrorKind::Unavailable { message: "the line went dead".into() };
        LockError::new("table", kind, Certainty::Unknown)
    }

    fn error(&self, error: LockError) -> LockError {
        match self.lie {
            Lie::Certainty => error.with_certainty(Certainty::Applied),
            Lie::Kind => {
                let kind = ErrorKind::Protocol { message: error.to_string() };
                LockError::new("table", kind, error.certainty())
            }
            _ => error,
        }
    }

    fn left(&self, left: Option<Duration>) -> Option<Duration> {
        match self.lie {
            Lie::Left => left.map(|left| left + Duration::from_millis(5)),
            Lie::NothingLeft => left.map(|_| Duration::ZERO),
            _ => left,
        }
    }

    fn position(&self, position: Option<usize>) -> Option<usize> {
        match self.lie {
            Lie::Position => position.map(|position| position.saturating_sub(1)),
            _ => position,
        }
    }

    fn look(&self, look: Duration) -> Duration {
        if self.lie == Lie::LooksLate { Duration::from_secs(3_600) } else { look }
    }

    fn acquired(&self, reply: AcquireReply, id: LeaseId) -> AcquireReply {
        match reply {
            AcquireReply::Granted { token, left, anchor } => {
                AcquireReply::Granted { token, left: self.left(left), anchor }
            }
            AcquireReply::Queued { position, mut holder, next_look } => {
                if let (Lie::Holder, Some(holder)) = (self.lie, &mut holder) {
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
            RenewReply::Unknown if self.lie == Lie::Renewed => {
                RenewReply::Renewed { left: Some(Duration::from_secs(1)) }
            }
            other => other,
        }
    }

    fn shown(&self, mut snapshot: Snapshot) -> Snapshot {
        match self.lie {
            Lie::State => {
                let held = |state: &mut GrantState| *state = GrantState::Held;
                snapshot.holders.iter_mut().for_each(|holder| held(&mut holder.state));
            }
            Lie::HolderMissing => snapshot.holders.truncate(1),
            Lie::QueueOrder => snapshot.queue.reverse(),
            Lie::ShownToken => {
                for holder in &mut snapshot.holders {
                    let token = holder.summary.token;
                    holder.summary.token = token.and_then(|token| token.next().ok());
                }
            }
            Lie::Freeze => snapshot.freeze = None,
            _ => {}
        }
        snapshot
    }
}

impl Engine for Mouth {
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
                (Ok(ReleaseReply::NotHeld { .. }), _) if self.lie == Lie::Released => {
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
            match (self.lie, operation) {
                (Lie::Revoke, Operation::Revoke { .. }) => {
                    answer.map(|_| OperationReply::NothingThere)
                }
                _ => answer,
            }
        })
    }

    fn flush(&self) -> Answer<'_, ()> {
        Answer::ready(())
    }
}

async fn hunt_in(lie: Lie, forgets: usize, histories: usize) -> Hunt {
    let table = Table::over(|clock| {
        // Where nobody is to look soon, hints must not save it either.
        let table = match lie {
            Lie::LooksLate => TableEngine::deaf(clock),
            _ => TableEngine::new(clock, None),
        };
        Arc::new(Mouth { table, lie, forgets, asked: AtomicUsize::new(0) })
    });
    let bench = Bench::open(Arc::new(table)).await.expect("clients");
    hunt(&bench, 1, histories).await
}

#[tokio::test]
async fn every_lie_is_told_apart() {
    let mut missed = Vec::new();
    for lie in LIES {
        match hunt_in(lie, 0, 500).await {
            Hunt::Found(difference) => println!("{lie:?} -> {difference}"),
            Hunt::Equal { histories, .. } => missed.push(format!("{lie:?} in {histories}")),
        }
    }
    assert!(missed.is_empty(), "not told apart: {missed:?}");
}

#[tokio::test]
async fn an_honest_mouth_is_equal() {
    match hunt_in(Lie::None, 0, 300).await {
        Hunt::Equal { histories, .. } => assert_eq!(histories, 300),
        Hunt::Found(difference) => panic!("{difference}"),
    }
}

/// An engine that loses one of 25 requests or replies and says so is equal: every history ends
/// equal, or is void because more than eight states were left.
#[tokio::test]
async fn an_engine_that_does_not_know_and_says_so_is_equal() {
    match hunt_in(Lie::None, 25, 300).await {
        Hunt::Equal { histories, void, .. } => {
            assert!(histories > 200, "{histories} equal, {void} void");
        }
        Hunt::Found(difference) => panic!("{difference}"),
    }
}
