//! What waits and hand-offs cost the servers, and that nobody is woken too late for it.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use holdline_core::{AcquireReply, ClientId, Hint, Hints, Mode, Purpose, RenewReply};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use holdline_zookeeper::ZooKeeperEngine;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::relay::Relay;
use crate::support::{Contender, connect, contender, engine, hint, until};

/// The number of the last transaction.
fn transactions(server: &ZooKeeper) -> u64 {
    let report = server.word(0, "srvr");
    let zxid = report.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).expect("reported");
    u64::from_str_radix(zxid, 16).expect("a number")
}

/// Sessions of this many seconds: what counts of one is over after 3 s.
const SHORT: u64 = 4;

fn ticking() -> ZooKeeper {
    // What a session counts for depends on the ticks, as long as by default.
    ZooKeeper::start(&ZooKeeperConfig::default().with_tick(1_000).with_sessions(2_000, 60_000))
}

async fn waits(waiter: &Contender) {
    let reply = waiter.renew(Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Queued { .. })), "{reply:?}");
}

/// Each waiting process used to write a transaction every few seconds.
#[tokio::test]
async fn a_crowd_that_waits_writes_nothing() {
    let server = ticking();
    let here = engine(&server.url()).await;
    let mut holder = contender(&here, "a");
    holder.take().await;
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let mut waiter = contender(&here, "a").for_seconds(20);
        waiter.queue().await;
        waiters.push(waiter);
    }
    let before = transactions(&server);
    for _ in 0..5 {
        for waiter in &waiters {
            waits(waiter).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await; // event: a proof is no longer fresh
    }
    assert_eq!(transactions(&server) - before, 0);
}

/// Its last proof counts for nothing any more: what it is granted counts from a proof after it was
/// first.
#[tokio::test]
async fn a_waiter_is_proven_when_it_is_first_and_once() {
    let server = ticking();
    for by_heartbeat in [false, true] {
        let here = engine(&server.url()).await;
        let name = format!("n{by_heartbeat}");
        let mut holder = contender(&here, &name);
        holder.take().await;
        let mut waiter = contender(&here, &name).for_seconds(SHORT);
        waiter.queue().await;
        for _ in 0..SHORT {
            waits(&waiter).await;
            tokio::time::sleep(Duration::from_secs(1)).await; // event: its proof counts for nothing
        }
        waits(&waiter).await;
        holder.let_go().await;
        let before = transactions(&server);
        if by_heartbeat {
            match waiter.renew(Purpose::Wait).await {
                Ok(RenewReply::Held { left: Some(left) }) => assert!(!left.is_zero()),
                other => panic!("{other:?}"),
            }
        }
        match waiter.ask().await {
            Ok(AcquireReply::Granted { left: Some(left), .. }) => assert!(!left.is_zero()),
            other => panic!("{other:?}"),
        }
        assert_eq!(transactions(&server) - before, 1);
        waiter.let_go().await;
    }
}

/// Its node is the first, as a read shows. But its session may have expired meanwhile, and a member
/// that lags would show the same.
#[tokio::test]
async fn a_waiter_that_cannot_be_proven_is_not_granted() {
    let server = ticking();
    let relay = Relay::start(server.address(0)).await;
    let here = engine(&server.url()).await;
    let url = format!("zk://{}?command_timeout_ms=1000", relay.address);
    let there = connect(&url).await.expect("connected");
    let mut holder = contender(&here, "a");
    holder.take().await;
    let mut waiter = contender(&there, "a").for_seconds(SHORT);
    waiter.queue().await;
    for _ in 0..SHORT {
        waits(&waiter).await;
        tokio::time::sleep(Duration::from_secs(1)).await; // event: its proof counts for nothing
    }
    holder.let_go().await;
    // The proof checks the chroot, whose path has nine bytes.
    relay.lose_answers_from("\0\0\0\u{9}/holdline");
    let reply = waiter.ask().await;
    assert!(relay.loses(), "it was requested");
    let error = reply.expect_err("nothing proves the session");
    assert!(error.is_unavailable(), "{error}");
}

/// A process with one lock opens one session, beside the one that asks for the limits.
#[tokio::test]
async fn a_process_with_one_lock_opens_one_session() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    // The nodes that stay are there.
    one_lock(&server).await;
    let mut counts = Vec::new();
    // On a machine that stands still, a session may have to be proven once more.
    for _ in 0..3 {
        let before = transactions(&server);
        one_lock(&server).await;
        // Two sessions, each opened and closed, and a node, made and deleted.
        until("it has ended", async || transactions(&server) - before >= 6).await;
        counts.push(transactions(&server) - before);
    }
    assert_eq!(counts.iter().min(), Some(&6), "{counts:?}");
}

async fn one_lock(server: &ZooKeeper) {
    let engine = engine(&server.url()).await;
    let mut holder = contender(&engine, "a");
    holder.take().await;
    holder.let_go().await;
}

/// The session that was given to the first lock is not used for listings: those get one of their
/// own, and it is no lock that fails with it.
#[tokio::test]
async fn requests_of_no_contender_do_not_share_the_session_of_a_lock() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let engine = engine(&server.url()).await;
    let mut holder = contender(&engine, "a");
    holder.take().await;
    assert_eq!(holder.counts().await, (1, 0));
    let mut other = contender(&engine, "b");
    other.take().await;
    let mut holding = server.sessions_below("/holdline");
    holding.sort_unstable();
    holding.dedup();
    assert_eq!(holding.len(), 2, "one for each client");
    // As an operator would, or a server that was restored.
    for session in holding {
        server.end_session(session);
    }
    assert_eq!(holder.counts().await, (0, 0));
}

const PERMITS: u32 = 3;
const SEEDS: u64 = 4;

/// A contender for permits of one semaphore.
struct Waiter {
    contender: Contender,
    count: u32,
    hints: Option<Hints>,
    holds: bool,
}

impl Waiter {
    async fn join(engine: &ZooKeeperEngine, name: &str, count: u32) -> Waiter {
        let mode = Mode::permits(count, PERMITS).expect("a good mode");
        Waiter::begin(contender(engine, name).in_mode(mode), count).await
    }

    async fn begin(mut contender: Contender, count: u32) -> Waiter {
        let holds = is_granted(&mut contender).await;
        let hints = (!holds).then(|| contender.watch());
        Waiter { contender, count, hints, holds }
    }

    /// Does what the library does: asks again at each hint. It must be granted.
    async fn is_woken(&mut self) {
        let hints = self.hints.as_mut().expect("it waits");
        loop {
            hint(hints, Hint::LookAgain).await;
            if is_granted(&mut self.contender).await {
                break;
            }
        }
        self.holds = true;
        self.hints = None;
    }

    fn has_hint(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let hints = self.hints.as_mut().expect("it waits");
        let mut look_again = false;
        while let Poll::Ready(Some(found)) = hints.as_mut().poll_next(&mut context) {
            look_again |= found == Hint::LookAgain;
        }
        look_again
    }
}

/// Asks until there is an answer, for a connection may be broken; returns whether it is granted.
async fn is_granted(contender: &mut Contender) -> bool {
    let mut granted = false;
    until("it is answered", async || match contender.ask().await {
        Ok(AcquireReply::Granted { .. }) => {
            granted = true;
            true
        }
        Ok(AcquireReply::Queued { .. }) => true,
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert!(error.is_unavailable(), "{error}");
            false
        }
    })
    .await;
    granted
}

/// Returns how many of these hold the semaphore.
fn holding(queue: &[Waiter]) -> usize {
    let mut used = 0;
    let fits = |waiter: &&Waiter| {
        used += waiter.count;
        used <= PERMITS
    };
    queue.iter().take_while(fits).count()
}

/// Holders and waiters leave in any order, also those whose nodes are watched, and contenders ask
/// for several permits. A waiter that fits is woken each time.
#[tokio::test]
async fn a_waiter_that_fits_is_woken_in_any_order_of_departures() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let relay = Relay::start(server.address(0)).await;
    let here = connect(&format!("zk://{}", relay.address)).await.expect("connected");
    let mut woken = 0;
    for seed in 0..SEEDS {
        let mut random = StdRng::seed_from_u64(seed);
        let name = format!("s{seed}");
        let mut queue: Vec<Waiter> = Vec::new();
        for step in 0..60 {
            if queue.len() < 9 && random.random_bool(0.6) {
                let count = [1, 1, 1, 2, PERMITS][random.random_range(0..5)];
                queue.push(Waiter::join(&here, &name, count).await);
            } else if !queue.is_empty() {
                let leaves = queue.remove(random.random_range(0..queue.len()));
                until("it is released", async || leaves.contender.release(true).await.is_ok())
                    .await;
            }
            if step % 20 == 19 {
                // Watches end with their connection.
                relay.break_off();
            }
            let holding = holding(&queue);
            for waiter in &mut queue[..holding] {
                if !waiter.holds {
                    waiter.is_woken().await;
                    woken += 1;
                }
            }
        }
    }
    assert!(woken > 20, "{woken}");
}

/// Each permit that came back used to wake every waiter.
#[tokio::test]
async fn a_permit_that_comes_back_wakes_one_of_the_crowd() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let here = engine(&server.url()).await;
    let mut queue = Vec::new();
    for _ in 0..12 {
        queue.push(Waiter::join(&here, "a", 1).await);
    }
    assert_eq!(holding(&queue), 3);
    // Each of nine watches three nodes, and its own.
    let watches = || server.word(0, "wchs").ends_with("Total watches:36\n");
    until("all watch", async || watches()).await;
    for waiter in &mut queue[3..] {
        assert!(!waiter.has_hint());
    }
    queue.remove(0).contender.let_go().await;
    queue[2].is_woken().await;
    for waiter in &queue[3..] {
        waits(&waiter.contender).await;
    }
    for waiter in &mut queue[3..] {
        assert!(!waiter.has_hint());
    }
}

/// Too many nodes exclude a waiter to watch each: it watches the queue.
#[tokio::test]
async fn a_waiter_behind_many_holders_is_woken_when_any_of_them_leaves() {
    const MANY: u32 = 40;
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let here = engine(&server.url()).await;
    let mut queue = Vec::new();
    for _ in 0..MANY + 3 {
        let mode = Mode::permits(1, MANY).expect("a good mode");
        let mut contender = contender(&here, "a").in_mode(mode);
        // One session is enough for all.
        contender.request.client = ClientId::from_u64(1);
        queue.push(Waiter::begin(contender, 1).await);
    }
    for leaves in [MANY / 2, 0, MANY - 1] {
        queue.remove(leaves as usize).contender.let_go().await;
        queue[MANY as usize - 1].is_woken().await;
        for waiter in &queue[MANY as usize..] {
            waits(&waiter.contender).await;
        }
    }
}
