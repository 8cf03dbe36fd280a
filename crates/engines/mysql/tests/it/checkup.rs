//! The findings of `doctor` on real servers, each with exactly one wrong setting. It creates
//! nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::operation::LARGEST_FENCE;
use holdline_core::{Checkup, Finding, Health};
use holdline_mysql::mysql_async::prelude::Queryable;
use holdline_mysql::{MysqlOptions, checkup};
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::replicas;
use crate::support::{
    PATIENCE, connect, engine, eventually, let_go, queue, request, sign_in, take, url_at,
};

pub(crate) async fn look(url: &str) -> Checkup {
    let options = MysqlOptions::from_url(url).expect("a good URL");
    checkup(&options, Arc::new(MachineClock)).await.expect("good options")
}

pub(crate) fn ill(checkup: &Checkup) -> Vec<&str> {
    let ill = checkup.findings().iter().filter(|finding| finding.health() != Health::Ok);
    ill.map(Finding::check).collect()
}

#[tokio::test]
async fn tokens_near_their_end_are_reported() {
    let server = MariaDbServer::start(MariaDbConfig::default().with_fsync());
    take(&engine(&server).await, &request("made")).await;
    for (floor, health) in
        [(1, Health::Ok), (LARGEST_FENCE, Health::Warning), (9_007_199_254_740_990, Health::Error)]
    {
        server.sql(&format!("update holdline_about set floor = {floor}; commit"));
        let found = look(&server.url()).await;
        let finding = found.findings().iter().find(|one| one.check() == "tokens");
        assert_eq!(finding.expect("checked").health(), health, "{found:?}");
    }
}

#[tokio::test]
async fn a_good_server_has_no_findings_and_changed_settings_are_reported() {
    let server = MariaDbServer::start(MariaDbConfig::default().with_fsync().with_clock());
    let found = look(&server.url()).await;
    assert_eq!(ill(&found), ["tables"], "{found:?}");
    assert!(server.sql("show tables").is_empty());
    take(&engine(&server).await, &request("made")).await;
    let found = look(&server.url()).await;
    let checks: Vec<&str> = found.findings().iter().map(Finding::check).collect();
    let all = [
        "reachable",
        "server",
        "role",
        "durability",
        "replicas",
        "logging",
        "galera",
        "idle",
        "packets",
        "pooler",
        "snapshots",
        "clock",
        "tables",
        "tokens",
        "names",
    ];
    assert_eq!(checks, all, "{found:?}");
    assert_eq!(ill(&found), [""; 0], "{found:?}");
    let made = found.findings().iter().any(|one| one.found().ends_with("made by holdline@%"));
    assert!(made, "{found:?}");
    for (wrong, right, check) in [
        ("innodb_flush_log_at_trx_commit = 2", "innodb_flush_log_at_trx_commit = 1", "durability"),
        ("wait_timeout = 30", "wait_timeout = 28800", "idle"),
        ("max_allowed_packet = 65536", "max_allowed_packet = 16777216", "packets"),
        ("read_only = 1", "read_only = 0", "reachable"),
    ] {
        server.sql(&format!("set global {wrong}"));
        let found = look(&server.url()).await;
        assert_eq!(ill(&found), [check], "{wrong}: {found:?}");
        server.sql(&format!("set global {right}"));
    }
    server.sql("create table theirs_heads (a int)");
    let found = look(&format!("{}?prefix=theirs_", server.url())).await;
    assert_eq!((ill(&found), found.health()), (vec!["tables"], Health::Error), "{found:?}");
    server.clock().step_forward(Duration::from_secs(100));
    let found = look(&server.url()).await;
    assert_eq!(ill(&found), ["clock"], "{found:?}");
}

/// A dump, or a forgotten session. The server shows its owner only with a privilege.
#[tokio::test]
async fn a_long_transaction_is_reported() {
    let server = MariaDbServer::start(MariaDbConfig::default().with_fsync().with_clock());
    take(&engine(&server).await, &request("made")).await;
    let mut old = sign_in(server.address()).await;
    old.query_drop("start transaction with consistent snapshot").await.expect("begun");
    server.clock().step_forward(Duration::from_secs(400));
    assert_eq!(ill(&look(&server.url()).await), ["clock"]);
    server.sql("grant process on *.* to holdline@'%'");
    let found = look(&server.url()).await;
    assert_eq!(ill(&found), ["snapshots", "clock"], "{found:?}");
    let fix = found.findings().iter().find_map(|one| one.fix().filter(|fix| fix.contains("KILL")));
    assert!(fix.is_some_and(|fix| fix.contains(&format!("KILL {}", old.id()))), "{found:?}");
    old.query_drop("rollback").await.expect("still there");
    // InnoDB answers from a copy that it renews only after 100 ms without a reader.
    let deadline = std::time::Instant::now() + PATIENCE;
    while ill(&look(&server.url()).await) != ["clock"] {
        assert!(std::time::Instant::now() < deadline, "it is still reported");
        tokio::time::sleep(Duration::from_millis(200)).await; // event: the copy has none
    }
}

/// No server of MySQL is tested; this one only says that it is one. It is worked with all the same.
#[tokio::test]
async fn a_server_that_is_no_mariadb_is_reported() {
    let config = MariaDbConfig::default().with_fsync().with_line("version=8.0.36");
    let server = MariaDbServer::start(config);
    take(&engine(&server).await, &request("made")).await;
    assert_eq!(ill(&look(&server.url()).await), ["server"]);
}

#[tokio::test]
async fn pages_that_a_crash_may_tear_are_reported() {
    let config = MariaDbConfig::default().with_fsync().with_line("innodb-doublewrite=OFF");
    let server = MariaDbServer::start(config);
    take(&engine(&server).await, &request("made")).await;
    assert_eq!(ill(&look(&server.url()).await), ["durability"]);
}

/// A Galera cluster of one node: missing promises are reported, and locks work, with certification
/// at each commit.
#[tokio::test]
async fn a_node_of_a_galera_cluster_is_reported_and_serves_clients_that_all_name_it() {
    let batch = [
        "wsrep_on=ON",
        "wsrep_provider=/usr/lib/galera/libgalera_smm.so",
        "wsrep_cluster_address=gcomm://",
        "wsrep_node_address=127.0.0.1",
        "wsrep_provider_options=\"gmcast.listen_addr=tcp://127.0.0.1:0;gcache.size=16M\"",
        "binlog_format=ROW",
        "innodb_autoinc_lock_mode=2",
    ];
    let config = MariaDbConfig::default().with_fsync();
    let config = batch.into_iter().fold(config, MariaDbConfig::with_line);
    let server = MariaDbServer::start(config);
    let node = engine(&server).await;
    let (holder, next) = (request("a"), request("a"));
    let token = take(&node, &holder).await;
    queue(&node, &next).await;
    let found = look(&server.url()).await;
    assert_eq!(ill(&found), ["galera"], "{found:?}");
    let_go(&node, &holder).await;
    assert!(take(&node, &next).await > token);
}

#[tokio::test]
async fn a_binary_log_that_is_not_flushed_or_acknowledged_is_reported() {
    let config = MariaDbConfig::default().with_fsync().with_line("log-bin");
    let server = MariaDbServer::start(config.with_line("sync-binlog=0"));
    take(&engine(&server).await, &request("made")).await;
    assert_eq!(ill(&look(&server.url()).await), ["durability", "replicas"]);
    // What is committed before there is a replica need not wait for one.
    server.sql("set global rpl_semi_sync_master_timeout = 1");
    server.sql("set global sync_binlog = 1; set global rpl_semi_sync_master_enabled = 1");
    server.sql("set global rpl_semi_sync_master_wait_point = 'AFTER_SYNC'");
    assert_eq!(ill(&look(&server.url()).await), ["replicas"], "nobody answers");
    let replica = replicas::server(2);
    replica.sql("set global rpl_semi_sync_slave_enabled = 1");
    replicas::follow(&server, &replica);
    replicas::await_answering(&server).await;
    assert_eq!(ill(&look(&server.url()).await), [""; 0]);
    server.sql("set global rpl_semi_sync_master_wait_point = 'AFTER_COMMIT'");
    assert_eq!(ill(&look(&server.url()).await), ["replicas"]);
    server.sql("set global rpl_semi_sync_master_wait_point = 'AFTER_SYNC'");
    server.sql("set global binlog_format = 'STATEMENT'");
    assert_eq!(ill(&look(&server.url()).await), ["logging"]);
}

/// Without `read_only`, clients that name the replica lock beside those that name the primary.
#[tokio::test]
async fn a_replica_that_takes_writes_is_reported() {
    let (primary, replica) = (replicas::server(1), replicas::server(2));
    replicas::follow(&primary, &replica);
    take(&engine(&primary).await, &request("made")).await;
    replicas::await_repeated(&primary, &replica);
    let role = async |server: &MariaDbServer| {
        let found = look(&server.url()).await;
        let role = found.findings().iter().find(|finding| finding.check() == "role");
        let role = role.expect("looked at").clone();
        (role.health(), format!("{} {}", role.found(), role.fix().unwrap_or_default()))
    };
    let name = primary.address().to_string();
    // An account without privileges gets the same finding without the name.
    for rights in ["select", "replica monitor"] {
        replica.sql(&format!("grant {rights} on *.* to holdline@'%'"));
        let (health, text) = role(&replica).await;
        assert_eq!(health, Health::Error, "{text}");
        assert!(text.contains("set read_only on this one"), "{text}");
        assert_eq!(text.contains(&name), rights == "replica monitor", "{text}");
        assert_eq!(role(&primary).await.0, Health::Ok);
    }
    // Two servers that replicate each other.
    replicas::repeat(&replica, &primary);
    let connected = "show global status like 'Slaves_connected'";
    eventually("they replicate each other", || replica.sql(connected) == ["Slaves_connected|1"])
        .await;
    assert_eq!(role(&replica).await.0, Health::Warning);
    primary.sql("stop slave; reset slave all");
    replica.sql("stop slave");
    let (health, text) = role(&replica).await;
    assert_eq!(health, Health::Warning, "{text}");
    assert!(text.contains(&name) && text.contains("does not now"), "{text}");
    replica.sql("reset slave all");
    assert_eq!(role(&replica).await.0, Health::Ok);
    assert_eq!(role(&primary).await.0, Health::Ok);
}

#[tokio::test]
async fn an_unreachable_server_is_a_finding() {
    let found = look("mysql://ann@127.0.0.1:1/x?connect_timeout_ms=200").await;
    assert_eq!(ill(&found), ["reachable"]);
}

/// As a pooler: the initial handshake has a connection id of its own.
fn pooler(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let Ok(mut upstream) = TcpStream::connect(server) else { return };
            let (Ok(mut from), Ok(mut to)) = (client.try_clone(), upstream.try_clone()) else {
                return;
            };
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || {
                let mut header = [0; 4];
                upstream.read_exact(&mut header)?;
                let size = usize::from(header[0]) | usize::from(header[1]) << 8;
                let mut initial = vec![0; size];
                upstream.read_exact(&mut initial)?;
                // The number stands behind the version, which ends with a zero.
                let end = initial.iter().position(|byte| *byte == 0).unwrap_or(0);
                initial[end + 1] ^= 0x55;
                client.write_all(&header)?;
                client.write_all(&initial)?;
                std::io::copy(&mut upstream, &mut client)
            });
        }
    });
    address
}

#[tokio::test]
async fn behind_a_pooler_locks_work_without_wake_ups() {
    let server = MariaDbServer::start(MariaDbConfig::default().with_fsync());
    let url = url_at(pooler(server.address()));
    let (one, other) =
        (connect(&url).await.expect("connected"), connect(&url).await.expect("connected"));
    let (held, waits) = (request("a"), request("a"));
    take(&one, &held).await;
    queue(&other, &waits).await;
    assert_eq!(server.sql("select hex(inbox) from holdline_waiters"), ["0000000000000000"]);
    let_go(&one, &held).await;
    let waits = holdline_core::AcquireRequest { known: true, ..waits };
    take(&other, &waits).await;
    assert_eq!(ill(&look(&url).await), ["pooler"]);
}
