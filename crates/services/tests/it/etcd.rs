//! etcd servers, alone and three together, carry out commands.

use holdline_services::{EtcdCluster, EtcdConfig, EtcdFlavour, EtcdServer};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

#[test]
fn a_server_of_each_flavour_keeps_what_it_has() {
    let versions =
        [(EtcdFlavour::Debian, "3.4."), (EtcdFlavour::V35, "3.5.1"), (EtcdFlavour::V37, "3.7.3")];
    for (flavour, version) in versions {
        let server = EtcdServer::start(EtcdConfig::default().with_flavour(flavour));
        assert_eq!(server.url(), format!("etcd://{}", server.address()));
        let status = server.ctl(&["endpoint", "status", "-w", "fields"]);
        assert!(status.contains(&format!("\"Version\" : \"{version}")), "{status}");
        server.ctl(&["put", "key", "value"]);
        let pid = server.pid();
        match flavour {
            // It may forget what it has acknowledged: etcd issue 13766.
            EtcdFlavour::V35 => server.end(),
            _ => server.kill(),
        }
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

/// What a member writes of its own accord says what its wall clock shows.
#[test]
fn a_members_wall_clock_is_stepped_and_each_version_sees_it() {
    const HOUR: i64 = 3_600;
    for flavour in EtcdFlavour::ALL {
        let server = EtcdServer::start(EtcdConfig::default().with_flavour(flavour));
        for (ahead, hours) in [(HOUR, 1), (-HOUR, -1), (0, 0), (100 * HOUR, 100)] {
            let before = server.log().len();
            server.step_clock(ahead);
            server.ctl(&["put", "key", "value"]);
            server.ctl(&["compaction", &server.revision().to_string()]);
            let shown = hour_of_last_line(&server, before);
            assert!((shown - hour_now() - hours).abs() <= 1, "{ahead} s: hour {shown}");
        }
    }
}

fn hour_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.expect("after 1970").as_secs() / 3_600).expect("few")
}

/// The hour, since 1970, in which the member says that it compacted.
fn hour_of_last_line(server: &EtcdServer, before: usize) -> i64 {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let log = server.log();
        let mut lines = log[before..].lines().filter(|line| line.contains("compact"));
        let stamp = lines.next_back().and_then(|line| line.split("\"ts\":\"").nth(1));
        if let Some(stamp) = stamp {
            let field =
                |range: std::ops::Range<usize>| stamp[range].parse::<i64>().expect("a number");
            return days_since_1970(field(0..4), field(5..7), field(8..10)) * 24 + field(11..13);
        }
        assert!(std::time::Instant::now() < end, "never compacted: {log}");
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin in March, so that the day of a leap year is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468
}
