//! The servers on which both sides meet: one, with Sentinels, a cluster.

use std::time::Duration;

use holdline_services::{
    ClusterConfig, Raw, RedisCluster, RedisConfig, RedisServer, Reply, SentinelConfig,
    SentinelGroup,
};

/// Longer than any pause that must not cause a failover.
const CALM: Duration = Duration::from_secs(60);

/// One of the three forms.
pub(crate) enum Servers {
    Single(RedisServer),
    Sentinels(SentinelGroup),
    Cluster(RedisCluster),
}

impl Servers {
    pub(crate) fn single() -> Servers {
        Servers::Single(RedisServer::start(RedisConfig::default()))
    }

    /// A failover comes only on request.
    pub(crate) fn sentinels() -> Servers {
        let config = SentinelConfig::default().with_down_after(CALM);
        let group = SentinelGroup::start(&config);
        group.settle(group.master());
        Servers::Sentinels(group)
    }

    /// A dead master is replaced.
    pub(crate) fn watched() -> Servers {
        let group = SentinelGroup::start(&SentinelConfig::default());
        group.settle(group.master());
        Servers::Sentinels(group)
    }

    /// There are no failovers.
    pub(crate) fn cluster() -> Servers {
        let config = ClusterConfig::default().with_node_timeout(CALM);
        Servers::Cluster(RedisCluster::start(&config))
    }

    pub(crate) fn title(&self) -> &'static str {
        match self {
            Servers::Single(_) => "single",
            Servers::Sentinels(_) => "sentinel",
            Servers::Cluster(_) => "cluster",
        }
    }

    /// The URL of our side.
    pub(crate) fn url(&self, parameters: &str) -> String {
        let url = match self {
            Servers::Single(server) => server.url(),
            Servers::Sentinels(group) => group.url(),
            Servers::Cluster(cluster) => cluster.url(),
        };
        // After a failover, a client that connects before the test has settled the new master
        // grants nothing for the longest lease. No case has a longer one than `LONG`.
        let longest = match self {
            Servers::Sentinels(_) => "&max_lease_duration_ms=30000&old_master_ms=0",
            _ => "",
        };
        format!("{url}?dialect=redisson&command_timeout_ms=10000{longest}{parameters}")
    }

    /// The arguments of the driver.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let url = |address: std::net::SocketAddr| format!("redis://{address}");
        match self {
            Servers::Single(server) => vec!["single".to_owned(), url(server.address())],
            Servers::Sentinels(group) => {
                let words = ["sentinel", SentinelGroup::SERVICE].map(str::to_owned);
                let sentinels = group.sentinels().iter().map(|one| url(one.address()));
                words.into_iter().chain(sentinels).collect()
            }
            Servers::Cluster(cluster) => {
                let nodes = cluster.nodes().iter().take(3).map(|node| url(node.address()));
                ["cluster".to_owned()].into_iter().chain(nodes).collect()
            }
        }
    }

    /// A connection to the server that has this key, behind the back of both sides.
    pub(crate) fn raw(&self, key: &str) -> Raw {
        match self {
            Servers::Single(server) => server.raw(),
            Servers::Sentinels(group) => group.servers()[group.master()].raw(),
            Servers::Cluster(cluster) => {
                let owner = cluster.owner(cluster.slot_of(key), 0).expect("a node serves it");
                cluster.nodes()[owner].raw()
            }
        }
    }

    /// Sends a command about a key to the server that has it.
    pub(crate) fn send(&self, key: &str, words: &[&str]) -> Result<Reply, String> {
        match self.raw(key).send(words).map_err(|why| why.to_string())? {
            Reply::Error(says) => Err(format!("{words:?}: {says}")),
            reply => Ok(reply),
        }
    }

    /// How many clients are subscribed to a channel, plainly or sharded.
    pub(crate) fn subscribers(&self, key: &str, channel: &str) -> Result<i64, String> {
        let mut count = 0;
        for verb in ["NUMSUB", "SHARDNUMSUB"] {
            let reply = self.send(key, &["PUBSUB", verb, channel])?;
            count += reply.items().and_then(|items| items.get(1)?.integer()).unwrap_or(0);
        }
        Ok(count)
    }
}
