//! Real stores for scenarios that are the same on each: a server, or several, and a proxy in front
//! of each that cuts a client off.

use std::process::Command;

use holdline_services::{
    EtcdCluster, EtcdConfig, EtcdServer, Fault, FaultProxy, Frames, MariaDbConfig, MariaDbServer,
    PostgresConfig, PostgresServer, RedisConfig, RedisServer, SentinelConfig, SentinelGroup,
    ZooKeeper, ZooKeeperConfig,
};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::world::{CommandOutput, Running, World, eventually, output};

/// Makes a test of a scenario for each store, named after the store. The scenario takes the kind
/// of the store.
macro_rules! on_stores {
    ($($(#[$attribute:meta])* $scenario:ident: $($store:ident),+;)+) => {$(
        $(#[$attribute])*
        mod $scenario {
            $(
                #[test]
                fn $store() {
                    super::$scenario(crate::stores::Kind::$store);
                }
            )+
        }
    )+};
}
pub(crate) use on_stores;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "a test is named after each")]
pub(crate) enum Kind {
    redis,
    redlock,
    sentinel,
    postgres,
    mysql,
    etcd,
    etcd_cluster,
    zookeeper,
}

#[derive(Debug)]
enum Servers {
    Redis(RedisServer),
    Redlock(Vec<RedisServer>),
    Sentinel(SentinelGroup),
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
    Etcd(EtcdServer),
    EtcdCluster(EtcdCluster),
    ZooKeeper(ZooKeeper),
}

/// A store, and a world whose commands use it.
pub(crate) struct Store {
    pub(crate) world: World,
    servers: Servers,
    /// In front of each server; none where clients learn the addresses from the store.
    proxies: Vec<FaultProxy>,
    /// The URL of the store, and the one that leads through the proxies.
    url: String,
    behind: String,
}

impl Servers {
    fn start(kind: Kind) -> Servers {
        // A server that is killed and started again has kept what it has confirmed.
        let durable = || RedisConfig::default().with_appendonly("always");
        match kind {
            Kind::redis => Servers::Redis(RedisServer::start(durable())),
            Kind::redlock => {
                Servers::Redlock((0..3).map(|_| RedisServer::start(durable())).collect())
            }
            Kind::sentinel => {
                let group = SentinelGroup::start(&SentinelConfig::default());
                group.settle(0);
                Servers::Sentinel(group)
            }
            Kind::postgres => Servers::Postgres(PostgresServer::start(PostgresConfig::default())),
            Kind::mysql => Servers::MariaDb(MariaDbServer::start(MariaDbConfig::default())),
            Kind::etcd => Servers::Etcd(EtcdServer::start(EtcdConfig::default())),
            Kind::etcd_cluster => Servers::EtcdCluster(EtcdCluster::start(EtcdConfig::default())),
            Kind::zookeeper => Servers::ZooKeeper(ZooKeeper::start(&ZooKeeperConfig::default())),
        }
    }

    fn url(&self) -> String {
        match self {
            Servers::Redis(server) => server.url(),
            Servers::Redlock(servers) => {
                let at: Vec<String> = servers.iter().map(|one| one.address().to_string()).collect();
                format!("redlock://{}", at.join(","))
            }
            Servers::Sentinel(group) => group.url(),
            Servers::Postgres(server) => server.url(),
            Servers::MariaDb(server) => server.url(),
            Servers::Etcd(server) => server.url(),
            Servers::EtcdCluster(cluster) => cluster.url(),
            Servers::ZooKeeper(server) => server.url(),
        }
    }

    /// The addresses in the URL by which a client reaches the servers.
    fn addresses(&self) -> Vec<std::net::SocketAddr> {
        match self {
            Servers::Redis(server) => vec![server.address()],
            Servers::Redlock(servers) => servers.iter().map(RedisServer::address).collect(),
            Servers::Sentinel(_) => Vec::new(),
            Servers::Postgres(server) => vec![server.address()],
            Servers::MariaDb(server) => vec![server.address()],
            Servers::Etcd(server) => vec![server.address()],
            Servers::EtcdCluster(cluster) => (0..3).map(|member| cluster.address(member)).collect(),
            Servers::ZooKeeper(server) => vec![server.address(0)],
        }
    }
}

impl Store {
    pub(crate) fn start(kind: Kind) -> Store {
        let servers = Servers::start(kind);
        let parameters = match kind {
            // Longer than a failover takes: nothing is granted for so long after one.
            Kind::sentinel => "&max_lease_duration_ms=6000&old_master_ms=0",
            _ => "",
        };
        // A limit that a machine that is busy does not meet.
        let url = format!("{}?command_timeout_ms=10000{parameters}", servers.url());
        let addresses = servers.addresses();
        let proxies: Vec<FaultProxy> = addresses.iter().map(|at| FaultProxy::start(*at)).collect();
        let behind = addresses.iter().zip(&proxies).fold(url.clone(), |url, (at, proxy)| {
            url.replace(&at.to_string(), &proxy.address().to_string())
        });
        let store = Store { world: World::new(), servers, proxies, url, behind };
        if kind == Kind::redlock {
            for made in [&["quorum", "init"][..], &["quorum", "vouch", "--yes"]] {
                let made = store.run(made);
                assert_eq!(made.code, 0, "{made:?}");
            }
        }
        store
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = self.world.command(arguments);
        command.env("HOLDLINE_URL", &self.url);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        output(&mut self.command(arguments))
    }

    pub(crate) fn begin<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Running {
        self.world.start_command(&mut self.command(arguments))
    }

    /// Has a command reach the store through the proxies, so that it can be cut off.
    pub(crate) fn through_proxies<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("HOLDLINE_URL", &self.behind)
    }

    /// Starts a command that can be cut off.
    pub(crate) fn begin_behind<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Running {
        self.world.start_command(self.through_proxies(&mut self.command(arguments)))
    }

    pub(crate) fn who(&self, name: &str) -> Value {
        let output = self.run(&["--json", "who", name]);
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// Waits until the name is free.
    pub(crate) fn free(&self, name: &str) {
        eventually("free", || self.who(name)["held"] == false);
    }

    /// Whether a client can be cut off.
    pub(crate) fn can_cut(&self) -> bool {
        !self.proxies.is_empty()
    }

    /// Swallows all that those behind the proxies say.
    pub(crate) fn cut(&self) {
        self.proxies.iter().for_each(|proxy| proxy.inject(Frames::requests(), Fault::Swallow));
    }

    /// Ends the connections that were cut, and lets new ones pass.
    pub(crate) fn heal(&self) {
        for proxy in &self.proxies {
            proxy.pass();
            proxy.reset();
        }
    }

    /// Has another server of the store lead, by killing the one that does. One server alone goes
    /// on.
    pub(crate) fn fail_over(&self) {
        match &self.servers {
            Servers::Sentinel(group) => {
                group.await_replicated();
                let master = group.master();
                group.servers()[master].kill();
                group.await_promotion(master);
            }
            Servers::EtcdCluster(cluster) => cluster.kill(cluster.leader_seen_by(0)),
            _ => {}
        }
    }

    /// Has the store go away for a moment, or another of its servers take over.
    pub(crate) fn interrupt(&self) {
        match self.servers {
            Servers::Sentinel(_) | Servers::EtcdCluster(_) => self.fail_over(),
            _ => {
                self.kill();
                self.restart();
            }
        }
    }

    /// Kills the server. Of a quorum two of three stand still: a vote that is started again is
    /// worth nothing for long.
    pub(crate) fn kill(&self) {
        match &self.servers {
            Servers::Redis(server) => server.kill(),
            Servers::Redlock(servers) => servers[1..].iter().for_each(RedisServer::stop),
            Servers::Sentinel(_) | Servers::EtcdCluster(_) => unreachable!("they fail over"),
            Servers::Postgres(server) => server.kill(),
            Servers::MariaDb(server) => server.kill(),
            Servers::Etcd(server) => server.kill(),
            Servers::ZooKeeper(server) => server.kill(0),
        }
    }

    /// Starts the server again, with what it has on disk.
    pub(crate) fn restart(&self) {
        match &self.servers {
            Servers::Redis(server) => server.restart_settled(),
            Servers::Redlock(servers) => servers[1..].iter().for_each(RedisServer::cont),
            Servers::Sentinel(_) | Servers::EtcdCluster(_) => unreachable!("they fail over"),
            Servers::Postgres(server) => server.restart(),
            Servers::MariaDb(server) => server.restart(),
            Servers::Etcd(server) => server.restart(),
            Servers::ZooKeeper(server) => server.restart(),
        }
    }
}

impl Running {
    /// Stops a wrapper and its job, as when their machine stands still.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let group = i32::try_from(self.job.get()).ok().and_then(Pid::from_raw).expect("a job");
        kill_process_group(group, Signal::STOP).expect("it runs");
    }

    /// Waits until it says this.
    pub(crate) fn says(&self, text: &str) -> String {
        let mut said = Vec::new();
        loop {
            let line = self.next_said().unwrap_or_else(|| panic!("no `{text}` in time: {said:?}"));
            if line.contains(text) {
                return line;
            }
            said.push(line);
        }
    }
}
