//! Where a request is from: the other end of its connection, or the client for which a proxy sends.

use std::fmt;
use std::net::IpAddr;

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
