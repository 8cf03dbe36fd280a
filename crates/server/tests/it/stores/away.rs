//! The store does not answer: 503, with what is certain; a wait goes on until its limit.

use std::time::{Duration, Instant};

use holdline_services::{
    EtcdConfig, EtcdServer, PostgresConfig, PostgresServer, RedisConfig, RedisServer,
};

use super::{KEY, Store, both_are_served, heartbeat, lease_path, serve, session, two_waiters};
use crate::ground::{DEADLINE, Ground, Response};

/// Longer than the library asks a store that may not exist.
const WAIT: Duration = Duration::from_secs(5);

/// Tries a free name until the server has noticed that it has no connection to the store.
async fn until_not_applied(ground: &Ground) -> Response {
    let noticed = async {
        loop {
            let response = ground.ask("POST", "/v1/locks/b", "").await;
            assert_eq!(response.status, 503, "{response:?}");
            if response.text("certainty") == "not_applied" {
                return response;
            }
        }
    };
    tokio::time::timeout(DEADLINE, noticed).await.expect("the connection is gone")
}

async fn a_store_goes_and_comes_back(store: &impl Store) {
    let kind = "unavailable";
    let ground = serve(store).await;
    let held = ground.acquire("a", store.long_lease()).await;
    let session = session(&ground).await;
    let waiters = two_waiters(&ground).await;
    store.kill();
    let away = until_not_applied(&ground).await;
    assert_eq!((away.text("kind").as_str(), away.json()["retry_after"].as_u64()), (kind, Some(1)));
    assert!(away.headers.contains("retry-after: 1"), "{away:?}");
    for (method, path) in [("PUT", lease_path(&held).as_str()), ("GET", "/v1/locks/a")] {
        let response = ground.ask(method, path, "").await;
        assert_eq!((response.status, response.text("kind").as_str()), (503, kind), "{method}");
    }
    assert_eq!(heartbeat(&ground, &session).await, "unknown");
    ground.until_ready_is("/stores/default/readyz", 503).await;
    assert_eq!(ground.ask("GET", "/readyz", "").await.status, 200, "it takes requests");
    assert_eq!(ground.ask("GET", "/healthz", "").await.status, 200);

    let began = Instant::now();
    let body = format!(r#"{{"wait_ms": {}}}"#, WAIT.as_millis());
    let late = ground.ask("POST", "/v1/locks/c", &body).await;
    assert_eq!((late.status, late.text("kind").as_str()), (503, kind), "{late:?}");
    assert!(began.elapsed() >= WAIT, "it gave up early");

    store.restart();
    let renewed = ground.ask_through_outage("PUT", &lease_path(&held)).await;
    assert_eq!(renewed.status, 200, "{renewed:?}");
    assert_eq!(heartbeat(&ground, &session).await, "renewed");
    assert_eq!(ground.ask("DELETE", &lease_path(&held), "").await.status, 200);
    both_are_served(&ground, waiters).await;
    ground.until_ready_is("/stores/default/readyz", 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_goes_and_comes_back() {
    let server = RedisServer::start(RedisConfig::default().with_appendonly("always"));
    a_store_goes_and_comes_back(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_goes_and_comes_back() {
    a_store_goes_and_comes_back(&PostgresServer::start(PostgresConfig::default())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_goes_and_comes_back() {
    a_store_goes_and_comes_back(&EtcdServer::start(EtcdConfig::default())).await;
}

/// A store that hangs may have received the request: the client asks again under its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_a_store_that_hangs_is_asked_again_under_its_key() {
    let server = RedisServer::start(RedisConfig::default());
    let ground = serve(&server).await;
    let key = format!("Idempotency-Key: {KEY}\r\n");
    server.stop();
    let unknown = ground.ask_with("POST", "/v1/locks/a", &key, "").await;
    assert_eq!((unknown.status, unknown.text("kind")), (503, "unavailable".to_owned()));
    assert_eq!(unknown.text("certainty"), "unknown", "{unknown:?}");
    server.cont();
    let granted = async {
        loop {
            let response = ground.ask_with("POST", "/v1/locks/a", &key, "").await;
            if response.status != 503 {
                return response;
            }
        }
    };
    let granted = tokio::time::timeout(DEADLINE, granted).await.expect("it answers again");
    assert_eq!((granted.status, granted.text("lease_id")), (200, KEY.to_owned()));
    let shown = ground.ask("GET", "/v1/locks/a", "").await.json();
    assert_eq!((&shown["holder_count"], &shown["queue_length"]), (&1.into(), &0.into()));
}
