//! Engines that other processes reach by URL, with processes that are stopped and killed.

use std::path::{Path, PathBuf};

use holdline::Client;
use holdline_conformance::Status;
use holdline_conformance::processes::{self, Reachable};
use holdline_services::{
    ClusterConfig, EtcdConfig, EtcdServer, MariaDbConfig, MariaDbServer, PostgresConfig,
    PostgresServer, RedisCluster, RedisConfig, RedisServer, SentinelConfig, SentinelGroup,
    ZooKeeper, ZooKeeperConfig,
};

/// A directory of this test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(what: &str) -> Scratch {
        let name = format!("holdline-conformance-{what}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a fresh directory");
        Scratch(path)
    }

    fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir(&path).expect("a fresh directory");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn reachable(url: String, files: &Path, test: &str) -> Reachable {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let client = runtime.expect("a runtime").block_on(Client::connect(&url)).expect("connected");
    Reachable {
        worker: env!("CARGO_BIN_EXE_holdline-conformance-worker").into(),
        url,
        directory: files.to_owned(),
        capabilities: client.capabilities().clone(),
        sees_death: client.capabilities().engine == "local",
        command: format!("cargo test -p holdline-conformance --test it {test} -- --nocapture"),
    }
}

#[test]
fn local() {
    let scratch = Scratch::new("local");
    let url = format!("local://{}", scratch.directory("store").display());
    processes::run(&reachable(url, &scratch.directory("files"), "processes::local")).conclude();
}

#[test]
fn redis() {
    let scratch = Scratch::new("redis");
    let server = RedisServer::start(RedisConfig::default());
    processes::run(&reachable(server.url(), &scratch.directory("files"), "processes::redis"))
        .conclude();
}

#[test]
fn redis_with_sentinels() {
    let scratch = Scratch::new("redis-sentinel");
    let calm = SentinelConfig::default().with_down_after(std::time::Duration::from_secs(90));
    let group = SentinelGroup::start(&calm);
    group.settle(0);
    let files = scratch.directory("files");
    processes::run(&reachable(group.url(), &files, "processes::redis_with_sentinels")).conclude();
}

#[test]
fn redis_cluster() {
    let scratch = Scratch::new("redis-cluster");
    let calm = ClusterConfig::default().with_node_timeout(std::time::Duration::from_secs(90));
    let cluster = RedisCluster::start(&calm.with_size(3, 0));
    let files = scratch.directory("files");
    processes::run(&reachable(cluster.url(), &files, "processes::redis_cluster")).conclude();
}

#[test]
fn etcd() {
    let scratch = Scratch::new("etcd");
    let server = EtcdServer::start(EtcdConfig::default());
    processes::run(&reachable(server.url(), &scratch.directory("files"), "processes::etcd"))
        .conclude();
}

#[test]
fn zookeeper() {
    let scratch = Scratch::new("zookeeper");
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    processes::run(&reachable(server.url(), &scratch.directory("files"), "processes::zookeeper"))
        .conclude();
}

#[test]
fn postgres() {
    let scratch = Scratch::new("postgres");
    let server = PostgresServer::start(PostgresConfig::default());
    processes::run(&reachable(server.url(), &scratch.directory("files"), "processes::postgres"))
        .conclude();
}

#[test]
fn mysql() {
    let scratch = Scratch::new("mysql");
    let server = MariaDbServer::start(MariaDbConfig::default());
    processes::run(&reachable(server.url(), &scratch.directory("files"), "processes::mysql"))
        .conclude();
}

/// The control: processes that share nothing, each with a memory of its own, must be found out.
#[test]
fn a_split_brain_is_detected() {
    let scratch = Scratch::new("split");
    let store = reachable("memory:".into(), &scratch.directory("files"), "processes");
    let one_at_a_time = "of 50 processes one holds at a time, and no write is lost";
    let status = processes::run_one(&store, one_at_a_time).expect("there is such a case");
    let Status::Failed(why) = status else { panic!("{status}") };
    for wanted in ["writes are in the file", "two holders at once (C1)", "one token (C2)"] {
        assert!(why.contains(wanted), "{wanted} is not reported: {why}");
    }
}
