//! PostgreSQL servers are started, stopped, killed and restarted, and never outlive us.

use holdline_services::{PgBouncer, PostgresConfig, PostgresFlavour, PostgresServer};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

fn is_alive(pid: u32) -> bool {
    // A zombie has no command line any more.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// What `psql` gets by TCP, on either stream.
fn by_tcp(server: &PostgresServer, settings: &str, statement: &str) -> String {
    let port = server.address().port();
    let mut psql = Command::new("psql");
    psql.args(["-X", "-A", "-t", "-w", "-c", statement]);
    psql.arg(format!("host=127.0.0.1 port={port} user=postgres dbname=postgres {settings}"));
    let done = psql.output().expect("psql comes with postgresql");
    String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).trim().to_owned()
}

#[test]
fn a_server_answers_by_port_and_by_socket_and_goes_with_its_owner() {
    let server = PostgresServer::start(PostgresConfig::default());
    server.sql("create table a (b int); insert into a values (1), (2)");
    assert_eq!(server.sql("select b, b + 1 from a order by b"), ["1|2", "2|3"]);
    assert_eq!(by_tcp(&server, "", "select count(*) from a"), "2");
    assert!(server.try_sql("postgres", "select nothing").unwrap_err().contains("nothing"));
    assert_eq!(server.url(), format!("postgres://postgres@{}/postgres", server.address()));
    let (pid, directory) = (server.pid(), server.directory().to_owned());
    drop(server);
    assert!(!is_alive(pid));
    assert!(!directory.exists());
}

#[test]
fn each_flavour_has_its_version_and_is_killed_and_restarted() {
    for (flavour, least) in [(PostgresFlavour::Debian, 140_000), (PostgresFlavour::V18, 180_000)] {
        let server = PostgresServer::start(PostgresConfig::default().with_flavour(flavour));
        let version: u32 = server.sql("show server_version_num")[0].parse().expect("a number");
        assert!((least..least + 100_000).contains(&version), "{flavour:?} is {version}");
        server.sql("create table a (b int)");
        let pid = server.pid();
        server.kill();
        assert!(!is_alive(pid));
        server.restart();
        assert_eq!(server.sql("select count(*) from a"), ["0"]);
    }
}

#[test]
fn a_stopped_server_stands_still_with_all_its_processes_and_goes_on() {
    let server = PostgresServer::start(PostgresConfig::default());
    server.stop();
    let port = server.address().port();
    // The kernel accepts for it.
    let stream = std::net::TcpStream::connect(server.address());
    assert!(stream.is_ok());
    let mut ready = Command::new("pg_isready");
    ready.args(["-q", "-t", "1", "-h", "127.0.0.1", "-p", &port.to_string()]);
    assert_eq!(ready.status().expect("it comes with postgresql").code(), Some(2));
    server.cont();
    assert_eq!(server.sql("select 1"), ["1"]);
}

#[test]
fn a_stopped_server_goes_with_its_owner() {
    let server = PostgresServer::start(PostgresConfig::default());
    server.stop();
    let pid = server.pid();
    drop(server);
    assert!(!is_alive(pid));
}

#[test]
fn a_crashed_server_comes_back_on_its_port_with_what_was_committed() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    let (address, pid) = (server.address(), server.pid());
    assert_eq!(server.sql("show fsync"), ["on"]);
    server.sql("create table a (b int); insert into a values (1)");
    server.crash();
    assert!(std::net::TcpStream::connect(address).is_err());
    server.restart();
    assert_eq!(server.address(), address);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.sql("select b from a"), ["1"]);
    server.restart();
    assert_eq!(server.sql("select b from a"), ["1"]);
}

#[test]
fn a_worker_that_is_killed_ends_all_others_and_the_server_recovers() {
    let server = PostgresServer::start(PostgresConfig::default());
    let mut other = Command::new("psql");
    other.args(["-X", "-U", "postgres", "-h"]).arg(server.directory());
    other.args(["-p", &server.address().port().to_string(), "-c", "select pg_sleep(600)"]);
    let mut other = other.stderr(Stdio::piped()).spawn().expect("psql");
    let find = "select pid from pg_stat_activity where query like 'select pg_sleep%'";
    let pid = (0..5000).find_map(|_| server.sql(find).first()?.parse().ok());
    server.kill_worker(pid.expect("it sleeps"));
    assert!(!other.wait().expect("it ends").success());
    server.await_log("terminating any other active server processes");
    let back = (0..5000).any(|_| {
        std::thread::sleep(Duration::from_millis(2)); // event: polls until it has recovered
        server.try_sql("postgres", "select 1").is_ok()
    });
    assert!(back, "{}", server.log());
}

#[test]
fn passwords_are_asked_by_tcp_alone() {
    let server = PostgresServer::start(PostgresConfig::default().with_passwords());
    server.sql("create role ann login password 'hers'");
    assert!(by_tcp(&server, "user=ann", "select 1").contains("no password supplied"));
    assert_eq!(by_tcp(&server, "user=ann password=hers", "select user"), "ann");
}

#[test]
fn tls_is_spoken_and_certificates_are_asked_for() {
    let server = PostgresServer::start(PostgresConfig::default().with_client_certificates());
    let certificates = server.certificates();
    let ca = format!("sslrootcert={}", certificates.ca().display());
    assert!(by_tcp(&server, "sslmode=disable", "select 1").contains("no encryption"));
    let (cert, key) = certificates.client();
    let with =
        format!("sslmode=verify-full {ca} sslcert={} sslkey={}", cert.display(), { key.display() });
    let private = Command::new("chmod").arg("600").arg(&key).status();
    assert!(private.expect("chmod runs").success());
    assert_eq!(
        by_tcp(&server, &with, "select ssl from pg_stat_ssl where pid = pg_backend_pid()"),
        "t"
    );
    let reply = by_tcp(&server, &format!("sslmode=verify-full {ca} sslcert=none"), "select 1");
    assert!(reply.contains("certificate"), "{reply}");
}

#[test]
fn a_pooler_gives_a_few_connections_to_many_and_goes_with_its_owner() {
    let server = PostgresServer::start(PostgresConfig::default());
    let pooler = PgBouncer::start(&server, 1);
    let ask = |url: &str| {
        let mut psql = Command::new("psql");
        let done = psql.args(["-X", "-A", "-t", "-c", "select pg_backend_pid()", "-d", url]);
        let done = done.output().expect("psql comes with postgresql");
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    };
    let (one, other) = (ask(&pooler.url()), ask(&pooler.url()));
    assert!(!one.is_empty());
    assert_eq!(one, other, "both were served by one process");
    let address = pooler.address();
    drop(pooler);
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_clock_can_be_moved() {
    let server = PostgresServer::start(PostgresConfig::default().with_clock());
    let seconds = || server.sql("select extract(epoch from clock_timestamp())::bigint");
    let before: i64 = seconds()[0].parse().expect("a number");
    server.clock().step_forward(Duration::from_secs(1000));
    let after: i64 = seconds()[0].parse().expect("a number");
    assert!(after - before >= 1000, "{before} {after}");
}

/// Run by the test below in a process of its own.
const PARENT: &str = "HOLDLINE_TEST_POSTGRES_PARENT";

#[test]
fn a_server_dies_with_a_process_that_is_killed() {
    if std::env::var_os(PARENT).is_some() {
        let server = PostgresServer::start(PostgresConfig::default());
        println!("\nserver {} {}", server.pid(), server.directory().display());
        loop {
            std::thread::park();
        }
    }
    let name = "postgres::a_server_dies_with_a_process_that_is_killed";
    let mut parent = Command::new(std::env::current_exe().expect("a path"))
        .args([name, "--exact", "--nocapture"])
        .env(PARENT, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(parent.stdout.take().expect("a pipe")).lines();
    let words =
        lines.map_while(Result::ok).find_map(|l| l.strip_prefix("server ").map(str::to_owned));
    let words = words.expect("a server");
    let (pid, directory) = words.split_once(' ').expect("two words");
    let pid = pid.parse().expect("a number");
    assert!(is_alive(pid));
    parent.kill().expect("killed");
    parent.wait().expect("reaped");
    let gone = (0..5000).any(|_| {
        std::thread::sleep(Duration::from_millis(2)); // event: polls until the kernel killed it
        !is_alive(pid)
    });
    // Nobody else can: a killed process removes nothing. What is left of the server may still be
    // writing there.
    let removed = (0..5000).any(|_| {
        std::thread::sleep(Duration::from_millis(2)); // event: polls until its workers ended
        std::fs::remove_dir_all(directory).is_ok()
    });
    assert!(gone && removed, "{pid} outlived its parent");
}

#[test]
fn a_server_that_cannot_start_reports_why() {
    let config = PostgresConfig::default().with_line("no_such_setting = yes");
    let error = PostgresServer::try_start(config).expect_err("refused").to_string();
    assert!(error.contains("ended at once") && error.contains("no_such_setting"), "{error}");
}
