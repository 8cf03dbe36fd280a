//! The bytes of one connection: what is to be written, and what was read and not yet taken.
//!
//! Requests of many tasks leave in one write, and one read brings the replies of many.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use super::resp::{self, Frame, Reply, Rubbish, Skim};
use crate::surroundings::Stream;

/// How much room there is for one read at least, and the room of a connection that is idle.
const LEAST_ROOM: usize = 4 * 1024;
const USUAL_ROOM: usize = 32 * 1024;

/// Why there is nothing more to read or write.
#[derive(Debug)]
pub(super) enum Broke {
    Stream(io::Error),
    /// What came is no reply.
    Rubbish,
}

impl From<io::Error> for Broke {
    fn from(error: io::Error) -> Broke {
        Broke::Stream(error)
    }
}

impl From<Rubbish> for Broke {
    fn from(Rubbish: Rubbish) -> Broke {
        Broke::Rubbish
    }
}

pub(super) struct Wire {
    stream: Box<dyn Stream>,
    out: Vec<u8>,
    written: usize,
    /// Something was written since the stream was last told to send all.
    unsent: bool,
    /// Read, from `taken` to `filled`; the rest is room.
    read: Vec<u8>,
    taken: usize,
    filled: usize,
    skim: Skim,
}

impl Wire {
    pub(super) fn new(stream: Box<dyn Stream>) -> Wire {
        let (out, read) = (Vec::new(), vec![0; USUAL_ROOM]);
        let skim = Skim::default();
        Wire { stream, out, written: 0, unsent: false, read, taken: 0, filled: 0, skim }
    }

    /// Returns where to put what is to be written; `None` while something is being written.
    pub(super) fn idle_out(&mut self) -> Option<&mut Vec<u8>> {
        self.out.is_empty().then_some(&mut self.out)
    }

    /// Writes what is to be written, until all of it has left.
    pub(super) fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broke>> {
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            match ready!(Pin::new(&mut *self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into())),
                count => self.written += count,
            }
            self.unsent = true;
        }
        if self.unsent {
            ready!(Pin::new(&mut *self.stream).poll_flush(context))?;
            self.unsent = false;
        }
        self.written = 0;
        self.out.clear();
        self.out.shrink_to(USUAL_ROOM * 32);
        Poll::Ready(Ok(()))
    }

    /// Reads once, as much as there is room for.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broke>> {
        self.make_room();
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

    fn make_room(&mut self) {
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
            if self.read.len() > USUAL_ROOM {
                self.read = vec![0; USUAL_ROOM];
            }
        }
        if self.read.len() - self.filled < LEAST_ROOM {
            self.read.copy_within(self.taken..self.filled, 0);
            (self.taken, self.filled) = (0, self.filled - self.taken);
            // What is longer than the room is read in ever larger pieces.
            if self.filled > self.read.len() / 2 {
                self.read.resize(self.read.len() * 2, 0);
            }
        }
    }

    /// Takes the next frame out of what was read; `None` when more must come first.
    fn next(&mut self) -> Result<Option<Frame>, Broke> {
        let read = &self.read[self.taken..self.filled];
        let Some((frame, length)) = resp::read(read, &mut self.skim)? else { return Ok(None) };
        self.taken += length;
        Ok(Some(frame))
    }

    /// Takes all frames out of what was read; those before rubbish as well.
    pub(super) fn take_in(&mut self, frames: &mut Vec<Frame>) -> Result<(), Broke> {
        while let Some(frame) = self.next()? {
            frames.push(frame);
        }
        Ok(())
    }

    /// Waits for the next frame; while nobody else reads.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn frame(&mut self) -> Result<Frame, Broke> {
        loop {
            if let Some(frame) = self.next()? {
                return Ok(frame);
            }
            poll_fn(|context| self.poll_read(context)).await?;
        }
    }

    /// Sends some commands, while nothing else is written.
    pub(super) async fn send(&mut self, commands: &[Vec<&[u8]>]) -> Result<(), Broke> {
        commands.iter().for_each(|words| resp::write(&mut self.out, words));
        poll_fn(|context| self.poll_write(context)).await
    }

    /// Sends some commands and waits for their replies, while nobody else reads.
    pub(super) async fn ask(&mut self, commands: &[Vec<&[u8]>]) -> Result<Vec<Reply>, Broke> {
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

    const LONG: usize = USUAL_ROOM * 64;

    /// One large answer, or one large burst of requests, does not keep its room for ever.
    #[tokio::test]
    async fn room_for_what_was_long_is_given_back() {
        let (near, mut far) = tokio::io::duplex(LONG * 2);
        let mut wire = Wire::new(Box::new(near));
        let text = format!("${LONG}\r\n{}\r\n", "x".repeat(LONG));
        far.write_all(text.as_bytes()).await.expect("room");
        wire.frame().await.expect("a long answer");
        assert!(wire.read.len() > USUAL_ROOM);
        far.write_all(b"+OK\r\n").await.expect("room");
        wire.frame().await.expect("a short one");
        assert_eq!(wire.read.len(), USUAL_ROOM);
        let long = "x".repeat(LONG);
        wire.send(&[vec![long.as_bytes()]]).await.expect("sent");
        assert!(wire.out.capacity() <= USUAL_ROOM * 32, "{}", wire.out.capacity());
        let mut read = vec![0; LONG];
        far.read_exact(&mut read).await.expect("all of it");
    }
}
