//! `doctor` on real servers.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::{Checkup, Engine, Finding, Health, LatchCommand};
use holdline_redis::{RedisOptions, checkup};
use holdline_services::{RedisConfig, RedisServer, Sentinel};

use crate::support::{engine, name, request, take};

pub(crate) async fn run_checkup(url: &str) -> Checkup {
    let options = RedisOptions::from_url(url)
        .expect("a good URL")
        .with_connect_timeout(Duration::from_secs(5))
        .with_command_timeout(Duration::from_secs(5));
    checkup(&options, Arc::new(MachineClock)).await.expect("good options")
}

pub(crate) fn of<'a>(checkup: &'a Checkup, check: &str) -> &'a Finding {
    let found = checkup.findings().iter().find(|finding| finding.check() == check);
    found.unwrap_or_else(|| panic!("{check} is missing in {checkup:?}"))
}

#[tokio::test]
async fn a_default_server_works_and_its_weaknesses_are_reported() {
    let server = RedisServer::start(RedisConfig::default());
    let found = run_checkup(&server.url()).await;
    let checks: Vec<&str> = found.findings().iter().map(Finding::check).collect();
    assert_eq!(
        checks,
        [
            "reachable",
            "server",
            "role",
            "eviction",
            "memory",
            "persistence",
            "uptime",
            "messages",
            "idle",
            "clock",
            "failover",
            "rights",
            "guard",
            "keys"
        ]
    );
    let ill: Vec<&str> = found
        .findings()
        .iter()
        .filter(|finding| finding.health() != Health::Ok)
        .map(Finding::check)
        .collect();
    assert_eq!(ill, ["persistence", "uptime", "guard"], "{found:?}");
    assert_eq!(found.health(), Health::Warning);
}

/// A setup with another user may have left the user `default` without a password.
#[tokio::test]
async fn a_default_user_without_a_password_is_reported() {
    let config = RedisConfig::default().with_password("canary");
    let server = RedisServer::start(config.with_user("locker on >canary ~* &* +@all"));
    let mut raw = server.raw();
    let url = format!("redis://locker:canary@{}", server.address());
    for (rule, health) in [
        (">canary", Health::Ok),
        ("nopass", Health::Warning),
        ("nopass -@all +ping", Health::Ok),
        ("nopass +@all resetkeys", Health::Ok),
        ("nopass +@all allkeys off", Health::Ok),
    ] {
        let set = raw.say(&format!("ACL SETUSER default {rule}")).expect("a reply");
        assert_eq!(set.error(), None, "{rule}");
        let found = run_checkup(&url).await;
        assert_eq!(of(&found, "guard").health(), health, "{rule}: {found:?}");
    }
    let set = raw.say("ACL SETUSER locker -acl|getuser").expect("a reply");
    assert_eq!(set.error(), None);
    let found = run_checkup(&url).await;
    assert!(of(&found, "guard").found().contains("we are not permitted to ask"), "{found:?}");
}

#[tokio::test]
async fn a_server_that_evicts_is_an_error() {
    let config = RedisConfig::default().with_maxmemory("50mb", "volatile-lru");
    let server = RedisServer::start(config);
    let found = run_checkup(&server.url()).await;
    assert_eq!(of(&found, "eviction").health(), Health::Error, "{found:?}");
    assert_eq!(found.health(), Health::Error);
}

#[tokio::test]
async fn a_replica_is_an_error_and_its_master_a_warning() {
    let master = RedisServer::start(RedisConfig::default());
    let config = RedisConfig::default().with_replica_of(master.address());
    let replica = RedisServer::start(config);
    let found = run_checkup(&replica.url()).await;
    assert_eq!(of(&found, "role").health(), Health::Error, "{found:?}");
    let mut raw = master.raw();
    loop {
        // event: the replica is connected, which only the master reports
        let role = raw.say("INFO replication").expect("a reply");
        if role.text().is_some_and(|text| text.contains("connected_slaves:1")) {
            break;
        }
    }
    let found = run_checkup(&master.url()).await;
    assert_eq!(of(&found, "role").health(), Health::Warning, "{found:?}");
    let fix = of(&found, "role").fix().expect("one");
    assert!(fix.contains("min-replicas-to-write 1"), "{fix}");
}

#[tokio::test]
async fn an_unreachable_server_is_a_finding() {
    let server = RedisServer::start(RedisConfig::default());
    let url = server.url();
    drop(server);
    let found = run_checkup(&url).await;
    assert_eq!(found.findings().len(), 1);
    assert_eq!(of(&found, "reachable").health(), Health::Error, "{found:?}");
}

#[tokio::test]
async fn a_wrong_clock_is_reported() {
    let server = RedisServer::start(RedisConfig::default().with_clock());
    let before = run_checkup(&server.url()).await;
    assert_eq!(of(&before, "clock").health(), Health::Ok, "{before:?}");
    server.clock().step_forward(Duration::from_secs(3_600));
    let found = run_checkup(&server.url()).await;
    assert_eq!(of(&found, "clock").health(), Health::Warning, "{found:?}");
    assert!(of(&found, "clock").found().starts_with("+3"), "{found:?}");
}

/// Each setting is wrong in turn, and its check reports it.
#[tokio::test]
async fn each_setting_that_harms_locks_is_reported() {
    let server = RedisServer::start(RedisConfig::default().with_debug_command());
    let say = |line: &str| {
        let reply = server.raw().say(line).expect("an answer");
        assert!(reply.error().is_none(), "{line}: {reply:?}");
    };
    for (check, health, wrong, right) in [
        ("eviction", Health::Error, "maxmemory-policy allkeys-lru", "maxmemory-policy noeviction"),
        ("memory", Health::Error, "maxmemory 1000000", "maxmemory 0"),
        ("messages", Health::Warning, "maxmemory-clients 1mb", "maxmemory-clients 0"),
        ("idle", Health::Warning, "timeout 30", "timeout 0"),
        ("persistence", Health::Warning, "appendonly no", "appendonly yes"),
        ("persistence", Health::Warning, "appendfsync everysec", "appendfsync always"),
    ] {
        say(&format!("CONFIG SET {wrong}"));
        let found = run_checkup(&server.url()).await;
        assert_eq!(of(&found, check).health(), health, "{wrong}: {found:?}");
        say(&format!("CONFIG SET {right}"));
    }
    let limits = "client-output-buffer-limit";
    server.raw().send(&["CONFIG", "SET", limits, "pubsub 1024 1024 1"]).expect("an answer");
    let found = run_checkup(&server.url()).await;
    assert_eq!(of(&found, "messages").health(), Health::Warning, "{found:?}");
    server.raw().send(&["CONFIG", "SET", limits, "pubsub 32mb 8mb 60"]).expect("an answer");
    let found = run_checkup(&server.url()).await;
    for check in ["eviction", "memory", "messages", "idle", "persistence"] {
        assert_eq!(of(&found, check).health(), Health::Ok, "{found:?}");
    }
    // A snapshot that fails stops all writes.
    let nowhere = server.directory().join("dump.rdb");
    std::fs::create_dir_all(nowhere.join("in-the-way")).expect("made");
    server.raw().send(&["CONFIG", "SET", "save", "3600 1"]).expect("an answer");
    // The append-only file may still be rewritten; that comes first.
    say("BGSAVE SCHEDULE");
    loop {
        // event: the snapshot has failed, which only the server reports
        let info = server.raw().say("INFO persistence").expect("a reply").text().expect("text");
        if info.contains("rdb_last_bgsave_status:err") {
            break;
        }
    }
    let found = run_checkup(&server.url()).await;
    let reachable = of(&found, "reachable");
    assert_eq!(reachable.health(), Health::Error, "{found:?}");
    assert!(reachable.found().contains("cannot save to disk"), "{found:?}");
}

#[tokio::test]
async fn a_server_that_is_not_single_is_reported() {
    let sentinel = Sentinel::idle();
    let found = run_checkup(&format!("redis://{}", sentinel.address())).await;
    let server = of(&found, "server");
    assert_eq!(server.health(), Health::Error, "{found:?}");
    assert!(server.fix().is_some_and(|fix| fix.contains("this is a Sentinel")), "{server:?}");
    let node = RedisServer::start(RedisConfig::default().with_line("cluster-enabled yes"));
    let found = run_checkup(&node.url()).await;
    let server = of(&found, "server");
    assert_eq!(server.health(), Health::Error, "{found:?}");
    assert!(server.fix().is_some_and(|fix| fix.contains("`redis-cluster://`")), "{server:?}");
}

#[tokio::test]
async fn missing_rights_of_a_user_are_reported() {
    let few = "few on >canary-few ~holdline:* &holdline:* +@all -setrange -scan";
    let other = "other on >canary-other ~other:* &* +@all";
    let mute = "mute on >canary-mute ~* &* +ping +hello +client|setname";
    let config = RedisConfig::default().with_user(few).with_user(other).with_user(mute);
    let server = RedisServer::start(config);
    let as_user = |user: &str| {
        let address = server.address();
        format!("redis://{user}:canary-{user}@{address}")
    };
    let found = run_checkup(&as_user("few")).await;
    let rights = of(&found, "rights");
    assert_eq!(rights.health(), Health::Error, "{found:?}");
    assert!(rights.found().contains("SETRANGE <lock key>"), "{found:?}");
    assert!(!rights.found().contains("HSET"), "{found:?}");
    // Its commands are allowed, but not our keys.
    let found = run_checkup(&as_user("other")).await;
    assert_eq!(of(&found, "rights").health(), Health::Error, "{found:?}");
    // Without the right to ask, each check reports that, and none counts as passed.
    let found = run_checkup(&as_user("mute")).await;
    for check in ["server", "settings", "clock", "rights", "keys"] {
        if found.findings().iter().any(|finding| finding.check() == check) {
            let finding = of(&found, check);
            assert_eq!(finding.health(), Health::Warning, "{finding:?}");
            assert!(finding.found().contains("is not permitted"), "{finding:?}");
        }
    }
    assert!(!format!("{found:?}").contains("canary"), "{found:?}");
}

/// Such a user locks, and what it does as an operator is recorded nowhere.
#[tokio::test]
async fn a_user_without_the_audit_trail_is_warned_of() {
    let server = RedisServer::start(RedisConfig::default());
    let mut raw = server.raw();
    let url = format!("redis://plain:canary@{}", server.address());
    for (rule, lacks) in [
        ("~* +@all", &[][..]),
        ("~* +@all -xadd", &["XADD <audit trail> * r v"]),
        ("~holdline:* +@all", &["EVALSHA ", "XADD ", "XREVRANGE "]),
        ("~holdline:* +@all (~holdline-audit:* +eval +evalsha +xadd +xrevrange)", &[]),
    ] {
        let set = format!("ACL SETUSER plain reset on >canary &* {rule}");
        assert_eq!(raw.say(&set).expect("a reply").error(), None, "{rule}");
        let found = run_checkup(&url).await;
        let rights = of(&found, "rights");
        let expected = if lacks.is_empty() { Health::Ok } else { Health::Warning };
        assert_eq!(rights.health(), expected, "{rule}: {rights:?}");
        for command in lacks {
            assert!(rights.found().contains(command), "{rule}: {rights:?}");
        }
    }
}

#[tokio::test]
async fn data_under_our_keys_is_counted() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    take(&engine, &request("ours")).await;
    let found = run_checkup(&server.url()).await;
    assert_eq!(of(&found, "keys").health(), Health::Ok, "{found:?}");
    let mut raw = server.raw();
    raw.say("SET holdline:{theirs} x PX 60000").expect("set");
    raw.say("SET holdline:{endless} x").expect("set");
    let found = run_checkup(&server.url()).await;
    let keys = of(&found, "keys");
    assert_eq!(keys.health(), Health::Warning);
    assert!(
        keys.found().contains("1 without an end") && keys.found().contains("2 not ours"),
        "{found:?}"
    );
}

/// It has no expiry, and is no lock.
#[tokio::test]
async fn a_latch_is_no_key_without_an_end() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    Engine::latch(&engine, &name("a"), LatchCommand::Set(2)).await.expect("set");
    let found = run_checkup(&server.url()).await;
    assert_eq!(of(&found, "keys").health(), Health::Ok, "{found:?}");
    server.raw().say("SET holdline:{theirs}:1c 1000").expect("set");
    let found = run_checkup(&server.url()).await;
    assert!(of(&found, "keys").found().contains("1 not ours"), "{found:?}");
}

#[tokio::test]
async fn a_counter_that_cannot_be_incremented_is_an_error() {
    let server = RedisServer::start(RedisConfig::default());
    take(&engine(&server).await, &request("a")).await;
    assert_eq!(of(&run_checkup(&server.url()).await, "keys").health(), Health::Ok);
    for plant in [
        &["SET", "holdline:fence", "x"][..],
        &["SET", "holdline:fence", "9007199254740991"],
        &["SADD", "holdline:fence", "x"],
    ] {
        let mut raw = server.raw();
        raw.send(&["DEL", "holdline:fence"]).expect("deleted");
        raw.send(plant).expect("planted");
        let found = run_checkup(&server.url()).await;
        assert_eq!(of(&found, "keys").health(), Health::Error, "{plant:?}: {found:?}");
    }
}
