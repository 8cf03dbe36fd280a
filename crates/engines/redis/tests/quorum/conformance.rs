//! The conformance suite on five real servers, in real time: in the native dialect, and in the
//! plain one with and without tokens.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Scale, Time, run};
use holdline_core::{AcquireRequest, Ending, Engine, LeaseId, LockError, LockName, ReleaseRequest};
use holdline_redis::QuorumEngine;
use holdline_services::{RedisConfig, RedisServer, Reply};

use crate::support::{HOLD, Nodes, request};

/// The time limit of a client to reconnect.
const LIMIT: Duration = Duration::from_secs(90);
/// The interval of the checks, and how many must succeed in a row.
const PAUSE: Duration = Duration::from_millis(20);
const LOOKS: usize = 25;
const FOREIGN: &str = "somebody else's lock";
/// The field of a foreign hash.
const FIELD: &str = "uuid:thread";

/// A configuration of a quorum.
struct QuorumForm {
    test: &'static str,
    parameters: &'static str,
    histories: usize,
    plain: bool,
}

const NATIVE: QuorumForm =
    QuorumForm { test: "in_real_time", parameters: "", histories: 60, plain: false };
const PLAIN: QuorumForm = QuorumForm {
    test: "plain_with_tokens",
    parameters: "&dialect=plain&key_template=lock:{name}",
    histories: 20,
    plain: true,
};
const BARE: QuorumForm = QuorumForm {
    test: "plain_without_tokens",
    parameters: "&dialect=plain&key_template=lock:{name}&fencing=off&lease_format=uuid",
    ..PLAIN
};

struct Servers {
    form: QuorumForm,
    nodes: Nodes,
    /// All open clients: after a restart they must reconnect.
    engines: Mutex<Vec<QuorumEngine>>,
    /// The number of names used to test the connections.
    probes: AtomicU64,
}

impl Servers {
    /// Restarts a minority of the servers, which are then in quarantine. Without tokens there is no
    /// quarantine, and all are restarted.
    async fn restart(&self) -> Disturbed {
        let restarted = &self.nodes.servers[..self.form.restarted()];
        std::thread::scope(|scope| {
            for server in restarted {
                scope.spawn(|| server.restart());
            }
        });
        match self.settled().await {
            Ok(()) => Disturbed::Done,
            Err(why) => Disturbed::Failed(format!("still after {LIMIT:?}: {why}")),
        }
    }

    /// Waits until each client reaches all servers that vote, under the configuration with the new
    /// ids of the restarted ones. Before, a request may meet both configurations.
    async fn settled(&self) -> Result<(), String> {
        self.all_reach_all().await?;
        if self.form.test == BARE.test {
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
        self.all_reach_all().await
    }

    async fn all_reach_all(&self) -> Result<(), String> {
        let engines = self.engines.lock().expect("nobody panicked").clone();
        for engine in engines {
            let deadline = Instant::now() + LIMIT;
            while let Err(why) = self.reaches_all(&engine).await {
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
    async fn reaches_all(&self, engine: &QuorumEngine) -> Result<(), String> {
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
        let may_miss = if self.form.test == BARE.test { 0 } else { self.form.restarted() };
        match missing {
            some if some > may_miss => Err(format!("{some} servers were not reached")),
            _ => Ok(()),
        }
    }

    fn on_all(&self, words: &[&str], good: impl Fn(&Reply) -> bool) -> Disturbed {
        for server in &self.nodes.servers {
            match server.raw().send(words) {
                Ok(reply) if good(&reply) => {}
                other => return Disturbed::Failed(format!("{other:?}")),
            }
        }
        Disturbed::Done
    }
}

impl QuorumForm {
    /// Returns how many of the five servers are restarted at once.
    fn restarted(&self) -> usize {
        if self.test == BARE.test { 5 } else { 2 }
    }

    fn key(&self, name: &LockName) -> String {
        match self.plain {
            true => format!("lock:{name}"),
            false => format!("holdline:{{{name}}}"),
        }
    }
}

impl Factory for Servers {
    fn name(&self) -> String {
        format!("redlock, five servers {}", self.form.parameters)
    }

    fn command(&self) -> String {
        let test = self.form.test;
        format!("cargo test -p holdline-redis --test quorum conformance::{test} -- --nocapture")
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            let options = self.nodes.options(self.form.parameters);
            let engine = QuorumEngine::connect(&options, Arc::new(MachineClock)).await?;
            self.engines.lock().expect("nobody panicked").push(engine.clone());
            let engine: Arc<dyn Engine> = Arc::new(engine);
            Ok(engine)
        })
    }

    fn time(&self) -> Time {
        Time::Real(Arc::new(MachineClock))
    }

    fn scale(&self) -> Scale {
        Scale { histories: self.form.histories, ..Scale::quick() }
    }

    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async move {
            match disturbance {
                // A string would be a lock of another library; a hash is a lock of Redisson.
                Disturbance::PlantForeign(name) if self.form.plain => {
                    let words = ["HSET", &self.form.key(name), FIELD, FOREIGN];
                    self.on_all(&words, |reply| *reply == Reply::Integer(1))
                }
                Disturbance::PlantForeign(name) => {
                    let words = ["SET", &self.form.key(name), FOREIGN, "NX", "PX", "600000"];
                    self.on_all(&words, |reply| matches!(reply, Reply::Simple(_)))
                }
                Disturbance::CheckForeign(name) => {
                    let same = |reply: &Reply| reply.text().as_deref() == Some(FOREIGN);
                    match self.form.plain {
                        true => self.on_all(&["HGET", &self.form.key(name), FIELD], same),
                        false => self.on_all(&["GET", &self.form.key(name)], same),
                    }
                }
                Disturbance::Restart => self.restart().await,
            }
        })
    }
}

/// One test at a time: five servers are enough for a small machine.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn passes(form: QuorumForm) {
    let _alone = ONE_AT_A_TIME.lock().await;
    let nodes = Nodes::start(5, &RedisConfig::default().with_appendonly("always"));
    // Without tokens the servers need no initialisation.
    if form.test != BARE.test {
        nodes.init_with(form.parameters).await;
    }
    let servers = Servers { form, nodes, engines: Mutex::default(), probes: AtomicU64::new(1) };
    run(servers).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time() {
    passes(NATIVE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_with_tokens() {
    passes(PLAIN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_without_tokens() {
    passes(BARE).await;
}
