//! A case as data: its name, the promise that it tests, and the capabilities that it needs.

use std::fmt;
use std::time::Duration;

use holdline_core::{
    AuditRecord, AuditTrail, Capabilities, ErrorKind, Hold, LockError, Mode, Operation, Operator,
};

use crate::bench::Bench;
use crate::factory::BoxFuture;
use crate::failure::{Failure, Verdict, ensure};

/// One fixed case.
pub struct Case {
    /// What must be so, as a sentence.
    pub name: &'static str,
    /// The promise that it belongs to.
    pub promise: Promise,
    /// What the engine must be able to do for it.
    pub needs: &'static [Feature],
    /// Whether it must not run beside others, because it disturbs the whole store.
    pub alone: bool,
    /// What it does.
    pub run: fn(Bench) -> BoxFuture<'static, Verdict>,
}

/// Makes a case: promise, sentence, needs, async function.
macro_rules! case {
    ($promise:ident, $name:literal, [$($need:ident),*], $run:path) => {
        $crate::case::Case {
            name: $name,
            promise: $crate::case::Promise::$promise,
            needs: &[$($crate::case::Feature::$need),*],
            alone: false,
            run: |bench| Box::pin($run(bench)),
        }
    };
}

pub(crate) use case;

/// The promises of the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// Exclusion.
    P1,
    /// Fencing.
    P2,
    /// Freedom: the dead hold nothing for long.
    P3,
    /// Ownership.
    P4,
    /// No orphan.
    P5,
    /// The loss is reported.
    P6,
    /// No hang.
    P7,
    /// Order.
    P8,
    /// Certainty.
    P9,
    /// Foreign data.
    P10,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Promise::P1 => "P1 exclusion",
            Promise::P2 => "P2 fencing",
            Promise::P3 => "P3 freedom",
            Promise::P4 => "P4 ownership",
            Promise::P5 => "P5 no orphan",
            Promise::P6 => "P6 loss is reported",
            Promise::P7 => "P7 no hang",
            Promise::P8 => "P8 order",
            Promise::P9 => "P9 certainty",
            Promise::P10 => "P10 foreign data",
        };
        f.pad(name)
    }
}

/// What an engine may be able to do or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Grants in the order of queueing.
    Fair,
    /// Shared mode.
    Shared,
    /// Permits.
    Permits,
    /// Fencing tokens.
    Fencing,
    /// A queue.
    Queue,
    /// Hand-offs whose message is the grant.
    Message,
    /// Revoke, forced at least.
    Revoke,
    /// Polite revoke.
    PoliteRevoke,
    /// Removal of a waiter.
    RemoveWaiter,
    /// Freeze.
    Freeze,
    /// Listing.
    List,
    /// Live grants.
    Live,
    /// Detached leases.
    Detach,
    /// The holder's own words are kept.
    Metadata,
    /// Asking again under an id whose outcome is unknown.
    Repeat,
    /// Count-down latches.
    Latch,
    /// Counting semaphores.
    Counting,
    /// A queue for exclusive locks that ask for it.
    FairOnRequest,
    /// An audit trail in the store.
    Audit,
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 19] = [
        Feature::Fair,
        Feature::Shared,
        Feature::Permits,
        Feature::Fencing,
        Feature::Queue,
        Feature::Message,
        Feature::Revoke,
        Feature::PoliteRevoke,
        Feature::RemoveWaiter,
        Feature::Freeze,
        Feature::List,
        Feature::Live,
        Feature::Detach,
        Feature::Metadata,
        Feature::Repeat,
        Feature::Latch,
        Feature::Counting,
        Feature::FairOnRequest,
        Feature::Audit,
    ];

    /// Returns whether the engine has this capability.
    pub fn is_in(self, capabilities: &Capabilities) -> bool {
        match self {
            Feature::Fair => capabilities.fair,
            Feature::Shared => capabilities.shared,
            Feature::Permits => capabilities.permits,
            Feature::Fencing => capabilities.fencing,
            Feature::Queue => capabilities.queue,
            Feature::Message => capabilities.hand_off == holdline_core::HandOff::Message,
            Feature::Revoke => capabilities.revoke,
            Feature::PoliteRevoke => capabilities.polite_revoke,
            Feature::RemoveWaiter => capabilities.remove_waiter,
            Feature::Freeze => capabilities.freeze,
            Feature::List => capabilities.list,
            Feature::Live => capabilities.live,
            Feature::Detach => capabilities.detach,
            Feature::Metadata => capabilities.metadata,
            Feature::Repeat => capabilities.repeat,
            Feature::Latch => capabilities.latch,
            Feature::Counting => capabilities.counting,
            Feature::FairOnRequest => capabilities.fair_on_request,
            Feature::Audit => capabilities.audit == AuditTrail::Store,
        }
    }

    /// Requests what the engine lacks. The reply must be `Unsupported`, not applied.
    ///
    /// Fairness, fencing, the kind of hand-off, what asking again is worth and whether a holder's
    /// words are kept cannot be asked for, so there is nothing to assert about their absence.
    ///
    /// # Errors
    /// The engine did something else.
    pub(crate) async fn assert_missing(self, bench: &Bench) -> Result<(), Failure> {
        let name = bench.name();
        let contender = bench.contender(&name);
        let reply = match self {
            Feature::Fair
            | Feature::Fencing
            | Feature::Message
            | Feature::Repeat
            | Feature::Metadata
            | Feature::FairOnRequest => return Ok(()),
            Feature::Queue if Feature::FairOnRequest.is_in(bench.capabilities()) => return Ok(()),
            Feature::Shared => contender.with_mode(Mode::Shared).ask(false).await.err(),
            Feature::Permits => {
                let mode = Mode::Permits { count: 1, of: 2 };
                contender.with_mode(mode).ask(false).await.err()
            }
            Feature::Queue => contender.ask(true).await.err(),
            Feature::Live => contender.with_hold(Hold::Live).ask(false).await.err(),
            Feature::Detach => {
                contender.with_hold(Hold::Detached(bench.lease())).ask(false).await.err()
            }
            Feature::Revoke | Feature::PoliteRevoke => {
                let operation = Operation::Revoke {
                    name: name.clone(),
                    token: holdline_core::FencingToken::MIN,
                    reason: "asked for what is missing".into(),
                    now: self == Feature::Revoke,
                };
                bench.operate(operation).await.err()
            }
            Feature::RemoveWaiter => {
                let operation = Operation::RemoveWaiter {
                    name: name.clone(),
                    waiter: contender.id().short(),
                    reason: "asked for what is missing".into(),
                };
                bench.operate(operation).await.err()
            }
            Feature::Freeze => {
                let duration = Duration::from_secs(1);
                let reason = "asked for what is missing".into();
                let operation = Operation::Freeze { name: name.clone(), duration, reason };
                bench.operate(operation).await.err()
            }
            Feature::Latch => {
                let command = holdline_core::LatchCommand::Count;
                bench.clients()[0].engine.latch(&name, command).await.err()
            }
            Feature::Counting => {
                let command = holdline_core::CountingCommand::Available;
                bench.clients()[0].engine.counting(&name, command).await.err()
            }
            Feature::Audit => {
                let record = AuditRecord::new("freeze", &Operator::default());
                bench.clients()[0].engine.append_audit(0, &record).await.err()
            }
            Feature::List => bench.clients()[0].engine.list(&Default::default()).await.err(),
        };
        ensure!(
            is_unsupported(reply.as_ref()),
            "{self:?} is not offered, but a request gave {reply:?}"
        );
        Ok(())
    }
}

fn is_unsupported(error: Option<&LockError>) -> bool {
    error.is_some_and(|error| {
        matches!(error.kind(), ErrorKind::Unsupported { .. })
            && error.certainty() == holdline_core::Certainty::NotApplied
    })
}
