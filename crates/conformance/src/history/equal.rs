//! The equality of the replies of engine and table: one function for each rule.

use std::time::Duration;

use holdline_core::table::Reply;
use holdline_core::{
    AcquireReply, Capabilities, FencingToken, FreezeView, GrantState, HolderSummary, HolderView,
    LockError, Mode, OperationReply, ReleaseReply, RenewReply, ShortLeaseId, Snapshot,
};

use super::oracle::Tokens;

/// What the engine answered.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    Acquire(Result<AcquireReply, LockError>),
    Renew(Result<RenewReply, LockError>),
    Release(Result<ReleaseReply, LockError>),
    Inspect(Result<Snapshot, LockError>),
    Operate(Result<OperationReply, LockError>),
}

impl Seen {
    /// Returns the error, if it is one.
    pub(super) fn error(&self) -> Option<&LockError> {
        match self {
            Seen::Acquire(answer) => answer.as_ref().err(),
            Seen::Renew(answer) => answer.as_ref().err(),
            Seen::Release(answer) => answer.as_ref().err(),
            Seen::Inspect(answer) => answer.as_ref().err(),
            Seen::Operate(answer) => answer.as_ref().err(),
        }
    }
}

/// A difference, in words.
type Differs = String;

/// Compares one answer.
pub(super) struct Judge<'a> {
    pub(super) profile: &'a Capabilities,
    /// How late a command may have been carried out.
    pub(super) tolerance: Duration,
    /// How the mode of this command's grant is ordered.
    pub(super) mode: Mode,
    /// How the name stands in the table after the command.
    pub(super) stands: &'a Snapshot,
    pub(super) tokens: &'a mut Tokens,
}

impl Judge<'_> {
    /// Compares the table's answer with the engine's.
    pub(super) fn equal(&mut self, table: &Reply, engine: &Seen) -> Result<(), Differs> {
        match (table, engine) {
            (Reply::Acquire(table), Seen::Acquire(engine)) => match (table, engine) {
                (Ok(table), Ok(engine)) => self.acquired(table, engine),
                (table, engine) => errors(table, engine),
            },
            (Reply::Renew(table), Seen::Renew(engine)) => match (table, engine) {
                (Ok(table), Ok(engine)) => self.renewed(table, engine),
                (table, engine) => errors(table, engine),
            },
            (Reply::Release(table), Seen::Release(engine)) => match engine {
                Ok(engine) => released(table, engine),
                Err(_) => errors(&Ok(table), engine),
            },
            (Reply::Inspect(table), Seen::Inspect(engine)) => match engine {
                Ok(engine) => self.snapshots(table, engine),
                Err(_) => errors(&Ok(table), engine),
            },
            (Reply::Operate(table), Seen::Operate(engine)) => match (table, engine) {
                (Ok(table), Ok(engine)) => self.operated(table, engine),
                (table, engine) => errors(table, engine),
            },
            (table, engine) => Err(format!("{engine:?} does not answer what {table:?} does")),
        }
    }

    fn acquired(&mut self, table: &AcquireReply, engine: &AcquireReply) -> Result<(), Differs> {
        use AcquireReply::{Busy, Granted, Queued};
        match (table, engine) {
            (Granted { token: expected, left: most, .. }, Granted { token, left, anchor }) => {
                if !self.same_token(*expected, *token, self.mode == Mode::Exclusive) {
                    return Err(format!("token {token} is out of rank"));
                }
                self.left("left", *most, *left)?;
                if anchor.is_some() != left.is_none() {
                    return Err(format!("left {left:?} and anchor {anchor:?} do not go together"));
                }
                nothing_left(*left)
            }
            (Queued { position: expected, .. }, Queued { position, holder, .. }) => {
                self.holder(holder.as_deref())?;
                self.position(*expected, *position)
            }
            (Busy { at_most: most, .. }, Busy { at_most, holder, .. }) => {
                self.holder(holder.as_deref())?;
                match at_most {
                    Some(_) => self.left("busy for at most", *most, *at_most),
                    None => Ok(()),
                }
            }
            (AcquireReply::Unknown, AcquireReply::Unknown) => Ok(()),
            (table, engine) => Err(differ(table, engine)),
        }
    }

    fn renewed(&self, table: &RenewReply, engine: &RenewReply) -> Result<(), Differs> {
        use RenewReply::{Held, Queued, Renewed, Revoked, Unknown};
        match (table, engine) {
            (Renewed { left: most }, Renewed { left }) => {
                self.left("left", *most, *left)?;
                nothing_left(*left)
            }
            (Queued { position: expected, .. }, Queued { position, .. }) => {
                self.position(*expected, *position)
            }
            (Held { left: most }, Held { left })
            | (Revoked { left: most, .. }, Revoked { left, .. }) => self.left("left", *most, *left),
            (Unknown, Unknown) => Ok(()),
            (table, engine) => Err(differ(table, engine)),
        }
    }

    fn operated(&self, table: &OperationReply, engine: &OperationReply) -> Result<(), Differs> {
        use OperationReply::{Done, NothingThere, Notified};
        match (table, engine) {
            (Done, Done) | (NothingThere, NothingThere) => Ok(()),
            (Notified { left: most }, Notified { left }) => self.left("left", *most, *left),
            (table, engine) => Err(differ(table, engine)),
        }
    }

    /// Tokens: by rank, where the engine gives any.
    fn same_token(&mut self, table: FencingToken, engine: FencingToken, ordered: bool) -> bool {
        !self.profile.fencing || self.tokens.same(table, engine, ordered)
    }

    /// Durations: at most what the table has, plus the engine's step and lag.
    fn left(
        &self,
        what: &str,
        table: Option<Duration>,
        engine: Option<Duration>,
    ) -> Result<(), Differs> {
        match (table, engine) {
            (None, None) => Ok(()),
            (Some(most), Some(left)) => {
                let range = self.profile.lease;
                let most = most + range.step + self.profile.lag + self.tolerance;
                if left <= most { Ok(()) } else { Err(format!("{what} {left:?}, above {most:?}")) }
            }
            (table, engine) => Err(format!("{what} {engine:?} in place of {table:?}")),
        }
    }

    /// Positions: only if the engine is fair and reports them.
    fn position(&self, table: Option<usize>, engine: Option<usize>) -> Result<(), Differs> {
        if engine.is_none() || table == engine || !self.profile.fair {
            Ok(())
        } else {
            Err(format!("position {engine:?} in place of {table:?}"))
        }
    }

    /// A contender that is named as blocking must hold the name, be the head of its queue, or be
    /// the freeze that has it.
    fn holder(&mut self, engine: Option<&HolderSummary>) -> Result<(), Differs> {
        let Some(engine) = engine else { return Ok(()) };
        let head = self.stands.queue.first().map(|waiter| waiter.lease_id);
        let holder = self.stands.holders.iter().find(|one| one.summary.lease_id == engine.lease_id);
        match holder {
            Some(holder) => {
                // The rest of its lease may be missing here, if it would cost another request.
                let left = engine.left.or(holder.summary.left);
                self.summary(&holder.summary, &HolderSummary { left, ..engine.clone() })
            }
            None if head == Some(engine.lease_id) => Ok(()),
            None if self.stands.freeze.as_ref().is_some_and(|freeze| freeze.active) => {
                self.freeze(engine)
            }
            None => {
                Err(format!("{} is in the way, it is said, but holds nothing", engine.lease_id))
            }
        }
    }

    fn freeze(&mut self, engine: &HolderSummary) -> Result<(), Differs> {
        let Some(freeze) = &self.stands.freeze else { return Ok(()) };
        let left = freeze.left;
        let expected = freeze.token;
        if let (Some(expected), Some(token)) = (expected, engine.token)
            && !self.same_token(expected, token, true)
        {
            return Err(format!("the token {token} of the freeze is out of rank"));
        }
        self.left("the freeze's left", Some(left), engine.left)
    }

    fn summary(&mut self, table: &HolderSummary, engine: &HolderSummary) -> Result<(), Differs> {
        if engine.mode != table.mode {
            return Err(format!(
                "{} holds it as {}, not {}",
                engine.lease_id, table.mode, engine.mode
            ));
        }
        if let (Some(expected), Some(token)) = (table.token, engine.token)
            && !self.same_token(expected, token, table.mode == Mode::Exclusive)
        {
            return Err(format!("the token {token} of {} is out of rank", engine.lease_id));
        }
        self.left("the holder's left", table.left, engine.left)
    }

    fn snapshots(&mut self, table: &Snapshot, engine: &Snapshot) -> Result<(), Differs> {
        let counts = |one: &Snapshot| (one.holder_count, one.queue_length, one.permits_of);
        if counts(table) != counts(engine) {
            return Err(format!(
                "holders, waiters, permits {:?} in place of {:?}",
                counts(engine),
                counts(table)
            ));
        }
        let queue = |one: &Snapshot| -> Vec<(ShortLeaseId, String)> {
            let mut queue: Vec<_> =
                one.queue.iter().map(|one| (one.lease_id, one.mode.to_string())).collect();
            if !self.profile.fair {
                queue.sort_unstable();
            }
            queue
        };
        if queue(table) != queue(engine) {
            return Err(format!("queue {:?} in place of {:?}", queue(engine), queue(table)));
        }
        // Holders as a set: the counts are equal, so it is enough to find each one.
        for holder in &table.holders {
            let id = holder.summary.lease_id;
            match engine.holders.iter().find(|one| one.summary.lease_id == id) {
                Some(engine) => self.view(holder, engine)?,
                None => return Err(format!("the holder {id} is missing")),
            }
        }
        self.freezes(table.freeze.as_ref(), engine.freeze.as_ref())
    }

    fn view(&mut self, table: &HolderView, engine: &HolderView) -> Result<(), Differs> {
        let state = |view: &HolderView| match &view.state {
            GrantState::Held => "held",
            GrantState::Revoked(_) => "revoked",
        };
        let facts = |view: &HolderView| (state(view), view.detached, view.live);
        if facts(table) != facts(engine) {
            return Err(format!(
                "{} is (state, detached, live) {:?} in place of {:?}",
                engine.summary.lease_id,
                facts(engine),
                facts(table)
            ));
        }
        self.summary(&table.summary, &engine.summary)
    }

    fn freezes(
        &mut self,
        table: Option<&FreezeView>,
        engine: Option<&FreezeView>,
    ) -> Result<(), Differs> {
        let (table, engine) = match (table, engine) {
            (None, None) => return Ok(()),
            (Some(table), Some(engine)) if table.active == engine.active => (table, engine),
            (table, engine) => return Err(format!("freeze {engine:?} in place of {table:?}")),
        };
        if let (Some(expected), Some(token)) = (table.token, engine.token)
            && !self.same_token(expected, token, true)
        {
            return Err(format!("the freeze's token {token} is out of rank"));
        }
        self.left("the freeze's left", Some(table.left), Some(engine.left))
    }
}

fn released(table: &ReleaseReply, engine: &ReleaseReply) -> Result<(), Differs> {
    use ReleaseReply::{NotHeld, Released, Withdrawn};
    match (table, engine) {
        (Released { .. }, Released { .. }) | (Withdrawn, Withdrawn) => Ok(()),
        (NotHeld { revoked: table }, NotHeld { revoked })
            if table.is_some() == revoked.is_some() =>
        {
            Ok(())
        }
        (table, engine) => Err(differ(table, engine)),
    }
}

/// Errors: by kind and certainty.
fn errors<T, E>(table: &Result<T, LockError>, engine: &Result<E, LockError>) -> Result<(), Differs>
where
    T: std::fmt::Debug,
    E: std::fmt::Debug,
{
    let same = match (table, engine) {
        (Err(table), Err(engine)) => {
            std::mem::discriminant(table.kind()) == std::mem::discriminant(engine.kind())
                && table.certainty() == engine.certainty()
        }
        _ => false,
    };
    if same { Ok(()) } else { Err(format!("{engine:?} in place of {table:?}")) }
}

/// A reported grant must have something left.
fn nothing_left(left: Option<Duration>) -> Result<(), Differs> {
    if left == Some(Duration::ZERO) { Err("granted, and nothing left".into()) } else { Ok(()) }
}

fn differ(table: &impl std::fmt::Debug, engine: &impl std::fmt::Debug) -> Differs {
    format!("{engine:?} in place of {table:?}")
}
