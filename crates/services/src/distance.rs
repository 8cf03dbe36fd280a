//! A relay that is as slow as a long distance: all bytes arrive later, and none of them waits for
//! the bytes before it.
//!
//! [`crate::FaultProxy`] knows Redis; this knows no protocol, so members of a cluster can talk
//! through it too. What was sent first arrives first.

use crate::Failure;
use crate::ports::stop_listening;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Stands between clients and a server that is far away. Dropping it takes no new connections.
#[derive(Debug)]
pub struct Distance {
    listener: TcpListener,
    address: SocketAddr,
}

/// Bytes, and when they arrive.
type Late = (Instant, Vec<u8>);

impl Distance {
    /// Listens on a loopback port of its own. A round trip to `server` takes so much longer.
    ///
    /// # Errors
    /// No port is available.
    pub fn try_start(server: SocketAddr, round_trip: Duration) -> Result<Self, Failure> {
        let failed = |why| Failure::because("a relay cannot listen", why);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let accepting = listener.try_clone().map_err(failed)?;
        thread::spawn(move || {
            for client in accepting.incoming().map_while(Result::ok) {
                thread::spawn(move || connect(client, server, round_trip));
            }
        });
        Ok(Self { listener, address })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Distance {
    fn drop(&mut self) {
        stop_listening(&self.listener);
    }
}

/// Relays both directions of a connection until one of them ends. The handshake of TCP, a round
/// trip, delays what the client sends first.
fn connect(client: TcpStream, server: SocketAddr, round_trip: Duration) {
    let one_way = round_trip / 2;
    let (Ok(upstream), Ok(replies)) = (TcpStream::connect(server), client.try_clone()) else {
        return;
    };
    let Ok(requests) = upstream.try_clone() else { return };
    let _ = client.set_nodelay(true);
    let _ = upstream.set_nodelay(true);
    thread::sleep(round_trip);
    thread::spawn(move || relay(upstream, replies, one_way));
    relay(client, requests, one_way);
}

fn relay(mut from: TcpStream, to: TcpStream, one_way: Duration) {
    let (sender, late): (Sender<Late>, Receiver<Late>) = channel();
    let writing = thread::spawn(move || write_late(&late, to));
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        if sender.send((Instant::now() + one_way, chunk[..count].to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    let _ = writing.join();
    let _ = from.shutdown(Shutdown::Both);
}

fn write_late(late: &Receiver<Late>, mut to: TcpStream) {
    for (at, bytes) in late {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other side ends as well, so that no direction stays open alone.
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_and_no_sooner_than_a_round_trip() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = server.local_addr().expect("an address");
        thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("a client");
            let mut echo = stream.try_clone().expect("a copy");
            std::io::copy(&mut stream, &mut echo)
        });
        let round_trip = Duration::from_millis(40);
        let relay = Distance::try_start(address, round_trip).expect("starts");
        let mut client = TcpStream::connect(relay.address()).expect("connects");
        let start = Instant::now();
        client.write_all(b"one").expect("sent");
        client.write_all(b"two").expect("sent");
        let mut reply = [0; 6];
        client.read_exact(&mut reply).expect("answered");
        assert_eq!(&reply, b"onetwo");
        assert!(start.elapsed() >= round_trip, "{:?}", start.elapsed());
        client.shutdown(Shutdown::Write).expect("ends");
        assert_eq!(client.read(&mut reply).expect("the end"), 0);
    }
}
