//! Several stores behind one server: paths, rights, events, readiness, and engines.

use std::net::SocketAddr;

use holdline::Client;
use holdline_http::{HttpEngine, HttpOptions};
use holdline_server::{Server, ServerConfig};
use holdline_services::{RedisConfig, RedisServer};

use crate::events::{event, stream};
use crate::ground::{Ground, store};
use crate::rights::S3CRET;

const CONFIG: &str = r#"
[[server.tokens]]
name = "all"
sha256 = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0"
rights = ["admin"]

[[server.tokens]]
name = "eu"
sha256 = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"
rights = ["lock", "view"]
stores = ["eu"]
"#;

/// A server of a default store, of `eu` and of `us`.
async fn serve(config: &str, us: Client) -> Ground {
    let (default, eu) = (store().await, store().await);
    Ground::of(default, vec![("eu", eu), ("us", us)], config).await
}

#[tokio::test]
async fn each_store_has_locks_sessions_and_events_of_its_own() {
    let ground = serve("", store().await).await;
    let mut all = stream(&ground, "/v1/events", "").await;
    let mut eu = stream(&ground, "/stores/eu/v1/events", "").await;
    let mut ids = Vec::new();
    for prefix in ["", "/stores/eu", "/stores/us"] {
        let lease = ground.ask("POST", &format!("{prefix}/v1/locks/a%2Fb"), "").await;
        assert_eq!(lease.status, 200, "{prefix}: {lease:?}");
        ids.push(lease.text("lease_id"));
        let busy = ground.ask("POST", &format!("{prefix}/v1/locks/a%2Fb"), "").await;
        assert_eq!(busy.status, 423, "{prefix}: {busy:?}");
    }
    let same = ground.ask("POST", "/stores/default/v1/locks/a%2Fb", "").await;
    assert_eq!(same.status, 423, "the default store has a name too: {same:?}");
    for (stream, id) in [(&mut all, &ids[0]), (&mut eu, &ids[1])] {
        let (_, kind, data) = event(stream).await;
        assert!(kind == "granted" && data.contains(&id[..8]), "{data}");
        assert_eq!(event(stream).await.1, "refused");
    }
    let session = ground.ask("POST", "/stores/eu/v1/sessions", "").await.text("session");
    let beat = |prefix: &str| format!("{prefix}/v1/sessions/{session}/heartbeat");
    assert_eq!(ground.ask("POST", &beat(""), "").await.status, 421);
    assert_eq!(ground.ask("POST", &beat("/stores/eu"), "").await.status, 200);
    let metrics = ground.ask("GET", "/metrics", "").await.body;
    assert!(metrics.contains("holdline_sessions 1"), "{metrics}");
    for line in [
        r#"holdline_acquire_total{store="default",outcome="acquired"} 1"#,
        r#"holdline_acquire_total{store="eu",outcome="acquired"} 1"#,
        r#"holdline_acquire_total{store="default",outcome="busy"} 2"#,
        r#"holdline_acquire_total{store="eu",outcome="busy"} 1"#,
        r#"holdline_lost_total{store="eu"} 0"#,
        r#"holdline_store_up{store="default"} 1"#,
        r#"holdline_store_up{store="eu"} 1"#,
    ] {
        assert!(metrics.lines().any(|metric| metric == line), "{line}: {metrics}");
    }
    assert!(metrics.contains(r#"path="/stores/eu/v1/locks/{name}""#), "{metrics}");
    for (method, path, status) in [
        ("GET", "/stores/asia/v1/locks", 404),
        ("GET", "/stores/eu", 404),
        ("GET", "/stores/eu/v1/nothing", 404),
        ("PATCH", "/stores/eu/v1/locks/a", 405),
    ] {
        let response = ground.ask(method, path, "").await;
        assert_eq!(response.status, status, "{path}: {response:?}");
        assert_eq!(response.json()["status"], status, "{path}: {response:?}");
    }
}

#[tokio::test]
async fn a_token_is_good_for_its_stores() {
    let ground = serve(CONFIG, store().await).await;
    let [all, eu] = ["s3cret", "other"].map(|token| format!("Authorization: Bearer {token}\r\n"));
    for (headers, path, status) in [
        (&all, "/v1/locks", 200),
        (&all, "/stores/us/v1/locks", 200),
        (&eu, "/stores/eu/v1/locks", 200),
        (&eu, "/stores/us/v1/locks", 403),
        (&eu, "/v1/locks", 403),
        (&eu, "/stores/default/v1/locks", 403),
        (&eu, "/stores/us/v1/engine", 403),
        (&String::new(), "/stores/eu/v1/locks", 401),
    ] {
        let response = ground.ask_with("GET", path, headers, "").await;
        assert_eq!(response.status, status, "{path}: {response:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_store_that_is_away_costs_the_others_nothing() {
    let server = RedisServer::start(RedisConfig::default());
    let ground = serve("", Client::connect(&server.url()).await.expect("connects")).await;
    assert_eq!(ground.ask("GET", "/readyz", "").await.status, 200);
    server.kill();
    for (path, status) in [
        // Another server of the same stores would be no better.
        ("/readyz", 200),
        ("/stores/eu/readyz", 200),
        ("/healthz", 200),
    ] {
        assert_eq!(ground.ask("GET", path, "").await.status, status, "{path}");
    }
    let answer = ground.until_ready_is("/stores/us/readyz", 503).await;
    assert_eq!(answer.text("kind"), "unavailable");
    let ready = ground.ask("GET", "/readyz", "").await.json();
    let stores = serde_json::json!({"default": "up", "eu": "up", "us": "down"});
    assert_eq!((&ready["status"], &ready["stores"]), (&"degraded".into(), &stores));
    assert_eq!(ground.ask("POST", "/stores/us/v1/locks/a", "").await.status, 503);
    assert_eq!(ground.ask("POST", "/stores/eu/v1/locks/a", "").await.status, 200);
    server.restart_settled();
    ground.until_ready_is("/stores/us/readyz", 200).await;
    let us = ground.ask_through_outage("POST", "/stores/us/v1/locks/a").await;
    assert_eq!(us.status, 200, "{us:?}");
}

/// The path of the URL chooses the store: the engine needs no setting of its own.
#[tokio::test]
async fn an_engine_uses_the_store_of_its_path() {
    let ground = serve("", store().await).await;
    let engine = async |path: &str| {
        let options = HttpOptions::from_url(&format!("http://{}{path}", ground.address));
        HttpEngine::connect(&options.expect("a good URL")).await
    };
    let mut identities = std::collections::BTreeSet::new();
    for path in ["", "/stores/eu", "/stores/us/"] {
        let engine = engine(path).await.expect("connects");
        identities.insert(holdline_core::Engine::capabilities(&engine).identity.clone());
        let client =
            Client::with_options(std::sync::Arc::new(engine), holdline::ClientOptions::default())
                .expect("a client");
        let guard = client.mutex("a").expect("a good name").try_lock().await.expect("free");
        let path = format!("{}/v1/locks/a", path.trim_end_matches('/'));
        assert_eq!(ground.ask("POST", &path, "").await.status, 423, "{path}");
        assert!(guard.release().await.is_released());
    }
    assert_eq!(identities.len(), 3, "they are three stores: {identities:?}");
    assert!(engine("/stores/asia").await.is_err());
}

#[tokio::test]
async fn names_that_cannot_be_paths_are_refused() {
    let engine = async || store().await.admin().engine().clone();
    let config = ServerConfig::default().with_listen(SocketAddr::from(([127, 0, 0, 1], 0)));
    for name in ["", "default", "a/b", "A", "{a}", "a.b", &"n".repeat(33)] {
        let others = vec![(name.to_owned(), engine().await)];
        let refused = Server::bind_stores(engine().await, others, &config).await;
        let error = refused.err().unwrap_or_else(|| panic!("{name:?} is a good name")).to_string();
        assert!(error.contains("stores: the name"), "{error}");
    }
    let error = ServerConfig::from_toml("[server.stores]\n\"a b\" = \"memory:\"");
    assert!(error.expect_err("a bad name").to_string().contains("a b"));
    let secret = ServerConfig::from_toml("[server.stores]\na = \"redis://:s3cret@host\"");
    assert!(!format!("{:?}", secret.expect("good")).contains("s3cret"));
}

#[tokio::test]
async fn rights_on_a_store_that_is_not_served_are_refused() {
    let text = crate::rights::config("ci", S3CRET, r#"["lock"]"#, r#"stores = ["biling"]"#);
    let config = ServerConfig::from_toml(&text).expect("good by itself");
    let config = config.with_listen(SocketAddr::from(([127, 0, 0, 1], 0)));
    let engine = || async { store().await.admin().engine().clone() };
    let others = vec![("billing".to_owned(), engine().await)];
    let refused = Server::bind_stores(engine().await, others, &config).await.err();
    let error = refused.expect("no such store").to_string();
    let says =
        "tokens.ci: there is no store \"biling\": the stores of this server are default, billing";
    assert_eq!(error, says);
    let ground = Ground::start().await;
    let error = ground.reloader.reload(&config).expect_err("no such store").to_string();
    assert!(error.contains("no store \"biling\""), "{error}");
}
