//! One connection through the proxy: two sockets and four threads.
//!
//! In each direction one thread reads and judges frames as they arrive, and another carries them
//! on. So a frame that is held or late does not keep the proxy from seeing those behind it.
//!
//! K1: no thread blocks in a read: readers wait by `poll`, so that a reset from another thread
//! takes effect at once on every kernel.

use super::frames::Seen;
use super::{Fault, ProxyParts, Traffic, What};
use crate::resp::{self, Reply};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many frames may lie between a reader and its carrier; then the sender must wait.
const BETWEEN: usize = 65_536;

#[derive(Debug)]
pub(super) struct Link {
    number: u64,
    client: TcpStream,
    server: TcpStream,
    exchange: Mutex<Exchange>,
    /// Something came that is no protocol of Redis. What follows, in either direction, may begin
    /// anywhere inside of it, and look like a frame by chance.
    foreign: AtomicBool,
}

/// The state that is needed to match replies with requests.
#[derive(Debug, Default)]
struct Exchange {
    unanswered: VecDeque<Vec<u8>>,
    /// In RESP2 messages look like replies, so they are only looked for once they may come.
    subscribed: bool,
    /// The client has asked for something.
    begun: bool,
    /// Directions that have ended.
    ended: u8,
}

/// What a reader hands to its carrier.
enum Piece {
    Frame { bytes: Vec<u8>, fault: Option<Fault>, arrived: Instant, thaws: u64 },
    End,
    Broken,
}

/// Breaks a connection: the other end sees a reset.
pub(super) fn reset(stream: &TcpStream) {
    // Dissolving the association sends the reset now, whatever other handles are open. Where the
    // kernel refuses, closing with linger 0 will, and the shutdown ends the threads.
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
    if rustix::net::connect_unspec(stream).is_err() {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

impl Link {
    pub(super) fn new(number: u64, client: TcpStream, server: TcpStream) -> io::Result<Self> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        Ok(Self {
            number,
            client,
            server,
            exchange: Mutex::default(),
            foreign: AtomicBool::new(false),
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn reset(&self) {
        reset(&self.client);
        reset(&self.server);
    }

    fn ends(&self, towards_server: bool) -> (&TcpStream, &TcpStream) {
        let ends = (&self.client, &self.server);
        if towards_server { ends } else { (ends.1, ends.0) }
    }

    fn exchange<T>(&self, act: impl FnOnce(&mut Exchange) -> T) -> T {
        act(&mut self.exchange.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) fn start(shared: &Arc<ProxyParts>, link: &Arc<Link>) {
    for towards_server in [true, false] {
        let (pieces, taken) = sync_channel(BETWEEN);
        let reader = Arc::clone(shared);
        let carrier = Arc::clone(shared);
        let source = Arc::clone(link);
        let target = Arc::clone(link);
        std::thread::spawn(move || read(&reader, &source, towards_server, &pieces));
        std::thread::spawn(move || carry(&carrier, &target, towards_server, &taken));
    }
}

/// Reads until the end, and hands on whole frames with their fate.
fn read(shared: &ProxyParts, link: &Link, towards_server: bool, pieces: &SyncSender<Piece>) {
    let (from, _) = link.ends(towards_server);
    let mut unread = Unread::default();
    let last = loop {
        match read_some(from, &mut unread.bytes) {
            Ok(0) => break Piece::End,
            Ok(_) => {}
            Err(_) => break Piece::Broken,
        }
        let arrived = Instant::now();
        // No Redis server speaks first. MariaDB's handshake may look like a line of Redis.
        if !towards_server && !link.exchange(|exchange| exchange.begun) {
            link.foreign.store(true, Ordering::SeqCst);
        }
        while let Some(bytes) = unread.next_frame(&link.foreign) {
            let (fault, thaws) = judge(shared, link, towards_server, &bytes);
            if pieces.send(Piece::Frame { bytes, fault, arrived, thaws }).is_err() {
                return;
            }
        }
    };
    // A carrier that is gone has ended the connection itself.
    let _ = pieces.send(last);
}

fn read_some(mut from: &TcpStream, unread: &mut Vec<u8>) -> io::Result<usize> {
    let mut ready = [PollFd::new(from, PollFlags::IN)];
    while let Err(why) = poll(&mut ready, None) {
        if why != rustix::io::Errno::INTR {
            return Err(why.into());
        }
    }
    let mut more = [0; 16 * 1024];
    let count = from.read(&mut more)?;
    unread.extend_from_slice(&more[..count]);
    Ok(count)
}

/// What has come and is not yet a whole frame.
#[derive(Default)]
struct Unread {
    bytes: Vec<u8>,
}

impl Unread {
    /// Takes the first whole frame; what is no protocol of Redis is taken as it came.
    fn next_frame(&mut self, foreign: &AtomicBool) -> Option<Vec<u8>> {
        let first = *self.bytes.first()?;
        let known = first.is_ascii_alphabetic() || b"+-:$*_#,(=!~>%|".contains(&first);
        if !known {
            foreign.store(true, Ordering::SeqCst);
        }
        if !foreign.load(Ordering::SeqCst) {
            match resp::frame(&self.bytes) {
                Ok(length) => {
                    let rest = self.bytes.split_off(length?);
                    return Some(std::mem::replace(&mut self.bytes, rest));
                }
                Err(_) => foreign.store(true, Ordering::SeqCst),
            }
        }
        Some(std::mem::take(&mut self.bytes))
    }
}

/// Classifies a frame, and lets the rules decide.
fn judge(
    shared: &ProxyParts,
    link: &Link,
    towards_server: bool,
    bytes: &[u8],
) -> (Option<Fault>, u64) {
    if !towards_server {
        let (traffic, request) = link.exchange(|exchange| exchange.received(bytes));
        return shared.judge(link.number, &Seen { traffic, bytes, request: &request });
    }
    let (fault, thaws) =
        shared.judge(link.number, &Seen { traffic: Traffic::Requests, bytes, request: &[] });
    if !matches!(fault, Some(Fault::Swallow | Fault::SwallowThenReset)) {
        link.exchange(|exchange| exchange.asked(bytes));
    }
    (fault, thaws)
}

impl Exchange {
    fn asked(&mut self, request: &[u8]) {
        self.begun = true;
        let verb = verb(request).to_ascii_lowercase();
        if verb.ends_with("subscribe") {
            // Confirmed by pushes, one for each channel, and never by a reply.
            self.subscribed = true;
        } else {
            self.unanswered.push_back(request.to_vec());
        }
    }

    fn received(&mut self, bytes: &[u8]) -> (Traffic, Vec<u8>) {
        if self.is_push(bytes) {
            return (Traffic::Pushes, Vec::new());
        }
        (Traffic::Replies, self.unanswered.pop_front().unwrap_or_default())
    }

    fn is_push(&self, bytes: &[u8]) -> bool {
        let word = || verb(bytes).to_ascii_lowercase();
        match bytes.first() {
            Some(b'>') => true,
            Some(b'*') if self.subscribed => {
                let word = word();
                word.ends_with("subscribe") || word.ends_with("message")
            }
            _ => false,
        }
    }
}

/// The first word of a list of words, or of a line.
fn verb(frame: &[u8]) -> String {
    match resp::reply(frame) {
        Ok(Some((Reply::Array(items), _))) => {
            items.first().and_then(Reply::text).unwrap_or_default()
        }
        _ => String::from_utf8_lossy(frame).split_whitespace().next().unwrap_or("").to_owned(),
    }
}

/// Carries what the reader hands on, and ends the connection with it.
fn carry(shared: &ProxyParts, link: &Link, towards_server: bool, pieces: &Receiver<Piece>) {
    let (_, to) = link.ends(towards_server);
    for piece in pieces {
        let carried = match piece {
            Piece::Frame { bytes, fault, arrived, thaws } => {
                deliver(shared, link, to, &bytes, fault, arrived, thaws)
            }
            Piece::Broken => Err(io::ErrorKind::ConnectionReset.into()),
            Piece::End => break,
        };
        if carried.is_err() {
            return shared.reset(link);
        }
    }
    // Only this direction has ended: what is on its way in the other must still arrive.
    let _ = to.shutdown(Shutdown::Write);
    let both = link.exchange(|exchange| {
        exchange.ended += 1;
        exchange.ended == 2
    });
    if both {
        shared.close(link.number, What::Closed);
    }
}

/// Does to a frame what was decided; an error ends the connection.
fn deliver(
    shared: &ProxyParts,
    link: &Link,
    mut to: &TcpStream,
    bytes: &[u8],
    fault: Option<Fault>,
    arrived: Instant,
    thaws: u64,
) -> io::Result<()> {
    match fault {
        None => {}
        Some(Fault::Swallow) => return Ok(()),
        Some(Fault::SwallowThenReset) => return Err(io::ErrorKind::ConnectionReset.into()),
        Some(Fault::Hold) => shared.await_thaw(link.number, thaws),
        Some(Fault::Delay(by)) => shared.await_instant(link.number, arrived + by),
        Some(Fault::Dribble(pause)) => {
            for byte in bytes {
                to.write_all(&[*byte])?;
                shared.await_instant(link.number, Instant::now() + pause);
            }
            return Ok(());
        }
    }
    to.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_matched_to_requests_and_messages_are_no_replies() {
        let mut exchange = Exchange::default();
        let request = |words: &[&str]| resp::command(words);
        exchange.asked(&request(&["LRANGE", "a"]));
        let list = request(&["message", "b"]);
        assert_eq!(exchange.received(&list), (Traffic::Replies, request(&["LRANGE", "a"])));
        exchange.asked(&request(&["SUBSCRIBE", "c"]));
        exchange.asked(&request(&["PING"]));
        assert_eq!(exchange.received(&request(&["subscribe", "c"])).0, Traffic::Pushes);
        assert_eq!(exchange.received(&list).0, Traffic::Pushes);
        assert_eq!(exchange.received(b">1\r\n+message\r\n").0, Traffic::Pushes);
        assert_eq!(exchange.received(b"+PONG\r\n"), (Traffic::Replies, request(&["PING"])));
    }

    #[test]
    fn foreign_bytes_pass_as_they_come_and_nothing_after_them_is_a_frame() {
        for bytes in [&b"\x16\x03\x01\x02"[..], b"$x\r\n", b"*99999999999999\r\n"] {
            let mut unread = Unread { bytes: bytes.to_vec() };
            let foreign = AtomicBool::new(false);
            assert_eq!(unread.next_frame(&foreign).as_deref(), Some(bytes));
            assert_eq!(unread.next_frame(&foreign), None);
            unread.bytes = b"PIN".to_vec();
            assert_eq!(unread.next_frame(&foreign).as_deref(), Some(&b"PIN"[..]));
            // The other side's words are none either, though they look like a person's.
            let mut answer = Unread { bytes: b"R\0\0\0".to_vec() };
            assert_eq!(answer.next_frame(&foreign).as_deref(), Some(&b"R\0\0\0"[..]));
        }
        let mut unread = Unread { bytes: b"PIN".to_vec() };
        let foreign = AtomicBool::new(false);
        assert_eq!(unread.next_frame(&foreign), None);
        unread.bytes.extend_from_slice(b"G\r\n+");
        assert_eq!(unread.next_frame(&foreign).as_deref(), Some(&b"PING\r\n"[..]));
        assert_eq!(unread.bytes, b"+");
    }
}
