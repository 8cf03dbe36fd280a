//! What clients do to connections: slow, cut off at each byte, too many.

use std::time::Duration;

use crate::ground::{DEADLINE, Ground, request};
use crate::rights::{S3CRET, config};

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
    assert_eq!((response.status, response.text("kind")), (431, "too_large".to_owned()));
    // What no handler has seen has a body too, also behind another request.
    for before in ["", &request("GET", "/healthz", "", "")] {
        let mut connection = ground.open().await;
        connection.send(format!("{before}no request\r\n\r\n")).await;
        if !before.is_empty() {
            assert_eq!(connection.response().await.status, 200);
        }
        let response = connection.response().await;
        assert_eq!((response.status, response.text("kind")), (400, "bad_request".to_owned()));
        assert!(response.headers.contains("application/problem+json"), "{response:?}");
        assert_eq!(connection.rest().await, "", "it is closed");
    }
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

#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let ground = Ground::with("[server.limits]\nconnections_per_address = 2\n").await;
    let (mut first, mut second) = (ground.open().await, ground.open().await);
    for connection in [&mut first, &mut second] {
        connection.send(&request("GET", "/healthz", "", "")).await;
        assert_eq!(connection.response().await.status, 200);
    }
    assert_eq!(ground.open().await.rest().await, "", "it is closed at once");
    let mut elsewhere = ground.open_from([127, 0, 0, 2]).await;
    elsewhere.send(&request("GET", "/metrics", "", "")).await;
    let metrics = elsewhere.response().await.body;
    assert!(metrics.contains("holdline_connections_refused_total 1\n"), "{metrics}");
    drop(first);
    let again = async {
        loop {
            let mut connection = ground.open().await;
            connection.send(&request("GET", "/healthz", "Connection: close\r\n", "")).await;
            if connection.rest().await.contains("200 OK") {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, again).await.expect("there is room again");
    let proxy = "[server.proxy]\naddresses = [\"127.0.0.0/8\"]\n";
    let token = config("ci", S3CRET, r#"["lock"]"#, "");
    let limits = "[server.limits]\nconnections_per_address = 1\n";
    let ground = Ground::with(&format!("{token}{proxy}{limits}")).await;
    let mut many = Vec::new();
    for _ in 0..3 {
        let mut connection = ground.open().await;
        connection.send(&request("GET", "/healthz", "", "")).await;
        assert_eq!(connection.response().await.status, 200, "a proxy has the clients of many");
        many.push(connection);
    }
}

#[tokio::test]
async fn probes_are_answered_when_all_connections_are_taken() {
    let config = "[server]\nhealth_listen = \"127.0.0.1:0\"\n[server.limits]\nconnections = 1\n";
    let ground = Ground::with(config).await;
    let mut only = ground.open().await;
    only.send(&request("GET", "/healthz", "", "")).await;
    assert_eq!(only.response().await.status, 200);
    for (path, status) in [
        ("/healthz", 200),
        ("/readyz", 200),
        ("/stores/default/readyz", 200),
        ("/stores/other/readyz", 404),
        ("/v1/locks", 404),
        ("/metrics", 404),
    ] {
        let mut probe = ground.open_probe().await;
        // A kubelet names the address of the pod.
        let bytes = request("GET", path, "", "").replace("localhost", "10.1.2.3:7655");
        probe.send(bytes).await;
        let answer = probe.rest().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
    }
}
