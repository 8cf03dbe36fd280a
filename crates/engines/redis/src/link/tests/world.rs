//! A simulated world: streams in memory, a clock that the test advances, and a server whose output
//! the test writes.

use super::*;
use crate::environment::{Environment, Stream as Bytes, Task, TaskSpawner};
use holdline::clock::ManualClock;
use holdline_core::Moment;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Mutex, mpsc};

pub(super) const ID: Affinity = [3; 16];

#[derive(Debug)]
pub(super) struct Network {
    dials: AtomicUsize,
    pub(super) panics: Arc<AtomicUsize>,
    accepted: mpsc::UnboundedSender<DuplexStream>,
}

impl TaskSpawner for Network {
    fn spawn(&self, task: Task<()>) {
        let (running, panics) = (tokio::spawn(task), self.panics.clone());
        tokio::spawn(async move {
            if running.await.is_err_and(|error| error.is_panic()) {
                panics.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
}

impl Environment for Network {
    fn dial(&self) -> Task<io::Result<Box<dyn Bytes>>> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let refused = self.accepted.send(theirs).is_err();
        Box::pin(async move {
            match refused {
                true => Err(io::ErrorKind::ConnectionRefused.into()),
                false => Ok(Box::new(ours) as Box<dyn Bytes>),
            }
        })
    }

    fn random(&self) -> u32 {
        u32::MAX
    }
}

/// The server's end of one connection.
pub(super) struct Peer {
    stream: DuplexStream,
    unread: Vec<u8>,
}

impl Peer {
    /// Reads until a request with this word has come.
    pub(super) async fn receives(&mut self, word: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&self.unread).into_owned();
            if text.contains(word) {
                self.unread.clear();
                return text;
            }
            match in_time(self.stream.read(&mut bytes)).await.expect("open") {
                0 => panic!("closed before {word}, after {text:?}"),
                count => self.unread.extend_from_slice(&bytes[..count]),
            }
        }
    }

    pub(super) async fn sends_text(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("open");
    }

    /// Completes a handshake with RESP3.
    pub(super) async fn shakes_hands(&mut self) {
        self.receives("HELLO").await;
        self.sends_text("%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n").await;
        self.shakes_hands_resp2().await;
    }

    /// Completes a handshake with RESP2; returns the commands received.
    pub(super) async fn shakes_hands_resp2(&mut self) -> String {
        self.shakes_hands_as("ab").await
    }

    /// Completes the handshake with this `run_id` of two letters; returns the commands received.
    pub(super) async fn shakes_hands_as(&mut self, run_id: &str) -> String {
        let asked = self.receives("LIB-VER").await;
        let info = format!("$9\r\nrun_id:{run_id}\r\n");
        self.sends_text(&format!("{info}*0\r\n+OK\r\n+OK\r\n+OK\r\n")).await;
        asked
    }

    pub(super) async fn is_closed(&mut self) {
        let mut bytes = [0; 4096];
        while in_time(self.stream.read(&mut bytes)).await.unwrap_or(0) > 0 {}
    }
}

/// A clock that the test advances, and that can also advance by itself whenever it is read.
#[derive(Clone, Debug, Default)]
pub(super) struct SteppedClock {
    clock: ManualClock,
    pub(super) advances_by_itself: Arc<AtomicBool>,
}

impl SteppedClock {
    pub(super) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> Moment {
        if self.advances_by_itself.load(Ordering::SeqCst) {
            self.clock.advance(Duration::from_millis(1));
        }
        self.clock.now()
    }

    fn sleep_until(&self, at: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        self.now();
        self.clock.sleep_until(at)
    }
}

pub(super) struct World<T = Link> {
    pub(super) link: T,
    pub(super) clock: SteppedClock,
    pub(super) network: Arc<Network>,
    accepted: Mutex<mpsc::UnboundedReceiver<DuplexStream>>,
}

impl World {
    pub(super) fn new(url: &str) -> World {
        World::with(url, Link::new)
    }
}

impl<T> World<T> {
    /// Makes a world with something else than a link.
    pub(super) fn with(
        url: &str,
        make: impl FnOnce(&RedisOptions, Arc<dyn Clock>) -> Result<T, LockError>,
    ) -> World<T> {
        let (sender, accepted) = mpsc::unbounded_channel();
        let network = Arc::new(Network {
            dials: AtomicUsize::new(0),
            panics: Arc::default(),
            accepted: sender,
        });
        let clock = SteppedClock::default();
        let options = options(url).with_connect_timeout(2 * SECOND);
        let options = options.with_environment(network.clone());
        let link = make(&options, Arc::new(clock.clone())).expect("a link");
        World { link, clock, network, accepted: Mutex::new(accepted) }
    }

    pub(super) async fn accepts(&self) -> Peer {
        let stream = in_time(async { self.accepted.lock().await.recv().await }).await;
        Peer { stream: stream.expect("a dial"), unread: Vec::new() }
    }

    pub(super) fn dials(&self) -> usize {
        self.network.dials.load(Ordering::SeqCst)
    }

    /// Lets every task of the one thread run as far as it can.
    pub(super) async fn settle(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

impl World {
    /// Sends a request, which is under way when this returns.
    pub(super) fn sends(
        &self,
        line: &str,
        affinity: Option<Affinity>,
        deadline: Duration,
    ) -> tokio::task::JoinHandle<Result<Value, LockError>> {
        let (link, line) = (self.link.clone(), line.to_owned());
        tokio::spawn(async move { say_within(&link, &line, affinity, deadline).await })
    }
}

pub(super) async fn outcome(
    sent: tokio::task::JoinHandle<Result<Value, LockError>>,
) -> Result<Value, LockError> {
    in_time(sent).await.expect("no panic")
}

pub(super) fn number_of_ping(text: &str) -> String {
    let after = text.split("PING\r\n").nth(1).expect("a ping");
    after.split("\r\n").nth(1).expect("its number").to_owned()
}

pub(super) const SECOND: Duration = Duration::from_secs(1);
