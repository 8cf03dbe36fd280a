//! The buffers of one connection's stream: output, and input that was not parsed yet.
//!
//! One write sends the requests of many tasks, and one read receives the replies of many.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use super::resp::{self, Frame, FrameScanner, InvalidFrame, Reply};
use crate::environment::Stream;

/// The smallest buffer of one read, and the buffer of an idle connection.
const MIN_READ: usize = 4 * 1024;
const USUAL_BUFFER: usize = 32 * 1024;

/// Why a connection can no longer be used.
#[derive(Debug)]
pub(super) enum WireError {
    Io(io::Error),
    /// The input is not RESP.
    InvalidFrame,
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> WireError {
        WireError::Io(error)
    }
}

impl From<InvalidFrame> for WireError {
    fn from(InvalidFrame: InvalidFrame) -> WireError {
        WireError::InvalidFrame
    }
}

pub(super) struct Wire {
    stream: Box<dyn Stream>,
    out: Vec<u8>,
    written: usize,
    /// Bytes were written since the last flush.
    unflushed: bool,
    /// Input; `taken..filled` was read and not parsed yet.
    read: Vec<u8>,
    taken: usize,
    filled: usize,
    scanner: FrameScanner,
}

impl Wire {
    pub(super) fn new(stream: Box<dyn Stream>) -> Wire {
        let out = Vec::new();
        let read = vec![0; USUAL_BUFFER];
        let scanner = FrameScanner::default();
        Wire { stream, out, written: 0, unflushed: false, read, taken: 0, filled: 0, scanner }
    }

    /// Returns the output buffer; `None` while it is being written.
    pub(super) fn idle_out(&mut self) -> Option<&mut Vec<u8>> {
        self.out.is_empty().then_some(&mut self.out)
    }

    /// Writes the output buffer, until all of it is sent.
    pub(super) fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            match ready!(Pin::new(&mut *self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into())),
                count => self.written += count,
            }
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut *self.stream).poll_flush(context))?;
            self.unflushed = false;
        }
        self.written = 0;
        self.out.clear();
        self.out.shrink_to(USUAL_BUFFER * 32);
        Poll::Ready(Ok(()))
    }

    /// Reads once, as much as the buffer has room for.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        self.reserve();
        let mut room = ReadBuf::new(&mut self.read[self.filled..]);
        ready!(Pin::new(&mut *self.stream).poll_read(context, &mut room))?;
        match room.filled().len() {
            0 => {
                let kind = io::ErrorKind::UnexpectedEof;
                Poll::Ready(Err(io::Error::new(kind, "closed by the server").into()))
            }
            count => {
                self.filled += count;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn reserve(&mut self) {
        if self.taken == self.filled {
            self.taken = 0;
            self.filled = 0;
            if self.read.len() > USUAL_BUFFER {
                self.read = vec![0; USUAL_BUFFER];
            }
        }
        if self.read.len() - self.filled < MIN_READ {
            self.read.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
            // A frame that is longer than the buffer is read in ever larger pieces.
            if self.filled > self.read.len() / 2 {
                self.read.resize(self.read.len() * 2, 0);
            }
        }
    }

    /// Parses the next frame; `None` while it is incomplete.
    fn next(&mut self) -> Result<Option<Frame>, WireError> {
        let read = &self.read[self.taken..self.filled];
        let Some((frame, length)) = resp::read(read, &mut self.scanner)? else { return Ok(None) };
        self.taken += length;
        Ok(Some(frame))
    }

    /// Parses all complete frames, also those before an invalid one.
    pub(super) fn read_frames(&mut self, frames: &mut Vec<Frame>) -> Result<(), WireError> {
        while let Some(frame) = self.next()? {
            frames.push(frame);
        }
        Ok(())
    }

    /// Waits for the next frame. Nobody else may read meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn frame(&mut self) -> Result<Frame, WireError> {
        loop {
            if let Some(frame) = self.next()? {
                return Ok(frame);
            }
            poll_fn(|context| self.poll_read(context)).await?;
        }
    }

    /// Sends some commands. Nobody else may write meanwhile.
    pub(super) async fn send(&mut self, commands: &[Vec<&[u8]>]) -> Result<(), WireError> {
        commands.iter().for_each(|args| resp::write(&mut self.out, args));
        poll_fn(|context| self.poll_write(context)).await
    }

    /// Sends some commands and waits for their replies. Nobody else may use the stream meanwhile.
    pub(super) async fn request(
        &mut self,
        commands: &[Vec<&[u8]>],
    ) -> Result<Vec<Reply>, WireError> {
        self.send(commands).await?;
        let mut replies = Vec::with_capacity(commands.len());
        while replies.len() < commands.len() {
            if let Frame::Reply(reply) = self.frame().await? {
                replies.push(reply);
            }
        }
        Ok(replies)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LONG: usize = USUAL_BUFFER * 64;

    /// One large reply, or one large burst of requests, does not keep its buffer for ever.
    #[tokio::test]
    async fn buffers_shrink_after_a_long_frame() {
        let (near, mut far) = tokio::io::duplex(LONG * 2);
        let mut wire = Wire::new(Box::new(near));
        let text = format!("${LONG}\r\n{}\r\n", "x".repeat(LONG));
        far.write_all(text.as_bytes()).await.expect("room");
        wire.frame().await.expect("a long reply");
        assert!(wire.read.len() > USUAL_BUFFER);
        far.write_all(b"+OK\r\n").await.expect("room");
        wire.frame().await.expect("a short one");
        assert_eq!(wire.read.len(), USUAL_BUFFER);
        let long = "x".repeat(LONG);
        wire.send(&[vec![long.as_bytes()]]).await.expect("sent");
        assert!(wire.out.capacity() <= USUAL_BUFFER * 32, "{}", wire.out.capacity());
        let mut read = vec![0; LONG];
        far.read_exact(&mut read).await.expect("all of it");
    }
}
