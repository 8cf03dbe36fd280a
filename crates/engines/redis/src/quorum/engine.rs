//! The engine of a quorum.

use std::fmt;
use std::sync::Arc;

use holdline_core::hints::Watches;
use holdline_core::quorum::configuration::DEFAULT_MAX_LEASE;
use holdline_core::{
    AcquireReply, AcquireRequest, Capabilities, Clock, ClockKind, ErrorKind, HandOff, Hint, Hints,
    LeaseId, ListPage, ListRequest, LockError, LockName, Operation, OperationReply, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Renewed, Snapshot, Verbs,
};

use super::member::Member;
use super::options::QuorumOptions;
use super::set::Set;
use super::wake::Wakes;
use super::{ENGINE, attempt, bare, look, release, renewal};
use crate::ears::Ears;
use crate::engine::{LAG, MOST_LINES};
use crate::keys::Layout;
use crate::native::Asker;
use crate::options::Dialect;
use crate::plain::Silence;

/// Redlock with fencing tokens over independent Redis servers. Clones share its connections.
#[derive(Clone)]
pub struct QuorumEngine(Arc<Inner>);

struct Inner {
    capabilities: Capabilities,
    set: Arc<Set>,
    watches: Arc<Watches>,
    /// What hears, on each node, of what becomes of a holder.
    ears: Vec<Ears>,
}

impl QuorumEngine {
    /// Makes an engine, and waits until it knows how its set stands. `clock` must count the time
    /// that the machine is suspended, as the servers' do.
    ///
    /// A set that cannot be used yet (too few nodes answer, nobody has set it up, its nodes wait)
    /// is no error here: each command tells.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Refused`: these servers are not one set of independent
    /// servers, or do not let us in. Nothing is held after any of them.
    pub async fn connect(
        options: &QuorumOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<QuorumEngine, LockError> {
        let mut inner = Inner::new(options, &clock)?;
        let servers = options.nodes().len();
        if servers.is_multiple_of(2) {
            tracing::warn!(servers, "an even number survives no more losses than one less");
        }
        if inner.set.bare.is_some() {
            bare::connect(&inner.set).await?;
            return Ok(QuorumEngine(Arc::new(inner)));
        }
        match inner.set.roster().await {
            Ok(roster) => inner.capabilities.lease.max = roster.configuration.max_lease(),
            Err(error) if matches!(error.kind(), ErrorKind::Refused { .. }) => return Err(error),
            Err(_) => {}
        }
        Ok(QuorumEngine(Arc::new(inner)))
    }
}

/// How the nodes of a quorum are asked.
pub(super) fn asker(options: &QuorumOptions) -> Asker {
    let first = &options.nodes()[0];
    let random = || match first.surroundings() {
        Some(surroundings) => surroundings.random(),
        None => rand::random(),
    };
    let layout = match first.dialect() {
        Dialect::Native => Layout::new,
        Dialect::Plain => Layout::plain,
    };
    Asker {
        layout: layout(first.key_template(), first.prefix()),
        scripts: &crate::native::SERVER,
        // Never all zeros, which is the inbox of those who hear nothing.
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
        // Whoever takes the same key shares the lock, whatever is kept besides.
        Dialect::Plain => format!("{place} plain {}", first.key_template()),
    };
    let mut capabilities = Capabilities {
        fair: false,
        shared: false,
        permits: false,
        queue: false,
        freeze: false,
        list: false,
        hand_off: HandOff::None,
        // Another majority might answer, with another token.
        repeat: false,
        splits: true,
        lag: LAG,
        clock: ClockKind::Boottime,
        max_waiters: 0,
        max_batch: MOST_LINES,
        ..Capabilities::reference(ENGINE, identity)
    };
    if first.fencing() {
        capabilities.lease.max = DEFAULT_MAX_LEASE;
        return capabilities;
    }
    // A bare lease says nothing of its holder, and nothing else is kept.
    Capabilities {
        fencing: false,
        revoke: false,
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
        match (&set.bare, request.known) {
            (Some(bare), true) => bare::again(set, bare, request).await,
            (Some(bare), false) => bare::acquire(set, bare, request).await,
            (None, true) => attempt::again(set, request).await,
            (None, false) => self.0.acquire(request).await,
        }
    }

    async fn renew(&self, lines: &[&RenewRequest]) -> Renewed {
        let set = &self.0.set;
        Ok(match &set.bare {
            Some(bare) => bare::renew(set, bare, lines).await,
            None => {
                let replies = renewal::renew(set, lines).await;
                for (line, reply) in lines.iter().zip(&replies) {
                    if reply.as_ref().is_ok_and(RenewReply::is_over) {
                        set.tokens.ended(line.lease_id);
                    }
                }
                replies
            }
        })
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        self.0.watches.forget(request.lease_id);
        self.0.set.tokens.ended(request.lease_id);
        release::release(&self.0.set, request).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        look::inspect(&self.0.set, name).await
    }

    async fn list(&self, _: &ListRequest) -> Result<ListPage, LockError> {
        Err(self.0.capabilities.lacks("listing"))
    }

    /// A holder hears of a revoke, a contender of a release.
    fn watch(&self, name: &LockName, lease_id: LeaseId) -> Hints {
        if self.0.set.bare.is_some() {
            return Box::pin(Silence);
        }
        if !self.0.watches.expects(lease_id) {
            return Box::pin(Wakes::open(&self.0.set, name));
        }
        let stream = Watches::open(&self.0.watches, lease_id);
        self.0.ears.iter().for_each(Ears::open);
        // Nothing was heard before: whoever watches has to ask (rule G4).
        self.0.watches.tell(lease_id, Hint::CheckLease);
        Box::pin(stream)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        let set = &self.0.set;
        match operation {
            Operation::Revoke { name, token, reason, now } => {
                look::revoke(set, name, *token, reason, *now).await
            }
            Operation::RaiseFence { to } => look::raise(set, *to).await,
            Operation::Freeze { .. } | Operation::Unfreeze { .. } => {
                Err(self.0.capabilities.lacks("freeze"))
            }
            Operation::Latch { .. } => Err(self.0.capabilities.lacks("latches")),
        }
    }

    async fn flush(&self) {
        release::flush(&self.0.set).await;
    }
}

impl Inner {
    fn new(options: &QuorumOptions, clock: &Arc<dyn Clock>) -> Result<Inner, LockError> {
        options.validate()?;
        let set = Set::new(options, asker(options), clock.clone())?;
        let watches = set.watches.clone();
        let channel = set.asker.layout.inbox(&set.asker.inbox);
        let ear = |member: &Member| {
            Ears::new(member.node().clone(), clock.clone(), channel.clone(), watches.clone())
        };
        let ears = set.members.iter().map(ear).collect();
        let capabilities = capabilities(options);
        Ok(Inner { capabilities, set, watches, ears })
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let reply = attempt::acquire(&self.set, request).await;
        if let Ok(AcquireReply::Granted { token, .. }) = &reply {
            self.watches.expect(request.lease_id);
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
