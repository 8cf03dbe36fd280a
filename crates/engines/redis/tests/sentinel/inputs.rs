//! Wrong input: each error names the fix, and nothing is written.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
use holdline_core::{Certainty, ErrorKind, LockError};
use holdline_redis::{RedisEngine, RedisOptions};
use holdline_services::{Reply, Sentinel, SentinelConfig, SentinelGroup};

use crate::support::url;

async fn failure(url: &str) -> LockError {
    let options = RedisOptions::from_url(url).expect("a good URL");
    let connected = RedisEngine::connect(&options, Arc::new(MachineClock)).await;
    let error = connected.expect_err("no connection");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    error
}

async fn refused(url: &str, says: &[&str]) {
    let error = failure(url).await;
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error:?}");
    let reported = error.to_string();
    assert!(says.iter().all(|part| reported.contains(part)), "{reported}");
    assert!(!reported.contains("CANARY"), "{reported}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_sentinels_are_reported_with_the_fix() {
    let config = SentinelConfig::default().with_sentinel_password("CANARY-sentinel");
    let group = SentinelGroup::start(&config);
    let directory = std::env::temp_dir().join(format!("holdline-inputs-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("password");
    let with = |password: &str| {
        std::fs::write(&file, password).expect("written");
        format!("&sentinel_password_file={}", file.display())
    };
    // The password of the sentinels: none, a wrong one, and an unknown service.
    refused(&url(&group, ""), &["sentinel_password_file", "NOAUTH"]).await;
    let wrong = url(&group, &with("CANARY-wrong"));
    refused(&wrong, &["sentinel_password_file", "password is wrong"]).await;
    let right = url(&group, &with("CANARY-sentinel"));
    let other = right.replace("/locks?", "/lock?");
    refused(&other, &["know no service `lock`", "they watch, such as locks"]).await;
    // The password of the servers.
    let asked = right.replace("redis+sentinel://", "redis+sentinel://nobody:CANARY@");
    refused(&asked, &["user or password is wrong"]).await;
    // A server is no sentinel, and a sentinel may monitor nothing.
    let server = group.servers()[0].address();
    let plain = format!("redis+sentinel://{server}/locks");
    refused(&plain, &["is no sentinel", "`redis://`"]).await;
    let idle = Sentinel::idle();
    let nobody = format!("redis+sentinel://{}/locks", idle.address());
    refused(&nobody, &["monitor no master", "SENTINEL MONITOR"]).await;
    let keys = group.servers()[0].raw().say("KEYS *").expect("an answer");
    assert_eq!(keys.items().map(<[Reply]>::len), Some(0), "{keys:?}");
    std::fs::remove_dir_all(&directory).expect("removed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_sentinels_are_named() {
    let silent = Sentinel::idle();
    silent.kill();
    let url = format!("redis+sentinel://{}/locks?connect_timeout_ms=2000", silent.address());
    let error = failure(&url).await;
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error:?}");
    let reported = error.to_string();
    let address = silent.address().to_string();
    assert!(
        reported.contains("none of the sentinels") && reported.contains(&address),
        "{reported}"
    );
}
