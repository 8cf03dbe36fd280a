//! Opening a stream to the server, with the options that keep it from hanging.
//!
//! Small writes leave at once. A peer that vanished is noticed by keepalive when idle and by the
//! user timeout when something is unacknowledged. A frozen server acknowledges all the same: that
//! is for the deadlines of [`super::lane`] to notice.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use holdline_core::{Certainty, Clock, LockError};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::tls;
use crate::error::unavailable;
use crate::options::{Address, RedisOptions};
use crate::surroundings::Stream;

/// How long a connection may be idle before the kernel asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// How often it asks, and how many times in vain.
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMES: u32 = 3;
/// How long one address of a name may be silent before the next is tried too, and how many are.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);
const MOST_ADDRESSES: usize = 16;
/// How long sent bytes may be unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// A stream, and whether it is to be reset instead of closed when it is dropped.
pub(super) struct Dialled {
    pub(super) stream: Box<dyn Stream>,
    pub(super) reset: Arc<AtomicBool>,
}

/// How far the making of a connection has come, for whoever must say what it hangs at.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

impl Stage {
    const HANDSHAKE: u8 = 1;
    const GREETING: u8 = 2;

    fn reach(&self, stage: u8) {
        self.0.store(stage, Ordering::Relaxed);
    }

    /// What it hangs at.
    pub(super) fn hangs_at(&self) -> &'static str {
        match self.0.load(Ordering::Relaxed) {
            Stage::HANDSHAKE => "no TLS handshake (a port without TLS? Then write `redis://`)",
            Stage::GREETING => "connected, but no answer",
            _ => "no connection",
        }
    }
}

/// Opens a stream.
pub(super) async fn dial(
    options: &RedisOptions,
    clock: &dyn Clock,
    stage: &Stage,
) -> Result<Dialled, LockError> {
    let reset = Arc::new(AtomicBool::new(false));
    let address = options.address();
    let failed = |error: io::Error| not_reached(address, &error);
    let stream: Box<dyn Stream> = match (options.surroundings(), address) {
        (Some(surroundings), _) => surroundings.dial().await.map_err(failed)?,
        (None, Address::Unix(path)) => {
            let socket = UnixStream::connect(path).await.map_err(failed)?;
            Box::new(Socket { stream: socket, reset: reset.clone() })
        }
        (None, Address::Tcp { host, port, tls }) => {
            let socket = connect(host, *port, clock).await.map_err(failed)?;
            let socket = Socket { stream: socket, reset: reset.clone() };
            match tls {
                true => {
                    stage.reach(Stage::HANDSHAKE);
                    Box::new(tls::wrap(socket, host, options).await?)
                }
                false => Box::new(socket),
            }
        }
    };
    stage.reach(Stage::GREETING);
    Ok(Dialled { stream, reset })
}

fn not_reached(address: &Address, error: &io::Error) -> LockError {
    let what = match (address, error.kind()) {
        (_, io::ErrorKind::ConnectionRefused) => "nobody listens there",
        (Address::Unix(_), io::ErrorKind::NotFound) => "there is no such socket",
        (_, io::ErrorKind::PermissionDenied) => "we may not open it",
        _ => "cannot connect",
    };
    unavailable(format!("{address}: {what}: {error}"), Certainty::NotApplied)
}

async fn connect(host: &str, port: u16, clock: &dyn Clock) -> io::Result<TcpStream> {
    let addresses = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| io::Error::other(format!("the name cannot be looked up: {error}")))?;
    let stream = first_of(addresses, clock).await?;
    set_options(&stream)?;
    Ok(stream)
}

type Try = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Tries addresses in their order, the next one when one has failed or is silent for a while: an
/// address that nobody answers must not use up the time of the others.
async fn first_of(
    addresses: impl Iterator<Item = SocketAddr>,
    clock: &dyn Clock,
) -> io::Result<TcpStream> {
    let mut addresses = addresses.take(MOST_ADDRESSES).fuse();
    let mut tries: Vec<Try> = Vec::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        let more = addresses.next();
        let is_last = more.is_none();
        tries.extend(more.map(|address| Box::pin(TcpStream::connect(address)) as Try));
        if tries.is_empty() {
            return Err(failure);
        }
        let soon = clock.now().after(NEXT_ADDRESS);
        tokio::select! {
            biased;
            done = first_done(&mut tries) => match done {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            },
            () = clock.sleep_until(soon), if !is_last => {}
        }
    }
}

/// Waits for the first try to end, and takes it out.
async fn first_done(tries: &mut Vec<Try>) -> io::Result<TcpStream> {
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

fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_AGAIN)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_TIMES)?;
    let millis = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, millis)?)
}

/// A socket that can be reset: closed with linger 0, so that nothing lingers in the kernel.
pub(super) struct Socket<S: AsFd> {
    stream: S,
    reset: Arc<AtomicBool>,
}

impl<S: AsFd> Drop for Socket<S> {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Acquire) {
            // On a unix socket it does nothing, and there is nothing that could linger.
            let _ = sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
        }
    }
}

impl<S: AsFd + AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsFd + AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdline::{ManualClock, SystemClock};
    use holdline_core::ClockKind;

    #[tokio::test]
    async fn a_socket_has_the_options_that_keep_it_from_hanging() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let clock = SystemClock::new(ClockKind::Boottime).expect("a timer");
        let stream = connect("localhost", port, &clock).await.expect("a connection");
        assert!(stream.nodelay().expect("told"));
        assert!(sockopt::socket_keepalive(&stream).expect("told"));
        assert_eq!(sockopt::tcp_keepidle(&stream).expect("told"), KEEPALIVE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).expect("told"), KEEPALIVE_AGAIN);
        assert_eq!(sockopt::tcp_keepcnt(&stream).expect("told"), KEEPALIVE_TIMES);
        let limit = sockopt::tcp_user_timeout(&stream).expect("told");
        assert_eq!(u128::from(limit), UNACKNOWLEDGED.as_millis());
    }

    /// A listener whose line is full answers nobody.
    #[tokio::test]
    async fn an_address_that_nobody_answers_does_not_use_up_the_time_of_the_others() {
        let silent = tokio::net::TcpSocket::new_v4().expect("a socket");
        silent.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let silent = silent.listen(1).expect("listening");
        let mut line = Vec::new();
        for _ in 0..2 {
            let place = TcpStream::connect(silent.local_addr().expect("an address")).await;
            line.push(place.expect("a place in the line"));
        }
        let good = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let clock = ManualClock::new();
        let addresses = [&silent, &good].map(|one| one.local_addr().expect("an address"));
        let mut found = std::pin::pin!(first_of(addresses.into_iter(), &clock));
        let early = poll_fn(|context| Poll::Ready(found.as_mut().poll(context).is_ready()));
        assert!(!early.await, "the first address has its time");
        clock.advance(NEXT_ADDRESS);
        let found = tokio::time::timeout(Duration::from_secs(20), found).await;
        let stream = found.expect("in time").expect("a connection");
        assert_eq!(stream.peer_addr().expect("an address"), addresses[1]);
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_passed_by_at_once_and_the_last_failure_is_told() {
        let bind = || tokio::net::TcpListener::bind("127.0.0.1:0");
        let (gone, good) = (bind().await.expect("a port"), bind().await.expect("a port"));
        let addresses = [&gone, &good].map(|one| one.local_addr().expect("an address"));
        drop(gone);
        let clock = ManualClock::new();
        let stream = first_of(addresses.into_iter(), &clock).await.expect("a connection");
        assert_eq!(stream.peer_addr().expect("an address"), addresses[1]);
        drop(good);
        let error = first_of(addresses.into_iter(), &clock).await.expect_err("nobody");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = first_of(std::iter::empty(), &clock).await.expect_err("no address");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
