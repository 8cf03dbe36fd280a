//! The suite on five real servers, in real time: in the native dialect, and in the plain one with
//! tokens and without.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Scale, Time, run};
use holdline_core::{Engine, LockError, LockName};
use holdline_redis::QuorumEngine;
use holdline_services::{RedisConfig, Reply};

use crate::support::Nodes;

/// How long a client may take to find servers that are there again.
const LIMIT: Duration = Duration::from_secs(90);
const FOREIGN: &str = "somebody else's lock";
/// Where a hash that is no lock of ours has its word.
const FIELD: &str = "uuid:thread";

/// A way to use a quorum.
struct Form {
    test: &'static str,
    parameters: &'static str,
    histories: usize,
    plain: bool,
}

const NATIVE: Form = Form { test: "in_real_time", parameters: "", histories: 60, plain: false };
const PLAIN: Form = Form {
    test: "plain_with_tokens",
    parameters: "&dialect=plain&key_template=lock:{name}",
    histories: 20,
    plain: true,
};
const BARE: Form = Form {
    test: "plain_without_tokens",
    parameters: "&dialect=plain&key_template=lock:{name}&fencing=off&lease_format=uuid",
    ..PLAIN
};

struct Servers {
    form: Form,
    nodes: Nodes,
    /// All clients that were opened: after a restart they have to find the servers again.
    engines: Mutex<Vec<QuorumEngine>>,
}

impl Servers {
    /// Restarts all of them. They keep all that they have answered, so nothing is forgotten.
    async fn restart(&self) -> Disturbed {
        std::thread::scope(|scope| {
            for server in &self.nodes.servers {
                scope.spawn(|| server.restart());
            }
        });
        let engines = self.engines.lock().expect("nobody panicked").clone();
        let nobody = LockName::new("nobody").expect("a good name");
        for engine in engines {
            let deadline = Instant::now() + LIMIT;
            while let Err(error) = engine.inspect(&nobody).await {
                if Instant::now() > deadline {
                    return Disturbed::Failed(format!("still after {LIMIT:?}: {error}"));
                }
                tokio::time::sleep(Duration::from_millis(20)).await; // event: servers are found
            }
        }
        Disturbed::Done
    }

    fn on_all(&self, words: &[&str], good: impl Fn(&Reply) -> bool) -> Disturbed {
        for server in &self.nodes.servers {
            match server.raw().send(words) {
                Ok(reply) if good(&reply) => {}
                other => return Disturbed::Failed(format!("{other:?}")),
            }
        }
        Disturbed::Done
    }
}

impl Form {
    fn key(&self, name: &LockName) -> String {
        match self.plain {
            true => format!("lock:{name}"),
            false => format!("holdline:{{{name}}}"),
        }
    }
}

impl Factory for Servers {
    fn name(&self) -> String {
        format!("redlock, five servers {}", self.form.parameters)
    }

    fn command(&self) -> String {
        let test = self.form.test;
        format!("cargo test -p holdline-redis --test quorum conformance::{test} -- --nocapture")
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            let options = self.nodes.options(self.form.parameters);
            let engine = QuorumEngine::connect(&options, Arc::new(MachineClock)).await?;
            self.engines.lock().expect("nobody panicked").push(engine.clone());
            let engine: Arc<dyn Engine> = Arc::new(engine);
            Ok(engine)
        })
    }

    fn time(&self) -> Time {
        Time::Real(Arc::new(MachineClock))
    }

    fn scale(&self) -> Scale {
        Scale { histories: self.form.histories, ..Scale::quick() }
    }

    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async move {
            match disturbance {
                // A string would be somebody's lock there; a hash is as a lock of Redisson stands.
                Disturbance::PlantForeign(name) if self.form.plain => {
                    let words = ["HSET", &self.form.key(name), FIELD, FOREIGN];
                    self.on_all(&words, |reply| *reply == Reply::Integer(1))
                }
                Disturbance::PlantForeign(name) => {
                    let words = ["SET", &self.form.key(name), FOREIGN, "NX", "PX", "600000"];
                    self.on_all(&words, |reply| matches!(reply, Reply::Simple(_)))
                }
                Disturbance::CheckForeign(name) => {
                    let same = |reply: &Reply| reply.text().as_deref() == Some(FOREIGN);
                    match self.form.plain {
                        true => self.on_all(&["HGET", &self.form.key(name), FIELD], same),
                        false => self.on_all(&["GET", &self.form.key(name)], same),
                    }
                }
                Disturbance::Restart => self.restart().await,
            }
        })
    }
}

/// Five servers at a time are enough for a small machine.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn passes(form: Form) {
    let _alone = ONE_AT_A_TIME.lock().await;
    let nodes = Nodes::start(5, &RedisConfig::default().with_appendonly("always"));
    // Without tokens nobody sets the servers up.
    if form.test != BARE.test {
        nodes.init_with(form.parameters).await;
    }
    run(Servers { form, nodes, engines: Mutex::default() }).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time() {
    passes(NATIVE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_with_tokens() {
    passes(PLAIN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_without_tokens() {
    passes(BARE).await;
}
