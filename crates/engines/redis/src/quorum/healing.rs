//! Healing: a lease is taken again on nodes where it is missing, so that a set survives a rolling
//! restart of its nodes.
//!
//! - Invariant H1: a lease is healed only behind a renewal that a majority kept, and only with its
//!   own token, since a node that voted after the decision may have another on record. That is the
//!   token which this process was granted, else the one that a majority of all nodes has on record
//!   ([`proven`]). The healed record counts from the next renewal, and never proves a token (Q6).
//! - Invariant H2: the answers of nodes slower than that majority are awaited. Otherwise a node
//!   that always answers last would never be healed.
//! - Invariant H3: no lease is healed behind its release. A release during a [`RenewalInFlight`]
//!   leaves a tombstone on every node, which rejects a healing that arrives late.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::proven;
use holdline_core::{LeaseId, LockName, Purpose, RenewRequest};

use super::membership::MembershipView;
use super::replies::{self, BatchReply, EpochProof, HolderRecord, NodeRenewal};
use super::requests;
use super::set::NodeSet;
use crate::in_flight::InFlight;

/// One renewal of a lease with its healing, until all answers have arrived.
pub(super) struct RenewalInFlight {
    set: Arc<NodeSet>,
    lease_id: LeaseId,
}

impl RenewalInFlight {
    /// Starts one for a renewal that keeps the lease: a mere check heals nothing.
    pub(super) fn of(set: &Arc<NodeSet>, request: &RenewRequest) -> Option<RenewalInFlight> {
        if request.purpose == Purpose::Wait {
            return None;
        }
        *set.renewals_in_flight.0.lock().entry(request.lease_id).or_default() += 1;
        Some(RenewalInFlight { set: set.clone(), lease_id: request.lease_id })
    }
}

impl Drop for RenewalInFlight {
    fn drop(&mut self) {
        let set = self.set.clone();
        let mut renewals_in_flight = set.renewals_in_flight.0.lock();
        if let Some(count) = renewals_in_flight.get_mut(&self.lease_id) {
            *count -= 1;
            if *count == 0 {
                renewals_in_flight.remove(&self.lease_id);
            }
        }
        drop(renewals_in_flight);
        set.background_undos.notify();
    }
}

/// A lease that a majority keeps, and the nodes where it must be healed.
pub(super) struct Healing {
    name: LockName,
    lease_id: LeaseId,
    lease: Duration,
    /// The nodes that keep it.
    holders: Vec<(usize, Arc<EpochProof>)>,
    missing: Vec<(usize, Arc<EpochProof>)>,
    _in_progress: RenewalInFlight,
}

impl Healing {
    pub(super) fn new(
        request: &RenewRequest,
        lease: Duration,
        in_progress: RenewalInFlight,
    ) -> Healing {
        let name = request.name.clone();
        let lease_id = request.lease_id;
        Healing {
            name,
            lease_id,
            lease,
            holders: Vec::new(),
            missing: Vec::new(),
            _in_progress: in_progress,
        }
    }

    /// Adds a node that keeps the lease.
    pub(super) fn add_holder(&mut self, view: &MembershipView, node: usize) {
        self.holders.extend(proof_of(view, node));
    }

    /// Adds a node where the lease is missing and the name is free.
    pub(super) fn add_missing(&mut self, view: &MembershipView, node: usize) {
        self.missing.extend(proof_of(view, node));
    }

    /// Heals the lease on the nodes that were added since the last call.
    async fn carry_out(&mut self, set: &NodeSet) {
        let missing = std::mem::take(&mut self.missing);
        let Some(record) = self.record(set).await else { return };
        let deadline = set.node_deadline(self.lease);
        let mut in_flight = InFlight::with_capacity(missing.len());
        for (node, proof) in &missing {
            let name = &self.name;
            let id = self.lease_id;
            let record = &record;
            let lease = self.lease;
            in_flight.push(*node, async move {
                let call = || {
                    requests::heal(&set.context, proof, name, id, record, lease).within(deadline)
                };
                let reply = set.members[*node].link().call_of(Some(proof.marker()), call).await?;
                replies::healed(&reply, proof)
            });
        }
        while let Some((node, answer)) = in_flight.next().await {
            let address = set.members[node].address();
            let name = &self.name;
            match answer {
                Ok(_) => tracing::debug!(address, %name, "a lease was healed"),
                Err(error) => tracing::debug!(address, %name, %error, "a lease was not healed"),
            }
        }
    }

    /// Returns a record of the lease with its token, from the nodes that keep it.
    async fn record(&self, set: &NodeSet) -> Option<HolderRecord> {
        let deadline = set.node_deadline(self.lease);
        let mut in_flight = InFlight::with_capacity(self.holders.len());
        for (node, proof) in &self.holders {
            let name = &self.name;
            let id = self.lease_id;
            in_flight.push(*node, async move {
                let call = || requests::record(&set.context, name, id).within(deadline);
                let reply = set.members[*node].link().call_of(Some(proof.marker()), call).await?;
                replies::recorded(&reply)
            });
        }
        let mut records = Vec::new();
        while let Some((_, recorded)) = in_flight.next().await {
            records.extend(recorded.ok().flatten().filter(HolderRecord::heals));
        }
        let recorded: Vec<_> = records.iter().filter_map(HolderRecord::token).collect();
        let granted = set.tokens.of(self.lease_id);
        let token = granted.or_else(|| proven(&recorded, set.members.len()))?;
        records.into_iter().find(|record| record.token() == Some(token))
    }
}

fn proof_of(view: &MembershipView, node: usize) -> Option<(usize, Arc<EpochProof>)> {
    let proof = view.nodes[node].as_ref().ok()?;
    Some((node, proof.clone()))
}

/// Heals leases in the background: first where they are known to be missing, then as the answers of
/// slower nodes arrive.
pub(super) fn begin(
    set: &Arc<NodeSet>,
    view: Arc<MembershipView>,
    in_flight: InFlight<'static, BatchReply>,
    healings: Vec<Option<Healing>>,
) {
    let kept = || healings.iter().flatten();
    if kept().all(|healing| healing.missing.is_empty() && in_flight.is_empty()) {
        return;
    }
    let link = set.members[0].link().clone();
    let set = set.clone();
    link.spawn(Box::pin(carry_out(set, view, in_flight, healings)));
}

async fn carry_out(
    set: Arc<NodeSet>,
    view: Arc<MembershipView>,
    mut in_flight: InFlight<'static, BatchReply>,
    mut healings: Vec<Option<Healing>>,
) {
    loop {
        for healing in healings.iter_mut().flatten().filter(|healing| !healing.missing.is_empty()) {
            healing.carry_out(&set).await;
        }
        let Some((node, answer)) = in_flight.next().await else { return };
        let replies = match answer {
            Ok(Ok(replies)) => replies,
            Ok(Err(_)) => {
                set.wake_maintenance();
                continue;
            }
            Err(_) => continue,
        };
        for (healing, reply) in healings.iter_mut().zip(replies) {
            match (healing, reply) {
                (Some(healing), Ok(NodeRenewal::Kept { .. })) => healing.add_holder(&view, node),
                (Some(healing), Ok(NodeRenewal::Gone { free: true })) => {
                    healing.add_missing(&view, node);
                }
                _ => {}
            }
        }
    }
}
