//! Faults: a server that forgets, a Java client with a wrong clock, waits that are dropped.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use holdline::{Client, LockOptions, LostReason};
use holdline_services::{Fault, FaultProxy, Frames, RedisConfig, RedisServer, Reply};

use crate::support::{PATIENCE, behind, client, connect};

const JAVA: &str = "b983c153-7421-469a-addb-44fb92259a1b:77";
const LIST: &str = "redisson_lock_queue:{a}";
const SCORES: &str = "redisson_lock_timeout:{a}";

fn fair() -> LockOptions {
    LockOptions::default().with_fair(true)
}

/// Waits until a condition holds that the server shows.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await; // event: asked until it is seen
    }
}

fn queue_of(server: &RedisServer) -> Vec<String> {
    let reply = behind(server, &["LRANGE", LIST, "0", "-1"]);
    reply.items().expect("a list").iter().filter_map(Reply::text).collect()
}

/// Returns the keys, but for the counters of tokens and the master term.
fn keys(server: &RedisServer) -> Vec<String> {
    let reply = behind(server, &["KEYS", "*"]);
    let keys = reply.items().expect("a list").iter().filter_map(Reply::text);
    let stays = |key: &str| key.starts_with("redisson_lock_token:") || key == "holdline:reign:1";
    keys.filter(|key| !stays(key)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_without_its_data_loses_the_lock_and_the_tokens() {
    let server = RedisServer::start(RedisConfig::default());
    let client = client(&server).await;
    let mutex = client.mutex("a").expect("good");
    for token in 1..=3 {
        let guard = mutex.lock().await.expect("free");
        assert_eq!(guard.fencing_token().get(), token);
        assert!(guard.release().await.is_released());
    }
    let guard = mutex.lock().await.expect("free");
    server.kill();
    server.restart();
    let reason = tokio::time::timeout(PATIENCE, guard.lost()).await.expect("it is reported");
    assert!(!guard.is_valid(), "{reason:?}");
    assert!(!matches!(reason, LostReason::Revoked(_)), "{reason:?}");
    drop(guard);
    // As docs/redisson.md says: the counter is one of the keys that the server lost.
    let next = mutex.lock().await.expect("free");
    assert_eq!(next.fencing_token().get(), 1);
    assert!(next.release().await.is_released());
}

/// Each reply to one of two clients is late. It keeps its lease, and its place in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_late_costs_neither_a_lease_nor_a_place() {
    const LATE: Duration = Duration::from_millis(200);
    let server = RedisServer::start(RedisConfig::default());
    let proxy = FaultProxy::start(server.address());
    let slow = connect(&format!("redis://{}", proxy.address()), "").await.expect("connected");
    let (slow, quick) = (
        Client::with_options(Arc::new(slow), holdline::ClientOptions::default()).expect("a client"),
        client(&server).await,
    );
    proxy.inject(Frames::replies(), Fault::Delay(LATE));
    let renewed_often = fair().with_renew_interval(Duration::from_secs(1));
    let held = slow.mutex_with("a", &renewed_often).expect("fair").lock().await.expect("free");
    let mut waiting = Vec::new();
    for (number, of) in [&slow, &quick].into_iter().enumerate() {
        let mutex = of.mutex_with("a", &fair()).expect("fair");
        waiting.push(tokio::spawn(async move { mutex.lock().await }));
        until("it queues", || queue_of(&server).len() == number + 1).await;
    }
    // A lease that somebody has shortened is renewed at its whole length.
    behind(&server, &["PEXPIRE", "a", "20000"]);
    let left = || behind(&server, &["PTTL", "a"]).integer().expect("a number");
    until("it is renewed", || left() > 25_000).await;
    assert!(held.is_valid());
    let mut token = held.fencing_token();
    assert!(held.release().await.is_released());
    for granted in waiting {
        let guard = granted.await.expect("no panic").expect("granted");
        assert!(guard.fencing_token() > token, "{token} before it");
        token = guard.fencing_token();
        assert!(guard.release().await.is_released());
    }
    assert!(keys_but_marks(&server), "{:?}", keys(&server));
}

/// Java compares the times in the queue by its own clock, and removes those that are over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_clock_that_is_far_ahead_costs_a_waiter_its_place_and_not_the_lock() {
    let server = RedisServer::start(RedisConfig::default());
    let client = client(&server).await;
    let held = client.mutex_with("a", &fair()).expect("fair").lock().await.expect("free");
    let mutex = client.mutex_with("a", &fair()).expect("fair");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until("we queue", || queue_of(&server).len() == 1).await;
    // A Java client whose clock is ten minutes ahead removes ours, and joins.
    let ours = queue_of(&server).remove(0);
    let time = behind(&server, &["TIME"]).items().expect("two")[0].text().expect("seconds");
    let java_now = 1_000 * (time.parse::<u64>().expect("a number") + 600);
    let score = behind(&server, &["ZSCORE", SCORES, &ours]).text().expect("a score");
    assert!(
        score.parse::<f64>().expect("a number") < java_now as f64,
        "by Java's clock it is over"
    );
    let words = [
        "EVAL",
        "redis.call('LPOP', KEYS[1]); redis.call('ZREM', KEYS[2], ARGV[1]); \
                  redis.call('ZADD', KEYS[2], ARGV[3], ARGV[2]); \
                  return redis.call('RPUSH', KEYS[1], ARGV[2])",
    ];
    let late = (java_now + 330_000).to_string();
    behind(&server, &[words[0], words[1], "2", LIST, SCORES, &ours, JAVA, &late]);
    until("we queue again, behind Java", || {
        queue_of(&server).len() == 2 && queue_of(&server)[0] == JAVA
    })
    .await;
    assert!(held.is_valid() && !waiting.is_finished(), "the lock is not concerned");
    assert!(held.release().await.is_released());
    // Java gives up its turn.
    behind(&server, &["LREM", LIST, "1", JAVA]);
    behind(&server, &["ZREM", SCORES, JAVA]);
    let guard = waiting.await.expect("no panic").expect("granted");
    assert!(guard.release().await.is_released());
    assert_eq!(keys(&server), [""; 0]);
}

/// A future that is dropped after it was polled a number of times.
struct Polls<'a, F> {
    future: Pin<&'a mut F>,
    left: u32,
}

impl<F: Future> Future for Polls<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Runs a wait for a number of polls; returns its output, if it came before.
async fn for_polls<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    Polls { future: pin!(future), left: polls }.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_wait_can_be_dropped_at_every_await_and_leaves_nothing() {
    let server = RedisServer::start(RedisConfig::default());
    let (ours, others) = (client(&server).await, client(&server).await);
    let mutex = ours.mutex_with("a", &fair()).expect("fair");
    for polls in 1.. {
        let Some(granted) = for_polls(polls, mutex.lock()).await else {
            until("the attempt at a free lock leaves nothing", || keys_but_marks(&server)).await;
            continue;
        };
        assert!(granted.expect("free").release().await.is_released());
        break;
    }
    let held = others.mutex_with("a", &fair()).expect("fair").lock().await.expect("free");
    // Each heartbeat is a poll, too: so the last of these waits is one of some seconds.
    for polls in 1..=4 {
        let granted = for_polls(polls, mutex.lock()).await;
        assert!(granted.is_none(), "it is held");
        let is_empty = || {
            let queues = [LIST, SCORES, "holdline:beats:{a}"];
            queues.iter().all(|key| behind(&server, &["EXISTS", key]) == Reply::Integer(0))
        };
        until("the wait leaves nothing in the queue", is_empty).await;
    }
    assert!(held.is_valid());
    assert!(held.release().await.is_released());
    assert!(mutex.lock().await.expect("free").release().await.is_released());
}

/// Returns whether nothing is there but what remembers ids that were given up.
fn keys_but_marks(server: &RedisServer) -> bool {
    keys(server).iter().all(|key| key.starts_with("holdline:mark:"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_permits_without_leases_can_be_dropped_at_every_await() {
    let server = RedisServer::start(RedisConfig::default());
    let client = client(&server).await;
    let semaphore = client.counting_semaphore("slots").expect("this dialect has them");
    assert!(semaphore.try_set_permits(3).await.expect("set"));
    let available = || behind(&server, &["GET", "slots"]).text();
    for polls in 1.. {
        let Some(acquired) = for_polls(polls, semaphore.acquire(2)).await else {
            until("what was taken is given back", || available().as_deref() == Some("3")).await;
            continue;
        };
        acquired.expect("free");
        break;
    }
    assert_eq!(available().as_deref(), Some("1"));
    for polls in 1..=4 {
        assert!(for_polls(polls, semaphore.acquire(2)).await.is_none(), "one is left");
        assert_eq!(available().as_deref(), Some("1"));
    }
    semaphore.release(2).await.expect("released");
    assert_eq!(available().as_deref(), Some("3"));
}
