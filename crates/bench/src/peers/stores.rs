//! The stores, and the lock libraries that are compared on each.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use holdline::redlock;
use holdline_services::{
    ClusterConfig, EtcdConfig, EtcdServer, MariaDbConfig, MariaDbServer, PostgresConfig,
    PostgresServer, RedisCluster, RedisConfig, RedisServer, SentinelConfig, SentinelGroup,
    ZooKeeper, ZooKeeperConfig,
};

use crate::rounds::Failure;
use crate::run::Scratch;
use crate::server::Host;

/// A store, and how it is named on the command line and in the table.
pub(super) struct Store {
    pub(super) word: &'static str,
    pub(super) title: &'static str,
    pub(super) kinds: &'static [Kind],
}

/// Locks that promise the same.
pub(super) struct Kind {
    pub(super) word: &'static str,
    pub(super) title: &'static str,
    pub(super) systems: &'static [System],
}

/// A library, and how its driver is started.
pub(super) struct System {
    pub(super) title: &'static str,
    how: How,
}

enum How {
    /// This program, with parameters for the URL.
    Holdline(&'static str),
    Go(&'static str),
    Java(&'static str),
    Node(&'static str),
    /// The bare commands that a lock on Redis needs at least.
    Bare,
}

const fn holdline(parameters: &'static str) -> System {
    System { title: "Holdline", how: How::Holdline(parameters) }
}

const fn go(title: &'static str, word: &'static str) -> System {
    System { title, how: How::Go(word) }
}

const fn java(title: &'static str, word: &'static str) -> System {
    System { title, how: How::Java(word) }
}

const fn node(title: &'static str, word: &'static str) -> System {
    System { title, how: How::Node(word) }
}

const PLAIN: System = holdline("?dialect=plain&fencing=off");
const REDSYNC: System = go("redsync, each 10 ms", "redsync");

pub(super) const ALL: &[Store] = &[
    Store {
        word: "redis",
        title: "Redis",
        kinds: &[
            Kind {
                word: "fenced",
                title: "fenced",
                systems: &[holdline(""), java("Redisson `RFencedLock`", "redisson-fenced")],
            },
            Kind {
                word: "plain",
                title: "plain, no token",
                systems: &[
                    PLAIN,
                    REDSYNC,
                    go("redislock, each 10 ms", "redislock"),
                    java("Redisson `RLock`", "redisson"),
                ],
            },
        ],
    },
    Store {
        word: "node",
        title: "Redis from Node",
        // Ours has tokens, the others have none.
        kinds: &[Kind {
            word: "mutex",
            title: "mutex",
            systems: &[
                node("Holdline for Node", "holdline"),
                node("redlock 5, each 10 ms", "redlock"),
                node("redis-semaphore, each 10 ms", "redis-semaphore"),
            ],
        }],
    },
    Store {
        word: "redlock",
        title: "Redlock × 5",
        kinds: &[
            Kind { word: "fenced", title: "fenced", systems: &[holdline(""), REDSYNC] },
            Kind { word: "plain", title: "plain, no token", systems: &[PLAIN, REDSYNC] },
        ],
    },
    Store {
        word: "etcd",
        title: "etcd",
        kinds: &[Kind {
            word: "mutex",
            title: "mutex",
            systems: &[holdline(""), go("Go `concurrency.Mutex`", "etcd")],
        }],
    },
    Store {
        word: "zookeeper",
        title: "ZooKeeper",
        kinds: &[Kind {
            word: "mutex",
            title: "mutex",
            systems: &[holdline(""), java("Curator `InterProcessMutex`", "curator")],
        }],
    },
    Store {
        word: "postgres",
        title: "PostgreSQL",
        kinds: &[
            Kind {
                word: "rows",
                title: "leases",
                systems: &[
                    holdline(""),
                    go("pgx, a leased row, each 10 ms", "pgx-row"),
                    java("ShedLock JDBC, each 10 ms", "shedlock"),
                ],
            },
            // Nothing is flushed, and the lock lasts as long as the session.
            Kind {
                word: "session",
                title: "beside session locks",
                systems: &[holdline(""), go("pgx `pg_advisory_lock`", "pgx")],
            },
        ],
    },
    Store {
        word: "mariadb",
        title: "MariaDB",
        kinds: &[
            Kind {
                word: "rows",
                title: "leases",
                systems: &[
                    holdline(""),
                    go("go-sql-driver, a leased row, each 10 ms", "mariadb-row"),
                ],
            },
            Kind {
                word: "session",
                title: "beside session locks",
                systems: &[holdline(""), go("go-sql-driver `GET_LOCK`", "get-lock")],
            },
        ],
    },
];

/// The stores that these words name; without words all of them.
pub(super) fn chosen(
    stores: impl Iterator<Item = &'static Store>,
    words: &[&str],
) -> Result<Vec<&'static Store>, Failure> {
    let all: Vec<&Store> = stores.collect();
    if let Some(word) = words.iter().find(|word| !all.iter().any(|store| store.word == **word)) {
        let known: Vec<&str> = all.iter().map(|store| store.word).collect();
        return Err(format!("no such store: {word}; there are {}", known.join(", ")).into());
    }
    Ok(all.into_iter().filter(|s| words.is_empty() || words.contains(&s.word)).collect())
}

/// What only Holdline has, or what other libraries have no driver for.
pub(super) const OTHERS: &[Store] = &[
    of_holdline("memory", "memory, in the client"),
    of_holdline("local", "local, in the client"),
    of_holdline("sentinel", "Redis with Sentinels"),
    of_holdline("cluster", "Redis Cluster × 3"),
    of_holdline("http", "Holdline's server on memory"),
];

const fn of_holdline(word: &'static str, title: &'static str) -> Store {
    const KINDS: &[Kind] = &[Kind { word: "fenced", title: "fenced", systems: &[holdline("")] }];
    Store { word, title, kinds: KINDS }
}

pub(super) const BARE: System =
    System { title: "`SET NX PX` and a compare-and-delete, pipelined", how: How::Bare };

/// The driver of Node. It finds our package by the variable `HOLDLINE_NODE`.
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/peers/node/peers.cjs");

/// The table of ShedLock's documentation.
const ROWS: &str = "create table shedlock (name varchar(64) not null, lock_until timestamp(6) \
    not null, locked_at timestamp(6) not null, locked_by varchar(255) not null, \
    primary key (name))";

/// A store that runs.
pub(super) enum Server {
    Redis(RedisServer),
    Redlock(Vec<RedisServer>),
    Etcd(EtcdServer),
    ZooKeeper(ZooKeeper),
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
    Memory,
    Local(Scratch),
    Sentinel(SentinelGroup),
    Cluster(RedisCluster),
    Http(Host),
}

impl Server {
    /// Starts it as the other sections do: databases flush each commit, the others do not.
    pub(super) fn start(store: &Store) -> Result<Server, Failure> {
        Ok(match store.word {
            "redis" | "node" => Server::Redis(RedisServer::try_start(RedisConfig::default())?),
            "redlock" => Server::redlock()?,
            "etcd" => Server::Etcd(EtcdServer::try_start(EtcdConfig::default())?),
            "zookeeper" => Server::ZooKeeper(ZooKeeper::try_start(&ZooKeeperConfig::default())?),
            "postgres" => {
                let server = PostgresServer::try_start(PostgresConfig::default().with_fsync())?;
                server.sql(ROWS);
                Server::Postgres(server)
            }
            "memory" => Server::Memory,
            "local" => Server::Local(Scratch::new("many-names")?),
            "sentinel" => {
                let group = SentinelGroup::try_start(&SentinelConfig::default())?;
                group.settle(0);
                Server::Sentinel(group)
            }
            "cluster" => {
                let calm = ClusterConfig::default().with_node_timeout(Duration::from_secs(60));
                Server::Cluster(RedisCluster::try_start(&calm.with_size(3, 0))?)
            }
            "http" => Server::Http(Host::serve("memory:many-names", 1_000, 1_000)?),
            _ => {
                let config = crate::mysql::USUAL.iter().copied();
                let config =
                    config.fold(MariaDbConfig::default().with_fsync(), MariaDbConfig::with_line);
                let server = MariaDbServer::try_start(config)?;
                server.sql(ROWS);
                Server::MariaDb(server)
            }
        })
    }

    /// Five servers, which take part at once.
    fn redlock() -> Result<Server, Failure> {
        let servers = (0..5).map(|_| RedisServer::try_start(RedisConfig::default()));
        let server = Server::Redlock(servers.collect::<Result<_, _>>()?);
        let admin = redlock::admin(&server.url())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            admin.init().await?;
            admin.vouch(&admin.plan_vouch().await?).await?;
            Ok::<_, Failure>(server)
        })
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        match self {
            Server::Redis(server) => vec![server.pid()],
            Server::Redlock(servers) => servers.iter().map(RedisServer::pid).collect(),
            Server::Etcd(server) => vec![server.pid()],
            Server::ZooKeeper(server) => vec![server.pid(0)],
            Server::Postgres(server) => vec![server.pid()],
            Server::MariaDb(server) => vec![server.pid()],
            Server::Memory | Server::Local(_) => Vec::new(),
            Server::Sentinel(group) => group.servers().iter().map(RedisServer::pid).collect(),
            Server::Cluster(cluster) => cluster.nodes().iter().map(RedisServer::pid).collect(),
            Server::Http(host) => vec![host.pid()],
        }
    }

    /// What Holdline's client is given.
    fn url(&self) -> String {
        match self {
            Server::Redis(server) => server.url(),
            Server::Redlock(_) => format!("redlock://{}", self.addresses().join(",")),
            Server::Etcd(server) => server.url(),
            Server::ZooKeeper(server) => server.url(),
            Server::Postgres(server) => server.url(),
            Server::MariaDb(server) => server.url(),
            Server::Memory => "memory:many-names".to_owned(),
            Server::Local(scratch) => format!("local://{}", scratch.path().display()),
            Server::Sentinel(group) => group.url(),
            Server::Cluster(cluster) => cluster.url(),
            Server::Http(host) => format!("http://{}", host.address),
        }
    }

    fn addresses(&self) -> Vec<String> {
        let text = |address: SocketAddr| address.to_string();
        match self {
            Server::Redis(server) => vec![text(server.address())],
            Server::Redlock(servers) => servers.iter().map(|s| text(s.address())).collect(),
            Server::Etcd(server) => vec![text(server.address())],
            Server::ZooKeeper(server) => vec![text(server.address(0))],
            Server::Postgres(server) => vec![text(server.address())],
            Server::MariaDb(server) => vec![text(server.address())],
            Server::Memory
            | Server::Local(_)
            | Server::Sentinel(_)
            | Server::Cluster(_)
            | Server::Http(_) => Vec::new(),
        }
    }

    /// What the drivers of Go are given.
    fn go(&self) -> Vec<String> {
        match self {
            Server::Postgres(server) => vec![format!("{}?sslmode=disable", server.url())],
            Server::MariaDb(server) => {
                let password = MariaDbServer::PASSWORD;
                let address = server.address();
                let parameters = "interpolateParams=true";
                vec![format!("holdline:{password}@tcp({address})/locks?{parameters}")]
            }
            _ => self.addresses(),
        }
    }

    /// What the drivers of Java are given.
    fn java(&self) -> String {
        let address = self.addresses().join(",");
        match self {
            Server::Postgres(_) => format!("jdbc:postgresql://{address}/postgres?user=postgres"),
            Server::Redis(server) => server.url(),
            _ => address,
        }
    }
}

impl System {
    pub(super) fn is_jvm(&self) -> bool {
        matches!(self.how, How::Java(_))
    }

    /// Whether it is another library, or ours in another language: `cargo xtask bench` prepares
    /// them.
    pub(super) fn is_peer(&self) -> bool {
        matches!(self.how, How::Go(_) | How::Java(_) | How::Node(_))
    }

    /// How many contenders it can have: some have a session of the database for each.
    pub(super) fn most(&self) -> usize {
        if matches!(self.how, How::Go("pgx-row" | "mariadb-row")) { 64 } else { usize::MAX }
    }

    /// What starts its driver.
    pub(super) fn command(
        &self,
        place: &Path,
        server: &Server,
        contenders: usize,
    ) -> Result<Command, Failure> {
        let contenders = contenders.to_string();
        match self.how {
            How::Holdline(parameters) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["worker", "peers", &contenders]);
                command.arg(format!("{}{parameters}", server.url()));
                Ok(command)
            }
            How::Bare => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["worker", "bare", &contenders]).args(server.addresses());
                Ok(command)
            }
            How::Go(word) => {
                let mut command = Command::new(place.join("peers-go/bin/peers"));
                command.args([word, &contenders]).args(server.go());
                Ok(command)
            }
            How::Java(word) => {
                let place = place.join("peers-java");
                let path = format!("{0}/classes:{0}/jars/*", place.display());
                let mut command = Command::new("java");
                command.args(["-Dslf4j.internal.verbosity=ERROR", "-cp", &path, "Peers"]);
                command.args([word, &contenders, &server.java()]);
                Ok(command)
            }
            How::Node(word) => {
                let modules = place.join("node/node_modules");
                let mut command = Command::new(modules.join(".bin/node"));
                command.env("NODE_PATH", modules);
                command.args([NODE, word, &contenders, &server.url()]);
                Ok(command)
            }
        }
    }
}
