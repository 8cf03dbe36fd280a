//! Tokens, rights, prefixes, expiry, reload.

use std::time::Duration;

use holdline_core::{AcquireRequest, Hold, LeaseId, LockKind, LockName, Metadata, Mode};
use holdline_server::ServerConfig;

use crate::ground::{Ground, request};

/// `echo -n s3cret | sha256sum`, and of `other`.
pub(crate) const S3CRET: &str = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0";
pub(crate) const OTHER: &str = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa";

pub(crate) fn config(name: &str, digest: &str, rights: &str, more: &str) -> String {
    format!(
        "[[server.tokens]]\nname = \"{name}\"\nsha256 = \"{digest}\"\nrights = {rights}\n{more}\n"
    )
}

const GOOD: &str = "Authorization: Bearer s3cret\r\n";

#[tokio::test]
async fn a_token_may_what_it_may_where_it_may() {
    let text = config("ci", S3CRET, r#"["view", "lock"]"#, r#"prefixes = ["ci/"]"#);
    let ground = Ground::with(&text).await;
    for path in ["/v1/locks", "/v1/locks/a", "/v1/events", "/metrics", "/v1/engine"] {
        let response = ground.ask("GET", path, "").await;
        assert_eq!(
            (response.status, response.text("kind")),
            (401, "unauthenticated".to_owned()),
            "{path}"
        );
        assert!(response.headers.contains("www-authenticate: bearer"), "{}", response.headers);
    }
    for path in ["/healthz", "/readyz", "/api/openapi.json"] {
        assert_eq!(ground.ask("GET", path, "").await.status, 200, "{path}");
    }
    for (method, path, body, status) in [
        ("POST", "/v1/locks/ci%2Fa", "", 200),
        ("POST", "/v1/locks/prod", "", 403),
        ("GET", "/v1/locks/prod", "", 403),
        ("GET", "/v1/locks", "", 403),
        ("GET", "/v1/locks?prefix=ci/", "", 200),
        ("GET", "/v1/events", "", 403),
        ("PUT", "/v1/locks/ci%2Fa/freeze", r#"{"duration_ms": 1}"#, 403),
        ("POST", "/v1/fence", r#"{"above": 1}"#, 403),
    ] {
        let response = ground.ask_with(method, path, GOOD, body).await;
        assert_eq!(response.status, status, "{method} {path}: {response:?}");
    }
    let response = ground.ask_with("GET", "/v1/locks", "Authorization: Bearer s3cre\r\n", "").await;
    assert!(response.status == 401 && !response.body.contains("s3cre"), "{response:?}");
}

#[tokio::test]
async fn a_session_is_its_owners() {
    let text = config("a", S3CRET, r#"["lock"]"#, "") + &config("b", OTHER, r#"["lock"]"#, "");
    let ground = Ground::with(&text).await;
    let session = ground.ask_with("POST", "/v1/sessions", GOOD, "").await.text("session");
    let path = format!("/v1/sessions/{session}/heartbeat");
    let other = "Authorization: Bearer other\r\n";
    assert_eq!(ground.ask_with("POST", &path, other, "").await.status, 404);
    assert_eq!(ground.ask_with("POST", &path, GOOD, "").await.status, 200);
}

#[tokio::test]
async fn a_wait_ends_when_its_token_expires() {
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(2);
    let text = config("a", S3CRET, r#"["lock"]"#, &format!("expires = \"{soon}\""));
    let text = text + &config("b", OTHER, r#"["lock"]"#, "");
    let ground = Ground::with(&text).await;
    let held = ground.ask_with("POST", "/v1/locks/a", "Authorization: Bearer other\r\n", "").await;
    assert_eq!(held.status, 200, "{held:?}");
    let mut waiting = ground.open().await;
    waiting.send(&request("POST", "/v1/locks/a", GOOD, r#"{"wait_ms": 60000}"#)).await;
    let response = waiting.response().await;
    assert_eq!((response.status, response.text("kind")), (401, "unauthenticated".to_owned()));
    ground.until_waiting("a", 0).await;
}

#[tokio::test]
async fn new_settings_change_rights_and_lose_no_session() {
    let with = |digest| config("a", digest, r#"["lock", "view"]"#, "");
    let ground = Ground::with(&with(S3CRET)).await;
    let session = ground.ask_with("POST", "/v1/sessions", GOOD, "").await.text("session");
    let reload = |text: &str| {
        ServerConfig::from_toml(text).and_then(|config| ground.reloader.reload(&config))
    };
    assert!(reload("[server]\nfoo = 1").is_err(), "wrong settings change nothing");
    // A file that was cut off.
    let error = reload("").expect_err("everybody would be let in").to_string();
    assert!(error.contains("nobody would be authenticated"), "{error}");
    assert_eq!(ground.ask("POST", "/v1/locks/a", "").await.status, 401);
    let path = format!("/v1/sessions/{session}/heartbeat");
    assert_eq!(ground.ask_with("POST", &path, GOOD, "").await.status, 200);
    reload(&with(OTHER)).expect("good");
    assert_eq!(ground.ask_with("POST", &path, GOOD, "").await.status, 401);
    let other = "Authorization: Bearer other\r\n";
    assert_eq!(ground.ask_with("POST", &path, other, "").await.status, 200);
}

#[tokio::test]
async fn who_may_not_view_does_not_see_who_holds() {
    let text = config("a", S3CRET, r#"["lock"]"#, "")
        + &config("b", OTHER, r#"["lock", "view"]"#, r#"prefixes = ["a"]"#);
    let ground = Ground::with(&text).await;
    let body = r#"{"about": {"user": "canary"}, "wait_ms": 1}"#;
    assert_eq!(ground.ask_with("POST", "/v1/locks/a", GOOD, body).await.status, 200);
    let request = AcquireRequest {
        name: LockName::new("a").expect("good"),
        lease_id: LeaseId::from_bytes([9; 16]),
        client: ground.client.admin().client_id(),
        mode: Mode::Exclusive,
        kind: LockKind::default(),
        hold: Hold::Detached(Duration::from_secs(10)),
        queue: false,
        known: false,
        hand_off_lease: Duration::from_secs(1),
        metadata: Metadata::default(),
    };
    let engine = serde_json::to_string(&request).expect("JSON");
    for (path, body, status) in [
        ("/v1/locks/a", "", 423),
        ("/v1/locks/a", body, 423),
        ("/v1/engine/acquire", engine.as_str(), 200),
    ] {
        let blind = ground.ask_with("POST", path, GOOD, body).await;
        assert_eq!(blind.status, status, "{path}: {blind:?}");
        assert!(!blind.body.contains("canary"), "{path}: {blind:?}");
    }
    let sees = ground.ask_with("POST", "/v1/locks/a", "Authorization: Bearer other\r\n", "").await;
    assert!(sees.status == 423 && sees.body.contains("canary"), "{sees:?}");
}
