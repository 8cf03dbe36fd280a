//! Servers for a person: `cargo xtask services` runs this.
//!
//! Prints one URL a line, then waits for the end of its input, ^C or a polite signal, and stops
//! what it started.

use holdline_services::{
    ClusterConfig, Demo, EtcdCluster, EtcdConfig, EtcdFlavour, EtcdServer, Failure, Flavour,
    MariaDbConfig, MariaDbServer, PostgresConfig, PostgresServer, Prometheus, RedisCluster,
    RedisConfig, RedisServer, SentinelConfig, SentinelGroup, ZooKeeper, ZooKeeperConfig,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: services redis [--count N] [--flavour debian|valkey|redis6|redis8]
       services redis-cluster [--count N] [--flavour debian|valkey|redis6|redis8]
       services sentinel [--count N] [--flavour debian|valkey|redis6|redis8]
       services postgres [--count N]
       services mariadb [--count N]
       services etcd [--count N] [--flavour debian|3.5|3.7]
       services etcd-cluster [--count N] [--flavour debian|3.5|3.7]
       services zookeeper [--count N]
       services zookeeper-ensemble [--count N]
       services prometheus RULES [HOST:PORT ...]
       services demo [--for SECONDS]

  Starts N servers (1 unless said otherwise, at most 100) on free loopback ports, with no
  persistence, prints their URLs, and stops them at the end of the input or at ^C. A cluster
  or ensemble is three members, one of Redis three masters with a replica each, and its URL
  names them all; `sentinel` is a master, two replicas and three sentinels, which grants at once.
  `prometheus` evaluates a file of rules, and scrapes these addresses at `/metrics`.
  `demo` is a scene for the dashboard, with the program `holdline` that lies beside this one.";

const MOST: usize = 100;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let wrong = |says: String| {
        eprintln!("{says}\n{USAGE}");
        ExitCode::from(64)
    };
    let done = match words.as_slice() {
        ["demo", options @ ..] => match parse_demo(options) {
            Ok(limit) => demo(limit),
            Err(says) => return wrong(says),
        },
        ["prometheus", rules, targets @ ..] => match parse_targets(targets) {
            Ok(targets) => prometheus(Path::new(rules), &targets),
            Err(says) => return wrong(says),
        },
        words => match parse(words) {
            Ok((count, kind)) => serve(count, kind),
            Err(says) => return wrong(says),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(says) => {
            eprintln!("services: {says}");
            ExitCode::FAILURE
        }
    }
}

/// What is to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Redis(Flavour),
    RedisCluster(Flavour),
    Sentinel(Flavour),
    Postgres,
    MariaDb,
    Etcd(EtcdFlavour),
    EtcdCluster(EtcdFlavour),
    ZooKeeper,
    ZooKeeperEnsemble,
}

impl Kind {
    fn of_flavour(self, name: &str) -> Result<Self, String> {
        Ok(match self {
            Self::Redis(_) => Self::Redis(name.parse().map_err(|f: Failure| f.to_string())?),
            Self::RedisCluster(_) => {
                Self::RedisCluster(name.parse().map_err(|f: Failure| f.to_string())?)
            }
            Self::Sentinel(_) => Self::Sentinel(name.parse().map_err(|f: Failure| f.to_string())?),
            Self::Etcd(_) => Self::Etcd(name.parse().map_err(|f: Failure| f.to_string())?),
            Self::EtcdCluster(_) => {
                Self::EtcdCluster(name.parse().map_err(|f: Failure| f.to_string())?)
            }
            Self::Postgres => return Err("PostgreSQL has no flavours here".to_owned()),
            Self::ZooKeeper | Self::ZooKeeperEnsemble => {
                return Err("ZooKeeper has no flavours here".to_owned());
            }
            Self::MariaDb => return Err("MariaDB has no flavours here".to_owned()),
        })
    }
}

/// A server that runs as long as this.
enum Server {
    Redis(RedisServer),
    RedisCluster(RedisCluster),
    Sentinel(SentinelGroup),
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
    Etcd(EtcdServer),
    EtcdCluster(EtcdCluster),
    ZooKeeper(ZooKeeper),
}

impl Server {
    fn start(kind: Kind) -> Result<Self, String> {
        let started = match kind {
            Kind::Redis(flavour) => {
                let config = RedisConfig::default().with_flavour(flavour);
                RedisServer::try_start(config).map(Self::Redis)
            }
            Kind::RedisCluster(flavour) => {
                let servers = RedisConfig::default().with_flavour(flavour);
                let config = ClusterConfig::default().with_servers(servers);
                RedisCluster::try_start(&config).map(Self::RedisCluster)
            }
            Kind::Sentinel(flavour) => {
                let servers = RedisConfig::default().with_flavour(flavour);
                let config = SentinelConfig::default().with_servers(servers);
                SentinelGroup::try_start(&config).map(|group| {
                    group.settle(0);
                    Self::Sentinel(group)
                })
            }
            Kind::Postgres => {
                PostgresServer::try_start(PostgresConfig::default()).map(Self::Postgres)
            }
            Kind::MariaDb => MariaDbServer::try_start(MariaDbConfig::default()).map(Self::MariaDb),
            Kind::Etcd(flavour) => {
                let config = EtcdConfig::default().with_flavour(flavour);
                EtcdServer::try_start(config).map(Self::Etcd)
            }
            Kind::EtcdCluster(flavour) => {
                let config = EtcdConfig::default().with_flavour(flavour);
                EtcdCluster::try_start(config).map(Self::EtcdCluster)
            }
            Kind::ZooKeeper => {
                ZooKeeper::try_start(&ZooKeeperConfig::default()).map(Self::ZooKeeper)
            }
            Kind::ZooKeeperEnsemble => {
                ZooKeeper::try_start_three(&ZooKeeperConfig::default()).map(Self::ZooKeeper)
            }
        };
        started.map_err(|failure| failure.to_string())
    }

    fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::RedisCluster(cluster) => cluster.url(),
            Self::Sentinel(group) => group.url(),
            Self::Postgres(server) => server.url(),
            Self::MariaDb(server) => server.url(),
            Self::Etcd(server) => server.url(),
            Self::EtcdCluster(cluster) => cluster.url(),
            Self::ZooKeeper(servers) => servers.url(),
        }
    }
}

fn parse(words: &[&str]) -> Result<(usize, Kind), String> {
    let (mut kind, options) = match words {
        ["redis", options @ ..] => (Kind::Redis(Flavour::default()), options),
        ["redis-cluster", options @ ..] => (Kind::RedisCluster(Flavour::default()), options),
        ["sentinel", options @ ..] => (Kind::Sentinel(Flavour::default()), options),
        ["postgres", options @ ..] => (Kind::Postgres, options),
        ["mariadb", options @ ..] => (Kind::MariaDb, options),
        ["etcd", options @ ..] => (Kind::Etcd(EtcdFlavour::default()), options),
        ["etcd-cluster", options @ ..] => (Kind::EtcdCluster(EtcdFlavour::default()), options),
        ["zookeeper", options @ ..] => (Kind::ZooKeeper, options),
        ["zookeeper-ensemble", options @ ..] => (Kind::ZooKeeperEnsemble, options),
        _ => return Err("which services?".to_owned()),
    };
    let mut count = 1;
    for pair in options.chunks(2) {
        match *pair {
            ["--count", number] => {
                let read = number.parse().ok().filter(|n| (1..=MOST).contains(n));
                let says = || format!("--count takes 1 to {MOST}, not `{number}`");
                count = read.ok_or_else(says)?;
            }
            ["--flavour", name] => kind = kind.of_flavour(name)?,
            _ => return Err(format!("what is `{}`?", pair.join(" "))),
        }
    }
    Ok((count, kind))
}

/// For how long the demonstration goes on; none: until a signal.
fn parse_demo(options: &[&str]) -> Result<Option<Duration>, String> {
    match options {
        [] => Ok(None),
        ["--for", text] => {
            let seconds = text.strip_suffix('s').unwrap_or(text).parse();
            let says = |_| format!("--for takes seconds, such as 90s, not `{text}`");
            seconds.map(|seconds| Some(Duration::from_secs(seconds))).map_err(says)
        }
        _ => Err(format!("what is `{}`?", options.join(" "))),
    }
}

/// How often the demonstration looks whether something is due.
const LOOK: Duration = Duration::from_millis(200);

fn demo(limit: Option<Duration>) -> Result<(), String> {
    let signals = end_by_signal()?;
    let here = std::env::current_exe().map_err(|why| format!("cannot find itself: {why}"))?;
    eprintln!("demo: starting five Redis servers, a PostgreSQL and the dashboard");
    let mut demo = Demo::start(&here.with_file_name("holdline")).map_err(|f| f.to_string())?;
    println!("The dashboard: {}\n\nWhat to look at:\n{}", demo.url(), demo.script());
    eprintln!("demo: running; ^C stops everything");
    let start = Instant::now();
    while limit.is_none_or(|limit| start.elapsed() < limit) {
        if signals.ended.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
            break;
        }
        demo.keep_going().map_err(|failure| failure.to_string())?;
    }
    eprintln!("demo: stopping");
    drop(demo);
    Ok(())
}

/// What ends the program: a signal, or what else sends.
struct Signalled {
    end: SyncSender<()>,
    ended: Receiver<()>,
}

/// Reports the first signal that asks us to end, so that it does not kill us before the cleanup.
fn end_by_signal() -> Result<Signalled, String> {
    let cannot = |why: io::Error| format!("cannot wait for the end: {why}");
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(cannot)?;
    let (end, ended) = sync_channel(2);
    let by_signal = end.clone();
    std::thread::spawn(move || {
        signals.forever().next();
        let _ = by_signal.send(());
    });
    Ok(Signalled { end, ended })
}

fn parse_targets(words: &[&str]) -> Result<Vec<SocketAddr>, String> {
    let read = |word: &&str| word.parse::<SocketAddr>().map_err(|why| format!("`{word}`: {why}"));
    words.iter().map(read).collect()
}

fn prometheus(rules: &Path, targets: &[SocketAddr]) -> Result<(), String> {
    let signals = end_by_signal()?;
    let server = Prometheus::try_start(rules, targets).map_err(|failure| failure.to_string())?;
    stay(&(server.url() + "\n"), signals);
    Ok(())
}

fn serve(count: usize, kind: Kind) -> Result<(), String> {
    let signals = end_by_signal()?;
    let servers = (0..count).map(|_| Server::start(kind)).collect::<Result<Vec<_>, _>>()?;
    let urls: String = servers.iter().map(|server| server.url() + "\n").collect();
    stay(&urls, signals);
    Ok(())
}

/// Prints the URLs, and waits for the end.
fn stay(urls: &str, signals: Signalled) {
    let Signalled { end, ended } = signals;
    // A reader that has gone is the end as well.
    if io::stdout().write_all(urls.as_bytes()).and_then(|()| io::stdout().flush()).is_err() {
        return;
    }
    eprintln!("services: {} running; the end of the input or ^C stops them", urls.lines().count());
    std::thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = end.send(());
    });
    let _ = ended.recv();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demonstration_has_a_limit_or_none() {
        assert_eq!(parse_demo(&[]), Ok(None));
        assert_eq!(parse_demo(&["--for", "5s"]), Ok(Some(Duration::from_secs(5))));
        assert_eq!(parse_demo(&["--for", "5"]), Ok(Some(Duration::from_secs(5))));
        for bad in [&["--for"][..], &["--for", "soon"], &["--for", "5h"], &["5s"]] {
            assert!(parse_demo(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn targets_of_prometheus_are_addresses() {
        assert_eq!(parse_targets(&["127.0.0.1:80"]), Ok(vec![([127, 0, 0, 1], 80).into()]));
        assert!(parse_targets(&["localhost"]).is_err());
    }

    #[test]
    fn arguments_are_understood_or_refused() {
        assert_eq!(parse(&["redis"]), Ok((1, Kind::Redis(Flavour::Debian))));
        let words = ["redis", "--count", "5", "--flavour", "valkey"];
        assert_eq!(parse(&words), Ok((5, Kind::Redis(Flavour::Valkey))));
        let words = ["redis-cluster", "--flavour", "redis8"];
        assert_eq!(parse(&words), Ok((1, Kind::RedisCluster(Flavour::Redis8))));
        assert_eq!(parse(&["postgres", "--count", "2"]), Ok((2, Kind::Postgres)));
        let words = ["sentinel", "--flavour", "valkey"];
        assert_eq!(parse(&words), Ok((1, Kind::Sentinel(Flavour::Valkey))));
        let words = ["etcd-cluster", "--flavour", "3.5"];
        assert_eq!(parse(&words), Ok((1, Kind::EtcdCluster(EtcdFlavour::V35))));
        assert_eq!(parse(&["zookeeper-ensemble"]), Ok((1, Kind::ZooKeeperEnsemble)));
        for bad in [
            &["etcd", "--flavour", "valkey"][..],
            &["mongo"][..],
            &[],
            &["redis", "--count"],
            &["redis", "--count", "0"],
            &["redis", "--count", "101"],
            &["redis", "--flavour", "vanilla"],
            &["redis", "5"],
            &["postgres", "--flavour", "debian"],
            &["zookeeper", "--flavour", "debian"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
