//! A proxy between one worker and one server, which holds bytes back, delays them, or resets.
//!
//! Invariant L1: no byte is lost from the middle of a stream: bytes that a cut held back arrive
//! late when the cut ends, as after a network partition, or the connection is reset.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::endpoints::Endpoint;

/// How long a server may take to be reached.
const CONNECTING: Duration = Duration::from_secs(10);

/// What becomes of bytes in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Pass,
    /// They wait until this is changed.
    Hold,
    Delay(Duration),
}

/// How a relay behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelayMode {
    pub(crate) requests: Flow,
    pub(crate) replies: Flow,
    /// Connections of an earlier number are reset.
    resets: u64,
}

/// A proxy; it ends with its connections when this is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    mode: Arc<watch::Sender<RelayMode>>,
    accepting: JoinHandle<()>,
}

impl Relay {
    pub(crate) async fn start(server: Endpoint) -> io::Result<Relay> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let pass = RelayMode { requests: Flow::Pass, replies: Flow::Pass, resets: 0 };
        let mode = Arc::new(watch::Sender::new(pass));
        let accepting = tokio::spawn(accept(listener, server, mode.clone()));
        Ok(Relay { address, mode, accepting })
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { host: self.address.ip().to_string(), port: self.address.port() }
    }

    pub(crate) fn set(&self, requests: Flow, replies: Flow) {
        self.mode.send_modify(|mode| {
            mode.requests = requests;
            mode.replies = replies;
        });
    }

    /// Breaks all connections: both ends see a reset.
    pub(crate) fn reset(&self) {
        self.mode.send_modify(|mode| mode.resets += 1);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.reset();
    }
}

async fn accept(listener: TcpListener, server: Endpoint, mode: Arc<watch::Sender<RelayMode>>) {
    loop {
        // A client that has gone before its connection was made needs nothing.
        let Ok((client, _)) = listener.accept().await else { continue };
        let server = server.clone();
        let mode = mode.subscribe();
        tokio::spawn(async move {
            // How it ended both ends have seen.
            let _ = join(client, &server, mode).await;
        });
    }
}

/// Joins a client with the server until one of them ends or both are reset.
async fn join(
    mut client: TcpStream,
    server: &Endpoint,
    mut mode: watch::Receiver<RelayMode>,
) -> io::Result<()> {
    let resets = mode.borrow_and_update().resets;
    let connect = TcpStream::connect((server.host.as_str(), server.port));
    let connecting = async {
        passed(&mut mode.clone(), |mode| mode.requests).await;
        tokio::time::timeout(CONNECTING, connect).await.map_err(io::Error::from)?
    };
    let upstream = tokio::select! {
        upstream = connecting => upstream,
        () = is_reset(mode.clone(), resets) => Err(io::ErrorKind::ConnectionReset.into()),
    };
    let mut upstream = upstream.inspect_err(|_| break_off(&client))?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = upstream.split();
    let both = async {
        tokio::join!(
            carry(from_client, to_server, mode.clone(), |mode| mode.requests),
            carry(from_server, to_client, mode.clone(), |mode| mode.replies),
        )
    };
    tokio::select! {
        (there, back) = both => there.and(back),
        () = is_reset(mode.clone(), resets) => {
            break_off(&client);
            break_off(&upstream);
            Ok(())
        }
    }
}

/// Forwards bytes, as the mode allows, until their source ends.
async fn carry(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut mode: watch::Receiver<RelayMode>,
    flow: fn(&RelayMode) -> Flow,
) -> io::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut bytes).await?;
        passed(&mut mode, flow).await;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&bytes[..count]).await?;
    }
}

/// Waits until bytes may go on.
async fn passed(mode: &mut watch::Receiver<RelayMode>, flow: fn(&RelayMode) -> Flow) {
    loop {
        let now = flow(&mode.borrow_and_update());
        match now {
            Flow::Pass => return,
            Flow::Delay(by) => return tokio::time::sleep(by).await,
            // The sender lives as long as the relay; without it nothing holds them back.
            Flow::Hold => {
                if mode.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn is_reset(mut mode: watch::Receiver<RelayMode>, resets: u64) {
    // Without a sender the relay is gone, and its connections with it.
    let _ = mode.wait_for(|mode| mode.resets != resets).await;
}

/// Makes the other end see a reset when the socket is closed.
fn break_off(stream: &TcpStream) {
    // Where it cannot be set the other end sees an ordinary end.
    let _ = stream.set_zero_linger();
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    /// A server that says everything twice, and a client of it through a relay.
    async fn through_relay() -> (Relay, TcpStream) {
        let server = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = server.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((mut client, _)) = server.accept().await {
                tokio::spawn(async move {
                    let mut byte = [0];
                    while client.read_exact(&mut byte).await.is_ok() {
                        client.write_all(&[byte[0], byte[0]]).await.expect("written");
                    }
                });
            }
        });
        let server = Endpoint { host: address.ip().to_string(), port: address.port() };
        let relay = Relay::start(server).await.expect("a relay");
        let endpoint = relay.endpoint();
        let client = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await;
        (relay, client.expect("connected"))
    }

    async fn read_two(client: &mut TcpStream) -> io::Result<[u8; 2]> {
        let mut bytes = [0; 2];
        tokio::time::timeout(LONG, client.read_exact(&mut bytes)).await??;
        Ok(bytes)
    }

    #[tokio::test]
    async fn what_is_held_back_arrives_whole_when_the_cut_ends() {
        let (relay, mut client) = through_relay().await;
        client.write_all(b"a").await.expect("written");
        assert_eq!(read_two(&mut client).await.expect("read"), *b"aa");
        for (requests, replies) in [(Flow::Hold, Flow::Pass), (Flow::Pass, Flow::Hold)] {
            relay.set(requests, replies);
            client.write_all(b"b").await.expect("written");
            let mut byte = [0];
            let early = tokio::time::timeout(Duration::from_millis(50), client.peek(&mut byte));
            assert!(early.await.is_err(), "it came through a cut");
            relay.set(Flow::Pass, Flow::Pass);
            assert_eq!(read_two(&mut client).await.expect("read"), *b"bb");
        }
    }

    #[tokio::test]
    async fn a_reset_is_seen_as_one_and_later_connections_are_good() {
        let (relay, mut client) = through_relay().await;
        client.write_all(b"a").await.expect("written");
        read_two(&mut client).await.expect("read");
        relay.reset();
        let error = read_two(&mut client).await.expect_err("reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let endpoint = relay.endpoint();
        let again = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await;
        let mut again = again.expect("connected");
        again.write_all(b"c").await.expect("written");
        assert_eq!(read_two(&mut again).await.expect("read"), *b"cc");
    }
}
