//! Several locks with one request: all or none, and the first that is free.

use std::time::Duration;

use holdline::Client;
use holdline_services::{RedisConfig, RedisServer};
use serde_json::{Value, json};

use crate::events::{event, stream};
use crate::ground::{Ground, Response, request};

/// Two servers of one Redis.
struct Servers {
    _redis: RedisServer,
    one: Ground,
    other: Ground,
}

impl Servers {
    async fn start() -> Servers {
        let redis = RedisServer::start(RedisConfig::default());
        let store = async || Client::connect(&redis.url()).await.expect("connects");
        let one = Ground::on(store().await, "").await;
        let other = Ground::on(store().await, "").await;
        Servers { _redis: redis, one, other }
    }
}

async fn together(ground: &Ground, body: Value) -> Response {
    ground.ask("POST", "/v1/locks", &body.to_string()).await
}

/// The names and ids of the leases of an answer.
fn leases(response: &Response) -> Vec<(String, String)> {
    assert_eq!(response.status, 200, "{response:?}");
    let json = response.json();
    let leases = json["leases"].as_array().expect("a list").iter();
    let text = |lease: &Value, field: &str| lease[field].as_str().expect("a text").to_owned();
    leases.map(|lease| (text(lease, "name"), text(lease, "lease_id"))).collect()
}

fn names(response: &Response) -> Vec<String> {
    leases(response).into_iter().map(|(name, _)| name).collect()
}

async fn release(ground: &Ground, name: &str, id: &str) -> Response {
    ground.ask("DELETE", &format!("/v1/locks/{name}/leases/{id}"), "").await
}

/// Waits until nobody holds a name, or waits for it.
async fn until_free(ground: &Ground, name: &str) {
    let free = async {
        loop {
            let lock = ground.ask("GET", &format!("/v1/locks/{name}"), "").await.json();
            if lock["held"] == false && lock["queue_length"] == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await; // event: can only be looked at
        }
    };
    tokio::time::timeout(crate::ground::DEADLINE, free).await.expect("it becomes free");
}

#[tokio::test]
async fn several_names_are_acquired_together_or_not_at_all() {
    let servers = Servers::start().await;
    let held = servers.other.acquire("b", "").await;
    let busy = together(&servers.one, json!({ "names": ["c", "a", "b"] })).await;
    assert_eq!((busy.status, busy.text("kind")), (423, "busy".to_owned()));
    until_free(&servers.other, "a").await;
    until_free(&servers.other, "c").await;
    let id = held["lease_id"].as_str().expect("an id");
    assert_eq!(release(&servers.other, "b", id).await.status, 200);
    let mut events = stream(&servers.one, "/v1/events", "").await;
    let all = together(&servers.one, json!({ "names": ["c", "a", "b"] })).await;
    let leases = leases(&all);
    assert_eq!(names(&all), ["a", "b", "c"]);
    for (name, id) in &leases {
        let (_, kind, data) = event(&mut events).await;
        assert!(kind == "granted" && data.contains(&id[..8]) && data.contains(name), "{data}");
        // Each has a life of its own, through either server.
        let path = format!("/v1/locks/{name}/leases/{id}");
        assert_eq!(servers.other.ask("PUT", &path, "").await.status, 200);
        assert_eq!(release(&servers.other, name, id).await.status, 200);
        until_free(&servers.one, name).await;
    }
}

#[tokio::test]
async fn the_first_of_several_names_that_is_free_is_acquired() {
    let servers = Servers::start().await;
    servers.other.acquire("gpu0", "").await;
    let body = json!({ "names": ["gpu0", "gpu2", "gpu1"], "count": 1 });
    let first = together(&servers.one, body.clone()).await;
    assert_eq!(names(&first), ["gpu2"]);
    assert_eq!(names(&together(&servers.one, body.clone()).await), ["gpu1"]);
    assert_eq!(together(&servers.one, body).await.status, 423);
    // A waiter gets whichever is freed, and leaves the other queues.
    let mut waiting = servers.one.open().await;
    let body = json!({ "names": ["gpu0", "gpu1", "gpu2"], "count": 1, "wait_ms": 60_000 });
    waiting.send(&request("POST", "/v1/locks", "", &body.to_string())).await;
    for name in ["gpu0", "gpu1", "gpu2"] {
        servers.other.until_waiting(name, 1).await;
    }
    let (name, id) = leases(&first).remove(0);
    assert_eq!(release(&servers.other, &name, &id).await.status, 200);
    assert_eq!(names(&waiting.response().await), ["gpu2"]);
    for name in ["gpu0", "gpu1"] {
        servers.other.until_waiting(name, 0).await;
    }
}

/// A wait that is longer than a lease keeps what it has.
#[tokio::test]
async fn a_wait_for_the_last_name_keeps_the_first_ones() {
    let servers = Servers::start().await;
    let last = servers.other.acquire("b", r#"{"lease_duration_ms": 60000}"#).await;
    let mut waiting = servers.one.open().await;
    let body = json!({ "names": ["a", "b"], "wait_ms": 600_000, "lease_duration_ms": 12_000 });
    waiting.send(&request("POST", "/v1/locks", "", &body.to_string())).await;
    servers.other.until_waiting("b", 1).await;
    let first = servers.other.ask("GET", "/v1/locks/a", "").await.json();
    tokio::time::sleep(Duration::from_secs(14)).await; // event: longer than the lease
    let still = servers.other.ask("GET", "/v1/locks/a", "").await.json();
    let token = |lock: &Value| lock["holders"][0]["fencing_token"].clone();
    assert!(token(&first).is_u64() && token(&first) == token(&still), "{first} {still}");
    let id = last["lease_id"].as_str().expect("an id");
    assert_eq!(release(&servers.other, "b", id).await.status, 200);
    let both = waiting.response().await;
    assert_eq!(names(&both), ["a", "b"]);
    assert_eq!(both.json()["leases"][0]["fencing_token"], token(&first));
}

#[tokio::test]
async fn who_leaves_while_it_waits_holds_none_of_the_names() {
    let servers = Servers::start().await;
    servers.other.acquire("b", "").await;
    let mut waiting = servers.one.open().await;
    let body = json!({ "names": ["a", "b", "c"], "wait_ms": 600_000 });
    waiting.send(&request("POST", "/v1/locks", "", &body.to_string())).await;
    servers.other.until_waiting("b", 1).await;
    drop(waiting);
    until_free(&servers.other, "a").await;
    until_free(&servers.other, "c").await;
    servers.other.until_waiting("b", 0).await;
}

#[tokio::test]
async fn a_session_has_all_of_the_names_or_none() {
    let servers = Servers::start().await;
    let held = servers.other.acquire("b", "").await;
    let session = servers.one.ask("POST", "/v1/sessions", "").await.text("session");
    let body = json!({ "names": ["a", "b"], "wait_ms": 600_000, "session": session });
    let mut waiting = servers.one.open().await;
    waiting.send(&request("POST", "/v1/locks", "", &body.to_string())).await;
    servers.other.until_waiting("b", 1).await;
    let path = format!("/v1/sessions/{session}");
    assert_eq!(servers.one.ask("DELETE", &path, "").await.status, 204);
    assert_eq!(waiting.response().await.status, 404);
    until_free(&servers.other, "a").await;
    let id = held["lease_id"].as_str().expect("an id");
    assert_eq!(release(&servers.other, "b", id).await.status, 200);
    until_free(&servers.other, "b").await;

    let session = servers.one.ask("POST", "/v1/sessions", "").await.text("session");
    let both = together(&servers.one, json!({ "names": ["a", "b"], "session": session })).await;
    assert_eq!(names(&both), ["a", "b"]);
    let path = format!("/v1/sessions/{session}");
    let beat = servers.one.ask("POST", &format!("{path}/heartbeat"), "").await.json();
    assert_eq!(beat["leases"].as_array().map(Vec::len), Some(2), "{beat}");
    assert_eq!(servers.one.ask("DELETE", &path, "").await.status, 204);
    until_free(&servers.other, "a").await;
    until_free(&servers.other, "b").await;
}

/// A long lease is short until its answer was read; then each of them is whole.
#[tokio::test]
async fn long_leases_are_extended_together() {
    let servers = Servers::start().await;
    let body = json!({ "names": ["a", "b"], "lease_duration_ms": 86_400_000 });
    let both = together(&servers.one, body).await;
    for lease in both.json()["leases"].as_array().expect("a list") {
        assert!(lease["valid_for_ms"].as_u64().expect("a number") <= 30_000, "{lease}");
    }
    let extended = async {
        for name in ["a", "b"] {
            loop {
                let lock = servers.other.ask("GET", &format!("/v1/locks/{name}"), "").await.json();
                if lock["holders"][0]["left_ms"].as_u64().is_some_and(|left| left > 80_000_000) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await; // event: can only be looked at
            }
        }
    };
    tokio::time::timeout(crate::ground::DEADLINE, extended).await.expect("both are extended");
}

#[tokio::test]
async fn what_cannot_be_acquired_together_is_refused_with_the_field() {
    const TOKEN: &str = r#"
        [[server.tokens]]
        name = "other"
        sha256 = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"
        rights = ["lock"]
        prefixes = ["ci/"]
    "#;
    let ground = Ground::start().await;
    let many: Vec<String> = (0..65).map(|number| format!("n{number}")).collect();
    for (body, field) in [
        (json!({}), "names"),
        (json!({ "names": [] }), "names"),
        (json!({ "names": many }), "names"),
        (json!({ "names": ["a", "a"] }), "names[1]"),
        (json!({ "names": ["a", ""] }), "names[1]"),
        (json!({ "names": ["a"], "count": 0 }), "count"),
        (json!({ "names": ["a"], "count": 2 }), "count"),
        (json!({ "names": ["a"], "mode": "shared" }), "mode"),
        (json!({ "names": ["a"], "lease_duration_ms": 1 }), "lease_duration_ms"),
    ] {
        let refused = together(&ground, body.clone()).await;
        assert_eq!(refused.status, 422, "{body}: {refused:?}");
        assert_eq!(refused.text("field"), field, "{body}");
    }
    let key = format!("Idempotency-Key: {}\r\n", "0a".repeat(16));
    let body = r#"{"names": ["a", "b"]}"#;
    let refused = ground.ask_with("POST", "/v1/locks", &key, body).await;
    assert_eq!((refused.status, refused.text("field")), (422, "Idempotency-Key".to_owned()));

    let ground = Ground::with(TOKEN).await;
    let token = "Authorization: Bearer other\r\n";
    for (body, status) in [
        (r#"{"names": ["ci/a", "ci/b"]}"#, 200),
        (r#"{"names": ["ci/c", "b"]}"#, 403),
        (r#"{"names": ["ci/c", "b"], "count": 1}"#, 403),
    ] {
        let response = ground.ask_with("POST", "/v1/locks", token, body).await;
        assert_eq!(response.status, status, "{body}: {response:?}");
    }
    let busy = ground.ask_with("POST", "/v1/locks", token, r#"{"names": ["ci/a", "ci/d"]}"#).await;
    assert_eq!((busy.status, busy.json().get("holder")), (423, None));
}
