//! What the handshake has found out about a server.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdline_core::{Certainty, Clock, ErrorKind, LockError, Moment};

use crate::error::ENGINE;

/// A time in which a server grants no lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quarantine {
    /// When we received the reply.
    pub(super) since: Moment,
    /// How much of it remained then.
    pub(super) left: Duration,
}

impl Quarantine {
    pub(crate) fn until(&self) -> Moment {
        self.since.after(self.left)
    }
}

/// What a server calls itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Master,
    Replica,
}

/// What is known of the server at the other end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    /// Changes with each start of the server, and with each promotion where sentinels name the
    /// master; `None` where we may not ask.
    pub(crate) run_id: Option<String>,
    /// The protocol version: 2 or 3.
    pub(crate) resp: u8,
    /// The server knows `DELEX … IFEQ`.
    pub(crate) delex: bool,
    /// The server knows `DELIFEQ`.
    pub(crate) delifeq: bool,
    /// The server knows `SPUBLISH`.
    pub(crate) spublish: bool,
    /// How long one round trip of the handshake took.
    pub(crate) round_trip: Duration,
    /// Set when the server may have lost grants whose holders still rely on them: until its end
    /// no lock is granted.
    pub(crate) quarantine: Option<Quarantine>,
    /// Set when the server replies that nothing is left of the quarantine: another client has
    /// measured it to its end, or an operator has ended it.
    pub(super) quarantine_ended: Arc<OnceLock<()>>,
    /// Why the server grants nothing, until it is queried again: it is a replica, or cannot record
    /// its master term.
    pub(super) no_grants: Option<ErrorKind>,
    /// Host and port, where sentinels or a cluster named the server.
    pub(crate) host_port: Option<(String, u16)>,
    /// What the server calls itself. A proxy, and a server by RESP2, do not say it.
    pub(super) role: Option<Role>,
    /// The server is a node of a cluster.
    pub(crate) in_cluster: bool,
}

impl ServerFacts {
    /// Returns whether they are of this run of a server.
    pub(super) fn is_of(&self, run_id: Option<&str>) -> bool {
        run_id.is_none_or(|run_id| self.run_id.as_deref() == Some(run_id))
    }

    /// Returns until when the server grants no lock; `None` if it may grant.
    pub(crate) fn quarantined_until(&self) -> Option<Moment> {
        if self.quarantine_ended.get().is_some() {
            return None;
        }
        self.quarantine.map(|quarantine| quarantine.until())
    }

    /// Returns whether the server may grant at this moment.
    pub(crate) fn may_grant(&self, now: Moment) -> bool {
        self.no_grants.is_none() && self.quarantined_until().is_none_or(|end| end <= now)
    }

    /// Checks that the server may grant now.
    ///
    /// # Errors
    /// `Quarantined`, or why it grants nothing. Nothing was sent.
    pub(crate) fn check_may_grant(&self, clock: &dyn Clock) -> Result<(), LockError> {
        if let Some(kind) = &self.no_grants {
            return Err(LockError::new(ENGINE, kind.clone(), Certainty::NotApplied));
        }
        let Some(end) = self.quarantined_until() else { return Ok(()) };
        let left = clock.now().until(end);
        if left.is_zero() {
            return Ok(());
        }
        Err(LockError::new(ENGINE, ErrorKind::Quarantined { left }, Certainty::NotApplied))
    }

    /// Refuses a node of a cluster where one server is meant: most names would be elsewhere.
    pub(crate) fn check_is_alone(&self) -> Result<(), LockError> {
        if !self.in_cluster {
            return Ok(());
        }
        let message = "the server is a node of a Redis Cluster: write `redis-cluster://`, or \
                       `rediss-cluster://` for TLS";
        let kind = ErrorKind::Refused { message: message.to_owned() };
        Err(LockError::new(ENGINE, kind, Certainty::NotApplied))
    }

    /// Returns whether this is another server or a restarted one, as far as both run ids are known.
    pub(super) fn is_another_than(&self, before: &ServerFacts) -> bool {
        let both = self.run_id.as_ref().zip(before.run_id.as_ref());
        both.is_some_and(|(now, before)| now != before)
    }
}
