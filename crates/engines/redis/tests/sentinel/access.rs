//! Access: TLS, both protocols, users of the sentinels and of the servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::asking::{let_go, name, request, take};
use holdline_conformance::clock::MachineClock;
use holdline_core::{Certainty, Engine, LockError};
use holdline_redis::{RedisEngine, RedisOptions};
use holdline_services::{RedisConfig, Reply, SentinelConfig, SentinelGroup};

use crate::support::url;

const DOCUMENT: &str = include_str!("../../../../../docs/redis.md");

async fn connect(url: &str) -> Result<RedisEngine, LockError> {
    let options = RedisOptions::from_url(url).expect("a good URL");
    RedisEngine::connect(&options, Arc::new(MachineClock)).await
}

/// The connection is rejected, with the reason and without a secret.
async fn refused(url: &str, says: &[&str]) {
    let error = connect(url).await.expect_err("nobody is let in");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    let reported = error.to_string();
    assert!(says.iter().all(|part| reported.contains(part)), "{url}: {reported}");
    assert!(!format!("{error:?} {reported}").contains("CANARY"), "{error:?}");
}

async fn takes(engine: &RedisEngine, text: &str) {
    let request = request(text);
    take(engine, &request).await;
    let_go(engine, &request).await;
}

/// Waits until an engine has reconnected.
async fn found(engine: &RedisEngine) {
    let (nobody, end) = (name("nobody"), Instant::now() + Duration::from_secs(60));
    while let Err(error) = engine.inspect(&nobody).await {
        assert!(Instant::now() < end, "{error:?}");
        tokio::time::sleep(Duration::from_millis(20)).await; // event: the server is found
    }
}

/// A file with a password for this test.
struct PasswordFile(PathBuf);

impl PasswordFile {
    fn of(word: &str) -> PasswordFile {
        let file = format!("holdline-access-{}-{word}", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, word).expect("written");
        PasswordFile(path)
    }

    fn for_sentinels(&self, user: &str) -> String {
        format!("&sentinel_user={user}&sentinel_password_file={}", self.0.display())
    }
}

impl Drop for PasswordFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_servers_are_verified_by_tls() {
    let group = SentinelGroup::start(&SentinelConfig::default().with_tls());
    group.settle(0);
    let with =
        |ca: PathBuf| format!("{}?command_timeout_ms=10000&ca={}", group.tls_url(), ca.display());
    let engine = connect(&with(group.certificates().ca())).await.expect("connected");
    takes(&engine, "a").await;
    let keys = group.servers()[0].raw().say("DBSIZE").expect("an answer").integer();
    refused(&with(group.certificates().other_ca()), &["certificate"]).await;
    refused(
        &format!("{}?connect_timeout_ms=10000&command_timeout_ms=10000", group.tls_url()),
        &["certificate", "ca"],
    )
    .await;
    let [tls, plain] = [group.tls_url(), group.url()];
    let swapped =
        plain.replace("redis+", "rediss+") + "?connect_timeout_ms=10000&command_timeout_ms=10000";
    refused(&swapped, &["TLS"]).await;
    refused(
        &(tls.replace("rediss+", "redis+") + "?connect_timeout_ms=10000&command_timeout_ms=10000"),
        &["TLS"],
    )
    .await;
    let left = group.servers()[0].raw().say("DBSIZE").expect("an answer").integer();
    assert_eq!(left, keys, "nothing is written");
    let promoted = group.fail_over();
    found(&engine).await;
    group.settle(promoted);
    let again = connect(&with(group.certificates().ca())).await.expect("connected");
    takes(&again, "a").await;
}

/// Both protocols, with users that have exactly the rights of the document at the sentinels and at
/// the servers, each with its own password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_suffice_at_sentinels_and_servers() {
    let line = |start: &str| {
        let found = DOCUMENT.lines().find_map(|line| line.strip_prefix(start));
        found.unwrap_or_else(|| panic!("no line `{start}` in the document"))
    };
    let locker = line("user locker on >PASSWORD ").to_owned() + " " + line("servers: ");
    let servers = RedisConfig::default().with_user(&format!("locker on >CANARY-server {locker}"));
    let watcher = line("user watcher on >PASSWORD ");
    let config = SentinelConfig::default()
        .with_servers(servers)
        .with_sentinel_line(format!("user watcher on >CANARY-sentinel {watcher}"))
        .with_sentinel_line(
            "user few on >CANARY-sentinel resetchannels &+switch-master -@all +ping +hello +auth \
             +subscribe +sentinel|get-master-addr-by-name",
        );
    let group = SentinelGroup::start(&config);
    group.settle(0);
    let (right, wrong) = (PasswordFile::of("CANARY-sentinel"), PasswordFile::of("CANARY-wrong"));
    let base = |more: &str| {
        let url = url(&group, &format!("{more}&connect_timeout_ms=10000"));
        url.replace("redis+sentinel://", "redis+sentinel://locker:CANARY-server@")
    };
    let mut engines = Vec::new();
    for more in ["", "&protocol=resp2", "&replicas=all"] {
        let url = base(&format!("{}{more}", right.for_sentinels("watcher")));
        let engine = connect(&url).await.unwrap_or_else(|error| panic!("{more}: {error:?}"));
        takes(&engine, "a").await;
        engines.push(engine);
    }
    refused(&base(&wrong.for_sentinels("watcher")), &["sentinel_user", "password is wrong"]).await;
    refused(&base(&right.for_sentinels("nobody")), &["sentinel_user", "password is wrong"]).await;
    refused(&base(&right.for_sentinels("few")), &["a sentinel", "+sentinel|master"]).await;
    let other = base(&right.for_sentinels("watcher")).replace("CANARY-server", "CANARY-other");
    refused(&other, &["user or password is wrong"]).await;
    // All of them are notified of a switch, also with RESP2.
    let promoted = group.fail_over();
    group.settle(promoted);
    for engine in &engines {
        found(engine).await;
    }
    let log = group.servers()[promoted].raw().say("ACL LOG").expect("an answer");
    let refused = |entry: &Reply| {
        let mut fields = entry.items()?.chunks(2);
        fields.find(|pair| pair[0].text().as_deref() == Some("object"))?.get(1)?.text()
    };
    let refused: Vec<String> = log.items().expect("a list").iter().filter_map(refused).collect();
    let spared = |command: &String| command.starts_with("client|") || command == "command|info";
    assert!(refused.iter().all(spared), "what is needed was refused: {refused:?}");
}
