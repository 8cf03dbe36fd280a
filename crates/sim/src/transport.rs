//! Connections that a client can use like sockets.
//!
//! A write passes its bytes to the server at once, which runs the complete commands. A read takes
//! the server's output. There is no task behind it: when the server must act by itself, the
//! reader's timer drives it. Delay, loss and cuts are injected by a layer in between, or by the
//! server's faults.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use holdline_core::{Clock, Moment};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::options::RedisOptions;
use crate::server::FakeRedis;
use crate::session::ConnectionId;

/// A server for many clients. Clones share the server.
#[derive(Debug, Clone)]
pub struct RedisHost {
    server: Arc<Mutex<FakeRedis>>,
    clock: Arc<dyn Clock>,
}

impl RedisHost {
    /// Starts a server with no data, whose time derives from `clock`.
    pub fn new(clock: Arc<dyn Clock>, options: RedisOptions) -> RedisHost {
        let server = FakeRedis::new(clock.clone(), options);
        RedisHost { server: Arc::new(Mutex::new(server)), clock }
    }

    /// Gives access to the server, to inject faults or to inspect it.
    ///
    /// Tasks that read from it do not run while the guard exists.
    pub fn server(&self) -> MutexGuard<'_, FakeRedis> {
        self.server.lock()
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// `ConnectionRefused` while the server is down.
    pub fn connect(&self) -> io::Result<RedisStream> {
        let id = self.server.lock().connect();
        let id = id.map_err(|down| io::Error::new(io::ErrorKind::ConnectionRefused, down))?;
        Ok(RedisStream { host: self.clone(), id, timer: None })
    }
}

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One connection to a [`RedisHost`]. Dropping it closes it.
pub struct RedisStream {
    host: RedisHost,
    id: ConnectionId,
    /// The timer for the server's next action, with its time.
    timer: Option<(Moment, Sleep)>,
}

impl std::fmt::Debug for RedisStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStream").field("id", &self.id).finish_non_exhaustive()
    }
}

impl RedisStream {
    /// Returns the id of this connection.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Runs the server's due actions, and wakes this task for the next one.
    fn drive(&mut self, context: &mut Context<'_>) {
        loop {
            let next = self.host.server.lock().next_wake();
            let Some(at) = next else {
                self.timer = None;
                return;
            };
            if self.timer.as_ref().is_none_or(|(own, _)| *own != at) {
                self.timer = Some((at, self.host.clock.sleep_until(at)));
            }
            let Some((_, timer)) = self.timer.as_mut() else { return };
            if timer.as_mut().poll(context).is_pending() {
                return;
            }
            self.timer = None;
            self.host.server.lock().tick();
        }
    }
}

impl AsyncRead for RedisStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.drive(context);
        let mut server = self.host.server.lock();
        let bytes = server.take_output(self.id, buffer.remaining());
        if !bytes.is_empty() {
            buffer.put_slice(&bytes);
            return Poll::Ready(Ok(()));
        }
        if !server.is_open(self.id) {
            return Poll::Ready(Ok(()));
        }
        server.set_waker(self.id, context.waker());
        Poll::Pending
    }
}

impl AsyncWrite for RedisStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut server = self.host.server.lock();
        if !server.is_open(self.id) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        server.receive(self.id, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.host.server.lock().close(self.id);
        Poll::Ready(Ok(()))
    }
}

impl Drop for RedisStream {
    fn drop(&mut self) {
        self.host.server.lock().close(self.id);
    }
}

impl FakeRedis {
    /// Registers the waker for new output.
    fn set_waker(&mut self, id: ConnectionId, waker: &Waker) {
        let state = self.state();
        if let Some(session) = state.connections.get_mut(&id) {
            session.waker = Some(waker.clone());
            state.may_read = true;
        }
    }
}
