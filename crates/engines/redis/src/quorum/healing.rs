//! How a lease is taken again on nodes that have nothing of it (*healing*), so that a set does not
//! wear out as its nodes are restarted one by one.
//!
//! - Invariant H1: a lease is taken again only behind a renewal of it that a majority kept, and
//!   only with its own token: a node that voted after the decision may have another on record. That
//!   is the token which this process was granted, else the one that a majority of all nodes has on
//!   record ([`proven`]). It counts from the next renewal, and never proves a token (Q6).
//! - Invariant H2: who is slower than that majority is heard out. Else a node that always answers
//!   last would never be given back what it has lost.
//! - Invariant H3: nothing is taken again behind a release. Whoever lets a lease go while a
//!   [`Visit`] goes round for it leaves a tombstone on every node, which a healing that comes late
//!   finds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::proven;
use holdline_core::{FencingToken, LeaseId, LockName, Purpose, RenewRequest};
use parking_lot::Mutex;

use super::race::Race;
use super::renewal::Answered;
use super::replies::{self, Record, Renewed};
use super::requests::{self, Pass};
use super::roster::{Roster, Seat};
use super::set::Set;

/// For how many renewals and healings of each lease messages may be on their way.
#[derive(Debug, Default)]
pub(super) struct Visits(Mutex<BTreeMap<LeaseId, usize>>);

impl Visits {
    /// Tells whether something that takes a lease again may come yet.
    pub(super) fn any(&self, lease_id: LeaseId) -> bool {
        self.0.lock().contains_key(&lease_id)
    }

    /// Tells whether nothing is on its way for any lease.
    pub(super) fn are_over(&self) -> bool {
        self.0.lock().is_empty()
    }
}

/// The tokens of the leases that were granted to this process and have not ended, as far as it
/// knows. Where the nodes that kept a lease disagree on its token, this decides.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<BTreeMap<LeaseId, FencingToken>>);

impl Tokens {
    pub(super) fn granted(&self, lease_id: LeaseId, token: FencingToken) {
        self.0.lock().insert(lease_id, token);
    }

    pub(super) fn ended(&self, lease_id: LeaseId) {
        self.0.lock().remove(&lease_id);
    }

    fn of(&self, lease_id: LeaseId) -> Option<FencingToken> {
        self.0.lock().get(&lease_id).copied()
    }
}

/// One renewal of a lease and what comes of it, until all is heard.
pub(super) struct Visit {
    set: Arc<Set>,
    lease_id: LeaseId,
}

impl Visit {
    /// Begins one, if the line is to be kept: what is only looked at is not taken again.
    pub(super) fn of(set: &Arc<Set>, request: &RenewRequest) -> Option<Visit> {
        if request.purpose == Purpose::Wait {
            return None;
        }
        *set.visits.0.lock().entry(request.lease_id).or_default() += 1;
        Some(Visit { set: set.clone(), lease_id: request.lease_id })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let set = self.set.clone();
        let mut visits = set.visits.0.lock();
        if let Some(count) = visits.get_mut(&self.lease_id) {
            *count -= 1;
            if *count == 0 {
                visits.remove(&self.lease_id);
            }
        }
        drop(visits);
        set.debts.changed();
    }
}

/// A lease that a majority keeps, and where it is to be taken again.
pub(super) struct Healing {
    name: LockName,
    lease_id: LeaseId,
    lease: Duration,
    /// The nodes that keep it.
    from: Vec<(usize, Arc<Pass>)>,
    to: Vec<(usize, Arc<Pass>)>,
    _visit: Visit,
}

impl Healing {
    pub(super) fn new(request: &RenewRequest, lease: Duration, visit: Visit) -> Healing {
        let (name, lease_id) = (request.name.clone(), request.lease_id);
        Healing { name, lease_id, lease, from: Vec::new(), to: Vec::new(), _visit: visit }
    }

    /// Notes a node that keeps the lease.
    pub(super) fn keeps(&mut self, roster: &Roster, node: usize) {
        self.from.extend(pass(roster, node));
    }

    /// Notes a node that has nothing of it, and where nobody else has the name.
    pub(super) fn lacks(&mut self, roster: &Roster, node: usize) {
        self.to.extend(pass(roster, node));
    }

    /// Takes the lease again where that is still to be done.
    async fn carry_out(&mut self, set: &Set) {
        let to = std::mem::take(&mut self.to);
        let Some(record) = self.record(set).await else { return };
        let deadline = set.node_deadline(self.lease);
        let mut race = Race::with_room(to.len());
        for (node, pass) in &to {
            let (name, id, record, lease) = (&self.name, self.lease_id, &record, self.lease);
            race.add(*node, async move {
                let call =
                    || requests::heal(&set.asker, pass, name, id, record, lease).within(deadline);
                let reply = set.members[*node].node().call_of(Some(pass.marker()), call).await?;
                replies::healed(&reply, pass)
            });
        }
        while let Some((node, answer)) = race.next().await {
            let (address, name) = (set.members[node].address(), &self.name);
            match answer {
                Ok(_) => tracing::debug!(address, %name, "a lease was given back"),
                Err(error) => tracing::debug!(address, %name, %error, "a lease was not given back"),
            }
        }
    }

    /// Returns a record of the lease with its token, from the nodes that keep it.
    async fn record(&self, set: &Set) -> Option<Record> {
        let deadline = set.node_deadline(self.lease);
        let mut race = Race::with_room(self.from.len());
        for (node, pass) in &self.from {
            let (name, id) = (&self.name, self.lease_id);
            race.add(*node, async move {
                let call = || requests::record(&set.asker, name, id).within(deadline);
                let reply = set.members[*node].node().call_of(Some(pass.marker()), call).await?;
                replies::recorded(&reply)
            });
        }
        let mut records = Vec::new();
        while let Some((_, recorded)) = race.next().await {
            records.extend(recorded.ok().flatten().filter(Record::heals));
        }
        let recorded: Vec<_> = records.iter().filter_map(Record::token).collect();
        let granted = set.tokens.of(self.lease_id);
        let token = granted.or_else(|| proven(&recorded, set.members.len()))?;
        records.into_iter().find(|record| record.token() == Some(token))
    }
}

fn pass(roster: &Roster, node: usize) -> Option<(usize, Arc<Pass>)> {
    match &roster.seats[node] {
        Seat::Votes(pass) => Some((node, pass.clone())),
        Seat::Waits(_) | Seat::Out(_) => None,
    }
}

/// Takes leases again in the background, line by line of a batch: where it is known that they lack,
/// and as the slower nodes say so.
pub(super) fn begin(
    set: &Arc<Set>,
    roster: Arc<Roster>,
    race: Race<'static, Answered>,
    healings: Vec<Option<Healing>>,
) {
    let kept = || healings.iter().flatten();
    if kept().all(|healing| healing.to.is_empty() && race.is_empty()) {
        return;
    }
    let (set, home) = (set.clone(), set.members[0].node().clone());
    home.spawn(Box::pin(carry_out(set, roster, race, healings)));
}

async fn carry_out(
    set: Arc<Set>,
    roster: Arc<Roster>,
    mut race: Race<'static, Answered>,
    mut healings: Vec<Option<Healing>>,
) {
    loop {
        for healing in healings.iter_mut().flatten().filter(|healing| !healing.to.is_empty()) {
            healing.carry_out(&set).await;
        }
        let Some((node, answer)) = race.next().await else { return };
        let replies = match answer {
            Ok(Ok(replies)) => replies,
            Ok(Err(_)) => {
                set.ring();
                continue;
            }
            Err(_) => continue,
        };
        for (healing, reply) in healings.iter_mut().zip(replies) {
            match (healing, reply) {
                (Some(healing), Ok(Renewed::Kept { .. })) => healing.keeps(&roster, node),
                (Some(healing), Ok(Renewed::Gone { free: true })) => healing.lacks(&roster, node),
                _ => {}
            }
        }
    }
}
