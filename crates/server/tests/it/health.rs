//! Outages that nobody asks about.

use std::time::Duration;

use holdline::Client;
use holdline_services::{RedisConfig, RedisServer};
use tokio::time::timeout;

use crate::ground::{DEADLINE, Ground, request};

async fn until_metrics_have(ground: &Ground, line: &str) {
    let noticed = async {
        while !ground.ask("GET", "/metrics", "").await.body.contains(line) {
            tokio::time::sleep(Duration::from_millis(100)).await; // event: can only be asked
        }
    };
    timeout(DEADLINE, noticed).await.unwrap_or_else(|_| panic!("never {line}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_is_noticed_though_nobody_asks_for_readiness() {
    let server = RedisServer::start(RedisConfig::default());
    let ground = Ground::on(Client::connect(&server.url()).await.expect("connects"), "").await;
    until_metrics_have(&ground, "holdline_store_up{store=\"default\"} 1\n").await;
    server.kill();
    until_metrics_have(&ground, "holdline_store_up{store=\"default\"} 0\n").await;
    server.restart();
    until_metrics_have(&ground, "holdline_store_up{store=\"default\"} 1\n").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_store_has_never_answered_is_not_ready() {
    let server = RedisServer::start(RedisConfig::default());
    let client = Client::connect(&server.url()).await.expect("connects");
    server.kill();
    let ground = Ground::on(client, "").await;
    assert_eq!(ground.ask("GET", "/readyz", "").await.status, 503);
    assert_eq!(ground.ask("GET", "/healthz", "").await.status, 200);
    server.restart();
    ground.until_ready_is("/readyz", 200).await;
    server.kill();
    ground.until_ready_is("/stores/default/readyz", 503).await;
    assert_eq!(ground.ask("GET", "/readyz", "").await.status, 200);
}

#[tokio::test]
async fn a_server_that_is_to_stop_says_so_and_takes_requests_for_a_while() {
    let limits = "[server.limits]\ndrain_ms = 86400000\n";
    let mut ground = Ground::with(limits).await;
    ground.acquire("a", "").await;
    let mut waiting = ground.open().await;
    waiting.send(&request("POST", "/v1/locks/a", "", r#"{"wait_ms": 60000}"#)).await;
    ground.until_waiting("a", 1).await;
    ground.signal_stop();
    let answer = ground.until_ready_is("/readyz", 503).await;
    assert_eq!(answer.text("kind"), "stopping");
    assert_eq!(ground.ask("GET", "/healthz", "").await.status, 200);
    ground.acquire("b", "").await;
    ground.until_waiting("a", 1).await;
}

#[tokio::test]
async fn waits_are_not_in_the_times_of_requests() {
    let ground = Ground::start().await;
    for body in ["", r#"{"wait_ms": 1}"#, r#"{"wait_ms": 1}"#] {
        ground.ask("POST", "/v1/locks/a", body).await;
    }
    ground.ask("POST", "/stores/default/v1/locks/b", r#"{"wait_ms": 1}"#).await;
    let of_path =
        "holdline_http_request_seconds_count{store=\"default\",path=\"/v1/locks/{name}\"} 1\n";
    until_metrics_have(&ground, of_path).await;
    until_metrics_have(&ground, "holdline_wait_seconds_count{store=\"default\"} 4\n").await;
}

/// The keys of a store that other libraries share are counted, and those that never end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_other_libraries_are_counted() {
    let server = RedisServer::start(RedisConfig::default());
    server.raw().say("SETNX lock:leaked 1").expect("an answer");
    server.raw().say("SET lock:theirs 1 PX 600000").expect("an answer");
    let url = format!("{}?dialect=plain&key_template=lock:{{name}}", server.url());
    let ground = Ground::on(Client::connect(&url).await.expect("connects"), "").await;
    until_metrics_have(&ground, "holdline_foreign_keys{store=\"default\"} 2\n").await;
    until_metrics_have(&ground, "holdline_keys_without_expiry{store=\"default\"} 1\n").await;
    let listed = ground.ask("GET", "/v1/locks", "").await.json();
    let holder = &listed["locks"][0]["holders"][0];
    assert_eq!(
        (&listed["locks"][0]["name"], &holder["no_expiry"]),
        (&"leaked".into(), &true.into())
    );
    ground.acquire("ours", "").await;
    let ours = ground.ask("GET", "/v1/locks/ours", "").await.json();
    assert_eq!(ours["holders"][0]["no_expiry"], false);
}

/// The server finds holds that last too long in the store, of clients that it does not know, and
/// counts each for the longest prefix that fits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_beyond_their_limit_are_counted() {
    let server = RedisServer::start(RedisConfig::default());
    let holder = Client::connect(&server.url()).await.expect("connects");
    let mut held = Vec::new();
    for name in ["deploy/web", "deploy/shop", "leader/a", "stock/1"] {
        held.push(holder.mutex(name).expect("a name").lock().await.expect("free"));
    }
    let config = "[[server.long_holds]]\nprefix = \"deploy/\"\nafter_ms = 1\n\
                  [[server.long_holds]]\nprefix = \"leader/\"\n\
                  [[server.long_holds]]\nafter_ms = 86400000\n";
    tokio::time::sleep(Duration::from_millis(5)).await; // event: the holds are older than 1 ms
    let ground = Ground::on(Client::connect(&server.url()).await.expect("connects"), config).await;
    let of = |prefix: &str, count| {
        format!("holdline_long_holds{{store=\"default\",prefix=\"{prefix}\"}} {count}\n")
    };
    until_metrics_have(&ground, &of("deploy/", 2)).await;
    until_metrics_have(&ground, &of("leader/", 0)).await;
    until_metrics_have(&ground, &of("", 0)).await;
}
