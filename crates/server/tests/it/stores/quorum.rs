//! A quorum of Redis servers behind two servers: it has no queue, and accepts no lease id twice.

use holdline::redlock;
use holdline_services::{RedisConfig, RedisServer};

use super::{KEY, lease_path, serve_url};
use crate::ground::request;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_serves_everything_but_keys() {
    let nodes = [(); 3].map(|()| RedisServer::start(RedisConfig::default()));
    let at = nodes.each_ref().map(|node| node.address().to_string()).join(",");
    let url = format!("redlock://{at}?command_timeout_ms=4000&connect_timeout_ms=10000");
    let admin = redlock::admin(&url).expect("a good URL");
    admin.init().await.expect("blank servers become a set");
    let waiting = admin.plan_vouch().await.expect("they are one set");
    admin.vouch(&waiting).await.expect("they vote");
    let (one, other) = (serve_url(&url).await, serve_url(&url).await);

    let held = one.acquire("a", "").await;
    let mut waiting = other.open().await;
    waiting.send(&request("POST", "/v1/locks/a", "", r#"{"wait_ms": 60000}"#)).await;
    while other.ask("GET", "/metrics", "").await.body.contains("holdline_waiting 0") {
        tokio::task::yield_now().await;
    }
    assert_eq!(other.ask("PUT", &lease_path(&held), "").await.status, 200, "any server renews");
    assert_eq!(other.ask("DELETE", &lease_path(&held), "").await.status, 200);
    let next = waiting.response().await;
    assert_eq!(next.status, 200, "{next:?}");
    let before = held["fencing_token"].as_u64().expect("a number");
    assert!(next.token() > before, "{next:?}");

    let key = format!("Idempotency-Key: {KEY}\r\n");
    let refused = one.ask_with("POST", "/v1/locks/b", &key, "").await;
    assert_eq!((refused.status, refused.text("kind")), (422, "unsupported".to_owned()));
    assert_eq!(refused.text("field"), "Idempotency-Key");
    let listed = one.ask("GET", "/v1/locks", "").await;
    assert_eq!((listed.status, listed.text("kind")), (422, "unsupported".to_owned()));
}
