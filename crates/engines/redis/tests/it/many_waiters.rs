//! Many waiters of the library, while their connections break.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdline::{Client, LockOptions};
use holdline_core::{Engine, FencingToken};
use holdline_services::{RedisConfig, RedisServer};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::support::{engine, name, raw};

const CLIENTS: usize = 4;
const WAITERS: usize = 200;
/// A connection is broken after this many grants.
const EVERY: usize = 10;
const LOOK: Duration = Duration::from_millis(5);
const LIMIT: Duration = Duration::from_secs(120);

/// The observations of the holders: how many at once, and their tokens in order.
#[derive(Default)]
struct Observations {
    inside: AtomicUsize,
    tokens: Mutex<Vec<FencingToken>>,
}

async fn take_and_release(client: Client, seen: Arc<Observations>) {
    let options = LockOptions::default().with_wait(LIMIT);
    let mutex = client.mutex_with("crowd", &options).expect("a good name");
    let guard = mutex.lock().await.expect("everybody gets it");
    assert_eq!(seen.inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
    seen.tokens.lock().push(guard.fencing_token());
    tokio::task::yield_now().await;
    seen.inside.fetch_sub(1, Ordering::SeqCst);
    let _ = guard.release().await;
}

/// Breaks one connection of the engines, the next one at each call.
fn break_one(server: &RedisServer, turn: usize) {
    let list = raw(server, &["CLIENT", "LIST"]).text().expect("text");
    let theirs = list.lines().filter(|line| !line.contains("cmd=client"));
    let ids: Vec<&str> =
        theirs.filter_map(|line| line.strip_prefix("id=")?.split(' ').next()).collect();
    if let Some(id) = ids.get(turn % ids.len().max(1)) {
        raw(server, &["CLIENT", "KILL", "ID", id]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_waiters_are_served_while_connections_break() {
    let server = RedisServer::start(RedisConfig::default());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let engine = engine(&server).await;
        clients.push(
            Client::with_options(Arc::new(engine), holdline::ClientOptions::default())
                .expect("a client"),
        );
    }
    let seen = Arc::new(Observations::default());
    let first = clients[0].mutex("crowd").expect("a good name").lock().await.expect("free");
    let mut waiting = JoinSet::new();
    for number in 0..WAITERS {
        waiting.spawn(take_and_release(clients[number % CLIENTS].clone(), seen.clone()));
    }
    let looks = engine(&server).await;
    while looks.inspect(&name("crowd")).await.expect("shown").queue_length < WAITERS {
        tokio::time::sleep(LOOK).await; // event: contenders of other clients, who queue
    }
    let _ = first.release().await;
    let served = async {
        let mut done = 0;
        while let Some(one) = waiting.join_next().await {
            one.expect("served");
            done += 1;
            if done % EVERY == 0 {
                break_one(&server, done / EVERY);
            }
        }
    };
    tokio::time::timeout(LIMIT, served).await.expect("all are served in time");
    let tokens = seen.tokens.lock();
    assert_eq!(tokens.len(), WAITERS);
    assert!(tokens.is_sorted_by(|one, next| one < next), "tokens do not grow: {tokens:?}");
}
