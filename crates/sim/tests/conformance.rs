//! The Redis engine with its real scripts on a fake server: the suite cannot tell it from a real
//! one.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Scale, Time, run};
use holdline_core::{Engine, LockError, LockName};
use holdline_redis::{RedisEngine, RedisOptions, Stream, Surroundings, Task};
use holdline_sim::{ConnectionId, Memory, RedisHost, Reply};

/// How long a client may take to find a server that is there again.
const LIMIT: Duration = Duration::from_secs(20);
const FOREIGN: &[u8] = b"somebody else's lock";

/// Streams to the fake, tasks on the test's runtime.
#[derive(Debug)]
struct Inside {
    host: RedisHost,
    drawn: AtomicU32,
}

impl Surroundings for Inside {
    fn dial(&self) -> Task<io::Result<Box<dyn Stream>>> {
        let stream = self.host.connect();
        Box::pin(async { stream.map(|stream| Box::new(stream) as Box<dyn Stream>) })
    }

    fn spawn(&self, task: Task<()>) {
        tokio::spawn(task);
    }

    fn random(&self) -> u32 {
        // Evenly over all numbers, and each engine its own.
        self.drawn.fetch_add(0x9e37_79b9, Ordering::Relaxed)
    }
}

struct Fake {
    host: RedisHost,
    operator: Mutex<ConnectionId>,
    parameters: &'static str,
    test: &'static str,
    opened: AtomicU32,
    engines: Mutex<Vec<RedisEngine>>,
}

impl Fake {
    fn start(test: &'static str, parameters: &'static str) -> Fake {
        let clock = Arc::new(MachineClock);
        let host = RedisHost::new(clock, holdline_sim::RedisOptions::default().with_seed(1));
        let operator = Mutex::new(host.server().connect().expect("it is up"));
        let (opened, engines) = (AtomicU32::new(1), Mutex::default());
        Fake { host, operator, parameters, test, opened, engines }
    }

    fn ask(&self, words: &[&[u8]]) -> Reply {
        let operator = *self.operator.lock().expect("nobody panicked");
        self.host.server().execute(operator, words).remove(0)
    }

    /// Crashes the server and starts it with what it knew; every client finds it again.
    async fn restart(&self) -> Disturbed {
        self.host.server().crash();
        self.host.server().restart(Memory::Kept);
        let operator = self.host.server().connect().expect("it is up again");
        *self.operator.lock().expect("nobody panicked") = operator;
        let engines = self.engines.lock().expect("nobody panicked").clone();
        let nobody = LockName::new("nobody").expect("a good name");
        for engine in engines {
            let deadline = Instant::now() + LIMIT;
            while let Err(error) = engine.inspect(&nobody).await {
                if Instant::now() > deadline {
                    return Disturbed::Failed(format!("still after {LIMIT:?}: {error}"));
                }
            }
        }
        Disturbed::Done
    }
}

fn key(name: &LockName) -> Vec<u8> {
    format!("holdline:{{{}}}", name.as_str()).into_bytes()
}

impl Factory for Fake {
    fn name(&self) -> String {
        format!("redis on a fake server, {}", self.test)
    }

    fn command(&self) -> String {
        format!("cargo test -p holdline-sim --test conformance {} -- --nocapture", self.test)
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            let number = self.opened.fetch_add(1, Ordering::Relaxed);
            let drawn = AtomicU32::new(number.wrapping_mul(0x85eb_ca6b));
            let inside = Arc::new(Inside { host: self.host.clone(), drawn });
            let url = format!("redis://fake{}", self.parameters);
            let options = RedisOptions::from_url(&url)?.with_max_waiters(100);
            let options = options.with_surroundings(inside);
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
        Scale { histories: 50, ..Scale::quick() }
    }

    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async move {
            match disturbance {
                Disturbance::PlantForeign(name) => {
                    let words: [&[u8]; 6] = [b"SET", &key(name), FOREIGN, b"NX", b"PX", b"600000"];
                    match self.ask(&words) {
                        Reply::Status(_) => Disturbed::Done,
                        other => Disturbed::Failed(format!("{other:?}")),
                    }
                }
                Disturbance::CheckForeign(name) => match self.ask(&[b"GET", &key(name)]) {
                    Reply::Bulk(value) if value == FOREIGN => Disturbed::Done,
                    other => Disturbed::Failed(format!("{other:?}")),
                },
                Disturbance::Restart => self.restart().await,
            }
        })
    }
}

/// One at a time: the suite goes by a real clock.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_fake_server() {
    let _turn = TURN.lock().await;
    run(Fake::start("on_a_fake_server", "")).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_fake_server_by_the_old_protocol() {
    let _turn = TURN.lock().await;
    run(Fake::start("on_a_fake_server_by_the_old_protocol", "?protocol=resp2")).await.conclude();
}
