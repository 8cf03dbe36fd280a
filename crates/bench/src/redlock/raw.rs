//! The raw floor of a quorum: two commands a cycle on each of the servers, at once, and on with the
//! next as soon as a majority has answered.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::redis::raw::{COMPARE_AND_DELETE, LEASE_MS, Raw, VALUE, reply, write};
use crate::rounds::Failure;

/// One connection to each server.
pub(super) struct Raws {
    lanes: Vec<Lane>,
    sha: String,
    chunk: Box<[u8]>,
}

struct Lane {
    stream: TcpStream,
    read: Vec<u8>,
    /// Whose answers are to come: a task, and how often it had asked before.
    under_way: VecDeque<(usize, u64)>,
    out: Vec<u8>,
}

impl Raws {
    pub(super) async fn connect(addresses: &[SocketAddr]) -> Result<Raws, Failure> {
        let mut lanes = Vec::new();
        let mut sha = String::new();
        for address in addresses {
            let mut raw = Raw::connect(*address).await?;
            let loaded = raw.ask(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]).await?;
            sha = String::from_utf8(loaded)?.lines().nth(1).ok_or("no name")?.to_owned();
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (read, under_way, out) = (Vec::new(), VecDeque::new(), Vec::new());
            lanes.push(Lane { stream, read, under_way, out });
        }
        Ok(Raws { lanes, sha, chunk: vec![0; 16 * 1024].into() })
    }

    fn put(&mut self, task: usize, asked: u64, key: &str) {
        for lane in &mut self.lanes {
            match asked % 2 {
                0 => write(&mut lane.out, &["SET", key, VALUE, "NX", "PX", LEASE_MS]),
                _ => write(&mut lane.out, &["EVALSHA", &self.sha, "1", key, VALUE]),
            }
            lane.under_way.push_back((task, asked));
        }
    }

    async fn send(&mut self) -> Result<(), Failure> {
        for lane in &mut self.lanes {
            if !lane.out.is_empty() {
                lane.stream.write_all(&lane.out).await?;
                lane.out.clear();
            }
        }
        Ok(())
    }

    /// Waits for any answers, and tells whose they are.
    async fn hear(&mut self, heard: &mut Vec<(usize, u64)>) -> Result<(), Failure> {
        let Raws { lanes, chunk, .. } = self;
        poll_fn(|context| {
            let mut any = false;
            for lane in lanes.iter_mut() {
                while lane.stream.poll_read_ready(context).is_ready() {
                    match lane.stream.try_read(chunk) {
                        Ok(0) => return Poll::Ready(Err("a server closed the connection".into())),
                        Ok(count) => lane.read.extend_from_slice(&chunk[..count]),
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                        Err(error) => return Poll::Ready(Err(Failure::from(error))),
                    }
                    any = true;
                }
                let mut at = 0;
                while let Some(length) = reply(&lane.read[at..]) {
                    at += length;
                    heard.extend(lane.under_way.pop_front());
                }
                lane.read.drain(..at);
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
        let needed = self.lanes.len() / 2 + 1;
        let keys: Vec<String> = (0..tasks).map(|task| format!("floor:{task}")).collect();
        let mut asked = vec![0_u64; tasks];
        let mut answers = vec![0_usize; tasks];
        let mut began = vec![Instant::now(); tasks];
        for (task, key) in keys.iter().enumerate() {
            self.put(task, 0, key);
        }
        let (mut taken, mut heard) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            self.send().await?;
            self.hear(&mut heard).await?;
            for (task, which) in heard.drain(..) {
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
