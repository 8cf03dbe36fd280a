//! Opening a stream to the server.
//!
//! A peer that vanished is noticed by the socket ([`holdline_net::socket`]). A frozen server
//! acknowledges all the same: that is for the deadlines of [`super::lane`] to notice.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use holdline_core::{Certainty, LockError};
use holdline_net::socket;
use holdline_net::tls::Speaker;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use crate::error::{ENGINE, unavailable};
use crate::options::{Address, RedisOptions};
use crate::surroundings::Stream;

/// Whose words the messages of a failed handshake are.
pub(super) const SPEAKER: Speaker = Speaker { engine: ENGINE, without: "redis://" };

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
pub(super) async fn dial(options: &RedisOptions, stage: &Stage) -> Result<Dialled, LockError> {
    let reset = Arc::new(AtomicBool::new(false));
    let address = options.address();
    let failed = |error: io::Error| not_reached(address, &error);
    let stream: Box<dyn Stream> = match (options.surroundings(), address) {
        (Some(surroundings), _) => surroundings.dial().await.map_err(failed)?,
        (None, Address::Service { .. } | Address::Cluster { .. }) => {
            let message = "nobody has asked who it is";
            return Err(unavailable(format!("{address}: {message}"), Certainty::NotApplied));
        }
        (None, Address::Unix(path)) => {
            let socket = UnixStream::connect(path).await.map_err(failed)?;
            Box::new(Socket { stream: socket, reset: reset.clone() })
        }
        (None, Address::Tcp { host, port, tls }) => {
            let socket = socket::connect(host, *port).await.map_err(failed)?;
            let socket = Socket { stream: socket, reset: reset.clone() };
            match tls {
                true => {
                    stage.reach(Stage::HANDSHAKE);
                    Box::new(SPEAKER.wrap(socket, host, options.tls()).await?)
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
