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
    /// Reserves a port without a listener.
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
        stop_listening(&TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?);
        Some(Self { number, _reservation: reservation })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// Makes a port refuse connections at once.
///
/// Closing is not enough: a child of another thread that was forked and has not yet become its
/// program holds a copy of the socket, and would keep the port listening.
pub(crate) fn stop_listening(listener: &TcpListener) {
    // Fails only if it does not listen.
    let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{LIMIT, until};

    #[test]
    fn a_reserved_port_is_given_only_once() {
        let port = Port::reserve().unwrap();
        assert!(Port::try_reserve(port.number()).is_none());
        let number = port.number();
        drop(port);
        // A child that was forked in between holds a copy until it becomes its program.
        assert!(until(LIMIT, || Port::try_reserve(number)).is_some());
    }

    #[test]
    fn a_port_refuses_connections_though_a_copy_of_its_socket_is_open() {
        let port = Port::reserve().unwrap();
        let address = (Ipv4Addr::LOCALHOST, port.number());
        let listener = TcpListener::bind(address).unwrap();
        let copy = listener.try_clone().unwrap();
        stop_listening(&listener);
        drop(listener);
        assert!(std::net::TcpStream::connect(address).is_err());
        assert!(TcpListener::bind(address).is_ok());
        drop(copy);
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
