//! Loopback ports that are ours for as long as we want.
//!
//! Between finding a port free and the server's own bind, and again between a server's death and
//! its restart, anybody could take it. So a port is reserved: a socket in the abstract namespace
//! stands for it. That namespace is divided as ports are (by network namespace), and the kernel
//! gives the name back when this process ends, however it ends. Ports come from below the range
//! from which the kernel serves those that ask for any port.

use crate::Failure;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A loopback port that no other user of this module has.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _reservation: UnixListener,
}

impl Port {
    /// Reserves a port on which nobody listens now.
    pub(crate) fn reserve() -> Result<Self, Failure> {
        let start = RandomState::new().hash_one(std::process::id()) % u64::from(COUNT);
        // The remainder is below `COUNT`.
        let start = u16::try_from(start).unwrap_or_default();
        (0..COUNT)
            .map(|step| FIRST + (start + step) % COUNT)
            .find_map(Self::try_reserve)
            .ok_or_else(|| Failure::new("no loopback port between 20000 and 31999 is free"))
    }

    fn try_reserve(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("holdline-port-{number}")).ok()?;
        let reservation = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { number, _reservation: reservation })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_given_to_nobody_else() {
        let port = Port::reserve().unwrap();
        assert!(Port::try_reserve(port.number()).is_none());
        let number = port.number();
        drop(port);
        assert!(Port::try_reserve(number).is_some());
    }

    #[test]
    fn a_port_in_use_is_not_given() {
        let port = Port::reserve().unwrap();
        let number = port.number();
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        drop(port);
        assert!(Port::try_reserve(number).is_none());
    }
}
