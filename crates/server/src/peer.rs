//! The other end of a connection: whether it is still there.
//!
//! - P1: the end of the connection is seen while a request waits, whatever bytes follow it. hyper
//!   reads no further while it has bytes of the next request, so a wait reads ahead for it.
//! - P2: a read happens under the mutex of the bytes that were read ahead, so they stay in order.
//! - P3: a connection that is broken stays broken, and one that the client closed in order may
//!   still break: a client that closes it without having read its answer resets it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::net::{Shutdown, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::life::PeerState;

/// How many bytes one read returns at most.
const ONE_READ: usize = 4_096;
/// How many bytes a client may send behind a request that waits; with more of them it is gone.
const MOST_AHEAD: usize = 65_536;

/// A connection, as requests and grants see it. Clones of the `Arc` are the same one.
pub(crate) struct Peer {
    stream: Stream,
    input: Mutex<Input>,
}

/// The socket of a connection.
pub(crate) enum Stream {
    Tcp(TcpStream),
    /// Of a process of this machine.
    Local(UnixStream),
}

impl Stream {
    async fn readable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.readable().await,
            Stream::Local(stream) => stream.readable().await,
        }
    }

    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_read_ready(context),
            Stream::Local(stream) => stream.poll_read_ready(context),
        }
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_write_ready(context),
            Stream::Local(stream) => stream.poll_write_ready(context),
        }
    }

    fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_read(bytes),
            Stream::Local(stream) => stream.try_read(bytes),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Local(stream) => stream.try_write(bytes),
        }
    }

    fn try_write_vectored(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write_vectored(slices),
            Stream::Local(stream) => stream.try_write_vectored(slices),
        }
    }

    fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Stream::Tcp(stream) => stream.take_error(),
            Stream::Local(stream) => stream.take_error(),
        }
    }

    /// Ends the direction to the other end: nothing follows.
    fn shut_down(&self) -> rustix::io::Result<()> {
        match self {
            Stream::Tcp(stream) => rustix::net::shutdown(stream, Shutdown::Write),
            Stream::Local(stream) => rustix::net::shutdown(stream, Shutdown::Write),
        }
    }
}

#[derive(Default)]
struct Input {
    /// Bytes that were read ahead of hyper.
    ahead: Vec<u8>,
    /// hyper has dropped its half: nobody will read what still comes.
    unread: bool,
    end: Option<End>,
}

#[derive(Clone, Copy)]
enum End {
    /// The client closed its side in order.
    Left(Instant),
    Broken,
}

impl Input {
    fn note(&mut self, read: &io::Result<usize>) {
        match read {
            Ok(0) if self.end.is_none() => self.end = Some(End::Left(Instant::now())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.end = Some(End::Broken),
        }
    }
}

impl Peer {
    /// Resolves when the client has closed its side of the connection, or the connection is broken.
    pub(crate) async fn gone(&self) {
        loop {
            if self.input.lock().end.is_some() {
                return;
            }
            if self.stream.readable().await.is_err() {
                self.input.lock().end = Some(End::Broken);
                return;
            }
            self.read_ahead();
        }
    }

    /// From now on the connection breaks if what is sent is not acknowledged for so long.
    pub(crate) fn expect_acknowledgement(&self, within: Duration) {
        // A process of this machine has what was sent, or its end is seen at once.
        let Stream::Tcp(stream) = &self.stream else { return };
        let within = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
        // Only a connection that is broken already refuses.
        let _ = sockopt::set_tcp_user_timeout(stream, within);
    }

    /// Returns whether the client has closed its side, or the connection is broken.
    pub(crate) fn is_gone(&self) -> bool {
        self.state() != PeerState::Open
    }

    /// Returns how the connection stands now.
    pub(crate) fn state(&self) -> PeerState {
        self.read_ahead();
        let broken = self.stream.take_error();
        let mut input = self.input.lock();
        if !matches!(broken, Ok(None)) {
            input.end = Some(End::Broken);
        }
        match input.end {
            None => PeerState::Open,
            Some(End::Left(at)) => PeerState::Left(at.elapsed()),
            Some(End::Broken) => PeerState::Broken,
        }
    }

    /// Reads what has come, so that the end behind it is seen.
    fn read_ahead(&self) {
        let mut input = self.input.lock();
        let mut bytes = [0; ONE_READ];
        while input.end.is_none() {
            let read = self.stream.try_read(&mut bytes);
            input.note(&read);
            let Ok(count) = read else { return };
            if input.unread {
                continue;
            }
            input.ahead.extend_from_slice(&bytes[..count]);
            if input.ahead.len() > MOST_AHEAD {
                input.end = Some(End::Left(Instant::now()));
            }
        }
    }
}

/// The half of a connection that hyper reads and writes, or TLS in between.
pub(crate) struct Socket(Arc<Peer>);

impl Socket {
    pub(crate) fn new(stream: Stream) -> Socket {
        Socket(Arc::new(Peer { stream, input: Mutex::default() }))
    }

    pub(crate) fn peer(&self) -> Arc<Peer> {
        self.0.clone()
    }

    /// Writes once the socket takes bytes.
    fn write(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&Stream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.stream.poll_write_ready(context))?;
            let written = write(&self.0.stream);
            match &written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => self.0.input.lock().end = Some(End::Broken),
                Ok(_) => {}
            }
            return Poll::Ready(written);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A grant may look at the connection for a while. The client learns of its end now.
        let _ = self.0.stream.shut_down();
        let mut input = self.0.input.lock();
        input.unread = true;
        input.ahead = Vec::new();
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Peer { stream, input } = &*self.0;
        loop {
            let mut input = input.lock();
            if !input.ahead.is_empty() {
                let count = input.ahead.len().min(buffer.remaining());
                buffer.put_slice(&input.ahead[..count]);
                input.ahead.drain(..count);
                return Poll::Ready(Ok(()));
            }
            ready!(stream.poll_read_ready(context))?;
            let most = buffer.remaining().min(ONE_READ);
            let read = stream.try_read(buffer.initialize_unfilled_to(most));
            input.note(&read);
            match read {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.stream.shut_down() {
            // The client was faster.
            Err(rustix::io::Errno::NOTCONN) => Poll::Ready(Ok(())),
            other => Poll::Ready(other.map_err(io::Error::from)),
        }
    }
}
