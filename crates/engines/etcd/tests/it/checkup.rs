//! What `doctor` finds on real servers.

use holdline_core::{Checkup, Health};
use holdline_etcd::{EtcdOptions, checkup};
use holdline_services::{EtcdCluster, EtcdConfig, EtcdFlavour, EtcdServer};

async fn look(url: &str) -> Checkup {
    checkup(&EtcdOptions::from_url(url).expect("a good URL")).await.expect("looked at")
}

fn health(checkup: &Checkup, check: &str) -> (Health, String) {
    let found = checkup.findings().iter().find(|finding| finding.check() == check);
    let finding = found.unwrap_or_else(|| panic!("no {check}: {checkup:?}"));
    (finding.health(), format!("{} {}", finding.found(), finding.fix().unwrap_or_default()))
}

#[tokio::test]
async fn one_old_member_is_said_to_be_that() {
    let server = EtcdServer::start(EtcdConfig::default());
    let found = look(&server.url()).await;
    assert_eq!(health(&found, "reachable").0, Health::Ok);
    assert_eq!(health(&found, "quorum").0, Health::Warning);
    let (version, text) = health(&found, "version");
    assert_eq!(version, Health::Warning);
    assert!(text.contains("3.4.") && text.contains("fencing token"), "{text}");
    assert_eq!(health(&found, "space").0, Health::Ok);
    assert_eq!(health(&found, "rights").0, Health::Ok);
    // It only asks.
    assert_eq!(server.ctl(&["get", "", "--prefix", "--keys-only"]), "");
}

#[tokio::test]
async fn a_version_whose_keepalives_are_proof_is_well() {
    let config = EtcdConfig::default().with_flavour(EtcdFlavour::V37);
    let server = EtcdServer::start(config);
    let (version, text) = health(&look(&server.url()).await, "version");
    assert_eq!(version, Health::Ok);
    assert!(text.contains("3.7.3"), "{text}");
}

#[tokio::test]
async fn a_member_that_is_away_is_named_and_rights_are_told() {
    let cluster = EtcdCluster::start(EtcdConfig::default());
    let found = look(&cluster.url()).await;
    assert_eq!(health(&found, "quorum").0, Health::Ok);
    cluster.kill(2);
    let (reachable, text) = health(&look(&cluster.url()).await, "reachable");
    assert_eq!(reachable, Health::Warning);
    assert!(text.contains(&cluster.address(2).to_string()), "{text}");
    cluster.kill(1);
    let alone = look(&cluster.url_of(0)).await;
    assert_ne!(alone.findings().iter().map(|one| one.health()).max(), Some(Health::Ok));

    let server = EtcdServer::start(EtcdConfig::default().with_password("s3cret"));
    server.ctl(&["user", "add", "reader:hers"]);
    let found = look(&format!("etcd://reader:hers@{}", server.address())).await;
    let (rights, text) = health(&found, "rights");
    assert_eq!(rights, Health::Error);
    assert!(text.contains("grant-permission ROLE readwrite --prefix=true holdline/"), "{text}");
}
