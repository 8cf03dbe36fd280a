//! The MariaDB engine on a real server.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Opened, Scale, Time, run};
use holdline_core::{Engine, LockError};
use holdline_mysql::{MysqlEngine, MysqlOptions};
use holdline_services::{MariaDbConfig, MariaDbServer};

struct MariaDb {
    server: MariaDbServer,
    /// All clients that were opened: after a restart they have to find the server again.
    engines: Opened,
}

impl MariaDb {
    /// Stops the server and starts it again. A request that meets the end of its connection has an
    /// unknown outcome, which is not what a restart is to show: so every client finds the server
    /// before anything is asked again.
    async fn restart(&self) -> Disturbed {
        self.server.restart();
        self.engines.reconnect().await
    }
}

impl Factory for MariaDb {
    fn name(&self) -> String {
        "mysql, in_real_time".to_owned()
    }

    fn command(&self) -> String {
        "cargo test -p holdline-mysql --test conformance in_real_time -- --nocapture".to_owned()
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            // A queue short enough that the suite can fill it.
            let options = MysqlOptions::from_url(&self.server.url())?
                .with_max_waiters(100)
                .with_command_timeout(Duration::from_secs(10));
            let engine = MysqlEngine::connect(&options, Arc::new(MachineClock)).await?;
            Ok(self.engines.add(engine))
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
    let server = MariaDbServer::start(MariaDbConfig::default());
    run(MariaDb { server, engines: Opened::default() }).await.conclude();
}
