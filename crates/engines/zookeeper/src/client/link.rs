//! One connection of a session, until it breaks.
//!
//! - L1: requests are sent in the order of the queue, and the servers answer in that order. A reply
//!   that is not for the oldest request is an error of protocol, which ends the connection.
//! - L2: when the connection ends, each request that was given to it fails: *not sent* if the
//!   stream has accepted none of its bytes, otherwise *no answer*.
//! - L3: if nothing is sent for a while, a ping is. If nothing is received for longer while a
//!   reply is due, the connection is dropped. After a pause of this process a ping gets its time
//!   first.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use holdline_net::socket::ByteStream;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, sleep_until};

use super::SessionChannel;
use super::calls::{Call, Deliver};
use super::jute::{Decoder, Malformed};
use super::messages::{
    AUTHENTICATION, EVENT, PING, ReplyHeader, close_frame, digest_frame, event, ping_frame,
    request_frame,
};
use crate::error::{self, RequestError};

/// The longest reply: the names of all locks, for example.
const LONGEST_FRAME: usize = 64 * 1024 * 1024;
/// The longest request that servers accept, unless their `jute.maxbuffer` is larger.
const LONGEST_REQUEST: usize = 0xf_ffff;
const READ_AT_ONCE: usize = 16 * 1024;
/// The memory of a long reply is not kept beyond this size.
const MOST_KEPT: usize = 1024 * 1024;
/// How much may wait for the stream before no more requests are taken from the queue.
const MOST_UNSENT: usize = 64 * 1024;

/// The limits of silence on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    /// After this time without a request, a ping is sent.
    pub(super) ping: Duration,
    /// After this time without an answer, the connection is dropped.
    pub(super) drop: Duration,
}

impl Silence {
    /// A ping is sent after a third of the session timeout at the latest, and the connection is
    /// dropped after two thirds. A shorter `asked` lowers both.
    pub(super) fn of(timeout: Duration, asked: Duration) -> Silence {
        let drop = asked.min(timeout * 2 / 3);
        Silence { ping: (drop * 3 / 8).min(timeout / 3), drop }
    }
}

/// How a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The session was closed, as its owner wanted.
    Closed,
    /// The servers have ended the session.
    SessionGone,
    /// The servers refuse the credentials.
    Refused(i32),
    Broken(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Broken(format!("the connection broke: {error}"))
    }
}

impl From<Malformed> for End {
    fn from(Malformed(why): Malformed) -> End {
        End::Broken(format!("the servers sent no valid message: {why}"))
    }
}

/// A request that was given to the stream, or will be next.
struct Sent {
    xid: i32,
    /// How many bytes of the connection come before it.
    begins: u64,
    /// `None` for the message that closes the session.
    deliver: Option<Deliver>,
}

/// A connection on which a session was opened.
pub(super) struct Link {
    reader: ReadHalf<Box<dyn ByteStream>>,
    writer: WriteHalf<Box<dyn ByteStream>>,
    silence: Silence,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// How many bytes of the outbox the stream has accepted, and of all that came before it.
    written: usize,
    written_before: u64,
    must_flush: bool,
    sent: VecDeque<Sent>,
    next_xid: i32,
    pings: usize,
    authenticates: bool,
    closes: bool,
    last_sent: Instant,
    pub(super) last_received: Instant,
    /// Since when a reply has been due without a break.
    due_since: Option<Instant>,
    pub(super) last_zxid: i64,
}

impl Link {
    pub(super) fn new(stream: Box<dyn ByteStream>, silence: Silence, last_zxid: i64) -> Link {
        let (reader, writer) = split(stream);
        let now = Instant::now();
        Link {
            reader,
            writer,
            silence,
            inbox: Vec::new(),
            outbox: Vec::new(),
            written: 0,
            written_before: 0,
            must_flush: false,
            sent: VecDeque::new(),
            next_xid: 1,
            pings: 0,
            authenticates: false,
            closes: false,
            last_sent: now,
            last_received: now,
            due_since: None,
            last_zxid,
        }
    }

    /// Authenticates, before any request is sent.
    pub(super) async fn authenticate(
        &mut self,
        channel: &SessionChannel,
        credentials: &str,
    ) -> Result<(), End> {
        self.push(&digest_frame(credentials));
        self.authenticates = true;
        while self.authenticates {
            self.exchange(channel).await?;
        }
        Ok(())
    }

    /// Sends requests and handles replies until the connection ends. Then all requests that were
    /// made for it fail (L2).
    pub(super) async fn run(&mut self, channel: &SessionChannel) -> End {
        let end = loop {
            self.take_requests(channel);
            if let Err(end) = self.exchange(channel).await {
                break end;
            }
        };
        self.fail_all(channel, &end);
        end
    }

    /// Waits for the next thing to do, and does it.
    async fn exchange(&mut self, channel: &SessionChannel) -> Result<(), End> {
        let next = self.check_time(Instant::now())?;
        let output = &self.outbox[self.written..];
        let has_output = !output.is_empty();
        self.inbox.reserve(READ_AT_ONCE);
        tokio::select! {
            biased;
            count = write_or_flush(&mut self.writer, output), if has_output || self.must_flush => {
                match count? {
                    0 if has_output => {
                        return Err(End::Broken("the connection was closed".to_owned()));
                    }
                    0 => self.must_flush = false,
                    count => self.accepted(count),
                }
            }
            count = self.reader.read_buf(&mut self.inbox) => match count? {
                0 => return Err(End::Broken("the servers closed the connection".to_owned())),
                _ => self.handle_input(channel)?,
            },
            () = channel.asked.notified(), if !self.authenticates => {}
            () = sleep_until(next) => {}
        }
        Ok(())
    }

    fn accepted(&mut self, count: usize) {
        self.written += count;
        self.must_flush = true;
        if self.written == self.outbox.len() {
            self.written_before += self.written as u64;
            self.written = 0;
            self.outbox.clear();
        }
    }

    /// Sends a ping or drops the connection, if it is time (L3). Returns when to check again.
    fn check_time(&mut self, now: Instant) -> Result<Instant, End> {
        let mut next = self.last_sent + self.silence.ping;
        if now >= next && !self.authenticates && !self.closes {
            self.push(&ping_frame());
            self.pings += 1;
            next = now + self.silence.ping;
        }
        let Some(due_since) = self.due_since else { return Ok(next) };
        let answer_by = self.last_received + self.silence.drop;
        let end = answer_by.max(due_since + (self.silence.drop - self.silence.ping));
        if now >= end {
            return Err(End::Broken(format!("no answer within {:?}", self.silence.drop)));
        }
        // Nothing is sent before the session is open, nor after it was closed.
        let sends_pings = !self.authenticates && !self.closes;
        Ok(if sends_pings { next.min(end) } else { end })
    }

    fn push(&mut self, frame: &[u8]) {
        let now = Instant::now();
        self.outbox.extend(frame);
        self.last_sent = now;
        self.due_since.get_or_insert(now);
    }

    /// Moves requests from the queue to the outbox.
    pub(super) fn take_requests(&mut self, channel: &SessionChannel) {
        while self.outbox.len() - self.written < MOST_UNSENT && !self.closes {
            let Some(call) = channel.calls.pop() else {
                if channel.is_closing() {
                    self.closes = true;
                    let xid = self.expect_reply(None);
                    self.push(&close_frame(xid));
                }
                return;
            };
            self.push_call(call);
        }
    }

    fn push_call(&mut self, call: Call) {
        if call.body.len() > LONGEST_REQUEST {
            let message = format!("a request is longer than {LONGEST_REQUEST} bytes");
            let refused = error::not_applied(holdline_core::ErrorKind::Refused { message });
            // There is nothing to decode.
            let _ = (call.deliver)(Err(refused.into()));
            return;
        }
        let xid = self.expect_reply(Some(call.deliver));
        self.push(&request_frame(xid, call.op, &call.body));
    }

    /// Records that the next frame in the outbox is a request with this xid.
    fn expect_reply(&mut self, deliver: Option<Deliver>) -> i32 {
        let xid = self.next_xid;
        self.next_xid = xid.checked_add(1).unwrap_or(1);
        let begins = self.written_before + self.outbox.len() as u64;
        self.sent.push_back(Sent { xid, begins, deliver });
        xid
    }

    /// Handles bytes as if they had been read.
    #[cfg(test)]
    pub(super) fn receive(&mut self, bytes: &[u8], channel: &SessionChannel) -> Result<(), End> {
        self.inbox.extend(bytes);
        self.handle_input(channel)
    }

    /// Handles the complete frames of the inbox.
    fn handle_input(&mut self, channel: &SessionChannel) -> Result<(), End> {
        self.last_received = Instant::now();
        let inbox = std::mem::take(&mut self.inbox);
        let mut rest = inbox.as_slice();
        while let Some(frame) = next_frame(&mut rest)? {
            self.handle_frame(frame, channel)?;
        }
        let handled = inbox.len() - rest.len();
        self.inbox = inbox;
        self.inbox.drain(..handled);
        if self.inbox.is_empty() && self.inbox.capacity() > MOST_KEPT {
            self.inbox = Vec::new();
        }
        if self.sent.is_empty() && self.pings == 0 && !self.authenticates {
            self.due_since = None;
        }
        Ok(())
    }

    fn handle_frame(&mut self, frame: &[u8], channel: &SessionChannel) -> Result<(), End> {
        let mut reply = Decoder::new(frame);
        let header = ReplyHeader::decode(&mut reply)?;
        match header.xid {
            EVENT => {
                if let Some((event, path)) = event(&mut reply)? {
                    channel.watches.fire(event, &path);
                }
                return Ok(());
            }
            PING => {
                let pings = self.pings.checked_sub(1);
                self.pings = pings.ok_or(Malformed("a reply to no ping"))?;
                return Ok(());
            }
            AUTHENTICATION if self.authenticates => {
                self.authenticates = false;
                return match header.code {
                    0 => Ok(()),
                    code => Err(End::Refused(code)),
                };
            }
            _ => {}
        }
        let is_oldest = self.sent.front().is_some_and(|sent| sent.xid == header.xid);
        // What is not answered stays, and fails with the connection.
        let oldest = if is_oldest { self.sent.pop_front() } else { None };
        let sent = oldest.ok_or(Malformed("a reply to no request"))?;
        self.last_zxid = self.last_zxid.max(header.zxid);
        let Some(deliver) = sent.deliver else { return Err(End::Closed) };
        if header.code != 0 {
            // There is nothing to decode.
            let _ = deliver(Err(RequestError::of_code(header.code)));
            if error::ends_session(header.code) {
                return Err(End::SessionGone);
            }
            return Ok(());
        }
        Ok(deliver(Ok(&mut reply))?)
    }

    /// Fails the requests of this connection, and those that were made for it (L2).
    fn fail_all(&mut self, channel: &SessionChannel, end: &End) {
        let written = self.written_before + self.written as u64;
        for sent in self.sent.drain(..) {
            let Some(deliver) = sent.deliver else { continue };
            let failure = match end {
                End::Broken(why) if sent.begins >= written => RequestError::NotSent(why.clone()),
                End::Broken(why) => RequestError::NoAnswer(why.clone()),
                End::Closed | End::SessionGone | End::Refused(_) => RequestError::SessionGone,
            };
            // There is nothing to decode.
            let _ = deliver(Err(failure));
        }
        if let End::Broken(why) = end {
            channel.calls.fail_all(why);
        }
    }
}

/// Writes a part of the output and returns how much; flushes if there is none. Loses nothing if it
/// is dropped.
async fn write_or_flush(
    writer: &mut (impl AsyncWrite + Unpin),
    output: &[u8],
) -> io::Result<usize> {
    if output.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    writer.write(output).await
}

/// Returns the next complete frame; `None` if more bytes must come.
fn next_frame<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > LONGEST_FRAME {
        return Err(Malformed("a message is too long"));
    }
    let Some((frame, rest)) = rest.split_at_checked(length) else { return Ok(None) };
    *bytes = rest;
    Ok(Some(frame))
}
