//! The conformance suite on the plain dialect, with tokens and without.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{Disturbance, Disturbed, Opened, RealStore, Scale, judge};
use holdline_core::LockError;
use holdline_redis::{PlainEngine, RedisOptions};
use holdline_services::{Foreign, RedisConfig, RedisServer};

struct PlainSetup {
    server: RedisServer,
    parameters: &'static str,
}

impl PlainSetup {
    fn start(parameters: &'static str) -> PlainSetup {
        let server = RedisServer::start(RedisConfig::default().with_appendonly("always"));
        PlainSetup { server, parameters }
    }
}

impl RealStore for PlainSetup {
    type Client = PlainEngine;

    fn name(&self) -> String {
        format!("redis, plain dialect ({})", self.parameters)
    }

    async fn open(&self) -> Result<PlainEngine, LockError> {
        let url = format!("{}?dialect=plain&{}", self.server.url(), self.parameters);
        let options = RedisOptions::from_url(&url)?.with_command_timeout(Duration::from_secs(10));
        PlainEngine::connect(&options, Arc::new(MachineClock)).await
    }

    fn scale(&self) -> Scale {
        Scale::quick()
    }

    async fn disturb(&self, disturbance: &Disturbance, clients: &Opened) -> Disturbed {
        match disturbance {
            Disturbance::PlantForeign(name) => {
                Foreign::Hash.plant(&self.server, &format!("lock:{name}")).into()
            }
            Disturbance::CheckForeign(name) => {
                Foreign::Hash.check(&self.server, &format!("lock:{name}")).into()
            }
            Disturbance::Restart => {
                self.server.restart_settled();
                clients.reconnect().await
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_tokens() {
    judge!(with_tokens, PlainSetup::start("key_template=lock:{name}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens() {
    let parameters = "key_template=lock:{name}&fencing=off";
    judge!(without_tokens, PlainSetup::start(parameters));
}
