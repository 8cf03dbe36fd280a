//! A service that Sentinels monitor: their addresses, and the login there.
//!
//! `redis+sentinel://[user[:password]@]sentinel[:port],…/service[/db]`, and `rediss+sentinel://`
//! for TLS to the sentinels and to the servers.

use std::fmt;
use std::time::Duration;

use holdline_core::LockError;
use holdline_net::secret::Secret;
use holdline_net::url::{Reader, Server};

use super::address::Address;
use super::failover::FailoverRules;
use super::{RedisOptions, URL, bad};
use crate::error::ENGINE;

/// The default port of a sentinel.
const SENTINEL: Reader = Reader { engine: ENGINE, port: 26379 };
const MAX_PLACES: usize = 15;
/// The least time for a connection to a sentinel.
const SHORTEST_TRY: Duration = Duration::from_millis(10);
const EXAMPLE: &str = "`redis+sentinel://one,two:26380,three/SERVICE`";

/// The parameters that such a URL takes besides those of one server.
pub(super) const PARAMETERS: [&str; 4] = [
    "sentinel_password_command",
    "sentinel_password_env",
    "sentinel_password_file",
    "sentinel_user",
];

/// The sentinels of a service.
#[derive(Clone, Debug)]
pub(crate) struct SentinelGroup {
    service: String,
    sentinels: Vec<(String, u16)>,
    user: Option<String>,
    password: Secret,
    tls: bool,
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
        };
        Ok((group, db))
    }

    /// Sets what a parameter names; false for one that is not of a group.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<bool, LockError> {
        match key {
            "sentinel_user" => self.user = Some(value.to_owned()),
            "sentinel_password_command" | "sentinel_password_env" | "sentinel_password_file" => {
                self.password = Secret::from_parameter(ENGINE, key, value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn validate(&self) -> Result<(), LockError> {
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

    /// The settings of a connection to one of the servers of the group. The rules for failovers
    /// are the group's.
    pub(crate) fn at(&self, host: &str, port: u16) -> RedisOptions {
        let tls = match self.address() {
            Address::Tcp { tls, .. }
            | Address::Cluster { tls, .. }
            | Address::Service { tls, .. } => *tls,
            Address::Unix(_) => false,
        };
        let failover = FailoverRules::default();
        let mut options = RedisOptions { group: None, failover, ..self.clone() };
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

    /// Returns whether sentinels name the server.
    pub fn has_sentinels(&self) -> bool {
        self.group.is_some()
    }

    /// The sentinels, if the URL names any.
    pub(crate) fn group(&self) -> Option<&SentinelGroup> {
        self.group.as_ref()
    }
}
