//! The engine of the plain dialect.

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
use super::replies::Reading;
use super::requests::{Asker, remembered};
use crate::engine::{LAG, MOST_LINES};
use crate::error::{ENGINE, protocol};
use crate::native;
use crate::node::{Node, ServerFacts};
use crate::options::{Dialect, RedisOptions};

/// The engine of one Redis server that shares its locks with other libraries. Clones share its
/// connection.
///
/// Holders exclude each other whatever library they use. There is no queue, as other libraries
/// tell nobody when they release: whoever waits asks again. Only a forced revoke works, and only
/// for a grant of ours.
#[derive(Clone)]
pub struct PlainEngine(Arc<Inner>);

struct Inner {
    capabilities: Capabilities,
    node: Node,
    clock: Arc<dyn Clock>,
    asker: Asker,
    reading: Reading,
    given_up: GivenUp,
}

impl PlainEngine {
    /// Makes an engine. It connects with its first command; [`PlainEngine::connect`] does it now.
    /// `clock` must count the time that the machine is suspended, as the server's does.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong, or the dialect is another.
    pub fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<PlainEngine, LockError> {
        options.must_be(Dialect::Plain, "make a `RedisEngine` of it")?;
        let node = Node::new(options, clock.clone())?;
        let asker = Asker {
            keys: Keys::of(options),
            format: options.lease_format(),
            fencing: options.fencing(),
            deadline: options.command_timeout(),
        };
        let reading = Reading { format: asker.format, fencing: asker.fencing };
        let capabilities = capabilities(options);
        let given_up = GivenUp::default();
        Ok(PlainEngine(Arc::new(Inner { capabilities, node, clock, asker, reading, given_up })))
    }

    /// Makes an engine and waits until it has a connection.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unavailable`: the server cannot be reached. `Refused`: it
    /// does not let us in. Nothing is held after any of them.
    pub async fn connect(
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<PlainEngine, LockError> {
        let engine = PlainEngine::new(options, clock)?;
        engine.0.node.ready().await?.check_is_alone()?;
        Ok(engine)
    }
}

fn capabilities(options: &RedisOptions) -> Capabilities {
    let identity =
        format!("{}/{} plain {}", options.address(), options.db(), options.key_template());
    let fencing = options.fencing();
    Capabilities {
        fair: false,
        shared: false,
        permits: false,
        queue: false,
        freeze: false,
        // Nothing tells which keys are locks.
        list: false,
        fencing,
        revoke: fencing,
        // There is no way to tell a holder.
        polite_revoke: false,
        // A bare lease says nothing of its holder.
        metadata: fencing,
        detach: fencing,
        repeat: fencing,
        hand_off: HandOff::None,
        lag: LAG,
        clock: ClockKind::Boottime,
        max_waiters: 0,
        max_batch: MOST_LINES,
        ..Capabilities::reference(ENGINE, identity)
    }
}

impl Verbs for PlainEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        match self.0.asker.fencing {
            true => self.0.acquire(request).await,
            false => self.0.take(request).await,
        }
    }

    async fn renew(&self, lines: &[&RenewRequest]) -> Renewed {
        let reply = self.0.node.call(|| self.0.asker.renew(lines)).await;
        native::renewed(&reply?, lines.len())
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        self.0.release(request).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        let reply = self.0.node.call(|| self.0.asker.inspect(name)).await;
        self.0.reading.inspected(&reply?, name)
    }

    async fn list(&self, _: &ListRequest) -> Result<ListPage, LockError> {
        Err(self.0.capabilities.lacks("listing"))
    }

    fn watch(&self, _: &LockName, _: LeaseId) -> Hints {
        Box::pin(Silence)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        self.0.operate(operation).await
    }
}

impl Inner {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let reply = self.node.call(|| self.asker.acquire(request)).await?;
        self.reading.acquired(&reply, request)
    }

    /// Takes by the bare command; looks who holds only when somebody does.
    async fn take(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let AcquireRequest { name, lease_id, .. } = request;
        if self.given_up.has(*lease_id, || self.clock.now()) {
            return Err(LockError::new(ENGINE, ErrorKind::Cancelled, Certainty::NotApplied));
        }
        // No token is given; the smallest of all is refused by whoever has ever seen one.
        let granted = |left| AcquireReply::Granted { token: FencingToken::MIN, left, anchor: None };
        if !request.known {
            let affinity = Some(*lease_id.as_bytes());
            let command = self.asker.take(request);
            let reply = self.node.command(command, affinity, self.asker.deadline).await?;
            match reply.as_text() {
                Some("OK") => return Ok(granted(request.hold.duration())),
                None if reply == crate::node::Value::Nil => {}
                _ => return Err(protocol("a taken lock was answered neither OK nor nothing")),
            }
        }
        // What was not taken is not held under this id, unless it was asked before.
        let looked = self.node.call(|| self.asker.inspect(name)).await;
        let looked = looked.map_err(|error| match request.known {
            true => error,
            false => error.with_certainty(Certainty::NotApplied),
        });
        let held = self.reading.looked(&looked?)?;
        let lease = self.asker.format.write(*lease_id);
        Ok(match held {
            Some(held) if held.is(&lease) => granted(held.left),
            _ if request.known => AcquireReply::Unknown,
            Some(held) => held.busy(),
            // It was freed in between.
            None => AcquireReply::Busy {
                holder: None,
                at_most: Some(Duration::ZERO),
                next_look: Duration::ZERO,
            },
        })
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        if let (false, Some(memory)) = (self.asker.fencing, remembered(request.ending)) {
            let now = self.clock.now();
            self.given_up.add(request.lease_id, now, now.after(memory));
        }
        let server = self.node.server();
        let ReleaseRequest { name, lease_id, ending } = request;
        let server = server.filter(|_| !ending.for_good);
        let delete = |server: Arc<ServerFacts>| self.asker.delete(name, *lease_id, &server);
        if let Some(command) = server.and_then(delete) {
            let affinity = Some(*request.lease_id.as_bytes());
            let reply = self.node.command(command, affinity, self.asker.deadline).await?;
            if reply.as_integer() == Some(1) {
                return Ok(ReleaseReply::Released { held_for: None });
            }
            // Nothing was deleted: the script tells why.
        }
        let memory = remembered(*ending);
        native::released(&self.node.call(|| self.asker.release(name, *lease_id, memory)).await?)
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        match operation {
            Operation::RaiseFence { to } => {
                native::operated(&self.node.call(|| self.asker.raise(*to)).await?)
            }
            Operation::Revoke { name, token, reason, .. } => {
                self.revoke(name, *token, reason).await
            }
            Operation::Freeze { .. } | Operation::Unfreeze { .. } => {
                Err(self.capabilities.lacks("freeze"))
            }
            Operation::Latch { .. } => Err(self.capabilities.lacks("latches")),
        }
    }

    /// Finds the grant that has the token, and takes it away if it still has.
    async fn revoke(
        &self,
        name: &LockName,
        token: FencingToken,
        reason: &str,
    ) -> Result<OperationReply, LockError> {
        let looked = self.node.call(|| self.asker.inspect(name)).await?;
        let held = self.reading.looked(&looked)?;
        let found = held.and_then(|held| Some((held.record.lease_of(token)?, held.left)));
        let Some((lease_id, left)) = found else { return Ok(OperationReply::NothingThere) };
        let call = || self.asker.revoke(name, lease_id, token, left, reason);
        native::operated(&self.node.call(call).await?)
    }
}

/// The hints of a store that tells nothing.
pub(crate) struct Silence;

impl futures_core::Stream for Silence {
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
