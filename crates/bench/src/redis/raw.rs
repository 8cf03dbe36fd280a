//! The raw floors: a minimal RESP client on tokio sockets, two commands a cycle.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use holdline_services::resp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rounds::Failure;

/// What the plain locks of other libraries do to release.
pub(crate) const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// The least that Redisson's `RLock` needs: a hash that expires, and a message when it is free.
const REDISSON: [&str; 2] = [
    "redis.call('HSET', KEYS[1], ARGV[1], '1') return redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    "redis.call('DEL', KEYS[1]) \
     return redis.call('PUBLISH', 'redisson_lock__channel:{' .. KEYS[1] .. '}', '0')",
];
pub(crate) const VALUE: &str = "0123456789abcdef0123456789abcdef";
pub(crate) const LEASE_MS: &str = "30000";

/// A bare connection.
pub(crate) struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
    chunk: Box<[u8]>,
    /// The name of the script that takes a key; `None`: `SET NX PX` does.
    take: Option<String>,
    /// The name of the script that gives a key back.
    give: String,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Raw, Failure> {
        Raw::with(address, None, COMPARE_AND_DELETE).await
    }

    /// A connection whose cycles write the keys of Redisson.
    pub(crate) async fn redisson(address: SocketAddr) -> Result<Raw, Failure> {
        let [take, give] = REDISSON;
        Raw::with(address, Some(take), give).await
    }

    async fn with(address: SocketAddr, take: Option<&str>, give: &str) -> Result<Raw, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let read = Vec::new();
        let chunk = vec![0; 16 * 1024].into();
        let mut raw = Raw { stream, read, chunk, take: None, give: String::new() };
        if let Some(take) = take {
            raw.take = Some(raw.load(take).await?);
        }
        raw.give = raw.load(give).await?;
        Ok(raw)
    }

    async fn load(&mut self, script: &str) -> Result<String, Failure> {
        let text = String::from_utf8(self.ask(&["SCRIPT", "LOAD", script]).await?)?;
        Ok(text.lines().nth(1).ok_or("no name of the script")?.to_owned())
    }

    /// Sends a command and returns the bytes of its reply.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> Result<Vec<u8>, Failure> {
        self.stream.write_all(&resp::command(words)).await?;
        loop {
            if let Some(length) = resp::frame(&self.read)? {
                return Ok(self.read.drain(..length).collect());
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Failure> {
        match self.stream.read(&mut self.chunk).await? {
            0 => Err("the server closed the connection".into()),
            count => {
                self.read.extend_from_slice(&self.chunk[..count]);
                Ok(())
            }
        }
    }

    fn take<'a>(&'a self, key: &'a str) -> [&'a str; 6] {
        match &self.take {
            None => ["SET", key, VALUE, "NX", "PX", LEASE_MS],
            Some(script) => ["EVALSHA", script, "1", key, VALUE, LEASE_MS],
        }
    }

    /// Takes and gives back a key.
    pub(crate) async fn cycle(&mut self, key: &str) -> Result<(), Failure> {
        self.ask(&["SET", key, VALUE, "NX", "PX", LEASE_MS]).await?;
        let give = self.give.clone();
        self.ask(&["EVALSHA", &give, "1", key, VALUE]).await?;
        Ok(())
    }

    /// Keeps a cycle for each of the keys under way on this one connection; returns how many ended
    /// in this time.
    pub(crate) async fn cycles(
        &mut self,
        keys: &[String],
        time: Duration,
    ) -> Result<usize, Failure> {
        let mut ended = 0;
        let count = |reply: Answered| ended += usize::from(!reply.taken);
        self.each_reply(keys, Instant::now() + time, count).await?;
        Ok(ended)
    }

    /// Keeps a cycle for each of the keys under way until then, and passes each reply on.
    pub(crate) async fn each_reply(
        &mut self,
        keys: &[String],
        deadline: Instant,
        mut answered: impl FnMut(Answered),
    ) -> Result<(), Failure> {
        let mut under_way: VecDeque<(usize, bool)> = VecDeque::with_capacity(keys.len());
        let mut bytes = Vec::new();
        for (task, key) in keys.iter().enumerate() {
            resp::write(&mut bytes, &self.take(key));
            under_way.push_back((task, true));
        }
        while Instant::now() < deadline {
            self.stream.write_all(&bytes).await?;
            bytes.clear();
            self.fill().await?;
            let mut at = 0;
            while let Some(length) = resp::frame(&self.read[at..])? {
                at += length;
                let Some((task, taken)) = under_way.pop_front() else { break };
                answered(Answered { task, taken });
                if taken {
                    resp::write(&mut bytes, &["EVALSHA", &self.give, "1", &keys[task], VALUE]);
                } else {
                    resp::write(&mut bytes, &self.take(&keys[task]));
                }
                under_way.push_back((task, !taken));
            }
            self.read.drain(..at);
        }
        Ok(())
    }
}

/// A reply: the key of this task is taken, or given back.
#[derive(Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) task: usize,
    pub(crate) taken: bool,
}

/// This many keys.
pub(crate) fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("floor:{number}")).collect()
}
