//! The engine of the plain dialect.
//!
//! ```text
//! acquire, with fencing:      one script: is the key free? draw a token; SET key value PX lease
//! acquire, with fencing=off:  SET key value NX PX lease
//!                             held: look whose it is, since a repeated request may hold it
//! on a cluster:               the same by scripts of one key, on the master of its slot
//! there is no queue and no message: a waiter asks again after a pause, or when the key's time
//! is over
//! ```

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use holdline_core::{
    AcquireReply, AcquireRequest, Capabilities, Certainty, Clock, ClockKind, ErrorKind,
    FencingToken, HandOff, Hint, Hints, LeaseId, ListPage, ListRequest, LockError, LockName,
    Operation, OperationReply, ReleaseReply, ReleaseRequest, RenewRequest, Renewed, Snapshot,
    Verbs,
};

use super::given_up::GivenUp;
use super::keys::Keys;
use super::replies::{PlainHolder, ValueReader};
use super::requests::RequestContext;
use crate::cluster::{self, ReplyTimeouts, key_slot};
use crate::error::{ENGINE, protocol};
use crate::keys::Layout;
use crate::limits::{LAG, MAX_BATCH};
use crate::link::{Call, ServerFacts, Value};
use crate::native::listing::{self, Listings, NameSource, NextNames, Scan, ScanBudget, Shown};
use crate::native::{self, requests::tombstone_of};
use crate::options::{Dialect, RedisOptions};
use crate::route::{Purpose, Route};

/// The engine of one Redis server, of the master that Sentinels name, or of a cluster, that shares
/// its locks with other libraries. Clones share its connections.
///
/// Holders exclude each other whichever library they use. There is no queue, as other libraries do
/// not announce a release: waiters poll. Only a forced revoke works, and only for a grant of ours.
#[derive(Clone)]
pub struct PlainEngine(Arc<PlainEngineParts>);

struct PlainEngineParts {
    capabilities: Capabilities,
    route: Route,
    clock: Arc<dyn Clock>,
    context: RequestContext,
    reader: ValueReader,
    given_up: GivenUp,
    layout: Layout,
    listings: Listings,
}

impl PlainEngine {
    /// Makes an engine. It connects with its first command; [`PlainEngine::connect`] does it now.
    /// `clock` must count the time that the machine is suspended, as the server's does.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong, or the dialect is another.
    pub fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<PlainEngine, LockError> {
        options.must_be(Dialect::Plain)?;
        let route = Route::new(options, clock.clone())?;
        let context = RequestContext {
            keys: Keys::of(options),
            fencing: options.fencing(),
            deadline: options.command_timeout(),
        };
        let reader = ValueReader { fencing: context.fencing };
        let capabilities = capabilities(options);
        let given_up = GivenUp::default();
        let layout = Layout::plain(options.key_template(), options.prefix());
        let listings = Listings::new(clock.clone());
        Ok(PlainEngine(Arc::new(PlainEngineParts {
            capabilities,
            route,
            clock,
            context,
            reader,
            given_up,
            layout,
            listings,
        })))
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
    ) -> Result<PlainEngine, LockError> {
        let engine = PlainEngine::new(options, clock)?;
        engine.0.route.ready().await?;
        Ok(engine)
    }
}

fn capabilities(options: &RedisOptions) -> Capabilities {
    let template = options.key_template();
    let identity = match options.group() {
        Some(group) => format!("{group}/{} plain {template}", options.db()),
        None if options.is_of_cluster() => {
            format!("cluster {} plain {template}", options.address().in_order())
        }
        None => format!("{}/{} plain {template}", options.address(), options.db()),
    };
    let fencing = options.fencing();
    let mut capabilities = Capabilities {
        fair: false,
        shared: false,
        permits: false,
        queue: false,
        remove_waiter: false,
        freeze: false,
        fencing,
        revoke: fencing,
        // There is no way to notify a holder.
        polite_revoke: false,
        revoke_holder: true,
        // A bare lease says nothing of its holder.
        metadata: fencing,
        detach: fencing,
        repeat: fencing,
        hand_off: HandOff::None,
        lag: LAG,
        clock: ClockKind::Boottime,
        max_waiters: 0,
        max_batch: MAX_BATCH,
        ..Capabilities::reference(ENGINE, identity)
    };
    if let Some(longest) = options.longest_lease() {
        capabilities.lease.max = longest;
    }
    capabilities.quarantine = options.quarantine();
    capabilities
}

impl Verbs for PlainEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        self.0.context.keys.check(&request.name)?;
        if self.0.context.fencing {
            self.0.acquire(request).await
        } else {
            self.0.acquire_unfenced(request).await
        }
    }

    async fn renew(&self, renewals: &[&RenewRequest]) -> Renewed {
        self.0.renew(renewals).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        self.0.release(request).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        self.0.context.keys.check(name)?;
        self.0.inspect(name).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        self.0.listings.page(request, &*self.0).await
    }

    fn watch(&self, _: &LockName, _: LeaseId) -> Hints {
        Box::pin(NoHints)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        self.0.operate(operation).await
    }
}

impl PlainEngineParts {
    /// Sends a call about one name; on a cluster it has the lock key only.
    async fn send(
        &self,
        name: &LockName,
        purpose: Purpose,
        call: impl Fn() -> Call + Send + Sync,
    ) -> Result<Value, LockError> {
        let slot = || Ok(key_slot(&self.context.keys.lock(name)));
        let deadline = self.context.deadline;
        let sent = self.route.send(slot, purpose, deadline, &call, || Some(call())).await?;
        Ok(sent.value)
    }

    /// Sends a call that grants nothing.
    async fn call(
        &self,
        name: &LockName,
        call: impl Fn() -> Call + Send + Sync,
    ) -> Result<Value, LockError> {
        self.send(name, Purpose::Other, call).await
    }

    /// Renews grants, on a cluster those of each name by themselves.
    async fn renew(&self, renewals: &[&RenewRequest]) -> Renewed {
        let Some(slowest_trip) = self.route.slowest_trip() else {
            return self.renew_together(renewals).await;
        };
        let deadline = self.context.deadline;
        let timeouts = ReplyTimeouts { clock: &*self.clock, deadline, slowest_trip };
        let renew_name = |of_name: Vec<_>| async move {
            match self.renew_together(&of_name).await {
                Ok(replies) => replies,
                Err(error) => of_name.iter().map(|_| Err(error.clone())).collect(),
            }
        };
        Ok(cluster::by_name(renewals, timeouts, renew_name).await)
    }

    /// Renews grants by one call.
    async fn renew_together(&self, renewals: &[&RenewRequest]) -> Renewed {
        let Some(first) = renewals.first() else { return Ok(Vec::new()) };
        let call = || self.context.renew(renewals);
        let reply = self.send(&first.name, Purpose::Keep, call).await?;
        native::renewed(&reply, renewals.len())
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let call = || self.context.acquire(request);
        let reply = self.send(&request.name, Purpose::Grant, call).await?;
        self.reader.acquired(&reply, request)
    }

    /// Acquires by the bare command; inspects the lock only if it is held.
    async fn acquire_unfenced(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let AcquireRequest { name, lease_id, .. } = request;
        if self.given_up.has(*lease_id, || self.clock.now()) {
            return Err(LockError::new(ENGINE, ErrorKind::Cancelled, Certainty::NotApplied));
        }
        // There is no token: the smallest one is refused by any resource that has seen another.
        let granted = |left| AcquireReply::Granted { token: FencingToken::MIN, left, anchor: None };
        if !request.known && self.set_nx(request).await? {
            return Ok(granted(request.hold.duration()));
        }
        // A lock that was not acquired is not held under this id, unless the request is a
        // repetition.
        let looked = self.call(name, || self.context.inspect(name)).await;
        let looked = looked.map_err(|error| {
            if request.known { error } else { error.with_certainty(Certainty::NotApplied) }
        });
        let held = self.reader.parse_state(&looked?)?;
        let lease = lease_id.to_hex();
        Ok(match held {
            Some(held) if held.is(&lease) => granted(held.left),
            _ if request.known => AcquireReply::Unknown,
            Some(held) => held.busy(),
            // It was released in between.
            None => AcquireReply::Busy {
                holder: None,
                at_most: Some(Duration::ZERO),
                next_look: Duration::ZERO,
            },
        })
    }

    /// Sends the bare command, and returns whether it has set the key.
    async fn set_nx(&self, request: &AcquireRequest) -> Result<bool, LockError> {
        let reply = match self.route.server() {
            Some(link) => {
                let affinity = Some(*request.lease_id.as_bytes());
                let command = self.context.set_nx(request);
                link.command_granting(command, affinity, self.context.deadline).await?
            }
            None => {
                let call = || self.context.set_nx_by_script(request);
                self.send(&request.name, Purpose::Grant, call).await?
            }
        };
        match reply.as_text() {
            Some("OK" | "granted") => Ok(true),
            Some("held") => Ok(false),
            None if reply == Value::Nil => Ok(false),
            _ => Err(protocol("the reply to SET NX is neither OK nor null")),
        }
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        if let (false, Some(memory)) = (self.context.fencing, tombstone_of(request.ending)) {
            let now = self.clock.now();
            self.given_up.add(request.lease_id, now, now.after(memory));
        }
        let ReleaseRequest { name, lease_id, ending } = request;
        let link = self.route.server().filter(|_| !ending.for_good);
        let delete =
            |server: Arc<ServerFacts>| self.context.compare_and_delete(name, *lease_id, &server);
        if let Some(link) = link
            && let Some(command) = link.last_facts().and_then(delete)
        {
            let affinity = Some(*request.lease_id.as_bytes());
            let reply = link.command(command, affinity, self.context.deadline).await?;
            if reply.as_integer() == Some(1) {
                return Ok(ReleaseReply::Released { held_for: None });
            }
            // Nothing was deleted: the script finds out why.
        }
        let memory = tombstone_of(*ending);
        let call = || self.context.release(name, *lease_id, memory);
        native::released(&self.call(name, call).await?)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        match operation {
            Operation::RaiseFence { to } => {
                let Some(link) = self.route.server() else {
                    return Err(self.capabilities.lacks("fencing"));
                };
                native::operated(&link.call(|| self.context.raise(*to)).await?)
            }
            Operation::Revoke { name, token, reason, .. } => {
                self.revoke(name, *token, reason).await
            }
            Operation::Freeze { .. } | Operation::Unfreeze { .. } => {
                Err(self.capabilities.lacks("freeze"))
            }
            Operation::RevokeHolder { name, holder, reason } => {
                self.revoke_holder(name, holder, reason).await
            }
            Operation::RemoveWaiter { .. } => Err(operation.unsupported(&self.capabilities)),
        }
    }

    /// Finds the holder with this id, and ends its hold if the key still has the same value.
    async fn revoke_holder(
        &self,
        name: &LockName,
        holder: &str,
        reason: &str,
    ) -> Result<OperationReply, LockError> {
        self.context.keys.check(name)?;
        let Some(held) = self.holder(name).await?.filter(|held| held.has_id(holder)) else {
            return Ok(OperationReply::NothingThere);
        };
        match held.record.token() {
            // A grant of ours leaves a mark, so that its lease id cannot return.
            Some(token) => self.revoke(name, token, reason).await,
            None => {
                let call = || self.context.force(name, &held.bare);
                native::operated(&self.call(name, call).await?)
            }
        }
    }

    async fn holder(&self, name: &LockName) -> Result<Option<PlainHolder>, LockError> {
        self.reader.parse_state(&self.call(name, || self.context.inspect(name)).await?)
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        let reply = self.call(name, || self.context.inspect(name)).await;
        self.reader.inspected(&reply?, name)
    }

    /// Finds the grant with this token, and revokes it if it still has that.
    async fn revoke(
        &self,
        name: &LockName,
        token: FencingToken,
        reason: &str,
    ) -> Result<OperationReply, LockError> {
        let held = self.holder(name).await?;
        let found = held.and_then(|held| Some((held.record.lease_of(token)?, held.left)));
        let Some((lease_id, left)) = found else { return Ok(OperationReply::NothingThere) };
        let call = || self.context.revoke(name, lease_id, token, left, reason);
        native::operated(&self.call(name, call).await?)
    }
}

impl NameSource for PlainEngineParts {
    async fn names_after(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        budget: &mut ScanBudget,
    ) -> Result<NextNames, LockError> {
        let mut next_names = NextNames::default();
        let deadline = self.context.deadline;
        let scan = Scan { layout: &self.layout, kind: Some("string"), deadline };
        // Our marks, and the lists of releases, are no locks.
        let add = &mut |name| {
            if self.context.keys.check(&name).is_ok() {
                next_names.add(name);
            }
        };
        for server in self.route.masters().await? {
            scan.names_after(&server, prefix, after, budget, add).await?;
        }
        Ok(next_names)
    }

    async fn show(&self, names: &[LockName]) -> Result<Vec<Shown>, LockError> {
        Ok(listing::each(names, |name| self.inspect(name)).await)
    }
}

/// The hints of a store without notifications.
pub(crate) struct NoHints;

impl futures_core::Stream for NoHints {
    type Item = Hint;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Hint>> {
        Poll::Pending
    }
}

impl fmt::Debug for PlainEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainEngine")
            .field("identity", &self.0.capabilities.identity)
            .finish_non_exhaustive()
    }
}
