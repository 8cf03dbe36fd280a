//! Commands and replies as data, for the oracle and the model.

use std::convert::Infallible;

use super::{LockState, MemoryStore, Table, WakeUp};
use crate::capabilities::Capabilities;
use crate::contract::{
    AcquireReply, AcquireRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest,
};
use crate::error::LockError;
use crate::moment::Moment;
use crate::name::LockName;
use crate::operation::{Operation, OperationReply};
use crate::snapshot::Snapshot;

/// One command on one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Request the name.
    Acquire(AcquireRequest),
    /// Renew, or send the queue heartbeat.
    Renew(RenewRequest),
    /// End the grant or the queue entry of a lease id.
    Release(ReleaseRequest),
    /// Return the state of the name.
    Inspect(LockName),
    /// An operator's command on this name.
    Operate(Operation),
}

/// The reply to a [`Command`].
#[derive(Clone, Debug)]
pub enum Reply {
    /// To an acquire.
    Acquire(Result<AcquireReply, LockError>),
    /// To a renewal.
    Renew(Result<RenewReply, LockError>),
    /// To a release.
    Release(ReleaseReply),
    /// To an inspect.
    Inspect(Snapshot),
    /// To an operator's command.
    Operate(Result<OperationReply, LockError>),
}

impl LockState {
    /// Carries out a command: the whole state machine in one call.
    ///
    /// `counter` is the largest token that has been issued so far, for all names of the store.
    pub fn apply(
        &mut self,
        counter: &mut u64,
        profile: &Capabilities,
        command: &Command,
        now: Moment,
    ) -> (Reply, Vec<WakeUp>) {
        let mut store = MemoryStore { queue: &mut self.queue, counter };
        let table = Table::new(&mut self.head, &mut store, profile, now);
        match run(table, command) {
            Ok(done) => done,
            Err(never) => match never {},
        }
    }
}

fn run(
    mut table: Table<'_, MemoryStore<'_>>,
    command: &Command,
) -> Result<(Reply, Vec<WakeUp>), Infallible> {
    let reply = match command {
        Command::Acquire(request) => Reply::Acquire(table.acquire(request)?),
        Command::Renew(renewal) => Reply::Renew(table.renew(renewal)?),
        Command::Release(request) => Reply::Release(table.release(request)?),
        Command::Inspect(name) => Reply::Inspect(table.inspect(name)?),
        Command::Operate(operation @ Operation::RaiseFence { to }) => {
            let checked = operation.check(table.profile);
            if checked.is_ok() {
                let counter = &mut *table.store.counter;
                *counter = to.get().max(*counter);
            }
            Reply::Operate(checked.map(|()| OperationReply::Done))
        }
        Command::Operate(operation) => Reply::Operate(table.operate(operation)?),
    };
    Ok((reply, table.into_wake_ups()))
}
