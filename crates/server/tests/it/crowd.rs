//! Many waiting requests and many streams at once: the short form of `cargo xtask bench
//! server-crowd`, without its times.

use std::collections::HashMap;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::events::{event, stream};
use crate::ground::{Connection, DEADLINE, Ground, request};

const NAMES: usize = 5;
const FOR_ONE_NAME: usize = 100;
/// So many of the waiters of a name close their connection.
const CLOSED: usize = 20;
const STREAMS: usize = 50;
const BODY: &str = r#"{"wait_ms": 3600000}"#;

/// Both ends of each connection are in this process.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("raised");
}

fn path_of(name: usize) -> String {
    format!("/v1/locks/crowd-{name}")
}

async fn waiting(ground: &Ground, name: usize) -> Connection {
    let mut connection = ground.open().await;
    connection.send(&request("POST", &path_of(name), "", BODY)).await;
    connection
}

/// Waits until a gauge of the server has this value.
async fn until(ground: &Ground, gauge: &str, value: usize) {
    let line = format!("holdline_{gauge} {value}");
    let reached = async {
        while !ground.ask("GET", "/metrics", "").await.body.lines().any(|metric| metric == line) {
            sleep(std::time::Duration::from_millis(5)).await; // event: can only be looked at
        }
    };
    timeout(DEADLINE, reached).await.unwrap_or_else(|_| panic!("never {line}"));
}

/// Waits for a grant, reports its token, and releases it.
async fn take(
    mut connection: Connection,
    name: usize,
    granted: mpsc::UnboundedSender<(usize, u64)>,
) {
    let lease = connection.response().await;
    assert_eq!(lease.status, 200, "{lease:?}");
    let token = lease.token();
    granted.send((name, token)).expect("somebody counts");
    let path = format!("{}/leases/{}", path_of(name), lease.text("lease_id"));
    connection.send(&request("DELETE", &path, "", "")).await;
    let released = connection.response().await;
    assert_eq!(released.status, 200, "{released:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_waiter_of_a_crowd_ends_rightly_and_nothing_is_left() {
    raise_file_limit();
    let most = NAMES * FOR_ONE_NAME;
    let limits = format!(
        "waiters_per_client = {most}\nevent_streams = {STREAMS}\n\
         event_streams_per_client = {STREAMS}\n"
    );
    let ground = Ground::with(&format!("[server.limits]\n{limits}")).await;
    let mut held = Vec::new();
    for name in 0..NAMES {
        held.push(ground.ask("POST", &path_of(name), "").await.text("lease_id"));
    }
    let mut crowd = Vec::new();
    for waiter in 0..most {
        crowd.push((waiter % NAMES, waiting(&ground, waiter % NAMES).await));
    }
    until(&ground, "waiting", most).await;
    let refused = ground.ask("POST", &path_of(0), BODY).await;
    assert_eq!((refused.status, refused.text("kind")), (429, "too_many".to_owned()));
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(stream(&ground, "/v1/events", "").await);
    }
    assert_eq!(ground.ask("GET", "/v1/events", "").await.status, 429);

    // From the middle of each queue.
    crowd.drain(NAMES * 40..NAMES * (40 + CLOSED));
    for name in 0..NAMES {
        ground.until_waiting(&format!("crowd-{name}"), FOR_ONE_NAME - CLOSED).await;
    }
    let (granted, mut grants) = mpsc::unbounded_channel();
    let takes = crowd
        .into_iter()
        .map(|(name, connection)| tokio::spawn(take(connection, name, granted.clone())));
    let takes: Vec<_> = takes.collect();
    drop(granted);
    for (name, lease) in held.iter().enumerate() {
        let released = ground.ask("DELETE", &format!("{}/leases/{lease}", path_of(name)), "").await;
        assert_eq!(released.status, 200, "{released:?}");
    }
    let (mut last, mut count) = (HashMap::new(), 0);
    while let Some((name, token)) = timeout(DEADLINE, grants.recv()).await.expect("in time") {
        let before = last.insert(name, token);
        assert!(before.is_none_or(|before| before < token), "{name}: {before:?}, then {token}");
        count += 1;
    }
    assert_eq!(count, NAMES * (FOR_ONE_NAME - CLOSED), "each waiter once");
    for take in takes {
        take.await.expect("no panic");
    }

    for stream in &mut streams {
        let mut kinds: HashMap<String, usize> = HashMap::new();
        for _ in 0..2 * count + NAMES + NAMES * CLOSED {
            *kinds.entry(event(stream).await.1).or_default() += 1;
        }
        assert_eq!((kinds["granted"], kinds["released"]), (count, count + NAMES), "{kinds:?}");
        assert_eq!(kinds["refused"], NAMES * CLOSED, "{kinds:?}");
    }
    drop(streams);
    until(&ground, "event_streams", 0).await;
    until(&ground, "waiting", 0).await;
    // That of the question.
    until(&ground, "connections", 1).await;
    let list = ground.ask("GET", "/v1/locks", "").await.json();
    assert_eq!(list["locks"].as_array().map(Vec::len), Some(0), "{list}");
}
