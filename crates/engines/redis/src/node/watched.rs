//! A stream that remembers what broke it: the client crate only tells that it did.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::surroundings::Stream;

/// The first trouble of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble(Arc<Mutex<Option<io::Error>>>);

impl Trouble {
    /// Keeps the error if it is the first; returns one that says the same.
    fn keep(&self, error: io::Error) -> io::Error {
        let again = io::Error::new(error.kind(), error.to_string());
        self.0.lock().get_or_insert(error);
        again
    }

    pub(super) fn take(&self) -> Option<io::Error> {
        self.0.lock().take()
    }
}

pub(super) struct Watched {
    stream: Box<dyn Stream>,
    trouble: Trouble,
}

impl Watched {
    pub(super) fn new(stream: Box<dyn Stream>, trouble: Trouble) -> Watched {
        Watched { stream, trouble }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let wanted = buffer.remaining() > 0;
        let read = ready!(Pin::new(&mut *self.stream).poll_read(context, buffer));
        if read.is_ok() && wanted && buffer.filled().len() == before {
            let kind = io::ErrorKind::UnexpectedEof;
            self.trouble.keep(io::Error::new(kind, "closed by the server"));
        }
        Poll::Ready(read.map_err(|error| self.trouble.keep(error)))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut *self.stream).poll_write(context, bytes));
        Poll::Ready(written.map_err(|error| self.trouble.keep(error)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut *self.stream).poll_write_vectored(context, slices));
        Poll::Ready(written.map_err(|error| self.trouble.keep(error)))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut *self.stream).poll_flush(context));
        Poll::Ready(flushed.map_err(|error| self.trouble.keep(error)))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(context)
    }
}
