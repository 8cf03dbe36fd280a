//! ZooKeeper servers, alone and three together, carry out commands.

use holdline_services::{ZooKeeper, ZooKeeperConfig};
use std::net::TcpStream;

#[test]
fn a_server_that_is_killed_comes_back_at_its_address() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default().with_connections(7));
    assert_eq!(server.url(), format!("zk://{}", server.address(0)));
    assert!(server.word(0, "srvr").contains("Mode: standalone"));
    let settings = server.word(0, "conf");
    for set in ["tickTime=200", "maxClientCnxns=7", "minSessionTimeout=400"] {
        assert!(settings.contains(set), "{settings}");
    }
    let pid = server.pid(0);
    server.kill(0);
    assert!(TcpStream::connect(server.address(0)).is_err());
    assert_eq!(server.word(0, "srvr"), "");
    server.restart();
    assert_ne!(server.pid(0), pid);
    assert!(!server.log(0).is_empty());
}

#[test]
fn three_members_elect_another_leader_and_take_the_old_one_back() {
    let servers = ZooKeeper::start_three(&ZooKeeperConfig::default());
    let leader = servers.leader();
    servers.kill(leader);
    assert_ne!(servers.leader(), leader);
    servers.relaunch(leader);
    servers.await_ready(leader);
    assert!(servers.word(leader, "srvr").contains("Mode: follower"));
}

#[test]
fn an_old_copy_is_restored_without_later_data() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let transaction = |server: &ZooKeeper| {
        let reply = server.word(0, "srvr");
        let last = reply.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).expect("a line");
        u64::from_str_radix(last, 16).expect("a number")
    };
    let copy = server.save();
    let before = transaction(&server);
    for _ in 0..3 {
        // Two transactions each.
        assert!(server.end_session(server.open_session(0)));
    }
    assert!(transaction(&server) > before && !server.end_session(1));
    server.restore(&copy);
    assert_eq!(transaction(&server), before);
}

#[test]
fn a_server_with_tls_listens_on_a_port_of_its_own() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default().with_client_certificates());
    let port = server.secure_url().rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let port: u16 = port.expect("a port");
    assert_ne!(port, server.address(0).port());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok(), "{}", server.log(0));
    assert!(server.certificates().ca().is_file());
}
