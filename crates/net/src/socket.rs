//! TCP with the options that keep it from hanging.
//!
//! Small writes are sent at once. Keepalive detects a vanished peer on an idle connection, and the
//! user timeout detects it while data is unacknowledged. A frozen server still acknowledges data,
//! so the requests need deadlines too.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// What has a socket: the trait of this system for it.
#[cfg(unix)]
pub use std::os::fd::AsFd as AsSocket;
#[cfg(windows)]
pub use std::os::windows::io::AsSocket;

/// How long a connection may be idle before the kernel probes the peer.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The pause between two probes, and how many may fail.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// How long one address of a host may be silent before the next is tried too, and how many are
/// tried.
const ADDRESS_DELAY: Duration = Duration::from_millis(250);
const MAX_ADDRESSES: usize = 16;
/// How long sent bytes may be unacknowledged.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// A stream of bytes in both directions, with or without TLS.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for T {}

/// Connects to a host. Tries its addresses in turn, and the next one also while one is silent.
///
/// # Errors
/// The name cannot be looked up, or none of its addresses can be reached: then why the last.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| io::Error::other(format!("the name cannot be looked up: {error}")))?;
    let stream = first_of(addresses).await?;
    set_options(&stream)?;
    Ok(stream)
}

/// A connection to a Unix socket.
#[cfg(unix)]
pub use tokio::net::UnixStream;
/// Stands for a connection to a Unix socket: there is none on this system.
#[cfg(not(unix))]
pub type UnixStream = TcpStream;

/// Connects to a Unix socket.
///
/// # Errors
/// Nobody listens there, or this system has no Unix sockets.
#[cfg(unix)]
pub async fn connect_unix(path: impl AsRef<Path>) -> io::Result<UnixStream> {
    UnixStream::connect(path).await
}

/// Fails: tokio has no Unix sockets on this system.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub async fn connect_unix(path: impl AsRef<Path>) -> io::Result<UnixStream> {
    let says = format!("{}: Unix sockets do not work on this system", path.as_ref().display());
    Err(io::Error::new(io::ErrorKind::Unsupported, says))
}

type Try = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Tries addresses in their order, the next one when one has failed or is silent for a while: an
/// address that nobody answers must not use up the time of the others.
async fn first_of(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = addresses.take(MAX_ADDRESSES).fuse();
    let mut tries: Vec<Try> = Vec::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        let more = addresses.next();
        let is_last = more.is_none();
        tries.extend(more.map(|address| Box::pin(TcpStream::connect(address)) as Try));
        if tries.is_empty() {
            return Err(failure);
        }
        tokio::select! {
            biased;
            done = first_connected(&mut tries) => match done {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            },
            () = tokio::time::sleep(ADDRESS_DELAY), if !is_last => {}
        }
    }
}

/// Waits for the first try to end, and takes it out.
async fn first_connected(tries: &mut Vec<Try>) -> io::Result<TcpStream> {
    poll_fn(|context| {
        for place in 0..tries.len() {
            if let Poll::Ready(done) = tries[place].as_mut().poll(context) {
                drop(tries.swap_remove(place));
                return Poll::Ready(done);
            }
        }
        Poll::Pending
    })
    .await
}

/// Sets how a vanished peer is noticed: on an idle connection, and, on Linux, while data is
/// unacknowledged. Other systems have no such option, or retransmit for a time of their own.
fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_has_the_options_that_keep_it_from_hanging() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let stream = connect("localhost", port).await.expect("a connection");
        assert!(stream.nodelay().expect("read"));
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("read"));
        assert_eq!(socket.tcp_keepalive_time().expect("read"), KEEPALIVE);
        assert_eq!(socket.tcp_keepalive_interval().expect("read"), KEEPALIVE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().expect("read"), KEEPALIVE_PROBES);
        assert_eq!(socket.tcp_user_timeout().expect("read"), Some(USER_TIMEOUT));
    }

    /// A listener whose backlog is full answers nobody.
    #[tokio::test]
    async fn a_silent_address_does_not_use_up_the_time_of_the_others() {
        let silent = tokio::net::TcpSocket::new_v4().expect("a socket");
        silent.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let silent = silent.listen(1).expect("listening");
        let mut backlog = Vec::new();
        for _ in 0..2 {
            let queued = TcpStream::connect(silent.local_addr().expect("an address")).await;
            backlog.push(queued.expect("room in the backlog"));
        }
        let good = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addresses = [&silent, &good].map(|one| one.local_addr().expect("an address"));
        let limit = Duration::from_secs(60);
        let found = tokio::time::timeout(limit, first_of(addresses.into_iter())).await;
        let stream = found.expect("in time").expect("a connection");
        assert_eq!(stream.peer_addr().expect("an address"), addresses[1]);
    }

    #[tokio::test]
    async fn a_refusing_address_is_skipped_at_once_and_the_last_error_is_returned() {
        let bind = || tokio::net::TcpListener::bind("127.0.0.1:0");
        let gone = bind().await.expect("a port");
        let good = bind().await.expect("a port");
        let addresses = [&gone, &good].map(|one| one.local_addr().expect("an address"));
        drop(gone);
        let stream = first_of(addresses.into_iter()).await.expect("a connection");
        assert_eq!(stream.peer_addr().expect("an address"), addresses[1]);
        drop(good);
        let error = first_of(addresses.into_iter()).await.expect_err("nobody");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = first_of(std::iter::empty()).await.expect_err("no address");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
