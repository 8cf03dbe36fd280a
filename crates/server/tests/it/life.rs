//! The life of a grant: whatever ends an attempt ends its grant, and nobody else's.

use crate::events::{event, stream};
use crate::ground::{Ground, request};

const DAY: u64 = 86_400_000;

fn lease_path(name: &str, lease: &serde_json::Value) -> String {
    format!("/v1/locks/{name}/leases/{}", lease["lease_id"].as_str().expect("an id"))
}

/// The fault: the wait went on, and its grant stood for a day under an id that nobody knew.
#[tokio::test]
async fn a_wait_whose_session_is_closed_ends_and_leaves_no_lock() {
    let ground = Ground::start().await;
    let held = ground.acquire("a", "").await;
    let opened = ground.ask("POST", "/v1/sessions", &format!(r#"{{"duration_ms": {DAY}}}"#)).await;
    let session = opened.text("session");
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
        let data: serde_json::Value = serde_json::from_str(&data).expect("JSON");
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
