//! The TCP connection below HTTP/2, which sends the parts of a request in one write.
//!
//! The HTTP client passes the head and the body of a request to its connection task one after the
//! other, and that task flushes after each. So each request was two packets, and the server woke
//! twice. [`GatheredWrites`] delays each flush until the other tasks that are ready have run once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use holdline_net::socket;
use holdline_net::url::Server;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};
use tonic::transport::{Channel, Endpoint, Error};
use tower::service_fn;

/// Connects to a member. `endpoint` has the settings for HTTP/2 and TLS.
pub(crate) async fn connect(endpoint: &Endpoint, member: &Server) -> Result<Channel, Error> {
    let member = member.clone();
    let connector = service_fn(move |_| {
        let Server { host, port } = member.clone();
        async move {
            let stream = socket::connect(&host, port).await?;
            Ok::<_, io::Error>(TokioIo::new(GatheredWrites::new(stream)))
        }
    });
    endpoint.connect_with_connector(connector).await
}

/// A connection that sends what several tasks write in one turn of the runtime together.
#[derive(Debug)]
struct GatheredWrites<S> {
    stream: BufWriter<S>,
    /// The flush was delayed, and is due.
    is_due: bool,
}

impl<S: AsyncWrite> GatheredWrites<S> {
    fn new(stream: S) -> GatheredWrites<S> {
        GatheredWrites { stream: BufWriter::new(stream), is_due: false }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for GatheredWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GatheredWrites<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_due && !self.stream.buffer().is_empty() {
            self.is_due = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.is_due = flushed.is_pending();
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_is_written_in_one_turn_is_sent_together() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut ours = GatheredWrites::new(ours);
        ours.write_all(b"head").await.expect("buffered");
        assert!(ours.flush().now_or_never().is_none());
        let mut got = [0; 64];
        assert!(theirs.read(&mut got).now_or_never().is_none());
        ours.write_all(b" and body").await.expect("buffered");
        ours.flush().await.expect("flushed");
        let count = theirs.read(&mut got).await.expect("bytes");
        assert_eq!(&got[..count], b"head and body");
    }

    #[tokio::test]
    async fn more_than_the_buffer_holds_arrives_in_order() {
        let (ours, mut theirs) = tokio::io::duplex(1_000);
        let sent: Vec<u8> = (0..100_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let expected = sent.clone();
        let sending = tokio::spawn(async move {
            let mut ours = GatheredWrites::new(ours);
            for part in sent.chunks(7_777) {
                ours.write_all(part).await.expect("written");
                ours.flush().await.expect("flushed");
            }
        });
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).await.expect("bytes");
        assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
        sending.await.expect("no panic");
    }
}
