//! One Redis server: cycles, hand-offs, wake-ups and leases beside raw floors. The same for a
//! master with two replicas and Sentinels: its floor runs on that master too.
//!
//! The server is Debian's, started for this run. Client and server share the machine's cores, so
//! only ratios within a round mean anything.

pub(crate) mod cycles;
pub(crate) mod handoff;
mod leases;
pub(crate) mod peers;
pub(crate) mod raw;
mod scripts;

use holdline::Client;
use holdline_services::{RedisConfig, RedisServer, SentinelConfig, SentinelGroup};

use crate::rounds::Failure;
use peers::Peers;

/// All but the leases, which take a minute.
pub(crate) fn section() -> Result<(), Failure> {
    let world = World::start()?;
    for tasks in cycles::TASKS {
        cycles::section(&world, &[&NATIVE, &BARE], tasks)?;
    }
    for waiters in [2, 16, 128, 1_024] {
        handoff::section(&world, waiters)?;
    }
    handoff::wake_up(&world)?;
    scripts::section(&world)?;
    world.report_server_time()
}

/// The master of a group that has been used for long: nothing has to be waited for.
pub(crate) fn sentinel() -> Result<(), Failure> {
    let world = World::start_group()?;
    for tasks in [1, 64] {
        cycles::section(&world, &[&WATCHED], tasks)?;
    }
    for waiters in [2, 16, 64] {
        handoff::section(&world, waiters)?;
    }
    Ok(())
}

/// What each script costs the server.
pub(crate) fn scripts() -> Result<(), Failure> {
    scripts::section(&World::start()?)
}

/// A hundred thousand leases that one process renews.
pub(crate) fn leases() -> Result<(), Failure> {
    leases::section(&World::start()?)
}

/// A dialect, and how many times its floor a cycle may cost: of one task, of 64, of 1,024.
pub(crate) struct Side {
    title: &'static str,
    parameters: &'static str,
    budgets: [&'static str; 3],
}

pub(crate) const NATIVE: Side = Side {
    title: "redis, fenced",
    parameters: "",
    budgets: ["at most 1.25", "at most 2.2", "at most 2.9"],
};
/// Where Sentinels make the master.
const WATCHED: Side = Side {
    title: "redis with sentinels, fenced",
    parameters: "",
    budgets: ["at most 1.5", "at most 2.2", "at most 2.9"],
};
/// The two commands of other libraries; the budgets are what the best of these costs.
const BARE: Side = Side {
    title: "redis, plain, no token",
    parameters: "?dialect=plain&fencing=off",
    budgets: ["at most 1.15", "at most 1.3", "at most 2.7"],
};

/// What is measured.
enum Store {
    Server(RedisServer),
    Group(SentinelGroup),
}

impl Store {
    /// What our clients are given.
    fn client_url(&self) -> String {
        match self {
            Store::Server(server) => server.url(),
            Store::Group(group) => group.url(),
        }
    }
}

/// The server itself; of a group, its master.
impl std::ops::Deref for Store {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        match self {
            Store::Server(server) => server,
            Store::Group(group) => &group.servers()[0],
        }
    }
}

/// A server, and a runtime of one thread.
pub(crate) struct World {
    server: Store,
    runtime: tokio::runtime::Runtime,
    peers: Peers,
}

impl World {
    fn start() -> Result<World, Failure> {
        World::of(Store::Server(RedisServer::try_start(RedisConfig::default())?))
    }

    fn start_group() -> Result<World, Failure> {
        let group = SentinelGroup::try_start(&SentinelConfig::default())?;
        group.settle(0);
        World::of(Store::Group(group))
    }

    fn of(server: Store) -> Result<World, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(World { server, runtime, peers: Peers::find() })
    }

    async fn client(&self, side: &Side) -> Result<Client, Failure> {
        let url = format!("{}{}", self.server.client_url(), side.parameters);
        Ok(Client::connect(&url).await?)
    }

    /// Prints what the server itself says each command costs it.
    fn report_server_time(&self) -> Result<(), Failure> {
        let reply = self.server.raw().send(&["INFO", "commandstats"])?;
        let text = reply.text().unwrap_or_default();
        for line in text.lines().filter(|line| line.starts_with("cmdstat_eval")) {
            println!("redis server: {line}");
        }
        Ok(())
    }
}
