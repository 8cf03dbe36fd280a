//! What the nodes of a quorum without tokens are sent: the commands of the libraries that share the
//! lock.

use std::time::Duration;

use holdline_core::{
    AcquireReply, AcquireRequest, Ending, Hold, HolderSummary, LeaseId, LockError, LockName,
    Moment, OperationReply, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

use super::ENGINE;
use super::in_progress::Undo;
use crate::error::protocol;
use crate::link::{Link, Value};
use crate::native;
use crate::options::{Dialect, RedisOptions};
use crate::plain::{GivenUp, Keys, RequestContext, ValueReader};
use crate::redisson::NodeRequests;

/// The requests of a quorum without tokens.
#[derive(Debug)]
pub(super) struct Unfenced {
    pub(super) commands: Commands,
    pub(super) given_up: GivenUp,
}

impl Unfenced {
    /// Makes the requests for nodes with these options; `None` if tokens are on.
    pub(super) fn of(options: &RedisOptions) -> Option<Unfenced> {
        if options.fencing() {
            return None;
        }
        Some(Unfenced { commands: Commands::of(options), given_up: GivenUp::default() })
    }

    /// Records that the lease id may not be requested any more.
    pub(super) fn give_up(&self, undo: &Undo, now: Moment) {
        self.given_up.add(undo.lease_id, now, now.after(undo.remember_for()));
    }
}

/// The commands of one kind of lock.
#[derive(Debug)]
pub(super) enum Commands {
    /// Those of libraries that use `SET key value NX PX`.
    Plain { context: RequestContext, reader: ValueReader },
    /// The scripts for an `RLock` of Redisson's.
    Redisson(NodeRequests),
}

/// The holder of a name on one node.
pub(super) struct NodeHolder {
    /// It holds under the lease id that was asked for.
    pub(super) is_ours: bool,
    pub(super) summary: HolderSummary,
}

impl Commands {
    fn of(options: &RedisOptions) -> Commands {
        if options.dialect() == Dialect::Redisson {
            return Commands::Redisson(NodeRequests::of(options));
        }
        let context = RequestContext {
            keys: Keys::of(options),
            fencing: false,
            deadline: options.command_timeout(),
        };
        let reader = ValueReader { fencing: false };
        Commands::Plain { context, reader }
    }

    /// Returns the channel on which the nodes publish a release, if they do.
    pub(super) fn channel(&self, name: &LockName) -> Option<String> {
        match self {
            Commands::Plain { .. } => None,
            Commands::Redisson(requests) => Some(requests.channel(name)),
        }
    }

    /// Acquires a name on one node; returns `false` if another client holds it.
    ///
    /// # Errors
    /// `Foreign`: something else is under the name.
    pub(super) async fn acquire(
        &self,
        link: &Link,
        request: &AcquireRequest,
        deadline: Duration,
    ) -> Result<bool, LockError> {
        match self {
            Commands::Plain { context, .. } => {
                let affinity = Some(*request.lease_id.as_bytes());
                match link.send(&context.set_nx(request), affinity, deadline).await? {
                    Value::Nil => Ok(false),
                    reply if reply.as_text() == Some("OK") => Ok(true),
                    _ => Err(protocol("the reply to SET is neither OK nor nil")),
                }
            }
            Commands::Redisson(requests) => {
                match requests.acquire(link, request, deadline).await? {
                    AcquireReply::Granted { .. } => Ok(true),
                    AcquireReply::Busy { .. } => Ok(false),
                    _ => Err(protocol("a node of a quorum has no queue")),
                }
            }
        }
    }

    /// Frees the name on one node; `for_good`: a request under the id may still arrive.
    pub(super) async fn free(
        &self,
        link: &Link,
        undo: &Undo,
        for_good: bool,
    ) -> Result<ReleaseReply, LockError> {
        let name = &undo.name;
        let id = undo.lease_id;
        let context = match self {
            Commands::Plain { context, .. } => context,
            Commands::Redisson(requests) => {
                let ending = Ending { for_good, hold: Hold::Leased(undo.lease) };
                let request = ReleaseRequest { name: name.clone(), lease_id: id, ending };
                return requests.release(link, &request, undo.deadline).await;
            }
        };
        let server = link.last_facts().filter(|_| !for_good);
        if let Some(args) = server.and_then(|server| context.compare_and_delete(name, id, &server))
        {
            let reply = link.send(&args, Some(*id.as_bytes()), undo.deadline).await?;
            if reply.as_integer() == Some(1) {
                return Ok(ReleaseReply::Released { held_for: None });
            }
            // Nothing was deleted: the script finds out why.
        }
        let call = || context.release(name, id, None).within(undo.deadline);
        // Nobody may be there to repeat an undo whose script the server does not know.
        let reply = if for_good { link.call_in_full(call).await? } else { link.call(call).await? };
        native::released(&reply)
    }

    /// Renews leases on one node.
    pub(super) async fn renew(
        &self,
        link: &Link,
        renewals: &[&RenewRequest],
        deadline: Duration,
    ) -> Result<Vec<Result<RenewReply, LockError>>, LockError> {
        match self {
            Commands::Plain { context, .. } => {
                let reply = link.call(|| context.renew(renewals).within(deadline)).await?;
                native::renewed(&reply, renewals.len())
            }
            Commands::Redisson(requests) => requests.renew(link, renewals, deadline).await,
        }
    }

    /// Returns the holder of a name on one node, and whether it holds under this lease id.
    pub(super) async fn holder(
        &self,
        link: &Link,
        name: &LockName,
        lease_id: LeaseId,
    ) -> Result<Option<NodeHolder>, LockError> {
        match self {
            Commands::Plain { context, reader } => {
                let held = reader.parse_state(&link.call(|| context.inspect(name)).await?)?;
                let lease = lease_id.to_hex();
                Ok(held
                    .map(|held| NodeHolder { is_ours: held.is(&lease), summary: held.summary() }))
            }
            Commands::Redisson(requests) => {
                let held = requests.holder(link, name).await?;
                Ok(held.map(|held| NodeHolder {
                    is_ours: held.lease_id == Some(lease_id),
                    summary: held.summary,
                }))
            }
        }
    }

    /// Ends the hold of the holder with this id on one node, if the key still has the same value.
    pub(super) async fn force(
        &self,
        link: &Link,
        name: &LockName,
        holder: &str,
    ) -> Result<OperationReply, LockError> {
        let Commands::Plain { context, reader } = self else {
            return Err(LockError::unsupported(ENGINE, "revoking a holder of an `RLock`"));
        };
        let held = reader.parse_state(&link.call(|| context.inspect(name)).await?)?;
        let Some(held) = held.filter(|held| held.has_id(holder)) else {
            return Ok(OperationReply::NothingThere);
        };
        native::operated(&link.call(|| context.force(name, &held.bare)).await?)
    }

    /// Returns the state of a name on one node.
    pub(super) async fn inspect(
        &self,
        link: &Link,
        name: &LockName,
    ) -> Result<Snapshot, LockError> {
        match self {
            Commands::Plain { context, reader } => {
                reader.inspected(&link.call(|| context.inspect(name)).await?, name)
            }
            Commands::Redisson(requests) => requests.inspect(link, name).await,
        }
    }
}
