//! The library on this dialect: its locks wait for each other, and a release wakes a waiter.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline::Client;
use holdline_services::{RedisConfig, RedisServer};

use crate::support::{PATIENCE, behind, engine};

async fn client(server: &RedisServer) -> Client {
    let engine = engine(server, "").await;
    Client::with_options(Arc::new(engine), holdline::ClientOptions::default())
        .expect("a good engine")
}

/// Waits until somebody is subscribed to a channel.
async fn subscribed(server: &RedisServer, channel: &str) {
    let end = Instant::now() + PATIENCE;
    loop {
        let reply = behind(server, &["PUBSUB", "NUMSUB", channel]);
        if reply.items().expect("a list")[1].integer() == Some(1) {
            return;
        }
        assert!(Instant::now() < end, "nobody waits on {channel}");
        tokio::time::sleep(Duration::from_millis(5)).await; // event: the waiter subscribes
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_lock_excludes_and_wakes() {
    let server = RedisServer::start(RedisConfig::default());
    let (one, other) = (client(&server).await, client(&server).await);
    let held = one.mutex("m").expect("good").lock().await.expect("acquired");
    let waits = other.mutex("m").expect("good");
    assert!(waits.try_lock().await.is_err_and(|error| error.is_contended()));
    let waiting = tokio::spawn(async move { waits.lock().await });
    subscribed(&server, "redisson_lock__channel:{m}").await;
    let _ = held.release().await;
    let next = waiting.await.expect("no panic").expect("acquired");
    assert_eq!(next.fencing_token().get(), 2);

    let (ours, theirs) = (one.rwlock("rw").expect("good"), other.rwlock("rw").expect("good"));
    let readers = (ours.read().await.expect("acquired"), theirs.read().await.expect("acquired"));
    assert!(theirs.try_write().await.is_err_and(|error| error.is_contended()));
    let waiting = tokio::spawn(async move { theirs.write().await });
    subscribed(&server, "redisson_rwlock:{rw}").await;
    let _ = readers.0.release().await;
    let _ = readers.1.release().await;
    let writer = waiting.await.expect("no panic").expect("acquired");
    assert!(ours.try_read().await.is_err_and(|error| error.is_contended()));
    let _ = writer.release().await;

    let permits = one.semaphore("s", 2).expect("good").acquire_many(2).await.expect("acquired");
    let waits = other.semaphore("s", 2).expect("good");
    let waiting = tokio::spawn(async move { waits.acquire().await });
    subscribed(&server, "redisson_sc:{s}").await;
    let _ = permits.release().await;
    let _ = waiting.await.expect("no panic").expect("acquired").release().await;

    let latch = one.latch("l").expect("good");
    latch.try_set(1).await.expect("set");
    other.latch("l").expect("good").count_down(1).await.expect("counted");
    latch.wait().await.expect("open");
}

/// The hash expires, and nothing is published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_looks_again_although_nothing_is_published() {
    const OWNER: &str = "b983c153-7421-469a-addb-44fb92259a1b:47";
    let server = RedisServer::start(RedisConfig::default());
    let client = client(&server).await;
    behind(&server, &["HSET", "spin", OWNER, "1"]);
    behind(&server, &["PEXPIRE", "spin", "600000"]);
    let waits = client.mutex("spin").expect("good");
    let waiting = tokio::spawn(async move { waits.lock().await });
    subscribed(&server, "redisson_lock__channel:{spin}").await;
    // A spin lock's release.
    behind(&server, &["DEL", "spin"]);
    let acquired = tokio::time::timeout(PATIENCE, waiting).await.expect("it looks again");
    let _ = acquired.expect("no panic").expect("acquired").release().await;
}
