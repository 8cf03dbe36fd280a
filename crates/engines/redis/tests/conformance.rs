//! The conformance suite on real servers: Debian's with both protocols, and newer ones.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Opened, Scale, Time, run};
use holdline_core::{Engine, LockError, LockName};
use holdline_redis::{RedisEngine, RedisOptions};
use holdline_services::{Flavour, RedisConfig, RedisServer, Reply};

/// The number of histories where only the server or the protocol differs.
const FEW: usize = 50;
const FOREIGN: &str = "somebody else's lock";

struct Redis {
    server: RedisServer,
    test: &'static str,
    parameters: &'static str,
    histories: usize,
    /// All open clients: after a restart they must reconnect.
    engines: Opened,
}

impl Redis {
    fn start(test: &'static str, flavour: Flavour) -> Redis {
        // So a restart keeps the grants.
        let config = RedisConfig::default().with_flavour(flavour).with_appendonly("always");
        Redis {
            server: RedisServer::start(config),
            test,
            parameters: "",
            histories: Scale::quick().histories,
            engines: Opened::default(),
        }
    }

    /// Restarts the server. A request on a connection that ends has an unknown outcome, which the
    /// suite does not test here. So every client reconnects before the next request.
    async fn restart(&self) -> Disturbed {
        self.server.restart();
        self.engines.reconnect().await
    }

    fn options(&self) -> Result<RedisOptions, LockError> {
        // A queue limit that the suite can reach.
        let url = format!("{}{}", self.server.url(), self.parameters);
        RedisOptions::from_url(&url).map(|options| {
            options.with_max_waiters(100).with_command_timeout(Duration::from_secs(10))
        })
    }

    fn ask(&self, words: &[&str]) -> Result<Reply, String> {
        self.server.raw().send(words).map_err(|error| error.to_string())
    }
}

fn key(name: &LockName) -> String {
    format!("holdline:{{{}}}", name.as_str())
}

impl Factory for Redis {
    fn name(&self) -> String {
        format!("redis, {}", self.test)
    }

    fn command(&self) -> String {
        format!("cargo test -p holdline-redis --test conformance {} -- --nocapture", self.test)
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            let clock = Arc::new(MachineClock);
            let engine = RedisEngine::connect(&self.options()?, clock).await?;
            Ok(self.engines.add(engine))
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
                    match self.ask(&["SET", &key(name), FOREIGN, "NX", "PX", "600000"]) {
                        Ok(Reply::Simple(_)) => Disturbed::Done,
                        other => Disturbed::Failed(format!("{other:?}")),
                    }
                }
                Disturbance::CheckForeign(name) => match self.ask(&["GET", &key(name)]) {
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
    run(Redis::start("in_real_time", Flavour::Debian)).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_the_old_protocol() {
    let _turn = TURN.lock().await;
    let redis = Redis::start("by_the_old_protocol", Flavour::Debian);
    run(Redis { parameters: "?protocol=resp2", histories: FEW, ..redis }).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_valkey() {
    let _turn = TURN.lock().await;
    let redis = Redis::start("on_valkey", Flavour::Valkey);
    run(Redis { histories: FEW, ..redis }).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_6() {
    let _turn = TURN.lock().await;
    let redis = Redis::start("on_redis_6", Flavour::Redis6);
    run(Redis { histories: FEW, ..redis }).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_8() {
    let _turn = TURN.lock().await;
    let redis = Redis::start("on_redis_8", Flavour::Redis8);
    run(Redis { histories: FEW, ..redis }).await.conclude();
}
