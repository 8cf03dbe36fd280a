//! The requests of a fair lock, which is Redisson's `RFairLock`, and who waits for one here.
//!
//! - Invariant Q1: a lease id is among the waiters from its first request until the reply says that
//!   it does not wait, or until it is released. So a watch knows on which channel Redisson wakes
//!   it.
//! - Invariant Q2: a heartbeat never takes the lock.
//!
//! Read next: `scripts/redisson_fair_queue.lua` for the queue and its times.

use std::collections::HashSet;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, Hint, Hints, LeaseId, LockError, LockName,
    RenewRequest,
};
use parking_lot::Mutex;

use super::engine::Inner;
use super::names::{Mapped, Names};
use super::owner::owner_of;
use super::requests::{PublishVerbs, RequestContext};
use super::{FAIR, FAIR_WAIT};
use crate::args::Args;
use crate::link::{Call, RoutingPolicy, Subscription, SubscriptionEvent};
use crate::native::record::mode_text;
use crate::native::requests::{kind_of, millis};

/// The usual size of the keys, or the arguments, of one name.
const ROOM: usize = 512;

impl Names {
    /// Returns the channel on which Redisson wakes a waiter for a fair lock.
    pub(super) fn waiter_channel(&self, mapped: &Mapped, lease_id: LeaseId) -> String {
        format!("redisson_lock__channel:{}:{}", mapped.tag, owner_of(lease_id))
    }

    /// Returns the key of the list of those that wait for a fair lock.
    pub(super) fn fair_queue(&self, mapped: &Mapped) -> String {
        format!("redisson_lock_queue:{}", mapped.tag)
    }

    /// Returns the key of their times of death.
    fn fair_scores(&self, mapped: &Mapped) -> String {
        format!("redisson_lock_timeout:{}", mapped.tag)
    }

    /// Returns the key of the heartbeats of our waiters.
    pub(super) fn fair_beats(&self, mapped: &Mapped) -> String {
        format!("{}beats:{}", self.prefix(), mapped.tag)
    }

    /// Adds the keys of a queue.
    pub(super) fn push_fair_queue(&self, keys: &mut Args, mapped: &Mapped) {
        keys.push(self.fair_queue(mapped));
        keys.push(self.fair_scores(mapped));
        keys.push(self.fair_beats(mapped));
    }

    /// Makes the keys of a request that waits.
    fn fair_keys(&self, mapped: &Mapped, lease_id: LeaseId) -> Args {
        let mut keys = Args::with_capacity(ROOM);
        keys.push(&mapped.key);
        keys.push(self.mark(mapped, lease_id));
        self.push_fair_queue(&mut keys, mapped);
        keys
    }
}

impl RequestContext {
    /// Takes a fair lock, or joins its queue.
    pub(super) fn fair(
        &self,
        request: &AcquireRequest,
        max_waiters: usize,
        verbs: PublishVerbs,
    ) -> Call {
        let AcquireRequest { lease_id, .. } = request;
        let mapped = self.names.map(&request.name);
        let mut keys = self.names.fair_keys(&mapped, *lease_id);
        if self.fencing {
            keys.push(self.names.counter(&mapped));
        }
        let (ms, kind) =
            (request.hold.duration().map(millis).unwrap_or_default(), kind_of(request.hold));
        let metadata = request.metadata.as_encoded();
        let mut arguments = Args::with_capacity(ROOM + metadata.len());
        arguments.push(owner_of(*lease_id));
        arguments.push_number(ms);
        arguments.push(format!("{kind}{}{kind}{ms}", mode_text(request.mode)));
        arguments.push(metadata);
        arguments.push(if request.known { "k" } else { "-" });
        arguments.push_number(max_waiters as u64);
        arguments.push(verbs);
        arguments.push(&mapped.tag);
        let routing = RoutingPolicy::Retry(*lease_id.as_bytes());
        Call { script: &FAIR, keys, arguments, routing, deadline: self.deadline }
    }

    /// Sends the heartbeat of a waiter.
    pub(super) fn fair_wait(&self, renewal: &RenewRequest, verbs: PublishVerbs) -> Call {
        let mapped = self.names.map(&renewal.name);
        let keys = self.names.fair_keys(&mapped, renewal.lease_id);
        let mut arguments = Args::with_capacity(ROOM);
        arguments.push(owner_of(renewal.lease_id));
        arguments.push(verbs);
        arguments.push(&mapped.tag);
        let routing = RoutingPolicy::Any;
        Call { script: &FAIR_WAIT, keys, arguments, routing, deadline: self.deadline }
    }
}

/// The lease ids that wait for fair locks.
#[derive(Debug, Default)]
pub(super) struct FairWaiters(Mutex<HashSet<LeaseId>>);

impl FairWaiters {
    /// Notes that a request under this id is sent.
    pub(super) fn asks(&self, lease_id: LeaseId) {
        self.0.lock().insert(lease_id);
    }

    /// Notes the reply.
    pub(super) fn answered(&self, lease_id: LeaseId, reply: &Result<AcquireReply, LockError>) {
        let may_wait = match reply {
            Ok(reply) => matches!(reply, AcquireReply::Queued { .. }),
            Err(error) => error.certainty() == Certainty::Unknown,
        };
        if !may_wait {
            self.forget(lease_id);
        }
    }

    /// Notes that the id is given up.
    pub(super) fn forget(&self, lease_id: LeaseId) {
        self.0.lock().remove(&lease_id);
    }

    pub(super) fn has(&self, lease_id: LeaseId) -> bool {
        self.0.lock().contains(&lease_id)
    }
}

/// Returns the hints of a waiter: its messages, and each new subscription, before which one may
/// have been missed.
pub(super) fn hints(inner: &Inner, name: &LockName, lease_id: LeaseId) -> Hints {
    let names = &inner.context.names;
    let channel = names.waiter_channel(&names.map(name), lease_id);
    Box::pin(WaiterHints(inner.route.subscribe(channel)))
}

struct WaiterHints(Subscription);

impl Stream for WaiterHints {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        loop {
            match ready!(Pin::new(&mut self.0).poll_next(context)) {
                Some(SubscriptionEvent::Message(_) | SubscriptionEvent::Resubscribed) => {
                    return Poll::Ready(Some(Hint::LookAgain));
                }
                Some(SubscriptionEvent::Lost) => {}
                None => return Poll::Ready(None),
            }
        }
    }
}
