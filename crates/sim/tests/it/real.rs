//! A real `redis-server`, and its connections as bytes.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use holdline_services::resp::command as request;
use holdline_services::{RedisConfig, RedisServer};

/// One server, without persistence.
pub(crate) struct RealRedis(RedisServer);

impl RealRedis {
    pub(crate) fn start() -> RealRedis {
        RealRedis(RedisServer::start(RedisConfig::default()))
    }

    /// Connects and ends all other connections: the server may not have noticed yet that a test
    /// has dropped some, and would still count their subscriptions.
    pub(crate) fn connect_alone(&self) -> Wire {
        let mut wire = self.connect();
        for kind in ["normal", "pubsub"] {
            let words = ["client", "kill", "type", kind, "skipme", "yes"];
            wire.send(&request(&words.map(|word| word.as_bytes().to_vec())));
            while wire.read(1) != b"\n" {}
        }
        wire
    }

    pub(crate) fn connect(&self) -> Wire {
        let stream = UnixStream::connect(self.0.socket()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a socket has timeouts");
        Wire(stream)
    }
}

/// One connection, as bytes.
pub(crate) struct Wire(UnixStream);

impl Wire {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server reads");
    }

    /// Reads this many bytes, or fewer if no more arrive.
    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let mut filled = 0;
        while filled < count {
            match self.0.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        bytes.truncate(filled);
        bytes
    }
}
