//! The conformance suite on a group, in real time. Its master is restarted and stays the master.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Scale, Time, run};
use holdline_core::{Engine, LockError, LockName};
use holdline_redis::{RedisEngine, RedisOptions};
use holdline_services::{RedisConfig, RedisServer, Reply, SentinelConfig, SentinelGroup};

use crate::support::url;

/// The time limit of a client to reconnect.
const LIMIT: Duration = Duration::from_secs(90);
const FOREIGN: &str = "somebody else's lock";
/// The rules are those of a single server, which is tested with many more.
const HISTORIES: usize = 10;

struct Group {
    group: SentinelGroup,
    parameters: &'static str,
    test: &'static str,
    /// All open clients: after a restart they must reconnect.
    engines: Mutex<Vec<RedisEngine>>,
}

impl Group {
    fn start(test: &'static str, parameters: &'static str) -> Group {
        // A restart must end before a failover starts.
        let servers = RedisConfig::default().with_appendonly("always");
        let config = SentinelConfig::default().with_servers(servers).with_down_after(LIMIT);
        let group = SentinelGroup::start(&config);
        group.settle(0);
        Group { group, test, parameters, engines: Mutex::default() }
    }

    fn master(&self) -> &RedisServer {
        &self.group.servers()[0]
    }

    async fn restart(&self) -> Disturbed {
        self.master().restart();
        // It has lost no data, so an operator may say so.
        self.group.settle(0);
        for kind in ["pubsub", "normal"] {
            let mut raw = self.master().raw();
            raw.send(&["CLIENT", "KILL", "TYPE", kind]).expect("an answer");
        }
        self.group.await_linked();
        let engines = self.engines.lock().expect("nobody panicked").clone();
        let nobody = LockName::new("nobody").expect("a good name");
        for engine in engines {
            let deadline = Instant::now() + LIMIT;
            while let Err(error) = engine.inspect(&nobody).await {
                if Instant::now() > deadline {
                    return Disturbed::Failed(format!("still after {LIMIT:?}: {error}"));
                }
                tokio::time::sleep(Duration::from_millis(20)).await; // event: the server is found
            }
        }
        Disturbed::Done
    }

    fn ask(&self, words: &[&str]) -> Result<Reply, String> {
        self.master().raw().send(words).map_err(|error| error.to_string())
    }
}

fn key(name: &LockName) -> String {
    format!("holdline:{{{}}}", name.as_str())
}

impl Factory for Group {
    fn name(&self) -> String {
        format!("redis with sentinels, {}", self.test)
    }

    fn command(&self) -> String {
        let test = self.test;
        format!("cargo test -p holdline-redis --test sentinel conformance::{test} -- --nocapture")
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            // A queue limit that the suite can reach.
            let options = RedisOptions::from_url(&url(&self.group, self.parameters))?;
            let options = options.with_max_waiters(100);
            let engine = RedisEngine::connect(&options, Arc::new(MachineClock)).await?;
            self.engines.lock().expect("nobody panicked").push(engine.clone());
            let engine: Arc<dyn Engine> = Arc::new(engine);
            Ok(engine)
        })
    }

    fn time(&self) -> Time {
        Time::Real(Arc::new(MachineClock))
    }

    fn scale(&self) -> Scale {
        Scale { histories: HISTORIES, ..Scale::quick() }
    }

    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async move {
            match disturbance {
                Disturbance::PlantForeign(name) => {
                    match self.ask(&["SET", &key(name), FOREIGN, "NX", "PX", "600000"]) {
                        Ok(Reply::Simple(_)) => Disturbed::Done,
                        other => Disturbed::Failed(format!("{other:?}")),
                    }
                }
                Disturbance::CheckForeign(name) => match self.ask(&["GET", &key(name)]) {
                    Ok(reply) if reply.text().as_deref() == Some(FOREIGN) => Disturbed::Done,
                    other => Disturbed::Failed(format!("{other:?}")),
                },
                Disturbance::Restart => self.restart().await,
            }
        })
    }
}

/// One at a time: the suite uses a real clock.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time() {
    let _turn = TURN.lock().await;
    run(Group::start("in_real_time", "")).await.conclude();
}

/// Each grant and each renewal reaches both replicas before it counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_replicas() {
    let _turn = TURN.lock().await;
    run(Group::start("with_all_replicas", "&replicas=all")).await.conclude();
}
