//! What `doctor` finds on real servers.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::{Checkup, Health};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use holdline_zookeeper::{ZooKeeperOptions, checkup};

use crate::support::{contender, engine, nodes, until};

async fn look(url: &str) -> Checkup {
    let options = ZooKeeperOptions::from_url(url).expect("a good URL");
    // Long enough for a machine that is busy; a member that refuses does so at once.
    let options = options.with_connect_timeout(Duration::from_secs(20));
    checkup(&options, Arc::new(MachineClock)).await.expect("looked at")
}

fn health(checkup: &Checkup, check: &str) -> (Health, String) {
    let found = checkup.findings().iter().find(|finding| finding.check() == check);
    let finding = found.unwrap_or_else(|| panic!("no {check}: {checkup:?}"));
    (finding.health(), format!("{} {}", finding.found(), finding.fix().unwrap_or_default()))
}

#[tokio::test]
async fn each_wrong_configuration_is_reported() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default().with_words("srvr"));
    let found = look(&server.url()).await;
    assert_eq!(health(&found, "reachable").0, Health::Ok);
    let (sessions, text) = health(&found, "sessions");
    assert!(sessions == Health::Ok && text.contains("from 400ms to 60s"), "{text}");
    let (quorum, text) = health(&found, "quorum");
    assert!(quorum == Health::Warning && text.contains("standalone"), "{text}");
    let (version, text) = health(&found, "version");
    assert!(version == Health::Ok && text.contains("3.8."), "{text}");
    let (ticks, text) = health(&found, "ticks");
    assert!(ticks == Health::Warning && text.contains("whitelist=srvr,conf"), "{text}");
    assert_eq!(health(&found, "rights").0, Health::Ok);
    // It only asks.
    assert_eq!(nodes(&server, "/").await, Vec::<String>::new());

    let ann = engine(&format!("zk://ann:hers@{}", server.address(0))).await;
    contender(&ann, "a").take().await;
    let (rights, text) = health(&look(&server.url()).await, "rights");
    assert!(rights == Health::Error && text.contains("setAcl -R /holdline"), "{text}");

    server.kill(0);
    let found = look(&server.url()).await;
    assert_eq!(health(&found, "reachable").0, Health::Error);
    assert_eq!(found.findings().len(), 1);
}

#[tokio::test]
async fn sessions_and_ticks_that_are_too_long_are_reported() {
    let config = ZooKeeperConfig::default().with_sessions(5_000, 20_000).with_tick(3_000);
    let server = ZooKeeper::start(&config);
    let found = look(&server.url()).await;
    let (sessions, text) = health(&found, "sessions");
    assert!(sessions == Health::Warning && text.contains("lower minSessionTimeout"), "{text}");
    let (ticks, text) = health(&found, "ticks");
    assert!(ticks == Health::Warning && text.contains("two ticks"), "{text}");
}

#[tokio::test]
async fn sessions_that_do_not_fit_leases_are_reported() {
    let start = |shortest, longest| {
        ZooKeeper::start(&ZooKeeperConfig::default().with_sessions(shortest, longest))
    };
    let (short, long) = (start(400, 20_000), start(31_000, 90_000));
    for (url, health_of, says) in [
        (short.url(), Health::Warning, "raise maxSessionTimeout to 30000"),
        (long.url(), Health::Error, "no lease starts with more than 30 s"),
        (format!("{},{}", short.url(), long.hosts()), Health::Error, "alike on all members"),
    ] {
        let (sessions, text) = health(&look(&url).await, "sessions");
        assert!(sessions == health_of && text.contains(says), "{url}: {text}");
    }
}

#[tokio::test]
async fn missing_lagging_or_too_few_members_are_reported() {
    let config = ZooKeeperConfig::default().with_tick(1_000).with_sessions(2_000, 60_000);
    let servers = ZooKeeper::start_three(&config);
    let found = look(&servers.url()).await;
    assert_eq!(health(&found, "reachable").0, Health::Ok);
    let (quorum, text) = health(&found, "quorum");
    assert!(quorum == Health::Ok && text.contains("leader") && text.contains("follower"), "{text}");
    let (ticks, text) = health(&found, "ticks");
    assert!(ticks == Health::Warning && text.contains("lower syncLimit"), "{text}");

    let leader = servers.leader();
    let others: Vec<usize> = (0..3).filter(|member| *member != leader).collect();
    servers.kill(others[0]);
    let found = look(&servers.url()).await;
    let (reachable, text) = health(&found, "reachable");
    let away = servers.address(others[0]).to_string();
    assert!(reachable == Health::Warning && text.contains(&away), "{text}");
    assert_eq!(health(&found, "quorum").0, Health::Ok);

    servers.kill(others[1]);
    until("it sees that it is alone", async || servers.word(leader, "srvr").contains("serving"))
        .await;
    let found = look(&servers.url()).await;
    assert_eq!(health(&found, "reachable").0, Health::Warning);
    let (quorum, text) = health(&found, "quorum");
    assert!(quorum == Health::Error && text.contains("not serving"), "{text}");
}

#[tokio::test]
async fn a_password_that_others_can_read_is_reported() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let near = format!("zk://ann:hers@{}", server.address(0));
    let found = look(&near).await;
    assert!(!found.findings().iter().any(|one| one.check() == "password"), "{found:?}");
    // One of the members is on another machine, which need not be reached to know that.
    let options = ZooKeeperOptions::from_url(&format!("{near},198.51.100.1:1")).expect("a URL");
    let options = options.with_connect_timeout(Duration::from_millis(500));
    let found = checkup(&options, Arc::new(MachineClock)).await.expect("looked at");
    let (password, text) = health(&found, "password");
    assert!(password == Health::Warning && text.contains("without TLS"), "{text}");
}

#[tokio::test]
async fn a_server_is_looked_at_by_tls() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default().with_tls());
    let ca = server.certificates().ca();
    let found = look(&format!("{}?ca={}", server.secure_url(), ca.display())).await;
    for check in ["reachable", "sessions", "version", "rights"] {
        assert_eq!(health(&found, check).0, Health::Ok, "{check}: {found:?}");
    }
    let other = server.certificates().other_ca();
    let found = look(&format!("{}?ca={}", server.secure_url(), other.display())).await;
    let (reachable, text) = health(&found, "reachable");
    assert!(reachable == Health::Error && text.contains("not from the authority"), "{text}");
}
