//! A body for what hyper refuses by itself: bytes that are no HTTP request (400), and headers that
//! are too long (431). No handler sees these, and hyper answers them without a body.
//!
//! - R1: only such an answer is changed. Every answer of ours with these statuses has a body, so an
//!   empty one is hyper's.
//! - R2: it is the last answer of its connection: hyper closes it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::problem::Problem;

const EMPTY: &[u8] = b"content-length: 0\r\n";

/// A connection whose empty refusals get a body.
pub(crate) struct WithBodies<S> {
    stream: S,
    header_bytes: usize,
    /// What is written in place of hyper's answer, and how much of it is.
    replaced: Option<(Vec<u8>, usize)>,
}

impl<S> WithBodies<S> {
    /// `header_bytes` is the limit that a refusal names.
    pub(crate) fn new(stream: S, header_bytes: usize) -> WithBodies<S> {
        WithBodies { stream, header_bytes, replaced: None }
    }

    /// Returns the answer to send in place of this one; `None` if it is to be sent as it is.
    fn replacement(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let problem = match bytes.get(..13)? {
            b"HTTP/1.1 400 " => Problem::bad_request("the bytes are no HTTP request"),
            b"HTTP/1.1 431 " => Problem::headers_too_long(self.header_bytes),
            _ => return None,
        };
        let at = bytes.windows(EMPTY.len()).position(|part| part == EMPTY)?;
        let body = problem.to_json();
        let headers =
            format!("content-type: application/problem+json\r\ncontent-length: {}\r\n", body.len());
        let before = bytes.get(..at)?;
        let after = bytes.get(at + EMPTY.len()..)?;
        // The refusal ends with its headers, and nothing follows it.
        if !after.ends_with(b"\r\n\r\n") && after != b"\r\n" {
            return None;
        }
        Some([before, headers.as_bytes(), after, body.as_bytes()].concat())
    }
}

impl<S: AsyncWrite + Unpin> WithBodies<S> {
    /// Writes the replacement, and then reports that hyper's bytes are written.
    fn poll_replaced(
        &mut self,
        context: &mut Context<'_>,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        while let Some((bytes, written)) = &mut self.replaced {
            if *written == bytes.len() {
                self.replaced = None;
                break;
            }
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, &bytes[*written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *written += count;
        }
        Poll::Ready(Ok(length))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WithBodies<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WithBodies<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.replaced.is_none() {
            self.replaced = self.replacement(bytes).map(|replacement| (replacement, 0));
        }
        if self.replaced.is_some() {
            return self.poll_replaced(context, bytes.len());
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A refusal has no body, so it is one slice.
        let mut written = slices.iter().filter(|slice| !slice.is_empty());
        if let (Some(only), None) = (written.next(), written.next()) {
            return self.poll_write(context, only);
        }
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
