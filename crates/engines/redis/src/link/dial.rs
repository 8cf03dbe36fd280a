//! Opening a stream to the server.
//!
//! The socket's own timers detect a peer that vanished ([`holdline_net::socket`]). A frozen server
//! still acknowledges packets: the deadlines of [`super::connection`] detect that.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use holdline_core::{Certainty, LockError};
use holdline_net::socket::{self, AsSocket};
use holdline_net::tls::TlsContext;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::environment::Stream;
use crate::error::{ENGINE, unavailable};
use crate::options::{Address, RedisOptions};

/// How long a TLS handshake may take before another connection checks whether the server has TLS.
const PROBE_AFTER: Duration = Duration::from_millis(300);

/// The names in the messages of a failed TLS handshake.
pub(super) const TLS: TlsContext = TlsContext { engine: ENGINE, without: "redis://" };

/// A stream, and whether it is to be reset instead of closed when it is dropped.
pub(super) struct Dialled {
    pub(super) stream: Box<dyn Stream>,
    pub(super) reset: Arc<AtomicBool>,
}

/// How far connecting has come, for the message when it takes too long.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

impl Stage {
    const TLS: u8 = 1;
    const HANDSHAKE: u8 = 2;

    fn reach(&self, stage: u8) {
        self.0.store(stage, Ordering::Relaxed);
    }

    /// Describes the step that takes too long.
    pub(super) fn describe(&self) -> &'static str {
        match self.0.load(Ordering::Relaxed) {
            Stage::TLS => "no TLS handshake (a port without TLS? Then write `redis://`)",
            Stage::HANDSHAKE => "connected, but no reply",
            _ => "no connection",
        }
    }
}

/// Opens a stream.
pub(super) async fn dial(options: &RedisOptions, stage: &Stage) -> Result<Dialled, LockError> {
    let reset = Arc::new(AtomicBool::new(false));
    let address = options.address();
    let failed = |error: io::Error| connect_error(address, &error);
    let stream: Box<dyn Stream> = match (options.environment(), address) {
        (Some(environment), _) => environment.dial().await.map_err(failed)?,
        (None, Address::Service { .. } | Address::Cluster { .. }) => {
            let message = "its address is not resolved";
            return Err(unavailable(format!("{address}: {message}"), Certainty::NotApplied));
        }
        (None, Address::Unix(path)) => {
            let socket = socket::connect_unix(path).await.map_err(failed)?;
            Box::new(Socket { stream: socket, reset: reset.clone() })
        }
        (None, Address::Tcp { host, port, tls }) => {
            let socket = socket::connect(host, *port).await.map_err(failed)?;
            let socket = Socket { stream: socket, reset: reset.clone() };
            if *tls {
                stage.reach(Stage::TLS);
                tokio::select! {
                    wrapped = TLS.wrap(socket, host, options.tls()) => Box::new(wrapped?),
                    () = has_no_tls(host, *port) => return Err(TLS.no_tls()),
                }
            } else {
                Box::new(socket)
            }
        }
    };
    stage.reach(Stage::HANDSHAKE);
    Ok(Dialled { stream, reset })
}

/// Becomes ready if the server answers in clear text; otherwise never.
///
/// A Redis server without TLS says nothing to the first message of TLS: it waits for the end of a
/// line. So a handshake that takes long is checked by a second connection, which sends one `PING`.
async fn has_no_tls(host: &str, port: u16) {
    tokio::time::sleep(PROBE_AFTER).await;
    let answer = async {
        let mut socket = socket::connect(host, port).await?;
        socket.write_all(b"PING\r\n").await?;
        let mut first = [0; 1];
        socket.read_exact(&mut first).await?;
        Ok::<u8, io::Error>(first[0])
    };
    // An answer in clear text is `+PONG`, or an error such as `-NOAUTH`.
    match answer.await {
        Ok(b'+' | b'-') => {}
        _ => std::future::pending().await,
    }
}

fn connect_error(address: &Address, error: &io::Error) -> LockError {
    let what = match (address, error.kind()) {
        (_, io::ErrorKind::ConnectionRefused) => "nobody listens there",
        (Address::Unix(_), io::ErrorKind::NotFound) => "there is no such socket",
        (_, io::ErrorKind::PermissionDenied) => "we may not open it",
        _ => "cannot connect",
    };
    unavailable(format!("{address}: {what}: {error}"), Certainty::NotApplied)
}

/// A socket that can be reset: closed with linger 0, so that no unsent data stays in the kernel.
pub(super) struct Socket<S: AsSocket> {
    stream: S,
    reset: Arc<AtomicBool>,
}

impl<S: AsSocket> Drop for Socket<S> {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Acquire) {
            // On a Unix socket this has no effect, and none is needed.
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl<S: AsSocket + AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsSocket + AsyncWrite + Unpin> AsyncWrite for Socket<S> {
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
