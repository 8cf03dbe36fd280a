//! Where a request is from: the other end of its connection, or the client for which a proxy sends.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, de};

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerAddress {
    /// Of a network. A process of this machine can have any address of this machine.
    Network { ip: IpAddr, is_this_machine: bool },
    /// A process that uses the socket of this machine, and the user whom the system knows it by.
    Process { uid: u32 },
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerAddress::Network { ip, .. } => ip.fmt(f),
            PeerAddress::Process { uid } => write!(f, "uid:{uid}"),
        }
    }
}

/// The address that a request is counted and reported by. It proves nothing: rights depend on the
/// [`PeerAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientAddress {
    /// The client's own connection.
    Direct(PeerAddress),
    /// A proxy sends for a client at this address.
    Forwarded(IpAddr),
    /// A proxy sends, and does not say for whom.
    Proxy(PeerAddress),
}

impl ClientAddress {
    /// Returns the address to count by; `None` for a proxy, which sends for many clients.
    pub(crate) fn counted(self) -> Option<String> {
        match self {
            ClientAddress::Direct(_) | ClientAddress::Forwarded(_) => Some(self.to_string()),
            ClientAddress::Proxy(_) => None,
        }
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientAddress::Direct(peer) | ClientAddress::Proxy(peer) => peer.fmt(f),
            ClientAddress::Forwarded(ip) => ip.fmt(f),
        }
    }
}

/// An address, or all addresses that begin with the same bits: `10.0.0.1`, `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    first: IpAddr,
    bits: u32,
}

impl Network {
    /// Reads the notation of RFC 4632.
    fn read(text: &str) -> Option<Network> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().ok()?;
        let all = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(all), |bits| bits.parse().ok())?;
        let network = Network { first, bits };
        // An address with more bits than the network has is a typing mistake.
        (bits <= all && number(first) & network.rest() == 0).then_some(network)
    }

    /// The bits in which its addresses may differ.
    fn rest(self) -> u128 {
        let all = if self.first.is_ipv4() { 32 } else { 128 };
        let free = all - self.bits;
        if free == 128 { u128::MAX } else { (1 << free) - 1 }
    }

    /// Returns whether an address is among them.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let is_same_family = self.first.is_ipv4() == address.is_ipv4();
        is_same_family && number(address) & !self.rest() == number(self.first)
    }

    /// Returns whether an address of this machine is among them.
    pub(crate) fn has_loopback(self) -> bool {
        let loopback = match self.first {
            IpAddr::V4(_) => number(IpAddr::from([127, 0, 0, 0])),
            IpAddr::V6(_) => 1,
        };
        // One of the two networks has the other one in it.
        self.first.is_loopback() || loopback & !self.rest() == number(self.first)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Network, D::Error> {
        let text = String::deserialize(from)?;
        Network::read(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "{text:?} is no address such as 10.0.0.1 and no network such as 10.0.0.0/8"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        for (network, address, is_in) in [
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.1.2.128/25", "10.1.2.127", false),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "10.0.0.1", false),
        ] {
            let read = Network::read(network).unwrap_or_else(|| panic!("{network}"));
            assert_eq!(read.contains(address.parse().expect("one")), is_in, "{network} {address}");
        }
        for text in ["", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/-1", "::1/64", "a", "10.0.0.0/"] {
            assert_eq!(Network::read(text), None, "{text}");
        }
    }

    #[test]
    fn every_network_with_an_address_of_this_machine_is_noticed() {
        for (text, has) in [
            ("127.0.0.1", true),
            ("127.3.0.0/16", true),
            ("126.0.0.0/7", true),
            ("0.0.0.0/0", true),
            ("10.0.0.0/8", false),
            ("128.0.0.0/1", false),
            ("::1", true),
            ("::/0", true),
            ("::2", false),
            ("2001:db8::/32", false),
        ] {
            let network = Network::read(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(network.has_loopback(), has, "{text}");
        }
    }
}
