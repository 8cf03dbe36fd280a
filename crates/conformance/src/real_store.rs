//! The suite on real servers, by a real clock: what the drivers of all such stores share.

use std::sync::Arc;

use holdline_core::{Engine, LockError};

use crate::clock::MachineClock;
use crate::factory::{BoxFuture, Disturbance, Disturbed, Factory, Opened, Scale, Time};
use crate::run::run;

/// A store on real servers, as the suite needs it.
pub trait RealStore: Send + Sync + 'static {
    /// A client of the store.
    type Client: Engine;

    /// Returns what the report calls the store, such as `redis`.
    fn name(&self) -> String;

    /// Opens one more client, with a queue limit that the suite can reach.
    fn open(&self) -> impl Future<Output = Result<Self::Client, LockError>> + Send;

    /// Returns how long, how exactly and how often to try.
    fn scale(&self) -> Scale;

    /// Does something to the store behind its clients' backs. After a restart the `clients` must
    /// reconnect before the next request: one whose connection ends has an unknown outcome, which
    /// a restart does not test.
    fn disturb(
        &self,
        disturbance: &Disturbance,
        clients: &Opened,
    ) -> impl Future<Output = Disturbed> + Send;
}

/// Runs the suite on the store that `$store` starts, as the test of this name: one store at a time,
/// because the suite uses a real clock.
#[macro_export]
macro_rules! judge {
    ($test:ident, $store:expr) => {
        $crate::judge_store(
            env!("CARGO_PKG_NAME"),
            concat!(module_path!(), "::", stringify!($test)),
            async { $store },
        )
        .await
    };
}

/// Runs the suite on a store, and panics if something is not as it must be. [`judge!`] calls it
/// with the package and the path of its test.
///
/// # Panics
/// The store does not pass.
pub async fn judge_store<S: RealStore>(
    package: &'static str,
    path: &'static str,
    store: impl Future<Output = S>,
) {
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = ONE_AT_A_TIME.lock().await;
    let (target, test) = path.split_once("::").unwrap_or((path, ""));
    let command = format!("cargo test -p {package} --test {target} {test} -- --nocapture");
    let store = store.await;
    run(RealFactory { store, test, command, clients: Opened::default() }).await.conclude();
}

struct RealFactory<S> {
    store: S,
    test: &'static str,
    command: String,
    clients: Opened,
}

impl<S: RealStore> Factory for RealFactory<S> {
    fn name(&self) -> String {
        format!("{}, {}", self.store.name(), self.test)
    }

    fn command(&self) -> String {
        self.command.clone()
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async { Ok(self.clients.add(self.store.open().await?)) })
    }

    fn time(&self) -> Time {
        Time::Real(Arc::new(MachineClock))
    }

    fn scale(&self) -> Scale {
        self.store.scale()
    }

    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(self.store.disturb(disturbance, &self.clients))
    }
}
