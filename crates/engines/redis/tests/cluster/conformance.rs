//! The conformance suite on a cluster, in real time. Its masters are restarted and stay masters.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Scale, Time, run};
use holdline_core::{Engine, LockError, LockName};
use holdline_redis::ClusterEngine;
use holdline_services::{Flavour, RedisCluster, RedisConfig, Reply};

use crate::support::{LONG, calm, options};

const FOREIGN: &str = "somebody else's lock";
/// The number of histories where only the server differs.
const FEW: usize = 20;

struct Cluster {
    cluster: RedisCluster,
    test: &'static str,
    parameters: &'static str,
    histories: usize,
    /// All open clients: after a restart they must reconnect.
    engines: Mutex<Vec<ClusterEngine>>,
}

impl Cluster {
    fn start(test: &'static str, flavour: Flavour) -> Cluster {
        // So a restart keeps the grants.
        let servers = RedisConfig::default().with_flavour(flavour).with_appendonly("always");
        let cluster = RedisCluster::start(&calm().with_size(3, 0).with_servers(servers));
        let (parameters, histories) = ("", Scale::quick().histories / 2);
        Cluster { cluster, test, parameters, histories, engines: Mutex::default() }
    }

    async fn restart(&self) -> Disturbed {
        self.cluster.nodes().iter().for_each(holdline_services::RedisServer::restart);
        self.cluster.await_well();
        let engines = self.engines.lock().expect("nobody panicked").clone();
        // A name for each node.
        let names = ["nobody", "no-one", "none", "nil", "naught", "nothing", "never", "nix"];
        for engine in engines {
            for name in names.map(|name| LockName::new(name).expect("a good name")) {
                let deadline = Instant::now() + LONG;
                while let Err(error) = engine.inspect(&name).await {
                    if Instant::now() > deadline {
                        return Disturbed::Failed(format!("still after {LONG:?}: {error}"));
                    }
                }
            }
        }
        Disturbed::Done
    }

    fn ask(&self, name: &LockName, verb: &str, rest: &[&str]) -> Result<Reply, String> {
        let key = format!("holdline:{{{}}}", name.as_str());
        let owner = self.cluster.owner(self.cluster.slot_of(&key), 0).ok_or("no owner")?;
        let words: Vec<&str> = [verb, &key].into_iter().chain(rest.iter().copied()).collect();
        self.cluster.nodes()[owner].raw().send(&words).map_err(|error| error.to_string())
    }
}

impl Factory for Cluster {
    fn name(&self) -> String {
        format!("redis cluster, {}", self.test)
    }

    fn command(&self) -> String {
        let test = self.test;
        format!("cargo test -p holdline-redis --test cluster conformance::{test} -- --nocapture")
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            let options = options(&self.cluster, self.parameters)
                .with_max_waiters(100)
                .with_command_timeout(Duration::from_secs(10));
            let engine = ClusterEngine::connect(&options, Arc::new(MachineClock)).await?;
            self.engines.lock().expect("nobody panicked").push(engine.clone());
            let engine: Arc<dyn Engine> = Arc::new(engine);
            Ok(engine)
        })
    }

    fn time(&self) -> Time {
        Time::Real(Arc::new(MachineClock))
    }

    fn scale(&self) -> Scale {
        Scale { histories: self.histories, ..Scale::quick() }
    }

    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async move {
            match disturbance {
                Disturbance::PlantForeign(name) => {
                    match self.ask(name, "SET", &[FOREIGN, "NX", "PX", "600000"]) {
                        Ok(Reply::Simple(_)) => Disturbed::Done,
                        other => Disturbed::Failed(format!("{other:?}")),
                    }
                }
                Disturbance::CheckForeign(name) => match self.ask(name, "GET", &[]) {
                    Ok(reply) if reply.text().as_deref() == Some(FOREIGN) => Disturbed::Done,
                    other => Disturbed::Failed(format!("{other:?}")),
                },
                Disturbance::Restart => self.restart().await,
            }
        })
    }
}

/// One at a time: the suite uses a real clock.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time() {
    let _turn = TURN.lock().await;
    run(Cluster::start("in_real_time", Flavour::Debian)).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_the_old_protocol() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start("by_the_old_protocol", Flavour::Debian);
    run(Cluster { parameters: "protocol=resp2", histories: FEW, ..cluster }).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_valkey() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start("on_valkey", Flavour::Valkey);
    run(Cluster { histories: FEW, ..cluster }).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_8() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start("on_redis_8", Flavour::Redis8);
    run(Cluster { histories: FEW, ..cluster }).await.conclude();
}
