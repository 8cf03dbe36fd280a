//! The life of a grant: whatever ends an attempt ends its grant, and nobody else's.

use std::time::Duration;

use holdline::Client;
use holdline_services::{RedisConfig, RedisServer};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::events::{event, stream};
use crate::ground::{Connection, DEADLINE, Ground, request};

const DAY: u64 = 86_400_000;

fn lease_path(name: &str, lease: &Value) -> String {
    format!("/v1/locks/{name}/leases/{}", lease["lease_id"].as_str().expect("an id"))
}

async fn session(ground: &Ground, duration_ms: u64) -> String {
    let body = format!(r#"{{"duration_ms": {duration_ms}}}"#);
    let opened = ground.ask("POST", "/v1/sessions", &body).await;
    assert_eq!(opened.status, 201, "{opened:?}");
    opened.text("session")
}

/// A request for a name that somebody else holds.
async fn waiting(ground: &Ground, name: &str, body: &str) -> Connection {
    let mut waiting = ground.open().await;
    waiting.send(&request("POST", &format!("/v1/locks/{name}"), "", body)).await;
    ground.until_waiting(name, 1).await;
    waiting
}

/// Asks until something is so.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asked = async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            sleep(Duration::from_millis(20)).await; // event: can only be looked at
        }
    };
    timeout(DEADLINE, asked).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// How long the store still keeps the only holder.
async fn left_ms(ground: &Ground, name: &str) -> Option<u64> {
    let shown = ground.ask("GET", &format!("/v1/locks/{name}"), "").await.json();
    shown["holders"][0]["left_ms"].as_u64()
}

/// The fault: the wait went on, and its grant stood for a day under an id that nobody knew.
#[tokio::test]
async fn a_wait_whose_session_is_closed_ends_and_leaves_no_lock() {
    let ground = Ground::start().await;
    let held = ground.acquire("a", "").await;
    let session = session(&ground, DAY).await;
    let mut events = stream(&ground, "/v1/events", "").await;
    let mut waiting = ground.open().await;
    let body = format!(r#"{{"session": "{session}", "wait_ms": 60000}}"#);
    waiting.send(&request("POST", "/v1/locks/a", "", &body)).await;
    ground.until_waiting("a", 1).await;
    assert_eq!(ground.ask("DELETE", &format!("/v1/sessions/{session}"), "").await.status, 204);
    assert_eq!(ground.ask("DELETE", &lease_path("a", &held), "").await.status, 200);
    let response = waiting.response().await;
    assert_eq!((response.status, response.text("kind")), (404, "not_found".to_owned()));
    assert_eq!(response.text("certainty"), "not_applied", "{response:?}");
    ground.until_waiting("a", 0).await;
    let shown = ground.ask("GET", "/v1/locks/a", "").await.json();
    assert_eq!(shown["held"], false, "{shown}");

    // The events and the metrics say what the answer says.
    let kinds = [event(&mut events).await, event(&mut events).await].map(|(_, kind, data)| {
        let data: Value = serde_json::from_str(&data).expect("JSON");
        (kind, data["kind"].as_str().map(str::to_owned))
    });
    let refused = ("refused".to_owned(), Some("not_found".to_owned()));
    assert!(
        kinds.contains(&refused) && kinds.contains(&("released".to_owned(), None)),
        "{kinds:?}"
    );
    let metrics = ground.ask("GET", "/metrics", "").await.body;
    let refused = r#"holdline_acquire_total{store="default",outcome="not_found"} 1"#;
    assert!(metrics.lines().any(|line| line == refused), "{metrics}");
}

#[tokio::test]
async fn a_wait_whose_session_falls_silent_ends() {
    let ground = Ground::start().await;
    let held = ground.acquire("a", "").await;
    let session = session(&ground, 1_000).await;
    let body = format!(r#"{{"session": "{session}", "wait_ms": 3600000}}"#);
    let mut waiting = waiting(&ground, "a", &body).await;
    let response = waiting.response().await;
    assert_eq!((response.status, response.text("kind")), (404, "not_found".to_owned()));
    ground.until_waiting("a", 0).await;
    assert_eq!(ground.ask("DELETE", &lease_path("a", &held), "").await.status, 200);
    assert_eq!(left_ms(&ground, "a").await, None);
}

/// The fault: a client that left while its session was closed left the other leases for a day.
#[tokio::test]
async fn a_session_is_closed_whole_though_its_client_does_not_wait() {
    let server = RedisServer::start(RedisConfig::default());
    let store = Client::connect(&server.url()).await.expect("connects");
    let ground = Ground::on(store, "").await;
    let session = session(&ground, DAY).await;
    for name in 0..40 {
        let body = format!(r#"{{"session": "{session}"}}"#);
        ground.acquire(&format!("n{name}"), &body).await;
    }
    let mut closing = ground.open().await;
    closing.send(&request("DELETE", &format!("/v1/sessions/{session}"), "", "")).await;
    drop(closing);
    until("all are released", async || {
        let count = held(&ground).await.len();
        if count == 40 {
            // The server saw the end of the connection before the request.
            ground.ask("DELETE", &format!("/v1/sessions/{session}"), "").await;
        }
        (count == 0).then_some(())
    })
    .await;
}

/// The names that are held, and for how long.
async fn held(ground: &Ground) -> Vec<(String, u64)> {
    let list = ground.ask("GET", "/v1/locks", "").await.json();
    let locks = list["locks"].as_array().expect("a list").clone();
    let lock = |lock: &Value| {
        let left = lock["holders"][0]["left_ms"].as_u64()?;
        Some((lock["name"].as_str()?.to_owned(), left))
    };
    locks.iter().filter_map(lock).collect()
}

/// The fault: 72 of 300 such waiters held their locks for a day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_leave_at_the_moment_of_the_grant_leave_no_lock() {
    const WAITERS: usize = 300;
    let ground = Ground::start().await;
    let session = session(&ground, DAY).await;
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        let name = format!("n{number}");
        ground.acquire(&name, &format!(r#"{{"session": "{session}"}}"#)).await;
        let body = format!(r#"{{"wait_ms": 3600000, "lease_duration_ms": {DAY}}}"#);
        waiters.push(waiting(&ground, &name, &body).await);
    }
    let path = format!("/v1/sessions/{session}");
    let leaving = tokio::spawn(async move {
        for waiter in waiters {
            drop(waiter);
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(ground.ask("DELETE", &path, "").await.status, 204);
    leaving.await.expect("no panic");
    until("no lock is left", async || {
        let held = held(&ground).await;
        assert!(held.iter().all(|(_, left)| *left <= 30_000), "{held:?}");
        held.is_empty().then_some(())
    })
    .await;
}

/// The fault: hyper reads no further behind a request that waits, so the end was not seen.
#[tokio::test]
async fn bytes_after_a_request_do_not_hide_the_end_of_the_connection() {
    let ground = Ground::start().await;
    let held = ground.acquire("a", "").await;
    let day = format!(r#"{{"lease_duration_ms": {DAY}}}"#);
    assert_eq!(ground.ask("PUT", &lease_path("a", &held), &day).await.status, 200);
    let body = r#"{"wait_ms": 3600000}"#;
    for behind in ["\r\n".to_owned(), request("GET", "/healthz", "", ""), "x".repeat(100_000)] {
        let mut waiting = waiting(&ground, "a", body).await;
        waiting.send(&behind).await;
        drop(waiting);
        ground.until_waiting("a", 0).await;
    }
}

/// What comes behind a request that waits is answered after it.
#[tokio::test]
async fn requests_behind_one_that_waits_are_answered_in_order() {
    let ground = Ground::start().await;
    let held = ground.acquire("a", "").await;
    let mut waiting = waiting(&ground, "a", r#"{"wait_ms": 3600000}"#).await;
    let about = "r".repeat(400);
    let body = format!(r#"{{"about": {{"reason": "{about}"}}}}"#);
    for number in 0..40 {
        waiting.send(&request("POST", &format!("/v1/locks/n{number}"), "", &body)).await;
    }
    assert_eq!(ground.ask("DELETE", &lease_path("a", &held), "").await.status, 200);
    assert_eq!(waiting.response().await.text("name"), "a");
    for number in 0..40 {
        assert_eq!(waiting.response().await.text("name"), format!("n{number}"));
    }
}

#[tokio::test]
async fn a_long_lease_begins_short_and_is_whole_once_it_is_used() {
    let ground = Ground::start().await;
    let lease = ground.acquire("a", &format!(r#"{{"lease_duration_ms": {DAY}}}"#)).await;
    assert_eq!(lease["lease_duration_ms"], DAY);
    assert!(lease["valid_for_ms"].as_u64().expect("a number") < 30_000, "{lease}");
    // Whatever it asks for, as before: a renewal never shortens a lease.
    let renewed = ground.ask("PUT", &lease_path("a", &lease), "").await.json();
    assert!(renewed["valid_for_ms"].as_u64().expect("a number") > DAY / 2, "{renewed}");
    assert!(left_ms(&ground, "a").await > Some(DAY / 2));
}

#[tokio::test]
async fn a_long_lease_is_whole_once_its_client_has_read_the_answer_and_left() {
    let ground = Ground::start().await;
    let lease = ground.acquire("a", &format!(r#"{{"lease_duration_ms": {DAY}}}"#)).await;
    let in_session = format!(r#"{{"session": "{}"}}"#, session(&ground, DAY).await);
    ground.acquire("b", &in_session).await;
    for name in ["a", "b"] {
        until("it is extended", async || {
            left_ms(&ground, name).await.filter(|left| *left > 30_000)
        })
        .await;
    }
    assert_eq!(ground.ask("DELETE", &lease_path("a", &lease), "").await.status, 200);
}

/// A server that stops extends what its clients have, since nobody will do it later.
#[tokio::test]
async fn a_long_lease_is_whole_when_the_server_has_stopped() {
    let mut ground = Ground::start().await;
    let other = Ground::on(ground.client.clone(), "").await;
    let mut connection = ground.open().await;
    let body = format!(r#"{{"lease_duration_ms": {DAY}}}"#);
    connection.send(&request("POST", "/v1/locks/a", "", &body)).await;
    assert_eq!(connection.response().await.status, 200);
    ground.stop().await;
    assert!(left_ms(&other, "a").await > Some(DAY / 2));
}

/// The fault: a client that counted from the answer believed its lease for its whole wait longer.
#[tokio::test]
async fn what_may_be_believed_counts_from_the_answer() {
    let ground = Ground::start().await;
    let held = ground.acquire("a", "").await;
    let mut waiting = waiting(&ground, "a", r#"{"wait_ms": 3600000}"#).await;
    let waits = Duration::from_secs(2);
    sleep(waits).await; // event: the time that a wait takes is what the test is about
    let began = Instant::now();
    assert_eq!(ground.ask("DELETE", &lease_path("a", &held), "").await.status, 200);
    let lease = waiting.response().await.json();
    let left = left_ms(&ground, "a").await.expect("held");
    // All the time since the grant is in this.
    let since = u64::try_from(began.elapsed().as_millis()).expect("a number");
    let valid = lease["valid_for_ms"].as_u64().expect("a number");
    assert!(lease["waited_ms"].as_u64() >= Some(2_000), "{lease}");
    assert!(valid > 20_000 && valid < left + since && valid < 30_000, "{lease} {left} {since}");
}

const TOKENS: &str = r#"
[[server.tokens]]
name = "all"
sha256 = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0"
rights = ["admin"]
"#;

/// The fault: a token that had been removed went on in open streams and waits.
#[tokio::test]
async fn a_token_that_is_removed_ends_waits_and_streams() {
    const OTHER: &str = r#"
        [[server.tokens]]
        name = "other"
        sha256 = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"
        rights = ["view", "lock"]
    "#;
    let ground = Ground::with(&format!("{TOKENS}{OTHER}")).await;
    let [all, other] =
        ["s3cret", "other"].map(|token| format!("Authorization: Bearer {token}\r\n"));
    assert_eq!(ground.ask_with("POST", "/v1/locks/a", &all, "").await.status, 200);
    let mut removed = stream(&ground, "/v1/events", &other).await;
    let mut stays = stream(&ground, "/v1/events", &all).await;
    let mut waiting = ground.open().await;
    let body = r#"{"wait_ms": 3600000}"#;
    waiting.send(&request("POST", "/v1/locks/a", &other, body)).await;
    ground.until_waiting("a", 1).await;
    let watched = r#"{"name": "a", "lease_id": "0123456789abcdef0123456789abcdef"}"#;
    let mut watch = ground.open().await;
    watch.send(&request("POST", "/v1/engine/watch", &other, watched)).await;
    assert_eq!(watch.head().await.0, 200);
    let config = holdline_server::ServerConfig::from_toml(TOKENS).expect("good");
    ground.reloader.reload(&config).expect("taken over");
    let response = waiting.response().await;
    assert_eq!((response.status, response.text("kind")), (401, "unauthenticated".to_owned()));
    ground.until_waiting("a", 0).await;
    while !removed.line().await.starts_with("0\r\n") {}
    while !watch.line().await.starts_with("0\r\n") {}
    let (_, kind, data) = event(&mut stays).await;
    assert!(kind == "refused" && data.contains("unauthenticated"), "{data}");
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let expires = jiff::Timestamp::now() + Duration::from_secs(2);
    let config = format!(
        "[[server.tokens]]\nname = \"other\"\nsha256 = \"{}\"\nrights = [\"view\"]\nexpires = \
         \"{expires}\"\n",
        "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"
    );
    let ground = Ground::with(&config).await;
    let mut stream = stream(&ground, "/v1/events", "Authorization: Bearer other\r\n").await;
    while !stream.line().await.starts_with("0\r\n") {}
}
