//! Fair locks: the queue of Redisson's `RFairLock`, with waiters of Redisson among ours.
//!
//! The server's raw connection plays Redisson here, by the effects of its scripts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline::{Client, LockOptions};
use holdline_conformance::asking::{ending, name, queue, renew, take};
use holdline_conformance::clock::MachineClock;
use holdline_core::{
    AcquireReply, AcquireRequest, Engine, ErrorKind, Hint, Hints, LeaseId, Purpose, ReleaseReply,
    RenewReply,
};
use holdline_redis::{PlainEngine, RedisEngine, RedisOptions};
use holdline_services::{Raw, RedisConfig, RedisServer, Reply};

use crate::support::{PATIENCE, client, engine, request};

const LIST: &str = "redisson_lock_queue:{a}";
const SCORES: &str = "redisson_lock_timeout:{a}";
const JAVA: &str = "b983c153-7421-469a-addb-44fb92259a1b:77";
/// How much later Redisson takes the next in the queue for dead, in ms.
const WAIT: f64 = 300_000.0;

fn raw(server: &RedisServer, words: &[&str]) -> Reply {
    server.raw().send(words).expect("the server answers")
}

fn texts(server: &RedisServer, words: &[&str]) -> Vec<String> {
    raw(server, words).items().expect("a list").iter().filter_map(Reply::text).collect()
}

fn waiting(server: &RedisServer) -> Vec<String> {
    texts(server, &["LRANGE", LIST, "0", "-1"])
}

fn score(server: &RedisServer, owner: &str) -> f64 {
    let text = raw(server, &["ZSCORE", SCORES, owner]).text().expect("a score");
    text.parse().expect("a number")
}

fn now_ms(server: &RedisServer) -> f64 {
    let time: Vec<f64> =
        texts(server, &["TIME"]).iter().map(|part| part.parse().expect("a number")).collect();
    time[0] * 1_000.0 + time[1] / 1_000.0
}

fn fair(text: &str) -> AcquireRequest {
    AcquireRequest { queue: true, ..request(text) }
}

fn known(request: &AcquireRequest) -> AcquireRequest {
    AcquireRequest { known: true, ..request.clone() }
}

/// Whether an owner in Redis is of this lease id: both begin with the same digits.
fn is_of(owner: &str, lease_id: LeaseId) -> bool {
    owner.starts_with(&lease_id.short().to_string())
}

async fn hinted(hints: &mut Hints) {
    let next = std::future::poll_fn(|context| hints.as_mut().poll_next(context));
    let hint = tokio::time::timeout(PATIENCE, next).await.expect("a hint in time");
    assert_eq!(hint, Some(Hint::LookAgain));
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() < 30_000.0
}

#[tokio::test]
async fn list_scores_and_messages_are_redissons() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server, "").await;
    let (held, first, second, third) = (fair("a"), fair("a"), fair("a"), fair("a"));
    take(&engine, &held).await;
    assert!(waiting(&server).is_empty(), "a free lock has no queue");
    for next in [&first, &second, &third] {
        queue(&engine, next).await;
    }
    let owners = waiting(&server);
    assert_eq!(owners.len(), 3);
    for (owner, request) in owners.iter().zip([&first, &second, &third]) {
        assert!(is_of(owner, request.lease_id), "{owners:?}");
    }
    let scores: Vec<f64> = owners.iter().map(|owner| score(&server, owner)).collect();
    assert!(near(scores[0], now_ms(&server) + 30_000.0 + WAIT), "{scores:?}");
    assert!((scores[1] - scores[0] - WAIT).abs() < 1.0, "{scores:?}");
    assert!((scores[2] - scores[1] - WAIT).abs() < 1.0, "{scores:?}");
    let mut messages = server.raw();
    let channel = format!("redisson_lock__channel:{{a}}:{}", owners[0]);
    messages.send(&["SUBSCRIBE", &channel]).expect("subscribed");
    holdline_conformance::asking::let_go(&engine, &held).await;
    let message = messages.read().expect("a message").items().expect("a list").to_vec();
    assert_eq!(message.last().and_then(Reply::text).as_deref(), Some("0"));
    // One that gets the lock, or leaves, brings the time of all behind it nearer.
    take(&engine, &known(&first)).await;
    assert_eq!(waiting(&server), owners[1..]);
    assert!((score(&server, &owners[2]) - (scores[2] - WAIT)).abs() < 1.0);
    let left = engine.release(&ending(&second, true)).await.expect("given up");
    assert_eq!(left, ReleaseReply::Withdrawn);
    assert!((score(&server, &owners[2]) - (scores[2] - 2.0 * WAIT)).abs() < 1.0);
    let left = engine.release(&ending(&third, true)).await.expect("given up");
    assert_eq!(left, ReleaseReply::Withdrawn);
    for key in [LIST, SCORES, "holdline:beats:{a}"] {
        assert_eq!(raw(&server, &["EXISTS", key]), Reply::Integer(0), "{key}");
    }
}

/// What `RFairLock` does when it gets the lock.
fn java_takes(server: &RedisServer) {
    assert_eq!(raw(server, &["EXISTS", "a"]), Reply::Integer(0));
    assert_eq!(raw(server, &["LPOP", LIST]).text().as_deref(), Some(JAVA));
    raw(server, &["ZREM", SCORES, JAVA]);
    for owner in texts(server, &["ZRANGE", SCORES, "0", "-1"]) {
        raw(server, &["ZINCRBY", SCORES, "-300000", &owner]);
    }
    raw(server, &["HSET", "a", JAVA, "1"]);
    raw(server, &["PEXPIRE", "a", "30000"]);
}

fn java_releases(server: &RedisServer) {
    raw(server, &["DEL", "a"]);
    let head = raw(server, &["LINDEX", LIST, "0"]).text().expect("somebody waits");
    raw(server, &["PUBLISH", &format!("redisson_lock__channel:{{a}}:{head}"), "0"]);
}

fn java_joins(server: &RedisServer) {
    let last = texts(server, &["LRANGE", LIST, "-1", "-1"]).pop();
    let from = last.map_or_else(|| now_ms(server) + 30_000.0, |last| score(server, &last));
    raw(server, &["ZADD", SCORES, &format!("{:.0}", from + WAIT), JAVA]);
    raw(server, &["RPUSH", LIST, JAVA]);
}

fn java_channel(server: &RedisServer) -> Raw {
    let mut messages = server.raw();
    let channel = format!("redisson_lock__channel:{{a}}:{JAVA}");
    messages.send(&["SUBSCRIBE", &channel]).expect("subscribed");
    messages
}

#[tokio::test]
async fn waiters_of_both_libraries_are_granted_in_one_order() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server, "").await;
    let (held, first, last) = (fair("a"), fair("a"), fair("a"));
    take(&engine, &held).await;
    queue(&engine, &first).await;
    java_joins(&server);
    queue(&engine, &last).await;
    let owners = waiting(&server);
    assert!((score(&server, &owners[2]) - score(&server, JAVA) - WAIT).abs() < 1.0);
    let mut hints = engine.watch(&last.name, last.lease_id);
    let mut messages = java_channel(&server);
    holdline_conformance::asking::let_go(&engine, &held).await;
    take(&engine, &known(&first)).await;
    holdline_conformance::asking::let_go(&engine, &first).await;
    assert_eq!(
        messages.read().expect("a message").items().expect("a list").last(),
        Some(&Reply::Bulk(b"0".to_vec()))
    );
    // The lock is free, and it is Redisson's turn.
    let reply = engine.try_acquire(&known(&last)).await.expect("an answer");
    assert!(matches!(reply, AcquireReply::Queued { position: Some(0), .. }), "{reply:?}");
    java_takes(&server);
    // The first hint says that the subscription is there.
    hinted(&mut hints).await;
    java_releases(&server);
    hinted(&mut hints).await;
    take(&engine, &known(&last)).await;
}

#[tokio::test]
async fn a_dead_waiter_of_redissons_is_removed_when_its_time_has_come() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server, "").await;
    let (held, waits) = (fair("a"), fair("a"));
    take(&engine, &held).await;
    java_joins(&server);
    queue(&engine, &waits).await;
    holdline_conformance::asking::let_go(&engine, &held).await;
    let beat = renew(&engine, &waits, Purpose::Wait).await.expect("an answer");
    assert!(matches!(beat, RenewReply::Queued { position: Some(0), .. }), "{beat:?}");
    raw(&server, &["ZADD", SCORES, &format!("{:.0}", now_ms(&server) - 1.0), JAVA]);
    let beat = renew(&engine, &waits, Purpose::Wait).await.expect("an answer");
    assert!(matches!(beat, RenewReply::Held { .. }), "{beat:?}");
    take(&engine, &known(&waits)).await;
    assert!(waiting(&server).is_empty());
}

#[tokio::test]
async fn heartbeats_keep_redisson_from_taking_a_waiter_for_dead() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server, "").await;
    let (held, first, second) = (fair("a"), fair("a"), fair("a"));
    take(&engine, &held).await;
    queue(&engine, &first).await;
    queue(&engine, &second).await;
    let owners = waiting(&server);
    // As after a long wait.
    for owner in &owners {
        raw(&server, &["ZADD", SCORES, &format!("{:.0}", now_ms(&server) + 60_000.0), owner]);
    }
    for waiter in [&first, &second] {
        let beat = renew(&engine, waiter, Purpose::Wait).await.expect("an answer");
        assert!(matches!(beat, RenewReply::Queued { .. }), "{beat:?}");
    }
    assert!(near(score(&server, &owners[0]), now_ms(&server) + WAIT));
    assert!((score(&server, &owners[1]) - score(&server, &owners[0]) - WAIT).abs() < 1.0);
}

#[tokio::test]
async fn a_lock_that_is_not_fair_never_passes_the_queue() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server, "").await;
    java_joins(&server);
    let plain = request("a");
    let reply = engine.try_acquire(&plain).await.expect("an answer");
    assert!(matches!(reply, AcquireReply::Busy { .. }), "{reply:?}");
    raw(&server, &["ZADD", SCORES, "1", JAVA]);
    take(&engine, &request("a")).await;
    assert!(waiting(&server).is_empty(), "the dead waiter is removed");
}

#[tokio::test]
async fn what_is_no_queue_is_foreign_and_stays() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server, "").await;
    for (key, plant) in [
        (LIST, &["SET", LIST, "x"][..]),
        (SCORES, &["SET", SCORES, "x"]),
        (LIST, &["SADD", LIST, "x"]),
        ("a", &["HSET", "a", "mode", "read", JAVA, "1"]),
    ] {
        raw(&server, &["FLUSHALL"]);
        raw(&server, plant);
        let before = raw(&server, &["DUMP", key]);
        let error = engine.try_acquire(&fair("a")).await.expect_err("foreign");
        assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{plant:?}: {error}");
        assert_eq!(raw(&server, &["DUMP", key]), before, "{plant:?}");
        assert_eq!(texts(&server, &["KEYS", "*"]).len(), 1, "{plant:?}");
    }
}

#[tokio::test]
async fn locks_with_the_option_are_granted_in_the_order_in_which_they_queued() {
    let server = RedisServer::start(RedisConfig::default());
    let (ours, others) = (client(&server).await, client(&server).await);
    let options = LockOptions::default().with_fair(true);
    let held = ours.mutex_with("a", &options).expect("fair").lock().await.expect("free");
    let (order, mut granted) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for number in 0..6 {
        let of = if number % 2 == 0 { &ours } else { &others };
        let (mutex, order) = (of.mutex_with("a", &options).expect("fair"), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = mutex.lock().await.expect("granted");
            order.send((number, guard.fencing_token())).expect("received");
            assert!(guard.release().await.is_released());
        }));
        let end = Instant::now() + PATIENCE;
        while waiting(&server).len() <= number {
            assert!(Instant::now() < end, "it does not queue");
            tokio::time::sleep(Duration::from_millis(5)).await; // event: asked until it is seen
        }
    }
    // One that gives up leaves nothing.
    let leaves = ours.mutex_with("a", &options.clone().with_wait(Duration::from_millis(50)));
    let error = leaves.expect("fair").lock().await.expect_err("held");
    assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
    assert_eq!(waiting(&server).len(), 6);
    let mut last = held.fencing_token();
    assert!(held.release().await.is_released());
    for task in tasks {
        task.await.expect("no panic");
    }
    for expected in 0..6 {
        let (number, token) = granted.recv().await.expect("granted");
        assert_eq!(number, expected);
        assert!(token > last, "{last}, then {token}");
        last = token;
    }
    assert!(waiting(&server).is_empty());
}

#[tokio::test]
async fn a_wait_that_is_dropped_leaves_the_queue() {
    let server = RedisServer::start(RedisConfig::default());
    let client = client(&server).await;
    let options = LockOptions::default().with_fair(true);
    let mutex = client.mutex_with("a", &options).expect("fair");
    let held = mutex.lock().await.expect("free");
    let waits = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    });
    let queue_is = async |length: usize| {
        let end = Instant::now() + PATIENCE;
        while waiting(&server).len() != length {
            assert!(Instant::now() < end, "the queue is never of {length}");
            tokio::time::sleep(Duration::from_millis(5)).await; // event: asked until it is seen
        }
    };
    queue_is(1).await;
    waits.abort();
    queue_is(0).await;
    assert!(held.release().await.is_released());
    assert!(mutex.try_lock().await.expect("free").release().await.is_released());
}

#[tokio::test]
async fn the_option_is_refused_where_grants_have_no_order() {
    let server = RedisServer::start(RedisConfig::default());
    let options = LockOptions::default().with_fair(true);
    let url = format!("{}?dialect=plain", server.url());
    let of_plain = RedisOptions::from_url(&url).expect("a good URL");
    let plain = PlainEngine::connect(&of_plain, Arc::new(MachineClock)).await.expect("connected");
    let plain = Client::with_options(Arc::new(plain), holdline::ClientOptions::default())
        .expect("a client");
    let error = plain.mutex_with("a", &options).expect_err("refused");
    assert!(error.to_string().contains("the option `fair`"), "{error}");
    let redisson = client(&server).await;
    let error = redisson.rwlock_with("a", &options).expect_err("refused");
    assert!(error.to_string().contains("anything but a mutex"), "{error}");
    assert!(redisson.semaphore_with("a", 3, &options).is_err());
    // A store that is always fair accepts it.
    let options_of_native = RedisOptions::from_url(&server.url()).expect("a good URL");
    let native = RedisEngine::connect(&options_of_native, Arc::new(MachineClock)).await;
    let native = Client::with_options(
        Arc::new(native.expect("connected")),
        holdline::ClientOptions::default(),
    );
    for client in [native, Client::connect("memory:fair").await] {
        let client = client.expect("a client");
        let guard = client.mutex_with("b", &options).expect("fair").lock().await.expect("free");
        assert!(guard.release().await.is_released());
    }
}

#[tokio::test]
async fn two_clients_that_take_names_in_opposite_orders_never_block_each_other() {
    let server = RedisServer::start(RedisConfig::default());
    let names = ["one", "two", "three"];
    let mut tasks = Vec::new();
    for number in 0..2 {
        let client = client(&server).await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                let mut names = names;
                if number == 1 {
                    names.reverse();
                }
                let guards = client.lock_all(names).await.expect("all of them");
                assert!(guards.is_valid());
                assert!(guards.release().await.iter().all(|outcome| outcome.is_released()));
            }
        }));
    }
    for task in tasks {
        tokio::time::timeout(PATIENCE, task).await.expect("no deadlock").expect("no panic");
    }
    assert_eq!(name("one").as_str(), names[0]);
}
