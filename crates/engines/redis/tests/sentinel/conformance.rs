//! The conformance suite on a group, in real time. Its master is restarted and stays the master.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{Disturbance, Disturbed, Opened, RealStore, Scale, judge};
use holdline_core::{LockError, LockName};
use holdline_redis::{RedisEngine, RedisOptions};
use holdline_services::{Foreign, RedisConfig, RedisServer, SentinelConfig, SentinelGroup};

use crate::support::url;

/// Longer than a restart, which must end before a failover starts.
const LONG: Duration = Duration::from_secs(90);
/// The rules are those of a single server, which is tested with many more.
const HISTORIES: usize = 10;

struct Group {
    group: SentinelGroup,
    parameters: &'static str,
}

impl Group {
    fn start(parameters: &'static str) -> Group {
        let servers = RedisConfig::default().with_appendonly("always");
        let config = SentinelConfig::default().with_servers(servers).with_down_after(LONG);
        let group = SentinelGroup::start(&config);
        group.settle(0);
        Group { group, parameters }
    }

    fn master(&self) -> &RedisServer {
        &self.group.servers()[0]
    }

    fn restart(&self) {
        self.master().restart_settled();
        self.group.await_linked();
    }
}

fn key(name: &LockName) -> String {
    format!("holdline:{{{name}}}")
}

impl RealStore for Group {
    type Client = RedisEngine;

    fn name(&self) -> String {
        "redis with sentinels".to_owned()
    }

    async fn open(&self) -> Result<RedisEngine, LockError> {
        let options = RedisOptions::from_url(&url(&self.group, self.parameters))?;
        RedisEngine::connect(&options.with_max_waiters(100), Arc::new(MachineClock)).await
    }

    fn scale(&self) -> Scale {
        Scale { histories: HISTORIES, ..Scale::quick() }
    }

    async fn disturb(&self, disturbance: &Disturbance, clients: &Opened) -> Disturbed {
        match disturbance {
            Disturbance::PlantForeign(name) => {
                Foreign::Text.plant(self.master(), &key(name)).into()
            }
            Disturbance::CheckForeign(name) => {
                Foreign::Text.check(self.master(), &key(name)).into()
            }
            Disturbance::Restart => {
                self.restart();
                clients.reconnect().await
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time() {
    judge!(in_real_time, Group::start(""));
}

/// Each grant and each renewal reaches both replicas before it counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_replicas() {
    judge!(with_all_replicas, Group::start("&replicas=all"));
}
