//! The store loses its locks: holders get 410, sessions and events report it, and waits go on.

use holdline_services::{
    EtcdConfig, EtcdServer, PostgresConfig, PostgresServer, RedisConfig, RedisServer,
};

use super::{Store, both_are_served, heartbeat, lease_path, serve, session, two_waiters};
use crate::events::{event, stream};

async fn a_store_forgets(store: &impl Store, forget: impl FnOnce()) {
    let ground = serve(store).await;
    let held = ground.acquire("a", store.long_lease()).await;
    let session = session(&ground).await;
    let waiters = two_waiters(&ground).await;
    let mut events = stream(&ground, "/v1/events", "").await;
    forget();
    let lost = ground.ask_through_outage("PUT", &lease_path(&held)).await;
    assert_eq!((lost.status, lost.text("kind")), (410, "lost".to_owned()), "{lost:?}");
    assert_eq!(lost.text("lost"), "missing");
    assert_eq!(heartbeat(&ground, &session).await, "lost");
    for name in ["a", "s"] {
        let found = async {
            loop {
                let (_, kind, data) = event(&mut events).await;
                if kind == "lost" {
                    return data;
                }
            }
        };
        let data = found.await;
        assert!(data.contains(&format!(r#""name":"{name}""#)), "{data}");
    }
    // Nobody holds the name now, and both still wait.
    both_are_served(&ground, waiters).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_is_flushed() {
    let server = RedisServer::start(RedisConfig::default());
    a_store_forgets(&server, || server.forget()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_restarts_without_its_data() {
    let server = RedisServer::start(RedisConfig::default());
    let crash = || {
        Store::kill(&server);
        Store::restart(&server);
    };
    a_store_forgets(&server, crash).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_loses_its_rows() {
    let server = PostgresServer::start(PostgresConfig::default());
    a_store_forgets(&server, || server.forget()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_loses_its_keys() {
    let server = EtcdServer::start(EtcdConfig::default());
    a_store_forgets(&server, || server.forget()).await;
}
