//! `doctor` on quorums, one misconfiguration at a time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::{Checkup, Finding, Health};
use holdline_redis::{QuorumOptions, quorum_checkup};
use holdline_services::{RedisConfig, RedisServer};

use crate::support::{Nodes, admin_of, vouched};

async fn of(options: &QuorumOptions) -> Checkup {
    quorum_checkup(options, Arc::new(MachineClock)).await.expect("good options")
}

async fn run_checkup(nodes: &Nodes) -> Checkup {
    of(&nodes.options("")).await
}

/// Returns all findings of one check.
fn by<'a>(checkup: &'a Checkup, check: &str) -> Vec<&'a Finding> {
    let found = checkup.findings().iter().filter(|finding| finding.check() == check);
    let found: Vec<&Finding> = found.collect();
    assert!(!found.is_empty(), "{check} is missing in {checkup:?}");
    found
}

/// Returns the only finding of a check.
fn one<'a>(checkup: &'a Checkup, check: &str) -> &'a Finding {
    let found = by(checkup, check);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

fn ill(checkup: &Checkup) -> Vec<&'static str> {
    let findings = checkup.findings().iter();
    findings.filter(|one| one.health() != Health::Ok).map(Finding::check).collect()
}

#[tokio::test]
async fn a_healthy_set_lacks_only_a_password() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let found = run_checkup(&nodes).await;
    let checks: Vec<&str> = found.findings().iter().map(Finding::check).collect();
    assert_eq!(
        checks,
        [
            "servers",
            "set",
            "margin",
            "clocks",
            "persistence",
            "server",
            "eviction",
            "memory",
            "messages",
            "idle",
            "rights",
            "guard"
        ]
    );
    assert_eq!(ill(&found), ["guard"], "{found:?}");
    assert!(one(&found, "margin").found().contains("3 of 3 vote, 1 more"), "{found:?}");
    assert!(one(&found, "eviction").found().starts_with("all 3: noeviction"), "{found:?}");
    assert!(one(&found, "persistence").found().starts_with("0 of 3"), "{found:?}");
}

#[tokio::test]
async fn blank_servers_are_an_error_and_stay_blank() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    let found = run_checkup(&nodes).await;
    assert_eq!(one(&found, "set").health(), Health::Error, "{found:?}");
    assert!(one(&found, "set").fix().is_some_and(|fix| fix.contains("quorum init")), "{found:?}");
    for server in &nodes.servers {
        assert_eq!(server.raw().say("DBSIZE").expect("a reply").integer(), Some(0));
    }
}

#[tokio::test]
async fn lost_servers_are_a_warning_until_a_majority_is_lost() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    nodes.servers[2].kill();
    let found = run_checkup(&nodes).await;
    for check in ["servers", "margin", "votes"] {
        assert_eq!(one(&found, check).health(), Health::Warning, "{found:?}");
    }
    let address = nodes.servers[2].address().to_string();
    assert!(one(&found, "votes").found().starts_with(&address), "{found:?}");
    nodes.servers[1].kill();
    let found = run_checkup(&nodes).await;
    assert_eq!(one(&found, "servers").health(), Health::Error, "{found:?}");
    assert_eq!(by(&found, "votes").len(), 2, "{found:?}");
}

#[tokio::test]
async fn a_server_that_lost_its_data_is_reported_with_its_quarantine() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    nodes.servers[0].raw().say("FLUSHALL").expect("flushed");
    nodes.admin().rejoin().await.expect("the others remember");
    let found = run_checkup(&nodes).await;
    assert!(one(&found, "votes").found().contains("its quarantine ends in "), "{found:?}");
    assert_eq!(one(&found, "votes").health(), Health::Warning, "{found:?}");
    assert_eq!(one(&found, "margin").health(), Health::Warning, "{found:?}");
}

/// An old copy is restored: the new run of the server shows it, whatever its persistence.
#[tokio::test]
async fn a_server_with_an_old_copy_is_reported() {
    for fsync in ["everysec", "always"] {
        let config = RedisConfig::default().with_appendonly(fsync);
        let nodes = Nodes::start(3, &config);
        nodes.init().await;
        let server = &nodes.servers[0];
        let kept = server.directory().join("appendonlydir");
        let copy = server.directory().join("copy");
        copy_all(&kept, &copy);
        assert_eq!(ill(&run_checkup(&nodes).await), ["guard"]);
        server.kill();
        std::fs::remove_dir_all(&kept).expect("removed");
        std::fs::rename(&copy, &kept).expect("put back");
        server.restart();
        let found = run_checkup(&nodes).await;
        assert_eq!(ill(&found), ["margin", "votes", "guard"], "{fsync}: {found:?}");
    }
}

/// Copies a directory of files.
fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("made");
    for entry in std::fs::read_dir(from).expect("listed") {
        let entry = entry.expect("listed");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

#[tokio::test]
async fn sets_with_little_redundancy_are_reported() {
    for (count, says) in [(1, "three"), (2, "three"), (4, "even")] {
        let nodes = Nodes::start(count, &RedisConfig::default());
        nodes.init().await;
        let found = run_checkup(&nodes).await;
        assert_eq!(one(&found, "servers").health(), Health::Warning, "{found:?}");
        assert!(one(&found, "servers").fix().is_some_and(|fix| fix.contains(says)), "{found:?}");
    }
}

#[tokio::test]
async fn two_addresses_of_one_server_are_an_error() {
    let nodes = Nodes::start(2, &RedisConfig::default());
    let port = nodes.servers[0].address().port();
    let url = format!("{},localhost:{port}?command_timeout_ms=5000", nodes.url());
    let found = of(&QuorumOptions::from_url(&url).expect("a good URL")).await;
    assert_eq!(one(&found, "set").health(), Health::Error, "{found:?}");
    assert!(one(&found, "set").found().contains("one server"), "{found:?}");
}

#[tokio::test]
async fn servers_of_two_sets_are_an_error() {
    let config = RedisConfig::default();
    let (mut nodes, others) = (Nodes::start(2, &config), Nodes::start(1, &config));
    nodes.init().await;
    others.init().await;
    nodes.servers.extend(others.servers);
    let found = run_checkup(&nodes).await;
    let set = one(&found, "set");
    assert_eq!(set.health(), Health::Error, "{found:?}");
    assert!(set.found().contains("not one set"), "{found:?}");
    let stranger = nodes.servers[2].address().to_string();
    assert!(set.found().contains(&format!("{stranger} belongs to")), "{found:?}");
}

/// A majority agrees on one set, so the fifth is a missing vote, and is named.
#[tokio::test]
async fn one_server_of_another_set_among_five_is_a_warning_with_its_address() {
    let config = RedisConfig::default();
    let (mut nodes, others) = (Nodes::start(5, &config), Nodes::start(1, &config));
    nodes.init().await;
    others.init().await;
    nodes.servers.truncate(4);
    nodes.servers.extend(others.servers);
    let found = run_checkup(&nodes).await;
    assert_eq!(ill(&found), ["votes", "guard"], "{found:?}");
    assert_eq!(one(&found, "set").health(), Health::Ok, "{found:?}");
    assert!(one(&found, "margin").found().contains("4 of 5 vote, 1 more"), "{found:?}");
    let stranger = nodes.servers[4].address().to_string();
    let votes = one(&found, "votes");
    assert_eq!(votes.health(), Health::Warning, "{found:?}");
    assert!(votes.found().starts_with(&format!("{stranger}: ")), "{found:?}");
    assert!(votes.found().contains("belongs to the set"), "{found:?}");
    assert!(votes.fix().is_some_and(|fix| fix.contains("name the right server")), "{found:?}");
}

#[tokio::test]
async fn a_replica_is_reported() {
    let mut nodes = Nodes::start(2, &RedisConfig::default());
    let config = RedisConfig::default().with_replica_of(nodes.servers[0].address());
    nodes.servers.push(RedisServer::start(config));
    let found = run_checkup(&nodes).await;
    let reported = by(&found, "votes");
    assert!(reported.iter().any(|one| one.found().contains("it is a replica")), "{found:?}");
    assert_eq!(found.health(), Health::Error);
}

#[tokio::test]
async fn a_fault_of_one_server_is_reported_with_its_address() {
    let mut nodes = Nodes::start(2, &RedisConfig::default());
    let few = "few on >canary ~holdline:* &holdline:* +@all -setrange";
    let config = RedisConfig::default().with_maxmemory("50mb", "volatile-lru").with_user(few);
    let config = config.with_clock().with_line("timeout 30");
    let config = config.with_line("client-output-buffer-limit pubsub 8kb 4kb 1");
    nodes.servers.push(RedisServer::start(config));
    for server in &nodes.servers[..2] {
        let made = server.raw().say("ACL SETUSER few on >canary ~holdline:* &holdline:* +@all");
        made.expect("a user");
    }
    nodes.servers[2].clock().step_forward(Duration::from_secs(5));
    let url = nodes.url().replace("redlock://", "redlock://few:canary@");
    let url = format!("{url}?command_timeout_ms=5000");
    let found = of(&QuorumOptions::from_url(&url).expect("a good URL")).await;
    let address = nodes.servers[2].address().to_string();
    for (check, health) in [
        ("eviction", Health::Error),
        ("rights", Health::Error),
        ("idle", Health::Warning),
        ("messages", Health::Warning),
    ] {
        let reported = by(&found, check);
        assert_eq!(reported.len(), 2, "{found:?}");
        let worst = reported.iter().find(|one| one.health() == health).expect("a reply");
        assert!(worst.found().starts_with(&format!("{address}: ")), "{found:?}");
    }
    assert_eq!(one(&found, "clocks").health(), Health::Warning, "{found:?}");
    assert!(one(&found, "clocks").fix().is_some_and(|fix| fix.contains(&address)), "{found:?}");
    assert!(!format!("{found:?}").contains("canary"), "{found:?}");
}

/// One server of an otherwise healthy set, misconfigured in one way at a time.
#[tokio::test]
async fn each_harmful_setting_of_one_server_is_reported_with_its_address() {
    let config = RedisConfig::default().with_password("canary").with_appendonly("always");
    let nodes = Nodes::start(3, &config.with_user("locker on >canary ~* &* +@all"));
    let url = nodes.url().replace("redlock://", "redlock://locker:canary@");
    let options = QuorumOptions::from_url(&format!("{url}?command_timeout_ms=5000"));
    let options = options.expect("a good URL");
    vouched(&admin_of(&options)).await;
    assert_eq!(ill(&of(&options).await), [""; 0]);
    let server = &nodes.servers[2];
    let (address, mut raw) = (server.address().to_string(), server.raw());
    // So much that the memory of connections does not matter. A long argument would count twice
    // until the server shrinks the buffer of the connection.
    raw.say(&format!("SETRANGE ballast {} x", 10 << 20)).expect("set");
    let reported = raw.say("INFO memory").expect("a reply").text().expect("a text");
    let used =
        reported.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a reply");
    let used: u64 = used.parse().expect("a number");
    for (wrong, right, check, health) in [
        (
            "CONFIG SET maxmemory-policy allkeys-lru".to_owned(),
            "CONFIG SET maxmemory-policy noeviction",
            "eviction",
            Health::Error,
        ),
        (
            format!("CONFIG SET maxmemory {}", used * 100 / 88),
            "CONFIG SET maxmemory 0",
            "memory",
            Health::Warning,
        ),
        (
            format!("CONFIG SET maxmemory {}", used / 2),
            "CONFIG SET maxmemory 0",
            "memory",
            Health::Error,
        ),
        (
            "ACL SETUSER default nopass".to_owned(),
            "ACL SETUSER default resetpass >canary",
            "guard",
            Health::Warning,
        ),
        (
            "CONFIG SET appendfsync everysec".to_owned(),
            "CONFIG SET appendfsync always",
            "persistence",
            Health::Warning,
        ),
        (
            "CONFIG SET appendonly no".to_owned(),
            "CONFIG SET appendonly yes",
            "persistence",
            Health::Warning,
        ),
    ] {
        assert_eq!(raw.say(&wrong).expect("a reply").error(), None, "{wrong}");
        let found = of(&options).await;
        assert_eq!(ill(&found), [check], "{wrong}: {found:?}");
        let reported = by(&found, check);
        let worst = reported.iter().find(|one| one.health() != Health::Ok).expect("a reply");
        assert_eq!(worst.health(), health, "{wrong}: {found:?}");
        let text = format!("{} {}", worst.found(), worst.fix().unwrap_or_default());
        assert!(text.contains(&address), "{wrong}: {text}");
        let others = nodes.servers[..2].iter().map(|server| server.address().to_string());
        let others: Vec<String> = others.filter(|other| text.contains(other)).collect();
        assert!(others.is_empty(), "{wrong}: {text}");
        assert_eq!(raw.say(right).expect("a reply").error(), None, "{right}");
    }
    assert!(!format!("{:?}", of(&options).await).contains("canary"));
}

/// Without tokens they are no set, and each is checked separately.
#[tokio::test]
async fn servers_without_a_set_are_checked_one_by_one() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.servers[2].kill();
    let found = of(&nodes.options("&dialect=plain&fencing=off")).await;
    let servers = one(&found, "servers");
    assert_eq!(
        (servers.found(), servers.health()),
        ("2 of 3 answer, 2 must agree", Health::Warning)
    );
    assert_eq!(one(&found, "rights").health(), Health::Ok, "{found:?}");
    assert!(found.findings().iter().all(|one| one.check() != "set"), "{found:?}");
}
