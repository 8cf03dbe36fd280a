//! The conformance suite on the plain dialect, with tokens and without.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Scale, Time, run};
use holdline_core::{Engine, LockError, LockName};
use holdline_redis::{PlainEngine, RedisOptions};
use holdline_services::{RedisConfig, RedisServer, Reply};

struct PlainSetup {
    server: RedisServer,
    parameters: &'static str,
    test: &'static str,
    opened: Mutex<Vec<PlainEngine>>,
}

impl PlainSetup {
    fn new(parameters: &'static str, test: &'static str) -> PlainSetup {
        let server = RedisServer::start(RedisConfig::default().with_appendonly("always"));
        PlainSetup { server, parameters, test, opened: Mutex::default() }
    }

    fn key(name: &LockName) -> String {
        format!("lock:{name}")
    }

    fn plant(&self, name: &LockName) -> Reply {
        // As a lock of Redisson.
        let words = ["HSET", &PlainSetup::key(name), "uuid:thread", "1"];
        self.server.raw().send(&words).expect("the server answers")
    }

    /// Waits until every client has reconnected: a request on the old connection shows nothing
    /// about the kept data.
    async fn meet_again(&self) -> Disturbed {
        let opened = self.opened.lock().expect("nobody panics with it").clone();
        let name = LockName::new("met again").expect("a good name");
        for engine in opened {
            let deadline = Instant::now() + Duration::from_secs(90);
            while let Err(error) = engine.inspect(&name).await {
                if Instant::now() > deadline {
                    return Disturbed::Failed(error.to_string());
                }
            }
        }
        Disturbed::Done
    }

    fn planted(&self, name: &LockName) -> Reply {
        let words = ["HGET", &PlainSetup::key(name), "uuid:thread"];
        self.server.raw().send(&words).expect("the server answers")
    }
}

impl Factory for PlainSetup {
    fn name(&self) -> String {
        format!("redis, plain dialect ({})", self.parameters)
    }

    fn command(&self) -> String {
        format!("cargo test -p holdline-redis --test plain {} -- --nocapture", self.test)
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            let url = format!("{}?dialect=plain&{}", self.server.url(), self.parameters);
            let options = RedisOptions::from_url(&url)?;
            let options = options.with_command_timeout(Duration::from_secs(10));
            let engine = PlainEngine::connect(&options, Arc::new(MachineClock)).await?;
            self.opened.lock().expect("nobody panics with it").push(engine.clone());
            Ok(Arc::new(engine) as Arc<dyn Engine>)
        })
    }

    fn time(&self) -> Time {
        Time::Real(Arc::new(MachineClock))
    }

    fn scale(&self) -> Scale {
        Scale::quick()
    }

    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async move {
            match disturbance {
                Disturbance::PlantForeign(name) => match self.plant(name) {
                    Reply::Integer(1) => Disturbed::Done,
                    other => Disturbed::Failed(format!("planting gave {other:?}")),
                },
                Disturbance::CheckForeign(name) => match self.planted(name) {
                    Reply::Bulk(value) if value == b"1" => Disturbed::Done,
                    other => Disturbed::Failed(format!("{other:?}")),
                },
                Disturbance::Restart => {
                    self.server.restart();
                    self.meet_again().await
                }
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_tokens() {
    run(PlainSetup::new("key_template=lock:{name}", "with_tokens")).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens() {
    let parameters = "key_template=lock:{name}&fencing=off&lease_format=uuid";
    run(PlainSetup::new(parameters, "without_tokens")).await.conclude();
}
