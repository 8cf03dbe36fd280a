//! Real stores behind a server that go away, come back, forget and fail over.

mod away;
mod forgets;
mod quorum;
mod sentinel;

use holdline::Client;
use holdline_services::{EtcdServer, PostgresServer, RedisServer};
use serde_json::Value;

use crate::ground::{Connection, Ground, request};

/// The lease id of the client that may ask again.
const KEY: &str = "0123456789abcdef0123456789abcdef";
/// Long beside everything that a test does.
const LONG_LEASE: &str = r#"{"lease_duration_ms": 600000}"#;

/// A store that a test can take away.
trait Store {
    fn url(&self) -> String;
    /// Ends the server as a crash does.
    fn kill(&self);
    /// Starts it again with its data.
    fn restart(&self);
    /// Removes all locks.
    fn forget(&self);
    /// The body that asks for the longest lease that a test may need.
    fn long_lease(&self) -> &'static str {
        LONG_LEASE
    }
}

impl Store for RedisServer {
    fn url(&self) -> String {
        RedisServer::url(self)
    }

    fn kill(&self) {
        RedisServer::kill(self);
    }

    fn restart(&self) {
        self.restart_settled();
    }

    fn forget(&self) {
        self.raw().say("FLUSHALL").expect("an answer");
    }
}

impl Store for PostgresServer {
    fn url(&self) -> String {
        PostgresServer::url(self)
    }

    fn kill(&self) {
        PostgresServer::kill(self);
    }

    fn restart(&self) {
        PostgresServer::restart(self);
    }

    fn forget(&self) {
        self.sql("truncate holdline.names, holdline.shared_holders, holdline.waiters");
    }
}

impl Store for EtcdServer {
    fn url(&self) -> String {
        EtcdServer::url(self)
    }

    fn kill(&self) {
        EtcdServer::kill(self);
    }

    fn restart(&self) {
        EtcdServer::restart(self);
    }

    fn forget(&self) {
        self.ctl(&["del", "--prefix", "holdline/"]);
    }

    /// The longest one of etcd.
    fn long_lease(&self) -> &'static str {
        r#"{"lease_duration_ms": 30000}"#
    }
}

async fn serve(store: &impl Store) -> Ground {
    serve_url(&store.url()).await
}

async fn serve_url(url: &str) -> Ground {
    Ground::on(Client::connect(url).await.expect("connects"), "").await
}

/// The path of a lease.
fn lease_path(lease: &Value) -> String {
    let text = |field: &str| lease[field].as_str().expect("a text").to_owned();
    format!("/v1/locks/{}/leases/{}", text("name"), text("lease_id"))
}

/// Two requests that wait for `a`: one with a key, one without. Both wait for a minute.
async fn two_waiters(ground: &Ground) -> [Connection; 2] {
    let mut waiters = [ground.open().await, ground.open().await];
    let headers = [format!("Idempotency-Key: {KEY}\r\n"), String::new()];
    for (count, (waiter, headers)) in waiters.iter_mut().zip(headers).enumerate() {
        let body = r#"{"wait_ms": 60000, "lease_duration_ms": 15000}"#;
        waiter.send(&request("POST", "/v1/locks/a", &headers, body)).await;
        ground.until_waiting("a", count + 1).await;
    }
    waiters
}

/// Each of them gets the lock, and gives it to the other one.
async fn both_are_served(ground: &Ground, waiters: [Connection; 2]) {
    let [mut one, mut other] = waiters;
    let served = async |waiter: &mut Connection| {
        let response = waiter.response().await;
        assert_eq!(response.status, 200, "{response:?}");
        let lease = response.json();
        let released = ground.ask("DELETE", &lease_path(&lease), "").await;
        assert_eq!(released.status, 200, "{released:?}");
        lease["lease_id"].as_str().expect("an id").to_owned()
    };
    let (keyed, own) = tokio::join!(served(&mut one), served(&mut other));
    assert!(keyed == KEY && own != KEY, "{keyed} {own}");
}

/// A session with a lease of `s`; returns its path.
async fn session(ground: &Ground) -> String {
    let session = ground.ask("POST", "/v1/sessions", r#"{"duration_ms": 30000}"#).await;
    let session = session.text("session");
    ground.acquire("s", &format!(r#"{{"session": "{session}"}}"#)).await;
    format!("/v1/sessions/{session}")
}

/// How the only lease of a session stands after a heartbeat.
async fn heartbeat(ground: &Ground, session: &str) -> String {
    let beat = ground.ask("POST", &format!("{session}/heartbeat"), "").await.json();
    beat["leases"][0]["state"].as_str().unwrap_or_else(|| panic!("{beat}")).to_owned()
}
