//! The conformance suite on five real servers, in real time: in the native dialect, in the plain
//! one with and without tokens, and in that of Redisson.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{Disturbance, Disturbed, Opened, RealStore, Scale, judge};
use holdline_core::{AcquireRequest, Ending, Engine, LeaseId, LockError, LockName, ReleaseRequest};
use holdline_redis::QuorumEngine;
use holdline_services::{Foreign, RedisConfig, RedisServer, Reply};

use crate::support::{HOLD, Nodes, request};

/// The time limit of a client to reconnect.
const LIMIT: Duration = Duration::from_secs(90);
/// The interval of the checks, and how many must succeed in a row.
const PAUSE: Duration = Duration::from_millis(20);
const LOOKS: usize = 25;

/// A configuration of a quorum.
struct QuorumForm {
    parameters: &'static str,
    histories: usize,
    /// What is before the name in its key; in the native dialect the name is in braces.
    key: &'static str,
    /// What is no lock there: a string would be one of another library, a hash one of Redisson's.
    foreign: Foreign,
    tokens: bool,
}

const NATIVE: QuorumForm = QuorumForm {
    parameters: "",
    histories: 60,
    key: "holdline:",
    foreign: Foreign::Text,
    tokens: true,
};
const PLAIN: QuorumForm = QuorumForm {
    parameters: "&dialect=plain&key_template=lock:{name}",
    histories: 20,
    key: "lock:",
    foreign: Foreign::Hash,
    tokens: true,
};
const REDISSON: QuorumForm = QuorumForm {
    parameters: "&dialect=redisson&key_template=lock:{name}&fencing=off",
    foreign: Foreign::Text,
    tokens: false,
    ..PLAIN
};
const BARE: QuorumForm = QuorumForm {
    parameters: "&dialect=plain&key_template=lock:{name}&fencing=off",
    tokens: false,
    ..PLAIN
};

struct Servers {
    form: QuorumForm,
    nodes: Nodes,
    /// The number of names used to test the connections.
    probes: AtomicU64,
}

impl Servers {
    /// Restarts a minority of the servers, which are then in quarantine. Without tokens there is no
    /// quarantine, and all are restarted.
    async fn restart(&self, clients: &Opened) -> Disturbed {
        let restarted = &self.nodes.servers[..self.form.restarted()];
        std::thread::scope(|scope| {
            for server in restarted {
                scope.spawn(|| server.restart());
            }
        });
        match self.settled(clients).await {
            Ok(()) => Disturbed::Done,
            Err(why) => Disturbed::Failed(format!("still after {LIMIT:?}: {why}")),
        }
    }

    /// Waits until each client reaches all servers that vote, under the configuration with the new
    /// ids of the restarted ones. Before, a request may meet both configurations.
    async fn settled(&self, clients: &Opened) -> Result<(), String> {
        self.all_reach_all(clients).await?;
        if !self.form.tokens {
            return Ok(());
        }
        let (admin, deadline) =
            (self.nodes.admin_with(self.form.parameters), Instant::now() + LIMIT);
        loop {
            let nodes = admin.status().await.nodes;
            let waiting = nodes.iter().filter(|node| node.quarantine_left_ms.is_some()).count();
            let agree = nodes.iter().all(|node| node.epoch == nodes[0].epoch);
            if agree && waiting == self.form.restarted() {
                break;
            }
            if Instant::now() > deadline {
                return Err(format!("{waiting} servers wait, all agree: {agree}"));
            }
            tokio::time::sleep(PAUSE).await; // event: the servers agree
        }
        self.all_reach_all(clients).await
    }

    async fn all_reach_all(&self, clients: &Opened) -> Result<(), String> {
        for engine in clients.all() {
            let deadline = Instant::now() + LIMIT;
            while let Err(why) = self.reaches_all(&*engine).await {
                if Instant::now() > deadline {
                    return Err(why);
                }
                tokio::time::sleep(PAUSE).await; // event: servers are found
            }
        }
        Ok(())
    }

    /// Acquires an unused name with this client, and checks that each server has it. A client that
    /// has reached a majority grants already, but another client may reach another majority.
    async fn reaches_all(&self, engine: &dyn Engine) -> Result<(), String> {
        let probe = self.probes.fetch_add(1, Ordering::Relaxed);
        let lease_id = LeaseId::from_bytes(u128::from(probe).to_be_bytes());
        let name = LockName::new(format!("probe/{probe}")).expect("a good name");
        let request = AcquireRequest { name: name.clone(), lease_id, ..request(0) };
        engine.try_acquire(&request).await.map_err(|error| error.to_string())?;
        let key = self.form.key(&name);
        let there = |server: &RedisServer| {
            let reply = server.raw().send(&["EXISTS", &key]);
            matches!(reply, Ok(Reply::Integer(1)))
        };
        // The servers beyond the majority are asked as well, and may be late.
        for _ in 0..LOOKS {
            if self.nodes.servers.iter().all(there) {
                break;
            }
            tokio::time::sleep(PAUSE).await; // event: the request comes
        }
        let missing = self.nodes.servers.iter().filter(|server| !there(server)).count();
        let ending = Ending { for_good: true, hold: HOLD };
        let release = ReleaseRequest { name, lease_id, ending };
        engine.release(&release).await.map_err(|error| error.to_string())?;
        let may_miss = if self.form.tokens { self.form.restarted() } else { 0 };
        match missing {
            some if some > may_miss => Err(format!("{some} servers were not reached")),
            _ => Ok(()),
        }
    }

    fn on_all(&self, done: impl Fn(&RedisServer) -> Result<(), String>) -> Disturbed {
        self.nodes.servers.iter().try_for_each(done).into()
    }
}

impl QuorumForm {
    /// Returns how many of the five servers are restarted at once.
    fn restarted(&self) -> usize {
        if self.tokens { 2 } else { 5 }
    }

    fn key(&self, name: &LockName) -> String {
        match self.parameters.is_empty() {
            false => format!("{}{name}", self.key),
            true => format!("{}{{{name}}}", self.key),
        }
    }
}

impl RealStore for Servers {
    type Client = QuorumEngine;

    fn name(&self) -> String {
        format!("redlock, five servers {}", self.form.parameters)
    }

    async fn open(&self) -> Result<QuorumEngine, LockError> {
        let options = self.nodes.options(self.form.parameters);
        QuorumEngine::connect(&options, Arc::new(MachineClock)).await
    }

    fn scale(&self) -> Scale {
        Scale { histories: self.form.histories, ..Scale::quick() }
    }

    async fn disturb(&self, disturbance: &Disturbance, clients: &Opened) -> Disturbed {
        let foreign = self.form.foreign;
        match disturbance {
            Disturbance::PlantForeign(name) => {
                self.on_all(|server| foreign.plant(server, &self.form.key(name)))
            }
            Disturbance::CheckForeign(name) => {
                self.on_all(|server| foreign.check(server, &self.form.key(name)))
            }
            Disturbance::Restart => self.restart(clients).await,
        }
    }
}

async fn five(form: QuorumForm) -> Servers {
    let nodes = Nodes::start(5, &RedisConfig::default().with_appendonly("always"));
    // Without tokens the servers need no initialisation.
    if form.tokens {
        nodes.init_with(form.parameters).await;
    }
    Servers { form, nodes, probes: AtomicU64::new(1) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time() {
    judge!(in_real_time, five(NATIVE).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_with_tokens() {
    judge!(plain_with_tokens, five(PLAIN).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_without_tokens() {
    judge!(plain_without_tokens, five(BARE).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redissons_red_lock() {
    judge!(redissons_red_lock, five(REDISSON).await);
}
