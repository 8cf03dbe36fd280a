//! The requests of a fair lock, which is Redisson's `RFairLock`.
//!
//! - Invariant Q1: a heartbeat never takes the lock.
//! - Invariant Q2: each waiter has the channel on which Redisson wakes it, and no other.
//!
//! Read next: `scripts/redisson_fair_queue.lua` for the queue and its times.

use holdline_core::contract::Purpose;
use holdline_core::{
    AcquireRequest, Certainty, LeaseId, LockError, RenewReply, RenewRequest, Renewed,
};

use super::calls::Calls;
use super::names::{LOCK_CHANNEL, Mapped, Names};
use super::owner::owner_of;
use super::requests::RequestContext;
use super::{FAIR, FAIR_WAIT};
use crate::args::Args;
use crate::error::unavailable;
use crate::in_flight::InFlight;
use crate::link::{Call, RoutingPolicy};
use crate::native;
use crate::native::record::mode_text;
use crate::native::requests::{kind_of, millis};
use crate::route::{self, PublishVerbs};

/// The usual size of the keys, or of the arguments, in bytes.
const ROOM: usize = 512;

impl Names {
    /// Returns the channel on which Redisson wakes a waiter for a fair lock.
    pub(super) fn waiter_channel(&self, mapped: &Mapped, lease_id: LeaseId) -> String {
        format!("{LOCK_CHANNEL}{}:{}", mapped.tag, owner_of(lease_id))
    }

    /// Returns the key of the list of those that wait for a fair lock.
    pub(super) fn fair_queue(&self, mapped: &Mapped) -> String {
        format!("redisson_lock_queue:{}", mapped.tag)
    }

    /// Returns the keys of a queue: its list, when Redisson takes each waiter for dead, and the
    /// heartbeats of ours.
    pub(crate) fn fair_keys(&self, mapped: &Mapped) -> [String; 3] {
        let Mapped { tag, .. } = mapped;
        [
            self.fair_queue(mapped),
            format!("redisson_lock_timeout:{tag}"),
            format!("{}beats:{tag}", self.prefix()),
        ]
    }

    /// Adds the keys of a queue.
    pub(super) fn push_fair_queue(&self, keys: &mut Args, mapped: &Mapped) {
        self.fair_keys(mapped).iter().for_each(|key| keys.push(key));
    }

    /// Makes the keys of a request that waits.
    fn waiter_keys(&self, mapped: &Mapped, lease_id: LeaseId) -> Args {
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
        let mut keys = self.names.waiter_keys(&mapped, *lease_id);
        if self.fencing {
            keys.push(self.names.counter(&mapped));
        }
        let ms = request.hold.duration().map(millis).unwrap_or_default();
        let kind = kind_of(request.hold);
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
        let keys = self.names.waiter_keys(&mapped, renewal.lease_id);
        let mut arguments = Args::with_capacity(ROOM);
        arguments.push(owner_of(renewal.lease_id));
        arguments.push(verbs);
        arguments.push(&mapped.tag);
        let routing = RoutingPolicy::Any;
        Call { script: &FAIR_WAIT, keys, arguments, routing, deadline: self.deadline }
    }
}

impl Calls {
    /// Renews grants, and sends the heartbeats of waiters, all concurrently. Returns the replies in
    /// order.
    pub(super) async fn renew_or_wait(&self, renewals: &[&RenewRequest]) -> Renewed {
        let (waiting, kept): (Vec<usize>, Vec<usize>) =
            (0..renewals.len()).partition(|at| renewals[*at].purpose == Purpose::Wait);
        if waiting.is_empty() {
            return self.renew_all(renewals).await;
        }
        let mut in_flight = InFlight::with_capacity(waiting.len());
        for at in waiting {
            in_flight.push(at, self.wait(renewals[at]));
        }
        let unanswered = || Err(unavailable("the item was not answered", Certainty::Unknown));
        let mut results: Vec<_> = renewals.iter().map(|_| unanswered()).collect();
        let keeping = async {
            let of_kept: Vec<&RenewRequest> = kept.iter().map(|at| renewals[*at]).collect();
            if of_kept.is_empty() { Ok(Vec::new()) } else { self.renew_all(&of_kept).await }
        };
        let beating = async {
            while let Some((at, reply)) = in_flight.next().await {
                results[at] = reply;
            }
        };
        let (replies, ()) = tokio::join!(keeping, beating);
        match replies {
            Ok(replies) => kept.iter().zip(replies).for_each(|(at, reply)| results[*at] = reply),
            Err(error) => kept.iter().for_each(|at| results[*at] = Err(error.clone())),
        }
        Ok(results)
    }

    /// Sends the heartbeat of one waiter.
    async fn wait(&self, renewal: &RenewRequest) -> Result<RenewReply, LockError> {
        let verbs = self.route.publish_verbs().await;
        let call = || self.context.fair_wait(renewal, verbs);
        let sent = self.send(&renewal.name, route::Purpose::Other, call).await?;
        native::renewal(&sent.value)
    }
}
