//! Sessions: one call renews, silence frees, another server goes on.

use std::time::Duration;

use crate::ground::{DEADLINE, Ground, store};
use crate::rights::{OTHER, S3CRET, config};

async fn open(ground: &Ground, body: &str) -> String {
    let response = ground.ask("POST", "/v1/sessions", body).await;
    assert_eq!(response.status, 201, "{response:?}");
    response.text("session")
}

fn in_session(session: &str) -> String {
    format!(r#"{{"session": "{session}"}}"#)
}

#[tokio::test]
async fn one_call_renews_all_leases_and_closing_releases_them() {
    let ground = Ground::start().await;
    let session = open(&ground, r#"{"duration_ms": 20000}"#).await;
    for name in ["a", "b"] {
        let lease = ground.acquire(name, &in_session(&session)).await;
        assert_eq!(
            (&lease["lease_duration_ms"], &lease["session"]),
            (&20_000.into(), &session.as_str().into())
        );
    }
    let path = format!("/v1/sessions/{session}");
    let beat = ground.ask("POST", &format!("{path}/heartbeat"), "").await.json();
    let states: Vec<_> = beat["leases"].as_array().expect("a list").iter().collect();
    assert_eq!(states.len(), 2);
    for lease in states {
        assert_eq!(lease["state"], "renewed", "{beat}");
        let valid = lease["valid_for_ms"].as_u64().expect("a number");
        assert!((15_000..20_000).contains(&valid), "{beat}");
    }
    assert_eq!(ground.ask("DELETE", &path, "").await.status, 204);
    assert_eq!(ground.ask("DELETE", &path, "").await.status, 404);
    for name in ["a", "b"] {
        ground.acquire(name, "").await;
    }
}

#[tokio::test]
async fn a_client_that_falls_silent_loses_its_leases() {
    let ground = Ground::start().await;
    let session = open(&ground, r#"{"duration_ms": 1000}"#).await;
    ground.acquire("a", &in_session(&session)).await;
    // The next in the queue gets the lock, and nobody has released it.
    ground.acquire("a", r#"{"wait_ms": 60000}"#).await;
    let beat = ground.ask("POST", &format!("/v1/sessions/{session}/heartbeat"), "").await;
    assert_eq!((beat.status, beat.text("kind")), (404, "not_found".to_owned()));
}

#[tokio::test]
async fn a_lease_that_was_taken_away_is_reported_once() {
    let ground = Ground::start().await;
    let session = open(&ground, "").await;
    let lease = ground.acquire("a", &in_session(&session)).await;
    let token = &lease["fencing_token"];
    let body = format!(r#"{{"fencing_token": {token}}}"#);
    assert_eq!(ground.ask("POST", "/v1/locks/a/revoke", &body).await.status, 200);
    let path = format!("/v1/sessions/{session}/heartbeat");
    let beat = ground.ask("POST", &path, "").await.json();
    assert_eq!(beat["leases"][0]["state"], "revoked", "{beat}");
    let lease = format!("/v1/locks/a/leases/{}", lease["lease_id"].as_str().expect("an id"));
    assert_eq!(ground.ask("DELETE", &lease, "").await.status, 200);
    let beat = ground.ask("POST", &path, "").await.json();
    assert_eq!(beat["leases"].as_array().map(Vec::len), Some(0), "{beat}");
}

#[tokio::test]
async fn a_client_whose_server_is_gone_goes_on_at_another() {
    let client = store().await;
    let mut first = Ground::on(client.clone(), "").await;
    let second = Ground::on(client, "").await;
    let session = open(&first, r#"{"duration_ms": 20000}"#).await;
    let lease = first.acquire("a", &in_session(&session)).await;
    first.cut();
    let gone = second.ask("POST", &format!("/v1/sessions/{session}/heartbeat"), "").await;
    assert_eq!((gone.status, gone.text("kind")), (421, "other_server".to_owned()));
    let id = lease["lease_id"].as_str().expect("an id");
    let body =
        format!(r#"{{"duration_ms": 20000, "leases": [{{"name": "a", "lease_id": "{id}"}}]}}"#);
    let response = second.ask("POST", "/v1/sessions", &body).await;
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(response.json()["leases"][0]["state"], "renewed");
    // It is the same grant: the token is the one of before.
    let shown = second.ask("GET", "/v1/locks/a", "").await.json();
    assert_eq!(shown["holders"][0]["fencing_token"], lease["fencing_token"]);
}

/// The end of a session must not undo what its client holds through another server.
#[tokio::test]
async fn a_session_that_ends_in_silence_gives_nothing_up() {
    let client = store().await;
    let first = Ground::on(client.clone(), "").await;
    let second = Ground::on(client, "").await;
    let session = open(&first, r#"{"duration_ms": 1000}"#).await;
    let lease = first.acquire("a", &in_session(&session)).await;
    let id = lease["lease_id"].as_str().expect("an id");
    let body =
        format!(r#"{{"duration_ms": 60000, "leases": [{{"name": "a", "lease_id": "{id}"}}]}}"#);
    let response = second.ask("POST", "/v1/sessions", &body).await;
    assert_eq!(response.json()["leases"][0]["state"], "renewed", "{response:?}");
    let path = format!("/v1/sessions/{session}/heartbeat");
    let metrics = async {
        // The server has forgotten it once nothing is counted any more.
        while !first.ask("GET", "/metrics", "").await.body.contains("holdline_sessions 0") {
            tokio::time::sleep(Duration::from_millis(20)).await; // event: can only be looked at
        }
    };
    tokio::time::timeout(DEADLINE, metrics).await.expect("forgotten in time");
    assert_eq!(first.ask("POST", &path, "").await.status, 404);
    let busy = first.ask("POST", "/v1/locks/a", "").await;
    assert_eq!(busy.status, 423, "the second server's session keeps it");
}

#[tokio::test]
async fn a_hundred_thousand_sessions_are_cheap_and_one_more_is_refused() {
    let ground =
        Ground::with("[server.limits]\nsessions = 100000\nsessions_per_client = 100000\n").await;
    let mut connection = ground.open().await;
    let body = r#"{"duration_ms": 3600000}"#;
    let request = crate::ground::request("POST", "/v1/sessions", "", body);
    let batch = request.repeat(250);
    for _ in 0..400 {
        connection.send(&batch).await;
        for _ in 0..250 {
            assert_eq!(connection.response().await.status, 201);
        }
    }
    let response = ground.ask("POST", "/v1/sessions", body).await;
    assert_eq!((response.status, response.text("kind")), (429, "too_many".to_owned()));
    // All else goes on as before.
    ground.acquire("a", "").await;
}

#[tokio::test]
async fn one_client_cannot_take_all_sessions() {
    let text = config("a", S3CRET, r#"["lock"]"#, "") + &config("b", OTHER, r#"["lock"]"#, "");
    let limits = "[server.limits]\nsessions = 3\nsessions_per_client = 2\n";
    let ground = Ground::with(&(text + limits)).await;
    let open = async |token: &str| {
        let token = format!("Authorization: Bearer {token}\r\n");
        ground.ask_with("POST", "/v1/sessions", &token, "").await
    };
    let first = open("s3cret").await.text("session");
    assert_eq!(open("s3cret").await.status, 201);
    let full = open("s3cret").await;
    assert!(full.status == 429 && full.text("detail").contains("of this client"), "{full:?}");
    let token = "Authorization: Bearer s3cret\r\n";
    let closed = ground.ask_with("DELETE", &format!("/v1/sessions/{first}"), token, "").await;
    assert_eq!(closed.status, 204);
    assert_eq!(open("s3cret").await.status, 201, "what is closed counts no longer");
    assert_eq!(open("other").await.status, 201);
    let full = open("other").await;
    assert!(
        full.status == 429 && full.text("detail").contains("too many sessions are"),
        "{full:?}"
    );
}
