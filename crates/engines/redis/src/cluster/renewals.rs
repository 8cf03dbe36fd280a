//! Renewals on a cluster: a call for each name, all concurrently. A silent node delays no other.

use std::collections::BTreeMap;
use std::time::Duration;

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{
    Certainty, Clock, LockError, LockName, Moment, Purpose, RenewReply, RenewRequest,
};

use crate::error::unavailable;
use crate::in_flight::InFlight;

/// For which part of the shortest lease in a batch the replies that are there wait for the others.
const GRACE_PART: u32 = 12;
const MIN_GRACE: Duration = Duration::from_millis(20);

/// The replies to some renewals, in their order.
pub(crate) type Replies = Vec<Result<RenewReply, LockError>>;

/// How long to wait for nodes.
pub(crate) struct ReplyTimeouts<'a> {
    pub(crate) clock: &'a dyn Clock,
    /// How long one call may take.
    pub(crate) deadline: Duration,
    /// The longest round trip of the nodes that answer.
    pub(crate) slowest_trip: Duration,
}

/// Renews each name by `renew_name`.
pub(crate) async fn by_name<'a, F>(
    renewals: &[&'a RenewRequest],
    timeouts: ReplyTimeouts<'_>,
    renew_name: impl Fn(Vec<&'a RenewRequest>) -> F,
) -> Replies
where
    F: Future<Output = Replies> + Send,
{
    let mut names: BTreeMap<&LockName, Vec<usize>> = BTreeMap::new();
    for (at, renewal) in renewals.iter().enumerate() {
        names.entry(&renewal.name).or_default().push(at);
    }
    let mut in_flight = InFlight::with_capacity(names.len());
    let groups: Vec<Vec<usize>> = names.into_values().collect();
    for (number, indexes) in groups.iter().enumerate() {
        let of_name: Vec<&RenewRequest> = indexes.iter().map(|at| renewals[*at]).collect();
        in_flight.push(number, renew_name(of_name));
    }
    let no_reply = || {
        let message = "the node did not answer while others did";
        Err(unavailable(message, Certainty::Unknown))
    };
    let mut results: Vec<_> = renewals.iter().map(|_| no_reply()).collect();
    let grace = timeouts.grace(renewals);
    let mut some_answered = false;
    while let Some((number, replies)) =
        timeouts.next(&mut in_flight, some_answered.then_some(grace)).await
    {
        some_answered = true;
        for (at, reply) in groups[number].iter().zip(replies) {
            results[*at] = reply;
        }
    }
    results
}

impl ReplyTimeouts<'_> {
    /// Returns the next reply; `None` when none comes within the grace, if there is one.
    async fn next<T>(
        &self,
        in_flight: &mut InFlight<'_, T>,
        grace: Option<Duration>,
    ) -> Option<(usize, T)> {
        let end = grace.map_or(Moment::NEVER, |grace| self.clock.now().after(grace));
        in_flight.next_before(end, self.clock).await
    }

    /// Returns how long the replies that are there wait for a silent node: a small part of the
    /// shortest lease, but several round trips. For heartbeats it is half an interval, as their
    /// replies are not needed before the next one.
    fn grace(&self, renewals: &[&RenewRequest]) -> Duration {
        let lease = |renewal: &&RenewRequest| match renewal.purpose {
            Purpose::Keep(hold) => hold.duration(),
            Purpose::Wait => None,
        };
        let shortest = renewals.iter().filter_map(lease).min();
        let longest = self.deadline / 4;
        let trips = self.slowest_trip.saturating_mul(4).min(longest);
        match shortest {
            Some(lease) => (lease / GRACE_PART).min(longest).max(MIN_GRACE).max(trips),
            None => longest.min(QUEUE_HEARTBEAT / 2),
        }
    }
}
