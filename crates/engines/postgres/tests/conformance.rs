//! The PostgreSQL engine on real servers: Debian's, and a newer one.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Opened, Scale, Time, run};
use holdline_core::{Engine, LockError};
use holdline_postgres::{PostgresEngine, PostgresOptions};
use holdline_services::{PostgresConfig, PostgresFlavour, PostgresServer};

/// How many histories suffice where only the server is another.
const FEW: usize = 40;

struct Postgres {
    server: PostgresServer,
    flavour: PostgresFlavour,
    test: &'static str,
    /// All clients that were opened: after a restart they have to find the server again.
    engines: Opened,
}

impl Postgres {
    fn start(test: &'static str, flavour: PostgresFlavour) -> Postgres {
        let server = PostgresServer::start(PostgresConfig::default().with_flavour(flavour));
        Postgres { server, flavour, test, engines: Opened::default() }
    }

    /// Stops the server and starts it again. A request that meets the end of its connection has an
    /// unknown outcome, which is not what a restart is to show: so every client finds the server
    /// before anything is asked again.
    async fn restart(&self) -> Disturbed {
        self.server.restart();
        self.engines.reconnect().await
    }
}

impl Factory for Postgres {
    fn name(&self) -> String {
        format!("postgres, {}", self.test)
    }

    fn command(&self) -> String {
        format!("cargo test -p holdline-postgres --test conformance {} -- --nocapture", self.test)
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            // A queue short enough that the suite can fill it.
            let options = PostgresOptions::from_url(&self.server.url())?
                .with_max_waiters(100)
                .with_command_timeout(Duration::from_secs(10));
            let engine = PostgresEngine::connect(&options, Arc::new(MachineClock)).await?;
            Ok(self.engines.add(engine))
        })
    }

    fn time(&self) -> Time {
        Time::Real(Arc::new(MachineClock))
    }

    fn scale(&self) -> Scale {
        match self.flavour {
            PostgresFlavour::Debian => Scale::quick(),
            _ => Scale { histories: FEW, ..Scale::quick() },
        }
    }

    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async move {
            match disturbance {
                Disturbance::PlantForeign(_) | Disturbance::CheckForeign(_) => {
                    Disturbed::Impossible("the types of our tables let nothing else in")
                }
                Disturbance::Restart => self.restart().await,
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time() {
    run(Postgres::start("in_real_time", PostgresFlavour::Debian)).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_18() {
    run(Postgres::start("on_postgres_18", PostgresFlavour::V18)).await.conclude();
}
