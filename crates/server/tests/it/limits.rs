//! How many leases one client, and all clients of one address, may hold; and whose address counts.

use std::time::Duration;

use holdline_core::{
    AcquireRequest, Ending, Hold, LeaseId, LockKind, LockName, Metadata, Mode, ReleaseRequest,
};
use serde_json::Value;
use tokio::time::timeout;

use crate::ground::{Connection, DEADLINE, Ground, Response, request};
use crate::rights::{OTHER, S3CRET, config};

const TWO: &str = "[server.limits]\nleases_per_client = 2\n";
const ADMIN: &str = "Authorization: Bearer s3cret\r\n";
const LOCKER: &str = "Authorization: Bearer other\r\n";

fn is_refused(response: &Response, setting: &str) -> bool {
    let fix = format!("`{setting}` in `[server.limits]`");
    response.status == 429
        && response.text("kind") == "too_many"
        && response.text("fix").contains(&fix)
        && response.headers.contains("retry-after: 1")
        && response.json()["certainty"] == "not_applied"
}

fn path_of(lease: &Value) -> String {
    let text = |field: &str| lease[field].as_str().expect("a text").to_owned();
    format!("/v1/locks/{}/leases/{}", text("name"), text("lease_id"))
}

async fn leases(ground: &Ground, headers: &str) -> String {
    let metrics = ground.ask_with("GET", "/metrics", headers, "").await.body;
    let line = metrics.lines().find_map(|line| line.strip_prefix("holdline_leases "));
    line.unwrap_or_else(|| panic!("{metrics}")).to_owned()
}

/// Asks until there is room.
async fn until_granted(ground: &Ground, path: &str) {
    let granted = async {
        while ground.ask("POST", path, "").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await; // event: can only be asked
        }
    };
    timeout(DEADLINE, granted).await.expect("there is room again");
}

#[tokio::test]
async fn a_client_holds_so_many_leases_and_no_more() {
    let ground = Ground::with(TWO).await;
    let key = format!("Idempotency-Key: {}\r\n", "0123456789abcdef".repeat(2));
    assert_eq!(ground.ask_with("POST", "/v1/locks/a", &key, "").await.status, 200);
    let second = ground.acquire("b", "").await;
    let refused = ground.ask("POST", "/v1/locks/c", "").await;
    assert!(is_refused(&refused, "leases_per_client"), "{refused:?}");
    assert!(refused.text("detail").contains('2'), "{refused:?}");
    assert_eq!(leases(&ground, "").await, "2");
    // What is held stays: a repeat and a renewal are no further lease.
    assert_eq!(ground.ask_with("POST", "/v1/locks/a", &key, "").await.status, 200);
    assert_eq!(ground.ask("PUT", &path_of(&second), "").await.status, 200);
    let third = ground.ask("POST", "/v1/locks", r#"{"names": ["c"]}"#).await;
    assert!(is_refused(&third, "leases_per_client"), "{third:?}");
    assert_eq!(ground.ask("DELETE", &path_of(&second), "").await.status, 200);
    let two = ground.ask("POST", "/v1/locks", r#"{"names": ["c", "d"]}"#).await;
    assert!(is_refused(&two, "leases_per_client"), "{two:?}");
    assert_eq!(ground.ask("POST", "/v1/locks", r#"{"names": ["c"]}"#).await.status, 200);
    assert_eq!(leases(&ground, "").await, "2");
}

#[tokio::test]
async fn a_lease_that_ends_by_itself_counts_no_longer() {
    let ground = Ground::with(TWO).await;
    for name in ["a", "b"] {
        ground.acquire(name, r#"{"lease_duration_ms": 200}"#).await;
    }
    until_granted(&ground, "/v1/locks/c").await;
    // One that was refused leaves nothing behind that counts.
    assert_eq!(ground.ask("POST", "/v1/locks/c", "").await.status, 423);
    ground.acquire("d", "").await;
    assert!(is_refused(&ground.ask("POST", "/v1/locks/e", "").await, "leases_per_client"));
}

/// So many requests may be granted in the same moment.
#[tokio::test]
async fn a_request_that_waits_counts_until_it_ends() {
    let ground = Ground::with(TWO).await;
    let held = ground.acquire("a", "").await;
    let mut waiting = ground.open().await;
    waiting.send(&request("POST", "/v1/locks/a", "", r#"{"wait_ms": 60000}"#)).await;
    ground.until_waiting("a", 1).await;
    assert!(is_refused(&ground.ask("POST", "/v1/locks/b", "").await, "leases_per_client"));
    drop(waiting);
    until_granted(&ground, "/v1/locks/b").await;
    assert_eq!(ground.ask("DELETE", &path_of(&held), "").await.status, 200);
    until_granted(&ground, "/v1/locks/c").await;
}

#[tokio::test]
async fn the_end_of_a_session_makes_room() {
    let ground = Ground::with(TWO).await;
    let session = ground.ask("POST", "/v1/sessions", "").await.text("session");
    let body = format!(r#"{{"session": "{session}"}}"#);
    for name in ["a", "b"] {
        ground.acquire(name, &body).await;
    }
    let path = format!("/v1/sessions/{session}");
    let beat = ground.ask("POST", &format!("{path}/heartbeat"), "").await;
    assert_eq!((beat.status, leases(&ground, "").await), (200, "2".to_owned()));
    assert!(is_refused(&ground.ask("POST", "/v1/locks/c", &body).await, "leases_per_client"));
    assert_eq!(ground.ask("DELETE", &path, "").await.status, 204);
    ground.acquire("c", "").await;
    // Another server takes a lease over with its renewal, whatever the limit.
    let other = Ground::on(ground.client.clone(), TWO).await;
    for name in ["d", "e"] {
        other.acquire(name, "").await;
    }
    let lease = ground.acquire("f", "").await;
    assert_eq!(other.ask("PUT", &path_of(&lease), "").await.status, 200);
    assert_eq!(leases(&other, "").await, "3");
}

#[tokio::test]
async fn leases_of_our_own_programs_count_too() {
    let ground = Ground::with(TWO).await;
    let acquire = |name: &str, id: u8| AcquireRequest {
        name: LockName::new(name).expect("a good name"),
        lease_id: LeaseId::from_bytes([id; 16]),
        client: ground.client.admin().client_id(),
        mode: Mode::Exclusive,
        kind: LockKind::default(),
        hold: Hold::Leased(Duration::from_secs(30)),
        queue: false,
        known: false,
        hand_off_lease: Duration::from_secs(1),
        metadata: Metadata::default(),
    };
    let ask = async |name: &str, id: u8| {
        let body = serde_json::to_string(&acquire(name, id)).expect("JSON");
        ground.ask("POST", "/v1/engine/acquire", &body).await
    };
    for (name, id) in [("a", 1), ("b", 2), ("b", 2)] {
        assert_eq!(ask(name, id).await.status, 200);
    }
    let refused = ask("c", 3).await;
    assert!(is_refused(&refused, "leases_per_client"), "{refused:?}");
    let request = acquire("a", 1);
    let ending = Ending { for_good: true, hold: request.hold };
    let release = ReleaseRequest { name: request.name, lease_id: request.lease_id, ending };
    let release = serde_json::to_string(&release).expect("JSON");
    assert_eq!(ground.ask("POST", "/v1/engine/release", &release).await.status, 200);
    assert_eq!(ask("c", 3).await.status, 200);
}

async fn ask_from(from: [u8; 4], ground: &Ground, name: &str, headers: &str) -> Response {
    let mut connection: Connection = ground.open_from(from).await;
    connection.send(&request("POST", &format!("/v1/locks/{name}"), headers, "")).await;
    connection.response().await
}

#[tokio::test]
async fn the_clients_of_one_address_share_a_limit() {
    let tokens = config("a", S3CRET, r#"["admin"]"#, "") + &config("b", OTHER, r#"["lock"]"#, "");
    let ground = Ground::with(&format!("{tokens}[server.limits]\nleases_per_address = 2\n")).await;
    for (name, token) in [("a", ADMIN), ("b", LOCKER)] {
        assert_eq!(ask_from([127, 0, 0, 1], &ground, name, token).await.status, 200);
    }
    for token in [ADMIN, LOCKER] {
        let refused = ask_from([127, 0, 0, 1], &ground, "c", token).await;
        assert!(is_refused(&refused, "leases_per_address"), "{refused:?}");
    }
    assert_eq!(ask_from([127, 0, 0, 2], &ground, "c", LOCKER).await.status, 200);
    // Nobody else can name an address.
    let lie = format!("{LOCKER}X-Forwarded-For: 192.0.2.1\r\n");
    let refused = ask_from([127, 0, 0, 1], &ground, "d", &lie).await;
    assert!(is_refused(&refused, "leases_per_address"), "{refused:?}");
}

const PROXY: &str = "[server.proxy]\naddresses = [\"127.0.0.8/30\"]\ntrust_this_machine = true\n";

#[tokio::test]
async fn behind_a_proxy_the_address_of_the_client_counts() {
    let token = config("a", S3CRET, r#"["admin"]"#, "");
    let limits = "[server.limits]\nleases_per_address = 1\nconnections_per_address = 1\n";
    let proxy = [127, 0, 0, 9];
    let ground = Ground::with(&format!("{token}{PROXY}forwarded_for = true\n{limits}")).await;
    let forwarded = |list: &str| format!("{ADMIN}X-Forwarded-For: {list}\r\n");
    let ask = async |name: &str, list: &str| ask_from(proxy, &ground, name, &forwarded(list)).await;
    assert_eq!(ask("a", "192.0.2.1").await.status, 200);
    // The client may invent what stands before; another proxy of ours may stand behind.
    for list in
        ["192.0.2.1", "198.51.100.7, 192.0.2.1", "192.0.2.1:4711, 127.0.0.10", "x,192.0.2.1"]
    {
        let refused = ask("b", list).await;
        assert!(is_refused(&refused, "leases_per_address"), "{list}: {refused:?}");
    }
    let two = "198.51.100.7\r\nX-Forwarded-For: 192.0.2.1";
    assert!(is_refused(&ask("b", two).await, "leases_per_address"));
    assert_eq!(ask("b", "192.0.2.2").await.status, 200);
    // A proxy that does not say for whom it asks has no address to count by.
    assert_eq!(ask_from(proxy, &ground, "c", ADMIN).await.status, 200);
    assert_eq!(ask_from(proxy, &ground, "d", ADMIN).await.status, 200);

    // A request that waits takes a connection of the proxy: it counts for the client.
    let mut waiting = ground.open_from(proxy).await;
    let body = r#"{"wait_ms": 60000}"#;
    waiting.send(&request("POST", "/v1/locks/a", &forwarded("192.0.2.9"), body)).await;
    ground.until_waiting("a", 1).await;
    let refused = ask("e", "192.0.2.9").await;
    assert!(is_refused(&refused, "connections_per_address"), "{refused:?}");
    let mut stream = ground.open_from(proxy).await;
    stream.send(&request("GET", "/v1/events", &forwarded("192.0.2.10"), "")).await;
    assert_eq!(stream.head().await.0, 200);
    let refused = ask("e", "192.0.2.10").await;
    assert!(is_refused(&refused, "connections_per_address"), "{refused:?}");
    drop(waiting);
    let path = "/v1/locks/a/freeze";
    let freeze = request("PUT", path, &forwarded("192.0.2.11"), r#"{"duration_ms": 60000}"#);
    let mut operator = ground.open_from(proxy).await;
    operator.send(&freeze).await;
    assert_eq!(operator.response().await.status, 204);
    let audit = ground.ask_with("GET", "/v1/audit", ADMIN, "").await;
    assert!(audit.body.contains(r#""from":"192.0.2.11""#), "{audit:?}");
}

#[tokio::test]
async fn a_proxy_is_believed_about_addresses_only_if_the_settings_say_so() {
    let token = config("a", S3CRET, r#"["admin"]"#, "");
    let limits = "[server.limits]\nleases_per_address = 1\n";
    let ground = Ground::with(&format!("{token}{PROXY}{limits}")).await;
    let forwarded = format!("{ADMIN}X-Forwarded-For: 192.0.2.1\r\n");
    for name in ["a", "b"] {
        assert_eq!(ask_from([127, 0, 0, 9], &ground, name, &forwarded).await.status, 200);
    }
}
