//! Waits until replicas of a name's master have acknowledged a grant.
//!
//! ```text
//! on a connection of its own to the master of the slot:
//!   renew the lease    -> renewed: this master has the grant, and has written since
//!   WAIT n             -> how many replicas have that write, and so the grant
//! ```
//!
//! `WAIT` covers the writes of its own connection, and blocks later requests there. Another master
//! that was promoted meanwhile, without the grant, does not renew it.

use std::collections::BTreeMap;
use std::time::Duration;

use holdline_core::{Certainty, LockError, RenewReply};
use parking_lot::Mutex;

use super::router::ClusterRouter;
use crate::args::Args;
use crate::error::unavailable;
use crate::link::{Call, HostPort, Link, SentOn};
use crate::native;
use crate::options::{RedisOptions, Replicas};

/// Collects the acknowledgements of replicas.
pub(super) struct ReplicaAcks {
    wanted: u64,
    deadline: Duration,
    links: Mutex<BTreeMap<HostPort, Link>>,
}

impl ReplicaAcks {
    /// Makes what the options require; `None` where they require nothing.
    pub(super) fn of(options: &RedisOptions) -> Option<ReplicaAcks> {
        let Replicas::Count(wanted) = options.failover().replicas() else { return None };
        let deadline = options.command_timeout();
        Some(ReplicaAcks { wanted, deadline, links: Mutex::default() })
    }

    /// Waits until enough replicas of the slot's master have the leases that `renewal` renews.
    ///
    /// # Errors
    /// `Unavailable`, unknown: they are too few, or a lease is not there. The writes remain all the
    /// same.
    pub(super) async fn confirm(
        &self,
        router: &ClusterRouter,
        slot: u16,
        renewal: impl Fn() -> Call,
        leases: usize,
    ) -> Result<(), LockError> {
        match self.count(router, slot, renewal, leases).await {
            Ok(count) if count >= self.wanted => Ok(()),
            Ok(count) => {
                let wanted = self.wanted;
                let message = format!("{count} of {wanted} replicas have acknowledged it");
                Err(unavailable(message, Certainty::Unknown))
            }
            Err(error) => {
                let message = format!("it is not known which replicas have it: {error}");
                Err(unavailable(message, Certainty::Unknown))
            }
        }
    }

    async fn count(
        &self,
        router: &ClusterRouter,
        slot: u16,
        renewal: impl Fn() -> Call,
        leases: usize,
    ) -> Result<u64, LockError> {
        let link = self.link(router, slot).await?;
        let sent_on = SentOn::default();
        let reply = link.call_noting(renewal, &sent_on).await?;
        let renewed = native::renewed(&reply, leases)?;
        if !renewed.iter().all(|one| matches!(one, Ok(RenewReply::Renewed { .. }))) {
            return Err(unavailable("the master of the slot lacks the grant", Certainty::Unknown));
        }
        let wait_ms = (self.deadline / 2).as_millis().max(1).to_string();
        let args = Args::from(["WAIT", &self.wanted.to_string(), &wait_ms]);
        let count = link.command_behind(&sent_on, &args, self.deadline).await?;
        Ok(count.as_integer().and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
    }

    async fn link(&self, router: &ClusterRouter, slot: u16) -> Result<Link, LockError> {
        let (host_port, link) = router.owner_at(slot).await?;
        if let Some(own) = self.links.lock().get(&host_port) {
            return Ok(own.clone());
        }
        let own = link.new_link_to_same_server()?;
        let mut links = self.links.lock();
        // What left the cluster is not dialled for ever.
        let table = router.table();
        links.retain(|known, _| table.masters().any(|master| master == known));
        Ok(links.entry(host_port).or_insert(own).clone())
    }
}
