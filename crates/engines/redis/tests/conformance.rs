//! The Redis engine on real servers: Debian's by both protocols, and the newest that can be had.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Opened, Scale, Time, run};
use holdline_core::{Engine, LockError, LockName};
use holdline_redis::{RedisEngine, RedisOptions};
use holdline_services::{Flavour, RedisConfig, RedisServer, Reply};

/// How many histories suffice where only the server or the protocol is another.
const FEW: usize = 50;
const FOREIGN: &str = "somebody else's lock";

struct Redis {
    server: RedisServer,
    test: &'static str,
    parameters: &'static str,
    histories: usize,
    /// All clients that were opened: after a restart they have to find the server again.
    engines: Opened,
}

impl Redis {
    fn start(test: &'static str, flavour: Flavour) -> Redis {
        // So that a restart keeps what was granted.
        let config = RedisConfig::default().with_flavour(flavour).with_appendonly("always");
        Redis {
            server: RedisServer::start(config),
            test,
            parameters: "",
            histories: Scale::quick().histories,
            engines: Opened::default(),
        }
    }

    /// Stops the server and starts it again. A request that meets the end of its connection has an
    /// unknown outcome, which is not what a restart is to show: so every client finds the server
    /// before anything is asked again.
    async fn restart(&self) -> Disturbed {
        self.server.restart();
        self.engines.reconnect().await
    }

    fn options(&self) -> Result<RedisOptions, LockError> {
        // A queue short enough that the suite can fill it.
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

/// One at a time: the suite goes by a real clock.
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
