//! The engine of the Redisson dialect, on one server, with Sentinels and on a cluster.
//!
//! ```text
//! acquire:
//!   remember what the channel of the name has published so far
//!   run the script of the object's kind, one atomic step:
//!     free, or held by this owner     -> granted; RFencedLock and ours draw a token
//!     fair: not the first             -> its place in Redisson's list of waiters
//!     otherwise                       -> busy, with the time that the holder has left
//!   wait for the channel's next message, if none came since the first line, or for that time
//! a message is a hint: its waiter asks again; unordered unless the lock is fair
//! ```

use std::fmt;
use std::sync::Arc;

use holdline_core::{
    AcquireReply, AcquireRequest, Capabilities, Clock, ClockKind, CountingCommand, CountingReply,
    FencingToken, HandOff, Hint, Hints, LatchCommand, LatchReply, LeaseId, ListPage, ListRequest,
    LockError, LockName, Mode, Operation, OperationReply, ReleaseReply, ReleaseRequest,
    RenewRequest, Renewed, Snapshot, Verbs,
};

use super::calls::Calls;
use super::counting;
use super::names::Names;
use super::replies::{self, NameState, RedissonHolder};
use super::requests::{RequestContext, Revocation};
use super::wakes::{ChannelName, Wakes};
use crate::error::ENGINE;
use crate::keys::Layout;
use crate::limits::{LAG, MAX_BATCH};
use crate::native;
use crate::native::listing::{self, Listings, NameSource, NextNames, Scan, ScanBudget, Shown};
use crate::options::{Dialect, RedisOptions};
use crate::route::{Purpose, Route};

/// The engine that shares Redisson's locks. Clones share its connections.
///
/// Holders exclude each other whichever library they use. Only a mutex that is to be fair has a
/// queue; other waiters are notified by Redisson's messages, and poll.
#[derive(Clone)]
pub struct RedissonEngine(Arc<RedissonEngineParts>);

struct RedissonEngineParts {
    capabilities: Capabilities,
    calls: Arc<Calls>,
    wakes: Wakes,
    layout: Layout,
    listings: Listings,
}

impl RedissonEngine {
    /// Makes an engine. It connects with its first command; [`RedissonEngine::connect`] does it
    /// now. `clock` must count the time that the machine is suspended, as the server's does.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong, or the dialect is another.
    pub fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<RedissonEngine, LockError> {
        options.must_be(Dialect::Redisson)?;
        options.validate_publish()?;
        let route = Arc::new(Route::new(options, clock.clone())?);
        let wakes = Wakes::new(route.clone(), clock.clone());
        let context = RequestContext {
            names: Names::of(options),
            fencing: options.fencing(),
            deadline: options.command_timeout(),
        };
        let capabilities = capabilities(options);
        let layout = Layout::plain(options.key_template(), options.prefix());
        let listings = Listings::new(clock.clone());
        let calls = Arc::new(Calls { route, context, clock });
        let parts = RedissonEngineParts { capabilities, calls, wakes, layout, listings };
        Ok(RedissonEngine(Arc::new(parts)))
    }

    /// Makes an engine and waits until it has a connection.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unavailable`: no server can be reached. `NoQuorum`: other
    /// servers of its group answer, and no master does. `Refused`: the server does not let us in.
    /// Nothing is held after any of them.
    pub async fn connect(
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<RedissonEngine, LockError> {
        let engine = RedissonEngine::new(options, clock)?;
        engine.0.calls.route.ready().await?;
        Ok(engine)
    }
}

fn capabilities(options: &RedisOptions) -> Capabilities {
    let template = options.key_template();
    let identity = match options.group() {
        Some(group) => format!("{group}/{} redisson {template}", options.db()),
        None if options.is_of_cluster() => {
            format!("cluster {} redisson {template}", options.address().in_order())
        }
        None => format!("{}/{} redisson {template}", options.address(), options.db()),
    };
    let fencing = options.fencing();
    let mut capabilities = Capabilities {
        fair: false,
        fair_on_request: true,
        queue: false,
        freeze: false,
        fencing,
        // A grant is named by its token.
        revoke: fencing,
        // There is no way to notify a holder.
        polite_revoke: false,
        revoke_holder: true,
        remove_waiter: false,
        latch: true,
        counting: true,
        hand_off: HandOff::None,
        lag: LAG,
        clock: ClockKind::Boottime,
        max_waiters: options.max_waiters(),
        max_batch: MAX_BATCH,
        ..Capabilities::reference(ENGINE, identity)
    };
    if let Some(longest) = options.longest_lease() {
        capabilities.lease.max = longest;
    }
    capabilities.quarantine = options.quarantine();
    capabilities
}

impl Verbs for RedissonEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        self.0.calls.context.names.check(&request.name)?;
        self.0.acquire(request).await
    }

    async fn renew(&self, renewals: &[&RenewRequest]) -> Renewed {
        self.0.calls.renew_or_wait(renewals).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        let verbs = self.0.calls.route.publish_verbs().await;
        let context = &self.0.calls.context;
        let call = || context.release(request, verbs);
        let lock_key_only = || context.release_lock(request, verbs);
        let purpose = Purpose::Other;
        let sent = self.0.calls.send_or_lock_key_only(&request.name, purpose, call, lock_key_only);
        native::released(&sent.await?.value)
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        self.0.calls.context.names.check(name)?;
        self.0.inspect(name).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        self.0.listings.page(request, &*self.0).await
    }

    fn watch(&self, _: &LockName, lease_id: LeaseId) -> Hints {
        self.0.wakes.watch(lease_id)
    }

    fn check_operation(&self, operation: &Operation) -> Result<(), LockError> {
        if let Some(name) = operation.name() {
            self.0.calls.context.names.check(name)?;
        }
        match operation {
            Operation::RaiseFence { .. } => Err(self.0.capabilities.lacks(
                "raising the fence of all names at once: Redisson has a counter for each name",
            )),
            _ => operation.check(&self.0.capabilities),
        }
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        self.0.operate(operation).await
    }

    async fn latch(&self, name: &LockName, command: LatchCommand) -> Result<LatchReply, LockError> {
        let calls = &self.0.calls;
        calls.context.names.check(name)?;
        if calls.route.is_of_cluster() {
            calls.context.names.check_latch(name)?;
        }
        let verbs = calls.route.publish_verbs().await;
        let call = || calls.context.latch(name, command, verbs);
        // A latch has no other key.
        let lock_key_only = || Some(call());
        let sent = calls.send_or_lock_key_only(name, Purpose::Other, call, lock_key_only).await?;
        native::replies::latch(&sent.value)
    }

    async fn counting(
        &self,
        name: &LockName,
        command: CountingCommand,
    ) -> Result<CountingReply, LockError> {
        self.0.calls.context.names.check(name)?;
        counting::carry_out(&self.0.calls, name, command).await
    }
}

impl RedissonEngineParts {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        self.calls.context.check(request)?;
        let verbs = self.calls.route.publish_verbs().await;
        let channel = self.channel(request)?;
        let seen = self.wakes.seen(&channel);
        let max_waiters = self.capabilities.max_waiters;
        let call = || {
            if request.queue {
                self.calls.context.fair(request, max_waiters, verbs)
            } else {
                self.calls.context.acquire(request, verbs)
            }
        };
        let sent = self.calls.send(&request.name, Purpose::Grant, call).await?;
        let fencing = self.calls.context.fencing;
        let reply = replies::acquired(&sent.value, request, fencing, max_waiters)?;
        if let Some(hint) = hint_after(&reply, request.mode) {
            self.wakes.expect(request.lease_id, channel, hint, seen);
        }
        if matches!(reply, AcquireReply::Granted { .. }) {
            // If too few have it, the caller gives up the lease id, or repeats the request.
            self.calls.route.confirm(&sent).await?;
        }
        Ok(reply)
    }

    /// Returns the channel on which the requester is notified: of the release of the lock, or that
    /// it is the next in the queue.
    fn channel(&self, request: &AcquireRequest) -> Result<ChannelName, LockError> {
        let names = &self.calls.context.names;
        let mapped = names.map(&request.name);
        let text = if request.queue {
            names.waiter_channel(&mapped, request.lease_id)
        } else {
            names.channel(&mapped, request.mode, request.kind)
        };
        Ok(ChannelName { text, slot: self.calls.slot(&request.name)? })
    }

    async fn state(&self, name: &LockName) -> Result<Option<NameState>, LockError> {
        let sent =
            self.calls.send(name, Purpose::Other, || self.calls.context.inspect(name)).await?;
        replies::state(&sent.value, self.calls.context.fencing)
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        Ok(replies::snapshot(self.state(name).await?, name))
    }

    async fn operate(
        self: &Arc<RedissonEngineParts>,
        operation: &Operation,
    ) -> Result<OperationReply, LockError> {
        match operation {
            Operation::Revoke { name, token, reason, .. } => {
                let is_it = |held: &RedissonHolder| held.view.summary.token == Some(*token);
                self.revoke(name, is_it, Some(*token), reason).await
            }
            Operation::RevokeHolder { name, holder, reason } => {
                self.revoke(name, |held| held.has_id(holder), None, reason).await
            }
            Operation::RemoveWaiter { .. }
            | Operation::Freeze { .. }
            | Operation::Unfreeze { .. } => Err(operation.unsupported(&self.capabilities)),
            Operation::RaiseFence { .. } => {
                Err(self.capabilities.lacks("an operation on all names at once"))
            }
        }
    }

    /// Finds a grant, and revokes it if its holder still has it: with this token, if one is given.
    async fn revoke(
        &self,
        name: &LockName,
        is_it: impl Fn(&RedissonHolder) -> bool,
        token: Option<FencingToken>,
        reason: &str,
    ) -> Result<OperationReply, LockError> {
        let Some(state) = self.state(name).await? else { return Ok(OperationReply::NothingThere) };
        let mut holders = state.holders.into_iter().filter(is_it);
        let Some(found) = holders.next() else { return Ok(OperationReply::NothingThere) };
        if holders.next().is_some() {
            let message =
                "several holders have this id: give the client and its thread, UUID:THREAD";
            return Err(LockError::invalid(ENGINE, "holder", message));
        }
        let verbs = self.calls.route.publish_verbs().await;
        let left = found.view.summary.left;
        let call = || match found.lease_id {
            Some(lease_id) => {
                let revocation = Revocation { lease_id, token, left, reason };
                self.calls.context.revoke(name, &revocation, verbs)
            }
            None => self.calls.context.force(name, &found.owner, token, verbs),
        };
        native::operated(&self.calls.send(name, Purpose::Other, call).await?.value)
    }
}

impl NameSource for RedissonEngineParts {
    /// Scans the hashes of all servers: mutexes and read/write locks. A semaphore is a number under
    /// its name, as many other keys are.
    async fn names_after(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        budget: &mut ScanBudget,
    ) -> Result<NextNames, LockError> {
        let mut next_names = NextNames::default();
        let names = &self.calls.context.names;
        let is_of_cluster = self.calls.route.is_of_cluster();
        let add = &mut |name: LockName| {
            let has_slot = !is_of_cluster || names.slot(&name).is_ok();
            if has_slot && names.check(&name).is_ok() {
                next_names.add(name);
            }
        };
        let deadline = self.calls.context.deadline;
        let scan = Scan { layout: &self.layout, kind: Some("hash"), deadline };
        for master in self.calls.route.masters().await? {
            scan.names_after(&master, prefix, after, budget, add).await?;
        }
        Ok(next_names)
    }

    async fn show(&self, names: &[LockName]) -> Result<Vec<Shown>, LockError> {
        Ok(listing::each(names, |name| self.inspect(name)).await)
    }
}

/// Returns what a message on the channel means after this reply. For a holder it is a forced
/// unlock; a semaphore's messages are about all its permits, and mean nothing to a holder.
fn hint_after(reply: &AcquireReply, mode: Mode) -> Option<Hint> {
    match reply {
        AcquireReply::Busy { .. } | AcquireReply::Queued { .. } => Some(Hint::LookAgain),
        AcquireReply::Granted { .. } if mode.permits_of().is_none() => Some(Hint::CheckLease),
        _ => None,
    }
}

impl fmt::Debug for RedissonEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedissonEngine")
            .field("identity", &self.0.capabilities.identity)
            .finish_non_exhaustive()
    }
}
