//! A tiny client that hides nothing.

use crate::resp::{self, Reply};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take, unless it was set otherwise.
const TIMEOUT: Duration = Duration::from_secs(60);

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A blocking connection to a Redis server: sends any command and returns what came back.
///
/// It never reconnects and never repeats: what a test sends is what the server sees. After an
/// error of reading, replies may no longer belong to their commands.
pub struct Raw {
    stream: Stream,
    unread: Vec<u8>,
}

impl Raw {
    /// Connects by TCP.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        Self::over(Stream::Tcp(stream))
    }

    /// Connects by a unix socket.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect_unix(socket: &Path) -> io::Result<Self> {
        Self::over(Stream::Unix(UnixStream::connect(socket)?))
    }

    fn over(stream: Stream) -> io::Result<Self> {
        let raw = Self { stream, unread: Vec::new() };
        raw.set_timeout(TIMEOUT)?;
        Ok(raw)
    }

    /// Sets how long an answer may take.
    ///
    /// # Errors
    /// Zero is no time.
    pub fn set_timeout(&self, limit: Duration) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(limit)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(limit)),
        }
    }

    /// Sends a command and returns its reply; an error reply is a reply.
    ///
    /// # Errors
    /// The connection broke, no whole reply came in time, or it was none of Redis.
    pub fn send(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.write(words)?;
        self.read()
    }

    /// Sends a command whose words stand in one line, separated by spaces.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn say(&mut self, line: &str) -> io::Result<Reply> {
        self.send(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Sends a command and does not wait for its reply.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<()> {
        self.write_bytes(&resp::command(words))
    }

    /// Sends bytes as they are: half a command, several at once, or rubbish.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// Waits for the next reply or push message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn read(&mut self) -> io::Result<Reply> {
        loop {
            if let Some((reply, length)) = resp::reply(&self.unread)? {
                self.unread.drain(..length);
                return Ok(reply);
            }
            let mut more = [0; 4096];
            let count = match &mut self.stream {
                Stream::Tcp(stream) => stream.read(&mut more),
                Stream::Unix(stream) => stream.read(&mut more),
            };
            let count = match count {
                // If a process is stopped and continued, a read with a timeout returns an error.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.unread.extend_from_slice(&more[..count]);
        }
    }
}
