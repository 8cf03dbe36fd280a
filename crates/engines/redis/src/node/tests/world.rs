//! The connector in a world of its own: streams in memory, a clock moved by hand, and a server
//! that says what the test says.

use super::*;
use crate::environment::{Environment, Stream as Bytes, Task, TaskSpawner};
use holdline::ManualClock;
use holdline_core::Moment;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Mutex, mpsc};

const CANARY: &str = "canary-55d0";
pub(super) const ID: Affinity = [3; 16];

#[derive(Debug)]
pub(super) struct World {
    dials: AtomicUsize,
    panics: Arc<AtomicUsize>,
    accepted: mpsc::UnboundedSender<DuplexStream>,
}

impl TaskSpawner for World {
    fn spawn(&self, task: Task<()>) {
        let (running, panics) = (tokio::spawn(task), self.panics.clone());
        tokio::spawn(async move {
            if running.await.is_err_and(|error| error.is_panic()) {
                panics.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
}

impl Environment for World {
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
    pub(super) async fn hears(&mut self, word: &str) -> String {
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

    pub(super) async fn says(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("open");
    }

    /// Answers the handshake.
    pub(super) async fn greets(&mut self) {
        self.hears("HELLO").await;
        self.says("%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n").await;
        self.greets_by_the_old_protocol().await;
    }

    /// Returns what was asked.
    pub(super) async fn greets_by_the_old_protocol(&mut self) -> String {
        self.greets_as("ab").await
    }

    /// Tells this `run_id` of two letters.
    pub(super) async fn greets_as(&mut self, run_id: &str) -> String {
        let asked = self.hears("LIB-VER").await;
        let info = format!("$9\r\nrun_id:{run_id}\r\n");
        self.says(&format!("{info}*0\r\n+OK\r\n+OK\r\n+OK\r\n")).await;
        asked
    }

    pub(super) async fn is_closed(&mut self) {
        let mut bytes = [0; 4096];
        while in_time(self.stream.read(&mut bytes)).await.unwrap_or(0) > 0 {}
    }
}

/// A clock moved by hand, which can be told to creep on with each look at it.
#[derive(Clone, Debug, Default)]
pub(super) struct Hand {
    clock: ManualClock,
    creeps: Arc<AtomicBool>,
}

impl Hand {
    pub(super) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

impl Clock for Hand {
    fn now(&self) -> Moment {
        if self.creeps.load(Ordering::SeqCst) {
            self.clock.advance(Duration::from_millis(1));
        }
        self.clock.now()
    }

    fn sleep_until(&self, at: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        self.now();
        self.clock.sleep_until(at)
    }
}

pub(super) struct Ground<T = Node> {
    pub(super) node: T,
    pub(super) clock: Hand,
    world: Arc<World>,
    accepted: Mutex<mpsc::UnboundedReceiver<DuplexStream>>,
}

impl Ground {
    pub(super) fn new(url: &str) -> Ground {
        Ground::with(url, Node::new)
    }
}

impl<T> Ground<T> {
    /// A ground with what is made there in place of a node.
    pub(super) fn with(
        url: &str,
        make: impl FnOnce(&RedisOptions, Arc<dyn Clock>) -> Result<T, LockError>,
    ) -> Ground<T> {
        let (sender, accepted) = mpsc::unbounded_channel();
        let world = Arc::new(World {
            dials: AtomicUsize::new(0),
            panics: Arc::default(),
            accepted: sender,
        });
        let clock = Hand::default();
        let options = options(url).with_connect_timeout(2 * SECOND);
        let options = options.with_environment(world.clone());
        let node = make(&options, Arc::new(clock.clone())).expect("a node");
        Ground { node, clock, world, accepted: Mutex::new(accepted) }
    }

    pub(super) async fn accepts(&self) -> Peer {
        let stream = in_time(async { self.accepted.lock().await.recv().await }).await;
        Peer { stream: stream.expect("a dial"), unread: Vec::new() }
    }

    pub(super) fn dials(&self) -> usize {
        self.world.dials.load(Ordering::SeqCst)
    }

    /// Lets every task of the one thread run as far as it can.
    pub(super) async fn settle(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
}

impl Ground {
    /// Sends a request, which is under way when this returns.
    pub(super) fn sends(
        &self,
        line: &str,
        affinity: Option<Affinity>,
        deadline: Duration,
    ) -> tokio::task::JoinHandle<Result<Value, LockError>> {
        let (node, line) = (self.node.clone(), line.to_owned());
        tokio::spawn(async move { say_within(&node, &line, affinity, deadline).await })
    }
}

pub(super) async fn outcome(
    sent: tokio::task::JoinHandle<Result<Value, LockError>>,
) -> Result<Value, LockError> {
    in_time(sent).await.expect("no panic")
}

pub(super) fn words_of_ping(text: &str) -> String {
    let after = text.split("PING\r\n").nth(1).expect("a ping");
    after.split("\r\n").nth(1).expect("its number").to_owned()
}

pub(super) const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_connection_that_is_silent_for_too_long_is_given_up() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let taken = ground.sends("SET k mine", Some(ID), SECOND);
    peer.hears("SET").await;
    ground.clock.advance(SECOND);
    unavailable(&outcome(taken).await.expect_err("silent"), Certainty::Unknown);
    peer.hears("PING").await;
    let undone = ground.sends("DEL k", Some(ID), 100 * SECOND);
    peer.hears("DEL").await;
    ground.clock.advance(34 * SECOND);
    ground.settle().await;
    assert!(!undone.is_finished(), "it is kept for what goes behind");
    ground.clock.advance(2 * SECOND);
    let error = outcome(undone).await.expect_err("given up");
    assert!(unavailable(&error, Certainty::Unknown).contains("no reply for too long"), "{error}");
    peer.is_closed().await;
}

/// A deadline that gave the server no time is told, but only a ping tells about the connection.
#[tokio::test]
async fn a_hasty_deadline_does_not_cost_the_connection() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let asked = ground.sends("ECHO a", None, Duration::from_millis(1));
    peer.hears("ECHO").await;
    ground.clock.advance(Duration::from_millis(1));
    unavailable(&outcome(asked).await.expect_err("no time"), Certainty::Unknown);
    let number = words_of_ping(&peer.hears("PING").await);
    let next = ground.sends("ECHO b", None, SECOND);
    peer.hears("ECHO").await;
    peer.says(&format!("$1\r\na\r\n${}\r\n{number}\r\n$1\r\nb\r\n", number.len())).await;
    assert_eq!(outcome(next).await.expect("an answer"), bytes("b"));
    assert_eq!(ground.dials(), 1);
}

/// The answer to a request whose caller went away counts all the same: nobody asks any more
/// whether the connection is well.
#[tokio::test]
async fn an_answer_that_nobody_waits_for_is_seen() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let asked = ground.sends("ECHO a", Some(ID), SECOND);
    peer.hears("ECHO").await;
    asked.abort();
    assert!(asked.await.expect_err("gone").is_cancelled());
    peer.says("$1\r\na\r\n").await;
    ground.settle().await;
    ground.clock.advance(2 * SECOND);
    ground.settle().await;
    let next = ground.sends("ECHO b", Some(ID), SECOND);
    assert!(!peer.hears("ECHO").await.contains("PING"));
    peer.says("$1\r\nb\r\n").await;
    assert_eq!(outcome(next).await.expect("an answer"), bytes("b"));
    assert_eq!(ground.dials(), 1);
}

/// Nobody asked, so whatever comes next could be anybody's.
#[tokio::test]
async fn an_answer_that_nobody_asked_for_ends_the_connection() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.greets().await;
    peer.says("+OK\r\n").await;
    peer.is_closed().await;
    ground.settle().await;
    ground.clock.advance(SECOND);
    ground.accepts().await.greets().await;
}

/// The late answer clears a suspect connection, which is used again instead of a new one.
#[tokio::test]
async fn a_connection_that_recovers_is_used_again() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let asked = ground.sends("ECHO a", None, SECOND);
    peer.hears("ECHO").await;
    ground.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("silent"), Certainty::Unknown);
    let number = words_of_ping(&peer.hears("PING").await);
    let mut second = ground.accepts().await;
    second.hears("HELLO").await;
    let waiting = ground.sends("ECHO b", None, SECOND);
    ground.settle().await;
    peer.says(&format!("$1\r\na\r\n${}\r\n{number}\r\n", number.len())).await;
    peer.hears("ECHO").await;
    peer.says("$1\r\nb\r\n").await;
    assert_eq!(outcome(waiting).await.expect("an answer"), bytes("b"));
    second.is_closed().await;
}

#[tokio::test]
async fn a_connection_that_breaks_at_once_is_dialled_with_growing_pauses() {
    let ground = Ground::new("redis://h");
    for turn in 1..=6_u32 {
        let mut peer = ground.accepts().await;
        peer.greets().await;
        drop(peer);
        ground.settle().await;
        assert_eq!(ground.dials(), turn as usize, "no dial without a pause");
        let pause = Duration::from_millis(20) * 2_u32.pow(turn - 1);
        ground.clock.advance(pause / 2);
        ground.settle().await;
        assert_eq!(ground.dials(), turn as usize, "the pause grows");
        ground.clock.advance(pause / 2);
    }
}

#[tokio::test]
async fn a_password_that_the_server_quotes_is_not_shown() {
    let ground = Ground::new(&format!("redis://user:{CANARY}@h"));
    let asked = ground.sends("PING", None, 10 * SECOND);
    let mut peer = ground.accepts().await;
    assert!(peer.hears("HELLO").await.contains(CANARY));
    let quoted = format!("with args beginning with: `3` `AUTH` `user` `{CANARY}`");
    peer.says(&format!("-ERR unknown command `HELLO`, {quoted}\r\n")).await;
    drop(peer);
    let mut peer = ground.accepts().await;
    peer.hears("LIB-VER").await;
    peer.says(&format!("-ERR unknown command `AUTH`, {quoted}\r\n")).await;
    peer.says("*0\r\n*0\r\n+OK\r\n+OK\r\n+OK\r\n").await;
    let error = outcome(asked).await.expect_err("refused");
    let shown = format!("{error} {error:?} {:?}", ground.node);
    assert!(shown.contains("does not know a command") && !shown.contains(CANARY), "{shown}");
}

#[tokio::test]
async fn rubbish_in_mid_stream_ends_the_connection() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let asked = ground.sends("ECHO a", None, SECOND);
    peer.hears("ECHO").await;
    peer.says("!!!nothing that Redis says\r\n").await;
    let error = outcome(asked).await.expect_err("rubbish");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}");
    peer.is_closed().await;
}

/// What a reply announces is not believed before it is there.
#[tokio::test]
async fn an_announced_giant_is_waited_for_until_the_deadline_only() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let asked = ground.sends("ECHO a", None, SECOND);
    peer.hears("ECHO").await;
    peer.says("$536870912\r\na few bytes").await;
    ground.settle().await;
    ground.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("never whole"), Certainty::Unknown);
}

#[tokio::test]
async fn what_waits_for_a_connection_is_not_applied_at_its_deadline() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.hears("HELLO").await;
    let asked = ground.sends("SET k v", None, SECOND);
    ground.settle().await;
    ground.clock.advance(SECOND);
    unavailable(&outcome(asked).await.expect_err("no connection"), Certainty::NotApplied);
    let late = ground.sends("SET k v", None, 10 * SECOND);
    ground.settle().await;
    ground.clock.advance(SECOND);
    let error = outcome(late).await.expect_err("the dial has failed");
    assert!(unavailable(&error, Certainty::NotApplied).contains("no reply"), "{error}");
    peer.is_closed().await;
}

/// A refusal that somebody must mend is told at once, and the server is asked seldom.
#[tokio::test]
async fn while_the_server_refuses_us_requests_are_told_so_at_once() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.hears("HELLO").await;
    peer.says("-NOAUTH HELLO must be called with the client already authenticated\r\n").await;
    ground.settle().await;
    for _ in 0..3 {
        let asked = ground.sends("PING", None, 10 * SECOND);
        assert!(refused(&outcome(asked).await.expect_err("refused")).contains("password"));
    }
    assert_eq!(ground.dials(), 1);
    ground.clock.advance(SECOND);
    let mut peer = ground.accepts().await;
    peer.greets().await;
    ground.settle().await;
    ground.node.ready().await.expect("a connection");
}

/// Who queues with our inbox must never be taken for deaf by the server.
#[tokio::test]
async fn a_new_connection_is_subscribed_before_it_carries_requests() {
    let ground = Ground::new("redis://h");
    let mut inbox = ground.node.subscribe(b"inbox".to_vec());
    let subscribed = ">3\r\n$9\r\nsubscribe\r\n$5\r\ninbox\r\n:1\r\n";
    for turn in 0..2 {
        let mut peer = ground.accepts().await;
        let asked = ground.sends("ECHO a", None, 10 * SECOND);
        peer.greets().await;
        assert!(!peer.hears("SUBSCRIBE").await.contains("ECHO"));
        ground.settle().await;
        assert!(!asked.is_finished());
        peer.says(subscribed).await;
        peer.hears("ECHO").await;
        peer.says("$1\r\na\r\n").await;
        assert_eq!(outcome(asked).await.expect("an answer"), bytes("a"));
        if turn > 0 {
            assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Lost));
        }
        assert_eq!(heard(&mut inbox).await, Some(SubscriptionEvent::Resubscribed));
        drop(peer);
        ground.settle().await;
        ground.clock.advance(SECOND);
    }
}

#[tokio::test]
async fn the_queue_for_a_connection_is_bounded() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.hears("HELLO").await;
    let asked: Vec<_> = (0..16_400).map(|_| ground.sends("PING", None, SECOND)).collect();
    let told = || asked.iter().filter(|one| one.is_finished()).count() == 16_400 - 16_384;
    until("what finds no room is told", told).await;
    let full: Vec<_> = asked.into_iter().filter(tokio::task::JoinHandle::is_finished).collect();
    for one in full {
        let error = outcome(one).await.expect_err("full");
        assert!(unavailable(&error, Certainty::NotApplied).contains("wait for a connection"));
    }
}

/// Each look at one deadline takes so long that the next has passed as well.
#[tokio::test]
async fn deadlines_that_pass_faster_than_they_are_told_are_all_told() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.greets().await;
    let send = |number: u32| ground.sends("ECHO x", None, SECOND + SECOND * number / 1_000);
    let sent: Vec<_> = (0..50).map(send).collect();
    peer.hears("ECHO").await;
    ground.settle().await;
    ground.clock.advance(SECOND);
    ground.clock.creeps.store(true, Ordering::SeqCst);
    let told = async {
        while !sent.iter().all(tokio::task::JoinHandle::is_finished) {
            ground.clock.now();
            tokio::task::yield_now().await;
        }
    };
    in_time(told).await;
    for one in sent {
        unavailable(&outcome(one).await.expect_err("silent"), Certainty::Unknown);
    }
}

/// The end of the stream is read together with the last answer: the driver is over by then.
#[tokio::test]
async fn a_connection_that_ends_behind_its_first_words_is_not_driven_again() {
    let ground = Ground::new("redis://h");
    let mut peer = ground.accepts().await;
    peer.greets().await;
    drop(peer);
    ground.settle().await;
    assert_eq!(ground.world.panics.load(Ordering::SeqCst), 0);
    ground.clock.advance(SECOND);
    ground.accepts().await.greets().await;
}
