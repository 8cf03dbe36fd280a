//! The engine of a quorum.

use std::fmt;
use std::sync::Arc;

use holdline_core::hints::Watches;
use holdline_core::quorum::configuration::DEFAULT_MAX_LEASE;
use holdline_core::{
    AcquireReply, AcquireRequest, Capabilities, Clock, ClockKind, ErrorKind, HandOff, HealthFeed,
    Hint, Hints, LeaseId, ListPage, ListRequest, LockError, LockName, Operation, OperationReply,
    ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Renewed, Snapshot, Verbs,
};

use super::hints::ReleaseHints;
use super::listing::NodeNames;
use super::member::Member;
use super::options::QuorumOptions;
use super::set::NodeSet;
use super::{ENGINE, attempt, inspect, known, release, renewal, undo, unfenced};
use crate::inbox::{Grants, ProcessInbox};
use crate::keys::Layout;
use crate::limits::{LAG, MAX_BATCH};
use crate::native::RequestContext;
use crate::native::listing::Listings;
use crate::options::Dialect;
use crate::plain::NoHints;

/// Redlock with fencing tokens over independent Redis servers. Clones share its connections.
#[derive(Clone)]
pub struct QuorumEngine(Arc<QuorumEngineParts>);

struct QuorumEngineParts {
    capabilities: Capabilities,
    set: Arc<NodeSet>,
    /// On each node, the subscription that notifies holders of revocations.
    inboxes: Vec<ProcessInbox>,
    listings: Listings,
    /// The type of the lock keys.
    kind: &'static str,
}

impl QuorumEngine {
    /// Connects, and waits until the state of the set is known. `clock` must include the time in
    /// which the machine is suspended, as the servers' clocks do.
    ///
    /// A set that is not usable yet is no error here: too few nodes answer, it is not initialised,
    /// or its nodes are in quarantine. Each command reports that.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Refused`: these servers are not one set of independent
    /// servers, or reject our credentials. Nothing is held after either.
    pub async fn connect(
        options: &QuorumOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<QuorumEngine, LockError> {
        let mut inner = QuorumEngineParts::new(options, &clock)?;
        let servers = options.nodes().len();
        if servers.is_multiple_of(2) {
            tracing::warn!(
                servers,
                "an even number of servers tolerates no more failures than one fewer"
            );
        }
        if inner.set.unfenced.is_some() {
            unfenced::connect(&inner.set).await?;
            return Ok(QuorumEngine(Arc::new(inner)));
        }
        match inner.set.view().await {
            Ok(view) => inner.capabilities.lease.max = view.configuration.max_lease(),
            Err(error) if matches!(error.kind(), ErrorKind::Refused { .. }) => return Err(error),
            Err(_) => {}
        }
        Ok(QuorumEngine(Arc::new(inner)))
    }

    /// Returns where it reports the state of its nodes: after each round in which it asks them,
    /// every 5 s, and more often while one of them is not well. Without fencing it reports nothing,
    /// since such nodes are asked nothing between requests.
    pub fn health(&self) -> &HealthFeed {
        &self.0.set.health
    }
}

/// Makes the context of requests to the nodes.
pub(super) fn context(options: &QuorumOptions) -> RequestContext {
    let first = &options.nodes()[0];
    let random = || match first.environment() {
        Some(environment) => environment.random(),
        None => rand::random(),
    };
    let layout = match first.dialect() {
        Dialect::Native => Layout::new,
        Dialect::Plain | Dialect::Redisson => Layout::plain,
    };
    RequestContext {
        layout: layout(first.key_template(), first.prefix()),
        scripts: &crate::native::SERVER,
        // Never all zeros, which is the inbox of a client without a subscription.
        inbox: format!("{:08x}{:08x}", random(), random() | 1),
        deadline: first.command_timeout(),
    }
}

fn capabilities(options: &QuorumOptions) -> Capabilities {
    let mut addresses: Vec<String> =
        options.nodes().iter().map(|node| node.address().to_string()).collect();
    addresses.sort_unstable();
    let first = &options.nodes()[0];
    let place = format!("{}/{}", addresses.join(","), first.db());
    let identity = match first.dialect() {
        Dialect::Native => format!("{place} {} {}", first.key_template(), first.prefix()),
        // All clients of the same key share the lock, whatever else they keep.
        Dialect::Plain => format!("{place} plain {}", first.key_template()),
        Dialect::Redisson => format!("{place} redisson {}", first.key_template()),
    };
    let mut capabilities = Capabilities {
        fair: false,
        shared: false,
        permits: false,
        queue: false,
        remove_waiter: false,
        freeze: false,
        // A key of our own always ends. Those of other libraries may be left for ever.
        list: first.dialect() != Dialect::Native,
        hand_off: HandOff::None,
        // Another majority might answer, with another token.
        repeat: false,
        splits: true,
        lag: LAG,
        clock: ClockKind::Boottime,
        max_waiters: 0,
        max_batch: MAX_BATCH,
        ..Capabilities::reference(ENGINE, identity)
    };
    if first.fencing() {
        capabilities.lease.max = DEFAULT_MAX_LEASE;
        return capabilities;
    }
    // An unfenced lease has no data about its holder, and nothing else is kept.
    Capabilities {
        fencing: false,
        revoke: false,
        // Without tokens each node has the bare value, which is compared there.
        revoke_holder: first.dialect() == Dialect::Plain,
        polite_revoke: false,
        metadata: false,
        detach: false,
        ..capabilities
    }
}

impl Verbs for QuorumEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let set = &self.0.set;
        set.context.layout.check(&request.name)?;
        match (&set.unfenced, request.known) {
            (Some(unfenced), true) => unfenced::acquire_known(set, unfenced, request).await,
            (Some(unfenced), false) => unfenced::acquire(set, unfenced, request).await,
            (None, true) => known::acquire_known(set, request).await,
            (None, false) => self.0.acquire(request).await,
        }
    }

    async fn renew(&self, requests: &[&RenewRequest]) -> Renewed {
        let set = &self.0.set;
        Ok(match &set.unfenced {
            Some(unfenced) => unfenced::renew(set, unfenced, requests).await,
            None => {
                let replies = renewal::renew(set, requests).await;
                for (request, reply) in requests.iter().zip(&replies) {
                    if reply.as_ref().is_ok_and(RenewReply::is_over) {
                        set.tokens.ended(request.lease_id);
                    }
                }
                replies
            }
        })
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        self.0.set.watches.forget(request.lease_id);
        self.0.set.tokens.ended(request.lease_id);
        release::release(&self.0.set, request).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        self.0.set.context.layout.check(name)?;
        inspect::inspect(&self.0.set, name).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        self.0.listings.page(request, &NodeNames { set: &self.0.set, kind: self.0.kind }).await
    }

    /// Hints of a revocation to a holder, of a release to a contender.
    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        let set = &self.0.set;
        if let Some(unfenced) = &set.unfenced {
            return match unfenced.commands.channel(name) {
                Some(channel) => Box::pin(ReleaseHints::of_channel(set, channel.as_bytes())),
                None => Box::pin(NoHints),
            };
        }
        if !set.watches.expects(lease_id) {
            return Box::pin(ReleaseHints::open(set, name));
        }
        let stream = Watches::open(&set.watches, lease_id);
        self.0.inboxes.iter().for_each(ProcessInbox::open);
        // A message before the subscription is lost, so the watcher must ask first (G4 of the
        // contract).
        set.watches.notify(lease_id, Hint::CheckLease);
        Box::pin(stream)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        let set = &self.0.set;
        match operation {
            Operation::Revoke { name, token, reason, now } => {
                inspect::revoke(set, name, *token, reason, *now).await
            }
            Operation::RaiseFence { to } => inspect::raise(set, *to).await,
            Operation::Freeze { .. } | Operation::Unfreeze { .. } => {
                Err(self.0.capabilities.lacks("freeze"))
            }
            Operation::RevokeHolder { name, holder, .. } => match &set.unfenced {
                Some(unfenced) => unfenced::revoke_holder(set, unfenced, name, holder).await,
                None => Err(operation.unsupported(&self.0.capabilities)),
            },
            Operation::RemoveWaiter { .. } => Err(operation.unsupported(&self.0.capabilities)),
        }
    }

    async fn flush(&self) {
        undo::flush(&self.0.set).await;
    }
}

impl QuorumEngineParts {
    fn new(
        options: &QuorumOptions,
        clock: &Arc<dyn Clock>,
    ) -> Result<QuorumEngineParts, LockError> {
        options.validate()?;
        let set = NodeSet::new(options, context(options), clock.clone())?;
        let channel = set.context.layout.inbox(&set.context.inbox);
        let inbox = |member: &Member| {
            let link = member.link().clone();
            ProcessInbox::new(
                link,
                clock.clone(),
                channel.clone(),
                set.watches.clone(),
                Grants::Asked,
            )
        };
        let inboxes = set.members.iter().map(inbox).collect();
        let listings = Listings::new(clock.clone());
        let kind = match options.nodes()[0].dialect() {
            Dialect::Redisson => "hash",
            Dialect::Native | Dialect::Plain => "string",
        };
        let capabilities = capabilities(options);
        Ok(QuorumEngineParts { capabilities, set, inboxes, listings, kind })
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let reply = attempt::acquire(&self.set, request).await;
        if let Ok(AcquireReply::Granted { token, .. }) = &reply {
            self.set.watches.expect(request.lease_id);
            self.set.tokens.granted(request.lease_id, *token);
        }
        reply
    }
}

impl fmt::Debug for QuorumEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumEngine")
            .field("identity", &self.0.capabilities.identity)
            .finish_non_exhaustive()
    }
}
