//! The MariaDB engine on a real server.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{Disturbance, Disturbed, Opened, RealStore, Scale, judge};
use holdline_core::LockError;
use holdline_mysql::{MysqlEngine, MysqlOptions};
use holdline_services::{MariaDbConfig, MariaDbServer};

struct MariaDb {
    server: MariaDbServer,
}

impl RealStore for MariaDb {
    type Client = MysqlEngine;

    fn name(&self) -> String {
        "mysql".to_owned()
    }

    async fn open(&self) -> Result<MysqlEngine, LockError> {
        let options = MysqlOptions::from_url(&self.server.url())?
            .with_max_waiters(100)
            .with_command_timeout(Duration::from_secs(10));
        MysqlEngine::connect(&options, Arc::new(MachineClock)).await
    }

    fn scale(&self) -> Scale {
        Scale::quick()
    }

    async fn disturb(&self, disturbance: &Disturbance, clients: &Opened) -> Disturbed {
        match disturbance {
            Disturbance::PlantForeign(_) | Disturbance::CheckForeign(_) => {
                Disturbed::Impossible("the types of our tables let nothing else in")
            }
            Disturbance::Restart => {
                self.server.restart();
                clients.reconnect().await
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time() {
    judge!(in_real_time, MariaDb { server: MariaDbServer::start(MariaDbConfig::default()) });
}
