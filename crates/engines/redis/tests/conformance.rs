//! The conformance suite on real servers: Debian's with both protocols, and newer ones.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{Disturbance, Disturbed, Opened, RealStore, Scale, judge};
use holdline_core::{LockError, LockName};
use holdline_redis::{RedisEngine, RedisOptions};
use holdline_services::{Flavour, Foreign, RedisConfig, RedisServer};

/// The number of histories where only the server or the protocol differs.
const FEW: usize = 50;

struct Redis {
    server: RedisServer,
    parameters: &'static str,
    histories: usize,
}

impl Redis {
    fn start(flavour: Flavour, histories: usize) -> Redis {
        // So a restart keeps the grants.
        let config = RedisConfig::default().with_flavour(flavour).with_appendonly("always");
        Redis { server: RedisServer::start(config), parameters: "", histories }
    }
}

fn key(name: &LockName) -> String {
    format!("holdline:{{{name}}}")
}

impl RealStore for Redis {
    type Client = RedisEngine;

    fn name(&self) -> String {
        "redis".to_owned()
    }

    async fn open(&self) -> Result<RedisEngine, LockError> {
        let url = format!("{}{}", self.server.url(), self.parameters);
        let options = RedisOptions::from_url(&url)?
            .with_max_waiters(100)
            .with_command_timeout(Duration::from_secs(10));
        RedisEngine::connect(&options, Arc::new(MachineClock)).await
    }

    fn scale(&self) -> Scale {
        Scale { histories: self.histories, ..Scale::quick() }
    }

    async fn disturb(&self, disturbance: &Disturbance, clients: &Opened) -> Disturbed {
        match disturbance {
            Disturbance::PlantForeign(name) => Foreign::Text.plant(&self.server, &key(name)).into(),
            Disturbance::CheckForeign(name) => Foreign::Text.check(&self.server, &key(name)).into(),
            Disturbance::Restart => {
                self.server.restart_settled();
                clients.reconnect().await
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time() {
    judge!(in_real_time, Redis::start(Flavour::Debian, Scale::quick().histories));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_the_old_protocol() {
    let start = || Redis::start(Flavour::Debian, FEW);
    judge!(by_the_old_protocol, Redis { parameters: "?protocol=resp2", ..start() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_valkey() {
    judge!(on_valkey, Redis::start(Flavour::Valkey, FEW));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_6() {
    judge!(on_redis_6, Redis::start(Flavour::Redis6, FEW));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_8() {
    judge!(on_redis_8, Redis::start(Flavour::Redis8, FEW));
}
