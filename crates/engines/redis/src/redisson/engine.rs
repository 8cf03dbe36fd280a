//! The engine of the Redisson dialect, on one server, with Sentinels and on a cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use holdline_core::{
    AcquireReply, AcquireRequest, Capabilities, Certainty, Clock, ClockKind, FencingToken, HandOff,
    Hint, Hints, LeaseId, ListPage, ListRequest, LockError, LockName, Mode, Operation,
    OperationReply, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Renewed, Snapshot,
    Verbs,
};

use super::names::Names;
use super::replies::{self, State};
use super::requests::{RequestContext, Revocation};
use super::route::{Purpose, Route, Sent};
use super::wakes::{ChannelName, Wakes};
use crate::engine::{LAG, MAX_BATCH};
use crate::error::{ENGINE, unavailable};
use crate::in_flight::InFlight;
use crate::link::Call;
use crate::native;
use crate::options::{Dialect, RedisOptions};

/// The engine that shares Redisson's locks. Clones share its connections.
///
/// Holders exclude each other whichever library they use. There is no queue: waiters are notified
/// by Redisson's messages, and poll.
#[derive(Clone)]
pub struct RedissonEngine(Arc<Inner>);

struct Inner {
    capabilities: Capabilities,
    route: Arc<Route>,
    wakes: Wakes,
    context: RequestContext,
}

impl RedissonEngine {
    /// Makes an engine. It connects with its first command; [`RedissonEngine::connect`] does it
    /// now. `clock` must count the time that the machine is suspended, as the server's does.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong, or the dialect is another.
    pub fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<RedissonEngine, LockError> {
        options.must_be(Dialect::Redisson, "make an engine of that dialect")?;
        let route = Arc::new(Route::new(options, clock.clone())?);
        let wakes = Wakes::new(route.clone(), clock);
        let context = RequestContext {
            names: Names::of(options),
            fencing: options.fencing(),
            deadline: options.command_timeout(),
        };
        let capabilities = capabilities(options);
        Ok(RedissonEngine(Arc::new(Inner { capabilities, route, wakes, context })))
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
        engine.0.route.ready().await?;
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
        queue: false,
        freeze: false,
        // Nothing marks a key as a lock.
        list: false,
        fencing,
        // A grant is named by its token.
        revoke: fencing,
        // There is no way to notify a holder.
        polite_revoke: false,
        latch: true,
        hand_off: HandOff::None,
        lag: LAG,
        clock: ClockKind::Boottime,
        max_waiters: 0,
        max_batch: MAX_BATCH,
        ..Capabilities::reference(ENGINE, identity)
    };
    if let Some(group) = options.group() {
        capabilities.lease.max = group.max_lease();
    }
    capabilities
}

impl Verbs for RedissonEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        self.0.acquire(request).await
    }

    async fn renew(&self, renewals: &[&RenewRequest]) -> Renewed {
        match self.0.route.is_of_cluster() {
            true => Ok(self.0.renew_by_name(renewals).await),
            false => self.0.renew(renewals).await,
        }
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        let verbs = self.0.route.publish_verbs().await;
        let call = || self.0.context.release(request, verbs);
        native::released(&self.0.send(&request.name, Purpose::Other, call).await?.value)
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        Ok(replies::snapshot(self.0.state(name).await?, name))
    }

    async fn list(&self, _: &ListRequest) -> Result<ListPage, LockError> {
        Err(self.0.capabilities.lacks("listing"))
    }

    fn watch(&self, _: &LockName, lease_id: LeaseId) -> Hints {
        self.0.wakes.watch(lease_id)
    }

    fn check_operation(&self, operation: &Operation) -> Result<(), LockError> {
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
}

impl Inner {
    async fn send(
        &self,
        name: &LockName,
        purpose: Purpose,
        call: impl Fn() -> Call + Send + Sync,
    ) -> Result<Sent, LockError> {
        let RequestContext { names, deadline, .. } = &self.context;
        self.route.send((names, name), (purpose, *deadline), call).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        self.context.check(request)?;
        let verbs = self.route.publish_verbs().await;
        let channel = self.channel(request)?;
        let seen = self.wakes.seen(&channel);
        let call = || self.context.acquire(request, verbs);
        let sent = self.send(&request.name, Purpose::Grant, call).await?;
        let reply = replies::acquired(&sent.value, request, self.context.fencing)?;
        if let Some(hint) = hint_after(&reply, request.mode) {
            self.wakes.expect(request.lease_id, (channel, hint), seen);
        }
        if matches!(reply, AcquireReply::Granted { .. }) {
            // If too few replicas have it, the caller gives up the lease id, or repeats the request.
            self.route.confirm(&sent).await?;
        }
        Ok(reply)
    }

    /// Returns the channel on which the release of the requested lock is published.
    fn channel(&self, request: &AcquireRequest) -> Result<ChannelName, LockError> {
        let names = &self.context.names;
        let slot = match self.route.is_of_cluster() {
            true => names.slot(&request.name)?,
            false => 0,
        };
        let text = names.channel(&names.map(&request.name), request.mode, request.kind);
        Ok(ChannelName { text, slot })
    }

    /// Renews grants by one call.
    async fn renew(&self, renewals: &[&RenewRequest]) -> Renewed {
        let Some(first) = renewals.first() else { return Ok(Vec::new()) };
        let call = || self.context.renew(renewals);
        let sent = self.send(&first.name, Purpose::Keep, call).await?;
        let replies = native::renewed(&sent.value, renewals.len())?;
        self.route.confirm(&sent).await?;
        Ok(replies)
    }

    /// Renews each name by a call of its own, all concurrently.
    async fn renew_by_name(
        &self,
        renewals: &[&RenewRequest],
    ) -> Vec<Result<RenewReply, LockError>> {
        let mut names: BTreeMap<&LockName, Vec<usize>> = BTreeMap::new();
        for (at, renewal) in renewals.iter().enumerate() {
            names.entry(&renewal.name).or_default().push(at);
        }
        let groups: Vec<Vec<usize>> = names.into_values().collect();
        let mut in_flight = InFlight::with_capacity(groups.len());
        for (number, indexes) in groups.iter().enumerate() {
            let of_name: Vec<&RenewRequest> = indexes.iter().map(|at| renewals[*at]).collect();
            in_flight.push(number, async move { self.renew(&of_name).await });
        }
        let unanswered = || Err(unavailable("the node did not answer", Certainty::Unknown));
        let mut results: Vec<_> = renewals.iter().map(|_| unanswered()).collect();
        while let Some((number, replies)) = in_flight.next().await {
            match replies {
                Ok(replies) => {
                    for (at, reply) in groups[number].iter().zip(replies) {
                        results[*at] = reply;
                    }
                }
                Err(error) => {
                    for at in &groups[number] {
                        results[*at] = Err(error.clone());
                    }
                }
            }
        }
        results
    }

    async fn state(&self, name: &LockName) -> Result<Option<State>, LockError> {
        let sent = self.send(name, Purpose::Other, || self.context.inspect(name)).await?;
        replies::state(&sent.value, self.context.fencing)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        match operation {
            Operation::Revoke { name, token, reason, .. } => {
                self.revoke(name, *token, reason).await
            }
            Operation::Latch { name, command } => {
                let verbs = self.route.publish_verbs().await;
                let call = || self.context.latch(name, *command, verbs);
                native::operated(&self.send(name, Purpose::Other, call).await?.value)
            }
            Operation::Freeze { .. } | Operation::Unfreeze { .. } => {
                Err(self.capabilities.lacks("freeze"))
            }
            Operation::RaiseFence { .. } => {
                Err(self.capabilities.lacks("an operation on all names at once"))
            }
        }
    }

    /// Finds the grant with this token, and revokes it if it still has that.
    async fn revoke(
        &self,
        name: &LockName,
        token: FencingToken,
        reason: &str,
    ) -> Result<OperationReply, LockError> {
        let Some(state) = self.state(name).await? else { return Ok(OperationReply::NothingThere) };
        let mut holders = state.holders.into_iter();
        let found = holders.find(|held| held.view.summary.token == Some(token));
        let Some(found) = found else { return Ok(OperationReply::NothingThere) };
        let verbs = self.route.publish_verbs().await;
        let left = found.view.summary.left;
        let call = || match found.lease_id {
            Some(lease_id) => {
                let revocation = Revocation { lease_id, token, left, reason };
                self.context.revoke(name, &revocation, verbs)
            }
            None => self.context.force(name, (&found.owner, token), verbs),
        };
        native::operated(&self.send(name, Purpose::Other, call).await?.value)
    }
}

/// Returns what a message on the channel means after this reply. For a holder it is a forced unlock;
/// a semaphore's messages are about all its permits, and mean nothing to a holder.
fn hint_after(reply: &AcquireReply, mode: Mode) -> Option<Hint> {
    match reply {
        AcquireReply::Busy { .. } => Some(Hint::LookAgain),
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
