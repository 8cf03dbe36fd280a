//! The event stream: order, resume, gap, rights.

use std::time::{Duration, Instant};

use holdline::Client;
use holdline_services::{RedisConfig, RedisServer};
use serde_json::{Value, json};

use crate::ground::{Connection, Ground, request};

/// Reads until one event has come; returns its id, kind and data.
pub(crate) async fn event(connection: &mut Connection) -> (String, String, String) {
    let (mut id, mut kind) = (String::new(), String::new());
    loop {
        let line = connection.line().await;
        assert!(!line.is_empty(), "the stream has ended");
        if let Some(text) = line.strip_prefix("id: ") {
            text.trim().clone_into(&mut id);
        } else if let Some(text) = line.strip_prefix("event: ") {
            text.trim().clone_into(&mut kind);
        } else if let Some(text) = line.strip_prefix("data: ") {
            return (id, kind, text.trim().to_owned());
        }
    }
}

pub(crate) async fn stream(ground: &Ground, path: &str, headers: &str) -> Connection {
    stream_on(ground.open().await, path, headers).await
}

async fn stream_on(mut connection: Connection, path: &str, headers: &str) -> Connection {
    connection.send(&request("GET", path, headers, "")).await;
    let (status, headers) = connection.head().await;
    assert_eq!(status, 200, "{headers}");
    assert!(headers.contains("text/event-stream"), "{headers}");
    // The comment that says that the stream stands comes before anything that happens later.
    while !connection.line().await.starts_with(':') {}
    connection
}

#[tokio::test]
async fn events_arrive_in_order_and_can_be_resumed() {
    let ground = Ground::start().await;
    let mut all = stream(&ground, "/v1/events", "").await;
    let mut some = stream(&ground, "/v1/events?prefix=b", "").await;
    let lease = ground.acquire("a", "").await;
    let path = format!("/v1/locks/a/leases/{}", lease["lease_id"].as_str().expect("an id"));
    ground.ask("DELETE", &path, "").await;
    ground.acquire("b", "").await;
    let first = event(&mut all).await;
    assert_eq!(first.1, "granted");
    assert!(first.2.contains(r#""name":"a""#) && first.2.contains("fencing_token"), "{first:?}");
    assert!(!first.2.contains(lease["lease_id"].as_str().expect("an id")), "no proof is shown");
    assert_eq!(event(&mut all).await.1, "released");
    let last = event(&mut all).await;
    assert!(last.2.contains(r#""name":"b""#), "{last:?}");
    assert_eq!(event(&mut some).await, last);

    let mut connection = ground.open().await;
    let header = format!("Last-Event-ID: {}\r\n", first.0);
    connection.send(&request("GET", "/v1/events", &header, "")).await;
    assert_eq!(connection.head().await.0, 200);
    assert_eq!(event(&mut connection).await.1, "released");
    assert_eq!(event(&mut connection).await, last);
}

/// The fields of each kind of event; schemathesis sees only that they are JSON.
#[tokio::test]
async fn the_stream_is_as_its_description_says() {
    let ground = Ground::start().await;
    let description = ground.ask("GET", "/api/openapi.json", "").await.json();
    let described = &description["paths"]["/v1/events"]["get"];
    let content = described["responses"]["200"]["content"].as_object().expect("a response");
    assert_eq!(content.keys().collect::<Vec<_>>(), ["text/event-stream"]);
    let words = described["description"].as_str().expect("a description");

    let mut all = stream(&ground, "/v1/events", "").await;
    let lease = ground.acquire("a", "").await;
    let (id, token) = (&lease["lease_id"], &lease["fencing_token"]);
    let (id, short) = (id.as_str().expect("an id"), &id.as_str().expect("an id")[..8]);
    let revoke = json!({ "fencing_token": token, "reason": "why", "force": true }).to_string();
    let freeze = json!({ "duration_ms": 60_000, "reason": "why" }).to_string();
    let grant = format!("/v1/locks/a/leases/{id}");
    for (method, path, body, status) in [
        ("POST", "/v1/locks/a", "", 423),
        ("POST", "/v1/locks/a/revoke", revoke.as_str(), 200),
        ("PUT", &grant, "", 410),
        ("PUT", &grant, "", 410),
        ("PUT", "/v1/locks/a/freeze", &freeze, 204),
        ("DELETE", "/v1/locks/a/freeze", "", 204),
    ] {
        let answer = ground.ask(method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
    }
    let again = ground.acquire("a", "").await;
    let other = again["lease_id"].as_str().expect("an id");
    ground.ask("DELETE", &format!("/v1/locks/a/leases/{other}"), "").await;
    for (kind, fields) in [
        ("granted", json!({ "lease_id": short, "fencing_token": token })),
        ("refused", json!({ "kind": "busy" })),
        ("revoked", json!({ "fencing_token": token, "reason": "why" })),
        ("lost", json!({ "lease_id": short })),
        ("frozen", json!({ "reason": "why" })),
        ("unfrozen", json!({})),
        ("granted", json!({ "lease_id": &other[..8], "fencing_token": again["fencing_token"] })),
        ("released", json!({ "lease_id": &other[..8] })),
    ] {
        let (_, event, data) = event(&mut all).await;
        let mut data: Value = serde_json::from_str(&data).expect("JSON");
        let data = data.as_object_mut().expect("an object");
        assert!(data.remove("at_ms").is_some_and(|at| at.is_u64()), "{data:?}");
        let mut expected = fields;
        expected["name"] = json!("a");
        expected["by"] = json!("127.0.0.1");
        assert_eq!((event.as_str(), json!(data)), (kind, expected));
        assert!(words.contains(&format!("`{kind}`")), "{kind}: {words}");
    }
}

#[tokio::test]
async fn a_gap_is_reported_after_a_restart_of_the_server() {
    let ground = Ground::start().await;
    ground.acquire("a", "").await;
    let mut connection = ground.open().await;
    connection.send(&request("GET", "/v1/events", "Last-Event-ID: 00000000-7\r\n", "")).await;
    assert_eq!(connection.head().await.0, 200);
    assert_eq!(event(&mut connection).await.1, "gap");
    assert_eq!(event(&mut connection).await.1, "granted");
}

/// The reader is slow, and never silent: a client that takes nothing for half a minute loses its
/// connection, and on a slow machine this test runs for longer.
#[tokio::test]
async fn a_slow_reader_loses_its_stream_and_costs_nobody_else() {
    const BATCHES: usize = 120;
    const BATCH: usize = 250;
    /// Less than a fifth of what the events of a batch have.
    const READ: usize = 24 * 1024;
    let ground = Ground::start().await;
    let mut slow = stream_on(ground.open_with_small_buffer().await, "/v1/events", "").await;
    let mut connection = ground.open().await;
    let reason = "r".repeat(400);
    let body = format!(r#"{{"duration_ms": 60000, "reason": "{reason}"}}"#);
    let freeze = request("PUT", "/v1/locks/a/freeze", "", &body);
    // More than the buffers of both ends, what the reader takes, and what the server keeps.
    let batch = freeze.repeat(BATCH);
    for _ in 0..BATCHES {
        connection.send(&batch).await;
        for _ in 0..BATCH {
            assert_eq!(connection.response().await.status, 204);
        }
        slow.take(READ).await;
    }
    let rest = slow.rest().await;
    let end = &rest[rest.len().saturating_sub(90)..];
    assert!(rest.ends_with("event: gap\ndata: {}\n\n\r\n0\r\n\r\n"), "{end}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_comes_soon() {
    let ground = Ground::start().await;
    let mut all = stream(&ground, "/v1/events", "").await;
    let began = Instant::now();
    ground.acquire("a", "").await;
    event(&mut all).await;
    // Far more than 20 ms, for a machine that stands still at times.
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn streams_end_when_the_server_stops_and_have_a_limit() {
    let mut ground = Ground::with("[server.limits]\nevent_streams = 1\n").await;
    let mut open = stream(&ground, "/v1/events", "").await;
    let response = ground.ask("GET", "/v1/events", "").await;
    assert_eq!((response.status, response.text("kind")), (429, "too_many".to_owned()));
    ground.stop().await;
    open.rest().await;
}

/// Also what another server and other programs do to the store.
#[tokio::test]
async fn a_stream_for_one_name_shows_every_change_of_its_state() {
    let ground = Ground::start().await;
    let other = Ground::on(ground.client.clone(), "").await;
    let mut watch = stream(&ground, "/v1/events?name=a", "").await;
    let mut state = async || loop {
        let (_, kind, data) = event(&mut watch).await;
        if kind == "state" {
            return serde_json::from_str::<Value>(&data).expect("JSON");
        }
    };
    assert_eq!(state().await["held"], false);
    other.acquire("ab", "").await;
    let lease = other.acquire("a", "").await;
    let shown = state().await;
    assert_eq!(shown["holders"][0]["fencing_token"], lease["fencing_token"], "{shown}");
    let mut waiting = other.open().await;
    waiting.send(&request("POST", "/v1/locks/a", "", r#"{"wait_ms": 60000}"#)).await;
    assert_eq!(state().await["queue_length"], 1);
    let path = format!("/v1/locks/a/leases/{}", lease["lease_id"].as_str().expect("an id"));
    assert_eq!(other.ask("DELETE", &path, "").await.status, 200);
    assert_eq!(waiting.response().await.status, 200);
    let shown = state().await;
    assert_eq!((&shown["queue_length"], &shown["holder_count"]), (&0.into(), &1.into()));
    assert_ne!(shown["holders"][0]["fencing_token"], lease["fencing_token"], "{shown}");
    let both = ground.ask("GET", "/v1/events?name=a&prefix=b", "").await;
    assert_eq!((both.status, both.text("field")), (422, "name".to_owned()));
}

/// Reads until a state has come.
async fn state(watch: &mut Connection) -> Value {
    loop {
        let (_, kind, data) = event(watch).await;
        if kind == "state" {
            return serde_json::from_str(&data).expect("JSON");
        }
    }
}

/// Another server, and a program that uses the store itself, are no requests of this server.
#[tokio::test]
async fn a_stream_for_a_prefix_shows_what_other_programs_do_to_the_store() {
    let redis = RedisServer::start(RedisConfig::default());
    let store = async || Client::connect(&redis.url()).await.expect("connects");
    let ground = Ground::on(store().await, "").await;
    let other = Ground::on(store().await, "").await;
    let found = other.acquire("ci%2Fa", "").await;
    let mut watch = stream(&ground, "/v1/events?prefix=ci/&state=true", "").await;
    let shown = state(&mut watch).await;
    let token = |shown: &Value| shown["holders"][0]["fencing_token"].clone();
    assert_eq!((&shown["name"], token(&shown)), (&json!("ci/a"), found["fencing_token"].clone()));
    other.acquire("elsewhere", "").await;
    let guard = store().await.mutex("ci/b").expect("good").lock().await.expect("free");
    let shown = state(&mut watch).await;
    assert_eq!(shown["name"], "ci/b");
    assert_eq!(token(&shown), guard.fencing_token().get());
    assert!(guard.release().await.is_released());
    let shown = state(&mut watch).await;
    assert_eq!((&shown["name"], &shown["held"]), (&json!("ci/b"), &json!(false)), "{shown}");
    // Without `state` there is only what goes through this server.
    let mut plain = stream(&ground, "/v1/events?prefix=ci/", "").await;
    other.acquire("ci%2Fb", "").await;
    assert_eq!(state(&mut watch).await["name"], "ci/b");
    ground.acquire("ci%2Fc", "").await;
    let (_, kind, data) = event(&mut plain).await;
    assert!(kind == "granted" && data.contains("ci/c"), "{data}");
}

#[tokio::test]
async fn a_prefix_with_more_locks_than_one_look_covers_has_a_gap() {
    let ground = Ground::with("[server.limits]\nevent_streams_per_client = 10\n").await;
    let mut guards = Vec::new();
    for number in 0..5_001 {
        let mutex = ground.client.mutex(format!("n{number:04}")).expect("good");
        guards.push(mutex.try_lock().await.expect("free"));
    }
    let mut watch = stream(&ground, "/v1/events?prefix=n&state=true", "").await;
    for _ in 0..5_000 {
        assert_eq!(event(&mut watch).await.1, "state");
    }
    let (_, kind, data) = event(&mut watch).await;
    assert_eq!((kind.as_str(), data.as_str()), ("gap", r#"{"seen_up_to":"n4999"}"#));
    let one_more = ground.ask("GET", "/v1/events", "").await;
    assert_eq!(one_more.status, 429, "it counts as ten: {one_more:?}");
}

/// A name is within the prefixes of a token, or not: as a prefix it would be neither.
#[tokio::test]
async fn a_token_with_prefixes_watches_its_names_only() {
    const TOKEN: &str = r#"
        [[server.tokens]]
        name = "other"
        sha256 = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"
        rights = ["view"]
        prefixes = ["ci/"]
    "#;
    let ground = Ground::with(TOKEN).await;
    let token = "Authorization: Bearer other\r\n";
    let mut watch = stream(&ground, "/v1/events?name=ci/a", token).await;
    assert_eq!(event(&mut watch).await.1, "state");
    for path in ["/v1/events?name=a", "/v1/events?name=c", "/v1/events"] {
        assert_eq!(ground.ask_with("GET", path, token, "").await.status, 403, "{path}");
    }
}
