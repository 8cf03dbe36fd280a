//! What clients do to connections: slow, cut off at each byte, too many.

use std::time::Duration;

use crate::ground::{Ground, request};

#[tokio::test]
async fn a_request_that_breaks_off_at_any_byte_changes_nothing_or_all() {
    let ground = Ground::start().await;
    let bytes = request("POST", "/v1/locks/a", "", r#"{"lease_duration_ms": 60000}"#);
    for length in 0..bytes.len() {
        let mut connection = ground.open().await;
        connection.send(&bytes[..length]).await;
        drop(connection);
    }
    // Nothing of what was not whole was applied.
    ground.acquire("a", "").await;
    let shown = ground.ask("GET", "/v1/locks/a", "").await.json();
    assert_eq!((&shown["holder_count"], &shown["queue_length"]), (&1.into(), &0.into()));
}

#[tokio::test]
async fn a_slow_request_is_closed() {
    let ground = Ground::with("[server.limits]\nrequest_timeout_ms = 300\n").await;
    let mut connection = ground.open().await;
    connection.send("POST /v1/locks/a HTTP/1.1\r\nHost: localh").await;
    let rest = connection.rest().await;
    assert!(rest.is_empty() || rest.contains("408"), "{rest}");
    let mut connection = ground.open().await;
    let head = request("POST", "/v1/locks/a", "", "{}").replace("{}", "");
    connection.send(&head.replace("Content-Length: 2", "Content-Length: 9")).await;
    connection.send("{").await;
    let response = connection.response().await;
    assert_eq!((response.status, response.text("kind")), (408, "too_slow".to_owned()));
}

#[tokio::test]
async fn headers_and_bodies_have_a_largest_size() {
    let ground = Ground::start().await;
    let long = "x".repeat(20_000);
    let response = ground.ask_with("GET", "/v1/locks/a", &format!("X-Long: {long}\r\n"), "").await;
    assert_eq!(response.status, 431, "{response:?}");
    let many: String = (0..100).map(|number| format!("X-{number}: 1\r\n")).collect();
    let response = ground.ask_with("GET", "/v1/locks/a", &many, "").await;
    assert_eq!(response.status, 431, "{response:?}");
    for (count, status) in [(60, 200), (70, 431)] {
        let many: String = (0..count).map(|number| format!("X-{number}: 1\r\n")).collect();
        let response = ground.ask_with("GET", "/v1/locks/a", &many, "").await;
        assert_eq!(response.status, status, "{response:?}");
    }
    let long = format!(r#"{{"session": "{}"}}"#, "x".repeat(300_000));
    let response = ground.ask("POST", "/v1/locks/a", &long).await;
    assert_eq!((response.status, response.text("kind")), (413, "too_large".to_owned()));
}

#[tokio::test]
async fn a_client_has_so_many_waits_and_no_more() {
    let ground = Ground::with("[server.limits]\nwaiters_per_client = 2\n").await;
    ground.acquire("a", "").await;
    let mut waiting = Vec::new();
    for count in 1..=2 {
        let mut connection = ground.open().await;
        connection.send(&request("POST", "/v1/locks/a", "", r#"{"wait_ms": 60000}"#)).await;
        ground.until_waiting("a", count).await;
        waiting.push(connection);
    }
    let response = ground.ask("POST", "/v1/locks/a", r#"{"wait_ms": 60000}"#).await;
    assert_eq!((response.status, response.text("kind")), (429, "too_many".to_owned()));
    assert!(response.headers.contains("retry-after: 1"), "{response:?}");
    waiting.pop();
    ground.until_waiting("a", 1).await;
}

#[tokio::test]
async fn one_connection_more_than_the_limit_waits_for_room() {
    let ground = Ground::with("[server.limits]\nconnections = 1\n").await;
    let mut first = ground.open().await;
    first.send(&request("GET", "/healthz", "", "")).await;
    assert_eq!(first.response().await.status, 200);
    let mut second = ground.open().await;
    second.send(&request("GET", "/healthz", "", "")).await;
    let response = tokio::time::timeout(Duration::from_millis(200), second.head()).await;
    assert!(response.is_err(), "there is no room yet");
    drop(first);
    assert_eq!(second.response().await.status, 200);
}
