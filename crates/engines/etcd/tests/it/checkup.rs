//! What `doctor` finds on real servers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

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
async fn an_old_member_is_reported() {
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
async fn a_version_whose_keepalives_are_proof_is_ok() {
    let config = EtcdConfig::default().with_flavour(EtcdFlavour::V37);
    let server = EtcdServer::start(config);
    let (version, text) = health(&look(&server.url()).await, "version");
    assert_eq!(version, Health::Ok);
    assert!(text.contains("3.7.3"), "{text}");
}

#[tokio::test]
async fn a_missing_member_and_missing_rights_are_reported() {
    let cluster = EtcdCluster::start(EtcdConfig::default());
    let found = look(&cluster.url()).await;
    assert_eq!(health(&found, "quorum").0, Health::Ok);
    cluster.kill(2);
    let (reachable, text) = health(&look(&cluster.url()).await, "reachable");
    assert_eq!(reachable, Health::Warning);
    assert!(text.contains(&cluster.address(2).to_string()), "{text}");
    cluster.kill(1);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        // event: the last one finds that there is no leader, without a message
        let alone = look(&cluster.url_of(0)).await;
        if alone.findings().iter().any(|one| one.found().contains("no leader")) {
            assert_eq!(alone.health(), Health::Error, "{alone:?}");
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{alone:?}");
    }

    let server = EtcdServer::start(EtcdConfig::default().with_password("s3cret"));
    server.ctl(&["user", "add", "reader:hers"]);
    let found = look(&format!("etcd://reader:hers@{}", server.address())).await;
    let (rights, text) = health(&found, "rights");
    assert_eq!(rights, Health::Error);
    assert!(text.contains("grant-permission ROLE readwrite --prefix=true holdline/"), "{text}");
}

/// By the quota that the server was given, before it raises the alarm: 3.4 reports it in its
/// metrics, with TLS and without, 3.7 with its status.
#[tokio::test]
async fn a_nearly_full_database_is_reported_before_its_alarm() {
    const QUOTA: u64 = 4 << 20;
    let config = EtcdConfig::default().with_quota(QUOTA);
    let newest = config.clone().with_flavour(EtcdFlavour::V37);
    for (config, tls) in
        [(config.clone(), false), (config.with_client_certificates(), true), (newest, false)]
    {
        let server = EtcdServer::start(config);
        let mut url = server.url();
        if tls {
            let (ca, (cert, key)) = (server.certificates().ca(), server.certificates().client());
            let (ca, cert, key) = (ca.display(), cert.display(), key.display());
            url += &format!("?ca={ca}&cert={cert}&key={key}");
        }
        let (mut space, mut text) = health(&look(&url).await, "space");
        assert_eq!(space, Health::Ok, "{text}");
        assert!(text.contains("of 4096 KiB"), "{text}");
        let big = "x".repeat(50_000);
        for _ in 0..QUOTA / 50_000 {
            server.ctl(&["put", "big", &big]);
            (space, text) = health(&look(&url).await, "space");
            if space != Health::Ok {
                break;
            }
        }
        assert_eq!(space, Health::Warning, "{text}");
        assert!(!text.contains("NOSPACE") && text.contains("--quota-backend-bytes"), "{text}");
    }
}

#[tokio::test]
async fn a_full_database_is_reported_by_its_alarm() {
    let server = EtcdServer::start(EtcdConfig::default().with_quota(200 * 1024));
    let big = "x".repeat(50_000);
    let mut reply = server.ctl_command();
    // The one that finds no room raises the alarm.
    while reply.args(["put", "big", &big]).output().expect("etcdctl starts").status.success() {
        reply = server.ctl_command();
    }
    let (space, text) = health(&look(&server.url()).await, "space");
    assert_eq!(space, Health::Error);
    assert!(text.contains("NOSPACE") && text.contains("disarm"), "{text}");
}

#[tokio::test]
async fn data_that_differs_is_reported_by_its_alarm() {
    let server = EtcdServer::start(EtcdConfig::default());
    assert_eq!(health(&look(&server.url()).await, "data").0, Health::Ok);
    raise_corrupt(server.address());
    let found = look(&server.url()).await;
    let (data, text) = health(&found, "data");
    assert_eq!(data, Health::Error);
    assert!(text.contains("CORRUPT") && text.contains("add it again"), "{text}");
    assert_eq!(health(&found, "space").0, Health::Ok);
}

/// Raises the server's alarm that a member's data differ, by its HTTP gateway.
fn raise_corrupt(address: SocketAddr) {
    let body = r#"{"action":"ACTIVATE","memberID":"1","alarm":"CORRUPT"}"#;
    let mut stream = TcpStream::connect(address).expect("it listens");
    let head = "POST /v3/maintenance/alarm HTTP/1.1\r\nHost: here\r\nConnection: close\r\n";
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("an answer");
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
}

#[tokio::test]
async fn a_server_version_that_may_lose_writes_in_a_crash_is_reported() {
    let server = EtcdServer::start(EtcdConfig::default().with_flavour(EtcdFlavour::V35));
    let (version, text) = health(&look(&server.url()).await, "version");
    assert_eq!(version, Health::Error);
    assert!(text.contains("3.5.1 ") && text.contains("repeat tokens"), "{text}");
}

#[tokio::test]
async fn a_password_that_others_can_read_is_reported() {
    let server = EtcdServer::start(EtcdConfig::default().with_password("s3cret"));
    let near = look(&server.url()).await;
    assert!(!near.findings().iter().any(|one| one.check() == "password"), "{near:?}");
    // One of the members is on another machine, which need not be reached to know that.
    let far = server.url() + ",198.51.100.1:1?connect_timeout_ms=500";
    let (password, text) = health(&look(&far).await, "password");
    assert_eq!(password, Health::Warning);
    assert!(text.contains("etcds://"), "{text}");
}
