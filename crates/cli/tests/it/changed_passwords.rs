//! A password that changes while a job runs: the job keeps its lock, and the wait goes on.

use std::cell::Cell;
use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;

use holdline_services::{
    EtcdConfig, EtcdServer, FaultProxy, MariaDbConfig, MariaDbServer, PostgresConfig,
    PostgresServer, RedisConfig, RedisServer,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{World, eventually, output};

/// Limits that a slow machine meets.
const LIMITS: &str = "connect_timeout_ms=60000&command_timeout_ms=10000";

/// Runs a job over a connection that breaks off when the password changes. `change` gives the
/// server the new password.
fn a_job_survives(upstream: SocketAddr, url: impl Fn(SocketAddr) -> String, change: impl Fn()) {
    let world = World::new();
    let (file, proxy) = (world.path("password"), FaultProxy::start(upstream));
    std::fs::write(&file, "old\n").expect("written");
    let url = format!("{}?{LIMITS}&password_file={}", url(proxy.address()), file.display());
    let start = |verb: &str| {
        let job =
            ["demo", "--lease", "12s", "--grace", "300ms", "--", "sh", "-c", "echo up; read line"];
        let mut command = world.command(&[&[verb][..], &job].concat());
        world.start_command(command.env("HOLDLINE_URL", &url))
    };
    let mut holder = start("run");
    assert_eq!(holder.line(), "up");
    let mut next = start("elect");
    let who = || -> Value {
        let mut command = world.command(&["--json", "who", "demo"]);
        let seen = output(command.env("HOLDLINE_URL", &url));
        serde_json::from_str(&seen.stdout).unwrap_or_else(|why| panic!("{why}: {seen:?}"))
    };
    eventually("queued", || who()["queue_length"] == 1);
    std::fs::write(&file, "new\n").expect("written");
    change();
    proxy.reset();
    let left = || who()["holders"][0]["left_ms"].as_u64().expect("it is held");
    let before = Cell::new(u64::MAX);
    eventually("renewed under the new password", || {
        let now = left();
        now > before.replace(now)
    });
    holder.let_go();
    assert_eq!(holder.code(), 0, "{}", holder.rest());
    assert_eq!(next.line(), "up");
    next.signal(Signal::TERM);
    next.status();
}

#[test]
fn on_redis() {
    let server = RedisServer::start(RedisConfig::default().with_password("old"));
    a_job_survives(
        server.address(),
        |at| format!("redis://{at}"),
        || drop(server.raw().say("CONFIG SET requirepass new").expect("set")),
    );
}

#[test]
fn on_postgres() {
    let server = PostgresServer::start(PostgresConfig::default().with_passwords());
    server.sql("create role ann login password 'old'; grant create on database postgres to ann");
    a_job_survives(
        server.address(),
        |at| format!("postgres://ann@{at}/postgres"),
        || drop(server.sql("alter role ann password 'new'")),
    );
}

#[test]
fn on_mariadb() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    server.sql("create user ann@'%' identified by 'old'; grant all on locks.* to ann@'%'");
    a_job_survives(
        server.address(),
        |at| format!("mysql://ann@{at}/locks"),
        || drop(server.sql("alter user ann@'%' identified by 'new'")),
    );
}

#[test]
fn on_etcd() {
    let server = EtcdServer::start(EtcdConfig::default().with_password("old"));
    let change = || {
        let mut command = server.ctl_command();
        command.args(["user", "passwd", "root", "--interactive=false"]).stdin(Stdio::piped());
        let mut changing = command.stdout(Stdio::null()).spawn().expect("it starts");
        changing.stdin.take().expect("piped").write_all(b"new\n").expect("written");
        assert!(changing.wait().expect("it ends").success());
    };
    a_job_survives(server.address(), |at| format!("etcd://root@{at}"), change);
}
