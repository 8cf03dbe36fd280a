//! The raw floor of a quorum: two commands a cycle on all servers at once; the next cycle begins as
//! soon as a majority has replied.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::{Duration, Instant};

use holdline_services::resp;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::redis::raw::{COMPARE_AND_DELETE, LEASE_MS, Raw, VALUE};
use crate::rounds::Failure;

/// One connection to each server.
pub(super) struct Raws {
    connections: Vec<Connection>,
    sha: String,
    chunk: Box<[u8]>,
}

struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    /// Whose answers are to come: a task, and how often it had asked before.
    under_way: VecDeque<(usize, u64)>,
    out: Vec<u8>,
}

impl Raws {
    pub(super) async fn connect(addresses: &[SocketAddr]) -> Result<Raws, Failure> {
        let mut connections = Vec::new();
        let mut sha = String::new();
        for address in addresses {
            let mut raw = Raw::connect(*address).await?;
            let loaded = raw.ask(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]).await?;
            sha = String::from_utf8(loaded)?.lines().nth(1).ok_or("no name")?.to_owned();
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let read = Vec::new();
            let under_way = VecDeque::new();
            let out = Vec::new();
            connections.push(Connection { stream, read, under_way, out });
        }
        Ok(Raws { connections, sha, chunk: vec![0; 16 * 1024].into() })
    }

    fn put(&mut self, task: usize, asked: u64, key: &str) {
        for connection in &mut self.connections {
            match asked % 2 {
                0 => resp::write(&mut connection.out, &["SET", key, VALUE, "NX", "PX", LEASE_MS]),
                _ => resp::write(&mut connection.out, &["EVALSHA", &self.sha, "1", key, VALUE]),
            }
            connection.under_way.push_back((task, asked));
        }
    }

    async fn send(&mut self) -> Result<(), Failure> {
        for connection in &mut self.connections {
            if !connection.out.is_empty() {
                connection.stream.write_all(&connection.out).await?;
                connection.out.clear();
            }
        }
        Ok(())
    }

    /// Waits for any replies, and returns which requests they answer.
    async fn receive(&mut self, received: &mut Vec<(usize, u64)>) -> Result<(), Failure> {
        let Raws { connections, chunk, .. } = self;
        poll_fn(|context| {
            let mut any = false;
            for connection in connections.iter_mut() {
                while connection.stream.poll_read_ready(context).is_ready() {
                    match connection.stream.try_read(chunk) {
                        Ok(0) => return Poll::Ready(Err("a server closed the connection".into())),
                        Ok(count) => connection.read.extend_from_slice(&chunk[..count]),
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                        Err(error) => return Poll::Ready(Err(Failure::from(error))),
                    }
                    any = true;
                }
                let mut at = 0;
                while let Some(length) = resp::frame(&connection.read[at..])? {
                    at += length;
                    received.extend(connection.under_way.pop_front());
                }
                connection.read.drain(..at);
            }
            if any { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Keeps `tasks` cycles under way, each with a key of its own; returns how long each took.
    pub(super) async fn cycles(
        &mut self,
        tasks: usize,
        time: Duration,
    ) -> Result<Vec<Duration>, Failure> {
        let needed = self.connections.len() / 2 + 1;
        let keys: Vec<String> = (0..tasks).map(|task| format!("floor:{task}")).collect();
        let mut asked = vec![0_u64; tasks];
        let mut answers = vec![0_usize; tasks];
        let mut began = vec![Instant::now(); tasks];
        for (task, key) in keys.iter().enumerate() {
            self.put(task, 0, key);
        }
        let mut taken = Vec::new();
        let mut received = Vec::new();
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            self.send().await?;
            self.receive(&mut received).await?;
            for (task, which) in received.drain(..) {
                // What comes after a majority has answered is of no interest.
                if which != asked[task] {
                    continue;
                }
                answers[task] += 1;
                if answers[task] < needed {
                    continue;
                }
                if which % 2 == 1 {
                    taken.push(began[task].elapsed());
                    began[task] = Instant::now();
                }
                asked[task] += 1;
                answers[task] = 0;
                self.put(task, asked[task], &keys[task]);
            }
        }
        Ok(taken)
    }
}
