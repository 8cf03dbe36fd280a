//! etcd servers, alone and three together, do as told.

use holdline_services::{EtcdCluster, EtcdConfig, EtcdFlavour, EtcdServer};
use std::net::TcpStream;

#[test]
fn a_server_of_each_flavour_keeps_what_it_has_over_a_kill() {
    let versions =
        [(EtcdFlavour::Debian, "3.4."), (EtcdFlavour::V35, "3.5.1"), (EtcdFlavour::V37, "3.7.3")];
    for (flavour, version) in versions {
        let server = EtcdServer::start(EtcdConfig::default().with_flavour(flavour));
        assert_eq!(server.url(), format!("etcd://{}", server.address()));
        let status = server.ctl(&["endpoint", "status", "-w", "fields"]);
        assert!(status.contains(&format!("\"Version\" : \"{version}")), "{status}");
        server.ctl(&["put", "key", "value"]);
        let pid = server.pid();
        server.kill();
        assert!(TcpStream::connect(server.address()).is_err());
        server.restart();
        assert_ne!(server.pid(), pid);
        assert_eq!(server.ctl(&["get", "key", "--print-value-only"]), "value\n");
    }
}

#[test]
fn a_password_and_a_certificate_are_asked_for() {
    let server = EtcdServer::start(EtcdConfig::default().with_password("secret"));
    server.ctl(&["put", "key", "value"]);
    let nobody = server.ctl_command().env_remove("ETCDCTL_USER").args(["get", "key"]).output();
    assert!(!nobody.unwrap().status.success());
    assert_eq!(server.url(), format!("etcd://root:secret@{}", server.address()));

    let server = EtcdServer::start(EtcdConfig::default().with_client_certificates());
    server.ctl(&["put", "key", "value"]);
    let mut nobody = server.ctl_command();
    nobody
        .env_remove("ETCDCTL_CERT")
        .env_remove("ETCDCTL_KEY")
        .env("ETCDCTL_DIAL_TIMEOUT", "500ms");
    assert!(
        !nobody.args(["--command-timeout=1s", "get", "key"]).output().unwrap().status.success()
    );
    assert_eq!(server.url(), format!("etcds://localhost:{}", server.address().port()));
}

#[test]
fn three_members_elect_another_leader_and_take_the_old_one_back() {
    let cluster = EtcdCluster::start(EtcdConfig::default());
    let leader = cluster.leader_seen_by(0);
    let witness = (leader + 1) % 3;
    cluster.ctl_until(witness, &["put", "key", "value"]);
    cluster.kill(leader);
    cluster.ctl_until(witness, &["put", "key", "later"]);
    assert_ne!(cluster.leader_seen_by(witness), leader);
    cluster.relaunch(leader);
    cluster.await_ready(leader);
    assert_eq!(cluster.ctl_until(leader, &["get", "key", "--print-value-only"]), "later\n");
    let leader = cluster.leader_seen_by(witness);
    cluster.stop(leader);
    let witness = (leader + 1) % 3;
    cluster.ctl_until(witness, &["put", "key", "last"]);
    cluster.cont(leader);
    assert_eq!(cluster.ctl_until(leader, &["get", "key", "--print-value-only"]), "last\n");
}
