//! The PostgreSQL engine on real servers: Debian's, and a newer one.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{Disturbance, Disturbed, Opened, RealStore, Scale, judge};
use holdline_core::LockError;
use holdline_postgres::{PostgresEngine, PostgresOptions};
use holdline_services::{PostgresConfig, PostgresFlavour, PostgresServer};

/// How many histories suffice where only the server is another.
const FEW: usize = 40;

struct Postgres {
    server: PostgresServer,
    histories: usize,
}

impl Postgres {
    fn start(flavour: PostgresFlavour, histories: usize) -> Postgres {
        let config = PostgresConfig::default().with_flavour(flavour);
        Postgres { server: PostgresServer::start(config), histories }
    }
}

impl RealStore for Postgres {
    type Client = PostgresEngine;

    fn name(&self) -> String {
        "postgres".to_owned()
    }

    async fn open(&self) -> Result<PostgresEngine, LockError> {
        let options = PostgresOptions::from_url(&self.server.url())?
            .with_max_waiters(100)
            .with_command_timeout(Duration::from_secs(10));
        PostgresEngine::connect(&options, Arc::new(MachineClock)).await
    }

    fn scale(&self) -> Scale {
        Scale { histories: self.histories, ..Scale::quick() }
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
    judge!(in_real_time, Postgres::start(PostgresFlavour::Debian, Scale::quick().histories));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_18() {
    judge!(on_postgres_18, Postgres::start(PostgresFlavour::V18, FEW));
}
