//! What a client requires of a server that may have become the master just now, and of replicas.

use std::time::Duration;

use holdline_core::LockError;
use holdline_core::lease::MAX_LEASE;
use holdline_core::quorum::configuration::DEFAULT_MAX_LEASE;

use super::{Dialect, RedisOptions, URL, bad};
use crate::error::ENGINE;

const LEASES: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=MAX_LEASE;
const LONGEST_MARGIN: Duration = Duration::from_secs(3_600);

/// How many replicas must have a grant before it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replicas {
    /// None: a promotion is followed by a quarantine.
    #[default]
    None,
    /// This many. A promotion is still followed by a quarantine.
    Count(u64),
    /// As many as make a majority with the master. A promotion is still followed by a quarantine.
    Majority,
    /// All that the sentinels know, also those that are down.
    All,
}

impl Replicas {
    fn parse(value: &str) -> Result<Replicas, LockError> {
        match value {
            "all" => Ok(Replicas::All),
            "majority" => Ok(Replicas::Majority),
            count => match count.parse() {
                Ok(0) | Err(_) => {
                    Err(bad("has a `replicas` that is none of `all`, `majority` and 1, 2, …"))
                }
                Ok(count) => Ok(Replicas::Count(count)),
            },
        }
    }

    /// Returns how many that is, of the replicas that the sentinels know; `None` if those are too
    /// few.
    pub(crate) fn of(self, known: u64) -> Option<u64> {
        let wanted = match self {
            Replicas::None => return Some(0),
            Replicas::Count(count) => count,
            Replicas::Majority => known.div_ceil(2),
            Replicas::All => known,
        };
        (1..=known).contains(&wanted).then_some(wanted)
    }
}

/// The rules of a client for failovers.
#[derive(Clone, Debug)]
pub(crate) struct FailoverRules {
    /// `None`: on one server longer leases than the default are permitted, and not waited for.
    max_lease: Option<Duration>,
    old_master: Option<Duration>,
    replicas: Replicas,
    quarantine: bool,
    read_only: bool,
}

impl Default for FailoverRules {
    fn default() -> FailoverRules {
        FailoverRules {
            max_lease: None,
            old_master: None,
            replicas: Replicas::None,
            quarantine: true,
            read_only: false,
        }
    }
}

impl FailoverRules {
    /// Sets what a parameter names; false for one that is not of these rules.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<bool, LockError> {
        match key {
            "max_lease_duration_ms" => self.max_lease = Some(URL.millis(key, value)?),
            "old_master_ms" => self.old_master = Some(URL.millis(key, value)?),
            "quarantine" => {
                self.quarantine = URL.one_of(key, value, [("on", true), ("off", false)])?;
            }
            "replicas" => self.replicas = Replicas::parse(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn validate_times(&self) -> Result<(), LockError> {
        if !LEASES.contains(&self.max_lease()) {
            let message = format!("must be from 100ms to 24h, not {:?}", self.max_lease());
            return Err(LockError::invalid(ENGINE, "max_lease_duration", message));
        }
        if self.old_master() > LONGEST_MARGIN {
            let message = format!("must be at most an hour, not {:?}", self.old_master());
            return Err(LockError::invalid(ENGINE, "old_master", message));
        }
        Ok(())
    }

    /// The longest lease that a quarantine waits for.
    pub(crate) fn max_lease(&self) -> Duration {
        self.max_lease.unwrap_or(DEFAULT_MAX_LEASE)
    }

    /// How long a master that was replaced may still take writes.
    pub(crate) fn old_master(&self) -> Duration {
        self.old_master.unwrap_or(Duration::from_secs(12))
    }

    pub(crate) fn replicas(&self) -> Replicas {
        self.replicas
    }

    /// Returns whether the URL has any parameter of these rules.
    pub(crate) fn are_set(&self) -> bool {
        let times = self.max_lease.is_some() || self.old_master.is_some();
        times || !self.quarantine || self.replicas != Replicas::None
    }

    /// Returns whether a server that may lack grants has to wait before it grants.
    pub(crate) fn quarantine(&self) -> bool {
        self.quarantine
    }

    /// Returns whether nothing may be written to the servers.
    pub(crate) fn read_only(&self) -> bool {
        self.read_only
    }
}

impl RedisOptions {
    /// Checks the rules against the kind of server.
    pub(super) fn validate_failover(&self) -> Result<(), LockError> {
        let rules = &self.failover;
        rules.validate_times()?;
        let has_replicas = rules.replicas != Replicas::None;
        if self.group.is_some() {
            if has_replicas && self.dialect() == Dialect::Plain {
                let message = "cannot be set in the plain dialect: other libraries do not wait for \
                               replicas";
                return Err(LockError::invalid(ENGINE, "replicas", message));
            }
            if !rules.quarantine {
                let message = "cannot be `off` where Sentinels name the master: lower \
                               `max_lease_duration_ms`, or set `replicas=all` in all clients";
                return Err(LockError::invalid(ENGINE, "quarantine", message));
            }
            return Ok(());
        }
        if matches!(rules.replicas, Replicas::All | Replicas::Majority) {
            let message = "must be a number without Sentinels, as in `replicas=2`: nobody else \
                           knows how many replicas there should be";
            return Err(LockError::invalid(ENGINE, "replicas", message));
        }
        let elsewhere = match self.dialect() {
            Dialect::Native => false,
            Dialect::Plain => true,
            Dialect::Redisson => self.is_of_cluster(),
        };
        if has_replicas && elsewhere {
            let message = "cannot be set in this dialect here: on one server `native` and \
                           `redisson` have it, on a cluster `native`";
            return Err(LockError::invalid(ENGINE, "replicas", message));
        }
        if self.is_of_cluster() {
            let times = rules.max_lease.is_some() || rules.old_master.is_some();
            if times || !rules.quarantine {
                let message = "has no meaning in a cluster, which has no quarantine: leave out \
                               `max_lease_duration_ms`, `old_master_ms` and `quarantine`";
                return Err(LockError::invalid(ENGINE, "url", message));
            }
        }
        Ok(())
    }

    /// The same for a client that only reads: nothing is written to the servers.
    pub(crate) fn read_only(&self) -> RedisOptions {
        let mut options = self.clone();
        options.failover.read_only = true;
        options
    }

    /// The longest lease that a client may request, where that is limited: in a group, and where
    /// the URL says so.
    pub(crate) fn longest_lease(&self) -> Option<Duration> {
        let limited = self.group.is_some() || self.failover.max_lease.is_some();
        limited.then(|| self.failover.max_lease())
    }

    /// How long a server grants nothing that may lack grants. `master_term.lua` waits longer if a
    /// client had a longer limit of leases.
    pub(crate) fn quarantine(&self) -> Option<Duration> {
        let rules = &self.failover;
        let waits = rules.quarantine && !self.is_of_cluster();
        waits.then(|| rules.max_lease() + rules.max_lease() / 100 + rules.old_master())
    }

    pub(crate) fn failover(&self) -> &FailoverRules {
        &self.failover
    }
}
