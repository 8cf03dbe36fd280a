//! Reverse proxies that the settings trust.
//!
//! - X1: a header that names a person counts only from the proxy: from its addresses, or over the
//!   socket from the user it runs as. From anybody else the request is refused.
//! - X3: `X-Forwarded-For` counts only from the proxy, if the settings say that it adds to it. Of
//!   its addresses the last one counts that is not another proxy's: all before it are the client's
//!   to invent.
//! - X2: an address of this machine proves nothing about a process of this machine. It counts only
//!   if the settings say that every process here is trusted.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName};

use crate::address::{Network, PeerAddress};
use crate::config::{ConfigError, IdentityEntry, ProxyConfig};
use crate::identity::Identity;
use crate::problem::Problem;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A reverse proxy.
pub(crate) struct Proxy {
    /// The header that names people; `None` if the proxy only passes tokens on.
    pub(crate) header: Option<HeaderName>,
    /// It adds the address of its client to `X-Forwarded-For`.
    adds_forwarded_for: bool,
    networks: Vec<Network>,
    uids: Vec<u32>,
    trusts_this_machine: bool,
    users: Vec<Identity>,
}

impl Proxy {
    pub(crate) fn of(config: &ProxyConfig) -> Result<Proxy, ConfigError> {
        if config.addresses.is_empty() && config.uids.is_empty() {
            return Err(ConfigError::new(
                "proxy: `addresses` or `uids` must name the proxy, such as [\"10.0.0.0/24\"]",
            ));
        }
        if config.header.is_none() && !config.users.is_empty() {
            return Err(ConfigError::new("proxy.users needs `header`, which names them"));
        }
        let header = config.header.as_ref().map(|header| {
            HeaderName::try_from(header.to_ascii_lowercase())
                .map_err(|_| ConfigError::new("proxy.header is no header name"))
        });
        let local = config.addresses.iter().find(|network| network.has_loopback());
        let is_believed = header.is_some() || config.forwarded_for;
        if let Some(local) = local
            && is_believed
            && !config.trust_this_machine
        {
            return Err(ConfigError::new(format_args!(
                "proxy.addresses: every process on this machine could send the header from \
                 {local}: let the proxy use `socket`, and put its user into `proxy.uids`; or set \
                 `proxy.trust_this_machine = true` if no other process is on it"
            )));
        }
        let users =
            config.users.iter().map(|user| Identity::of_entry(IdentityEntry::of_user(user)));
        Ok(Proxy {
            header: header.transpose()?,
            adds_forwarded_for: config.forwarded_for,
            networks: config.addresses.clone(),
            uids: config.uids.clone(),
            trusts_this_machine: config.trust_this_machine,
            users: users.collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether the other end of a connection is the proxy.
    pub(crate) fn is_at(&self, peer: PeerAddress) -> bool {
        match peer {
            PeerAddress::Process { uid } => self.uids.contains(&uid),
            PeerAddress::Network { is_this_machine: true, .. } if !self.trusts_this_machine => {
                false
            }
            PeerAddress::Network { ip, .. } => {
                self.networks.iter().any(|network| network.contains(ip))
            }
        }
    }

    /// Returns whether a connection is from one of its addresses, which others may have too.
    pub(crate) fn has_address(&self, peer: PeerAddress) -> bool {
        match peer {
            PeerAddress::Process { uid } => self.uids.contains(&uid),
            PeerAddress::Network { ip, .. } => {
                self.networks.iter().any(|network| network.contains(ip))
            }
        }
    }

    /// Finds the address of the client for which the proxy sends; `None` if it does not say so.
    pub(crate) fn forwarded_for(&self, headers: &HeaderMap, peer: PeerAddress) -> Option<IpAddr> {
        if !self.adds_forwarded_for || !self.is_at(peer) {
            return None;
        }
        // Each proxy adds the other end of its connection. So the list is read from its end.
        let mut client = None;
        for line in headers.get_all(FORWARDED_FOR).iter().rev() {
            for entry in line.to_str().unwrap_or_default().rsplit(',') {
                let Some(address) = address_in(entry.trim()) else { return client };
                client = Some(address);
                if !self.networks.iter().any(|network| network.contains(address)) {
                    return client;
                }
            }
        }
        client
    }

    /// Finds out whom the header names; `None` if it is not there.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        peer: PeerAddress,
    ) -> Result<Option<Identity>, Problem> {
        let Some(header) = &self.header else { return Ok(None) };
        let mut values = headers.get_all(header).iter();
        let Some(name) = values.next() else { return Ok(None) };
        if values.next().is_some() || !self.is_at(peer) {
            return Err(Problem::unauthenticated());
        }
        let user = self.users.iter().find(|user| name == user.name());
        user.cloned().map(Some).ok_or_else(Problem::unauthenticated)
    }
}

/// Reads an address; some proxies add a port.
fn address_in(entry: &str) -> Option<IpAddr> {
    let address = entry.parse::<IpAddr>().ok();
    let bracketed = || entry.strip_prefix('[')?.strip_suffix(']')?.parse::<IpAddr>().ok();
    let with_port = || Some(entry.parse::<SocketAddr>().ok()?.ip());
    address.or_else(bracketed).or_else(with_port).map(|address| address.to_canonical())
}
