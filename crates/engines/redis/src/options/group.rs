//! A service that Sentinels monitor: their addresses, and what is required of replicas.
//!
//! `redis+sentinel://[user[:password]@]sentinel[:port],…/service[/db]`, and `rediss+sentinel://`
//! for TLS to the sentinels and to the servers.

use std::fmt;
use std::time::Duration;

use holdline_core::LockError;
use holdline_core::lease::MAX_LEASE;
use holdline_core::quorum::configuration::DEFAULT_MAX_LEASE;
use holdline_net::secret::Secret;
use holdline_net::url::{Reader, Server};

use super::address::Address;
use super::{RedisOptions, URL, bad};
use crate::error::ENGINE;

/// The default port of a sentinel.
const SENTINEL: Reader = Reader { engine: ENGINE, port: 26379 };
const MAX_PLACES: usize = 15;
const LEASES: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=MAX_LEASE;
/// The least time for a connection to a sentinel.
const SHORTEST_TRY: Duration = Duration::from_millis(10);
const LONGEST_MARGIN: Duration = Duration::from_secs(3_600);
const EXAMPLE: &str = "`redis+sentinel://one,two:26380,three/SERVICE`";

/// The parameters that such a URL takes besides those of one server.
pub(super) const PARAMETERS: [&str; 7] = [
    "max_lease_duration_ms",
    "old_master_ms",
    "replicas",
    "sentinel_password_command",
    "sentinel_password_env",
    "sentinel_password_file",
    "sentinel_user",
];

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

/// The sentinels of a service.
#[derive(Clone, Debug)]
pub(crate) struct SentinelGroup {
    service: String,
    sentinels: Vec<(String, u16)>,
    user: Option<String>,
    password: Secret,
    tls: bool,
    max_lease: Duration,
    old_master: Duration,
    replicas: Replicas,
    read_only: bool,
}

impl fmt::Display for SentinelGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.sentinels.iter().map(|(host, port)| place(host, *port, false).to_string());
        write!(f, "{} of {}", self.service, hosts.collect::<Vec<_>>().join(","))
    }
}

pub(super) fn place(host: &str, port: u16, tls: bool) -> Address {
    Address::Tcp { host: host.to_owned(), port, tls }
}

/// Reads `host,host:port` of servers that are called `what`.
pub(super) fn places(
    hosts: &str,
    reader: Reader,
    what: &str,
    example: &str,
) -> Result<Vec<(String, u16)>, LockError> {
    let mut places = Vec::new();
    for written in hosts.split(',') {
        if written.is_empty() {
            return Err(bad(format_args!("names its {what}s like {example}")));
        }
        let Server { host, port } = reader.server(written)?;
        let one = (host, port);
        if places.contains(&one) {
            return Err(bad(format_args!("names the {what} `{written}` twice")));
        }
        places.push(one);
    }
    if places.len() > MAX_PLACES {
        return Err(bad(format_args!("names more than {MAX_PLACES} {what}s")));
    }
    Ok(places)
}

impl SentinelGroup {
    /// Reads `host,host:port/service`; returns the rest of the path.
    pub(super) fn split(rest: &str, tls: bool) -> Result<(SentinelGroup, &str), LockError> {
        let Some((hosts, path)) = rest.split_once('/') else {
            return Err(bad(format_args!("names no service, as in {EXAMPLE}")));
        };
        let (service, db) = path.split_once('/').unwrap_or((path, ""));
        if service.is_empty() || hosts.is_empty() {
            return Err(bad(format_args!("must name sentinels and a service, as in {EXAMPLE}")));
        }
        let sentinels = places(hosts, SENTINEL, "sentinel", EXAMPLE)?;
        let group = SentinelGroup {
            service: URL.text(service)?,
            sentinels,
            user: None,
            password: Secret::default(),
            tls,
            max_lease: DEFAULT_MAX_LEASE,
            old_master: Duration::from_secs(12),
            replicas: Replicas::None,
            read_only: false,
        };
        Ok((group, db))
    }

    /// Sets what a parameter names; false for one that is not of a group.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<bool, LockError> {
        match key {
            "max_lease_duration_ms" => self.max_lease = URL.millis(key, value)?,
            "old_master_ms" => self.old_master = URL.millis(key, value)?,
            "replicas" => self.replicas = Replicas::parse(value)?,
            "sentinel_user" => self.user = Some(value.to_owned()),
            "sentinel_password_command" | "sentinel_password_env" | "sentinel_password_file" => {
                self.password = Secret::from_parameter(ENGINE, key, value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn validate(&self) -> Result<(), LockError> {
        if !LEASES.contains(&self.max_lease) {
            let message = format!("must be from 100ms to 24h, not {:?}", self.max_lease);
            return Err(LockError::invalid(ENGINE, "max_lease_duration", message));
        }
        if self.old_master > LONGEST_MARGIN {
            let message = format!("must be at most an hour, not {:?}", self.old_master);
            return Err(LockError::invalid(ENGINE, "old_master", message));
        }
        if self.user.is_some() && !self.password.is_set() {
            let message = "needs `sentinel_password_file` or `sentinel_password_env`";
            return Err(LockError::invalid(ENGINE, "sentinel_user", message));
        }
        Ok(())
    }

    /// The name under which the sentinels know the servers.
    pub(crate) fn service(&self) -> &str {
        &self.service
    }

    /// The longest lease that a client may request.
    pub(crate) fn max_lease(&self) -> Duration {
        self.max_lease
    }

    /// How long a master that was replaced may still take writes.
    pub(crate) fn old_master(&self) -> Duration {
        self.old_master
    }

    pub(crate) fn replicas(&self) -> Replicas {
        self.replicas
    }

    /// Returns whether nothing may be written to the servers.
    pub(crate) fn read_only(&self) -> bool {
        self.read_only
    }

    /// Returns whether passwords would be sent unencrypted over a network.
    pub(super) fn is_open(&self) -> bool {
        !self.tls && self.sentinels.iter().any(|(host, _)| !is_near(host))
    }
}

/// Returns whether a host is this machine.
pub(crate) fn is_near(host: &str) -> bool {
    let parsed = host.parse::<std::net::IpAddr>();
    host == "localhost" || parsed.is_ok_and(|ip| ip.is_loopback())
}

impl RedisOptions {
    /// The settings of a connection to each of the sentinels.
    pub(crate) fn sentinels(&self) -> Vec<RedisOptions> {
        let Some(group) = &self.group else { return Vec::new() };
        let one = |(host, port): &(String, u16)| {
            let mut options = self.at(host, *port);
            // A sentinel that hangs must be reported before the time for the whole connection is
            // over.
            let limit = &mut options.limits.connect_timeout;
            *limit = (*limit / 2).max(SHORTEST_TRY);
            options.access.user.clone_from(&group.user);
            options.access.password = group.password.clone();
            options.access.db = 0;
            options
        };
        group.sentinels.iter().map(one).collect()
    }

    /// The settings of a connection to one of the servers of the group.
    pub(crate) fn at(&self, host: &str, port: u16) -> RedisOptions {
        let tls = match self.address() {
            Address::Tcp { tls, .. }
            | Address::Cluster { tls, .. }
            | Address::Service { tls, .. } => *tls,
            Address::Unix(_) => false,
        };
        let mut options = RedisOptions { group: None, ..self.clone() };
        options.access.address = place(host, port, tls);
        options
    }

    /// Host and port, if it has any.
    pub(crate) fn host_port(&self) -> Option<(String, u16)> {
        match &self.access.address {
            Address::Tcp { host, port, .. } => Some((host.clone(), *port)),
            Address::Unix(_) | Address::Service { .. } | Address::Cluster { .. } => None,
        }
    }

    /// The same for a client that only reads: nothing is written to the servers.
    pub(crate) fn read_only(&self) -> RedisOptions {
        let mut options = self.clone();
        options.group.iter_mut().for_each(|group| group.read_only = true);
        options
    }

    /// Returns whether sentinels name the server.
    pub fn has_sentinels(&self) -> bool {
        self.group.is_some()
    }

    /// The sentinels, if the URL names any.
    pub(crate) fn group(&self) -> Option<&SentinelGroup> {
        self.group.as_ref()
    }
}
