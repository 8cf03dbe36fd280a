//! An operator removes a waiter from a queue.

use holdline::Client;
use holdline_core::{ErrorKind, LockName, LostReason};
use holdline_services::{RedisConfig, RedisServer};
use serde_json::json;

use crate::events::{event, stream};
use crate::ground::{Ground, Response, request};
use crate::rights::{S3CRET, config};

const PATH: &str = "/v1/locks/a/remove-waiter";

async fn remove(ground: &Ground, waiter: &str) -> Response {
    let body = json!({ "lease_id": waiter, "reason": "the pool is drained" }).to_string();
    ground.ask("POST", PATH, &body).await
}

/// The first digits of the lease ids of those who wait.
async fn queue(ground: &Ground) -> Vec<String> {
    let lock = ground.ask("GET", "/v1/locks/a", "").await.json();
    let queue = lock["queue"].as_array().expect("a list").iter();
    queue.map(|waiter| waiter["lease_id"].as_str().expect("digits").to_owned()).collect()
}

/// The waiters are at another server, and at the store itself.
#[tokio::test]
async fn a_removed_waiter_receives_an_error_wherever_it_waits() {
    let redis = RedisServer::start(RedisConfig::default());
    let store = async || Client::connect(&redis.url()).await.expect("connects");
    let ground = Ground::on(store().await, "").await;
    let other = Ground::on(store().await, "").await;
    let mut events = stream(&ground, "/v1/events", "").await;
    let held = ground.acquire("a", "").await;
    assert_eq!(event(&mut events).await.1, "granted");
    let mut waiting = other.open().await;
    waiting.send(&request("POST", "/v1/locks/a", "", r#"{"wait_ms": 600000}"#)).await;
    ground.until_waiting("a", 1).await;
    let direct = store().await;
    let direct = tokio::spawn(async move { direct.mutex("a").expect("good").lock().await });
    ground.until_waiting("a", 2).await;
    let mut last = other.open().await;
    last.send(&request("POST", "/v1/locks/a", "", r#"{"wait_ms": 600000}"#)).await;
    ground.until_waiting("a", 3).await;
    let ids = queue(&ground).await;

    assert_eq!(remove(&ground, &ids[0]).await.status, 204);
    let answer = waiting.response().await;
    assert_eq!((answer.status, answer.text("kind")), (410, "lost".to_owned()), "{answer:?}");
    assert_eq!(answer.text("lost"), "revoked");
    assert!(answer.text("detail").contains("removed the request from the queue"), "{answer:?}");
    assert_eq!(answer.text("certainty"), "not_applied");
    let (_, kind, data) = event(&mut events).await;
    assert_eq!(kind, "removed");
    assert!(data.contains(&ids[0]) && data.contains("the pool is drained"), "{data}");

    assert_eq!(remove(&ground, &ids[1]).await.status, 204);
    let error = direct.await.expect("no panic").expect_err("removed");
    let reason = "removed from the queue: the pool is drained".to_owned();
    assert_eq!(error.kind(), &ErrorKind::Lost { reason: LostReason::Revoked(reason) });

    // The rest of the queue is served, and neither a holder nor a stranger is a waiter.
    assert_eq!(queue(&ground).await, ids[2..]);
    let id = held["lease_id"].as_str().expect("an id");
    for nobody in [&id[..8], &ids[0], "00000000"] {
        let refused = remove(&ground, nobody).await;
        assert_eq!((refused.status, refused.text("kind")), (404, "not_found".to_owned()));
    }
    assert_eq!(ground.ask("DELETE", &format!("/v1/locks/a/leases/{id}"), "").await.status, 200);
    assert_eq!(last.response().await.status, 200);
    let audit = ground.ask("GET", "/v1/audit", "").await.json();
    let records = audit["records"].as_array().expect("a list");
    let done: Vec<_> = records.iter().filter(|record| record["outcome"] == "done").collect();
    assert_eq!(done.len(), 2, "{audit}");
    assert_eq!(done[1]["action"], "remove_waiter");
    let reason = format!("waiter {}: the pool is drained", ids[0]);
    assert_eq!((&done[1]["name"], &done[1]["reason"]), (&json!("a"), &json!(reason)));
}

/// The library learns it by its heartbeat too, if no notification arrives.
#[tokio::test]
async fn a_waiter_that_is_removed_does_not_queue_anew() {
    let ground = Ground::start().await;
    ground.acquire("a", "").await;
    let client = ground.client.clone();
    let waits = tokio::spawn(async move { client.mutex("a").expect("good").lock().await });
    ground.until_waiting("a", 1).await;
    let ids = queue(&ground).await;
    assert_eq!(remove(&ground, &ids[0]).await.status, 204);
    assert!(waits.await.expect("no panic").is_err_and(|error| error.is_lost()));
    let name = LockName::new("a").expect("good");
    assert_eq!(ground.client.admin().inspect(&name).await.expect("a store").queue_length, 0);
}

#[tokio::test]
async fn who_may_not_operate_removes_nobody() {
    let ground = Ground::with(&config("ci", S3CRET, r#"["view", "lock"]"#, "")).await;
    let body = r#"{"lease_id": "0a0b0c0d"}"#;
    let token = "Authorization: Bearer s3cret\r\n";
    assert_eq!(ground.ask_with("POST", PATH, token, body).await.status, 403);
    let ground = Ground::start().await;
    for (body, field) in [
        (r#"{}"#.to_owned(), "lease_id"),
        (r#"{"lease_id": "0A0B0C0D"}"#.to_owned(), "lease_id"),
        (json!({ "lease_id": "0a0b0c0d", "reason": "r".repeat(481) }).to_string(), "reason"),
    ] {
        let refused = ground.ask("POST", PATH, &body).await;
        assert_eq!((refused.status, refused.text("field")), (422, field.to_owned()), "{body}");
    }
}
