//! The conformance suite on the engine with its real scripts and a fake server, in virtual time:
//! the suite moves the clock, so leases of hours cost nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdline::clock::ManualClock;
use holdline_conformance::{
    BoxFuture, Disturbance, Disturbed, Factory, ManualTime, Scale, Time, run,
};
use holdline_core::{Clock, Engine, LockError, LockName, Moment};
use holdline_redis::{Environment, RedisEngine, RedisOptions, Stream, Task, TaskSpawner};
use holdline_sim::{ConnectionId, Memory, RedisHost, Reply};
use parking_lot::Mutex;

const FOREIGN: &[u8] = b"somebody else's lock";
/// How far time moves while a client reconnects after a restart, and how often.
const STEP: Duration = Duration::from_millis(5);
const STEPS: u32 = 1_000;
/// The number of histories: the table itself is tested with more.
const HISTORIES: usize = 500;
/// The number where only the protocol differs.
const FEW: usize = 100;

/// The simulation's clock, as the suite moves it.
#[derive(Clone, Debug)]
struct HandDrivenClock(ManualClock);

impl Clock for HandDrivenClock {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn sleep_until(
        &self,
        at: Moment,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        self.0.sleep_until(at)
    }
}

impl ManualTime for HandDrivenClock {
    fn advance(&self, by: Duration) {
        self.0.advance(by);
    }
}

/// The environment: streams to the fake server, tasks on the test's thread.
#[derive(Debug)]
struct SimEnvironment {
    host: RedisHost,
    drawn: AtomicU32,
}

impl TaskSpawner for SimEnvironment {
    fn spawn(&self, task: Task<()>) {
        drop(tokio::spawn(task));
    }
}

impl Environment for SimEnvironment {
    fn dial(&self) -> Task<io::Result<Box<dyn Stream>>> {
        let stream = self.host.connect();
        Box::pin(async { stream.map(|stream| Box::new(stream) as Box<dyn Stream>) })
    }

    fn random(&self) -> u32 {
        // Evenly distributed, and different for each engine.
        self.drawn.fetch_add(0x9e37_79b9, Ordering::Relaxed)
    }
}

pub(crate) struct Fake {
    test: &'static str,
    url: &'static str,
    histories: usize,
    pub(crate) clock: ManualClock,
    pub(crate) host: RedisHost,
    operator: Mutex<ConnectionId>,
    opened: AtomicU32,
    engines: Mutex<Vec<RedisEngine>>,
}

impl Fake {
    pub(crate) fn start(test: &'static str) -> Fake {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(24 * 60 * 60));
        let options = holdline_sim::RedisOptions::default().with_seed(1);
        let host = RedisHost::new(Arc::new(clock.clone()), options);
        let operator = Mutex::new(host.server().connect().expect("it is up"));
        Fake {
            test,
            url: "redis://fake",
            histories: HISTORIES,
            clock,
            host,
            operator,
            opened: AtomicU32::new(1),
            engines: Mutex::default(),
        }
    }

    fn ask(&self, words: &[&[u8]]) -> Reply {
        let operator = *self.operator.lock();
        self.host.server().execute(operator, words).remove(0)
    }

    /// Crashes the server and restarts it with its data; every client reconnects.
    async fn restart(&self) -> Disturbed {
        self.host.server().crash();
        self.host.server().restart(Memory::Kept);
        *self.operator.lock() = self.host.server().connect().expect("it is up again");
        // It has lost no data, so an operator may say so.
        let run = self.host.server().run_id();
        let term: [&[u8]; 6] = [b"HSET", b"holdline:reign:1", b"m", run.as_bytes(), b"q", b"0"];
        self.ask(&term);
        let engines = self.engines.lock().clone();
        let nobody = LockName::new("nobody").expect("a good name");
        for engine in engines {
            let mut looks =
                std::pin::pin!(async { while engine.inspect(&nobody).await.is_err() {} });
            let mut steps = 0;
            loop {
                tokio::select! {
                    biased;
                    () = &mut looks => break,
                    () = let_all_run() => {}
                }
                steps += 1;
                if steps > STEPS {
                    return Disturbed::Failed(format!("not found in {STEPS} steps"));
                }
                self.clock.advance(STEP);
            }
        }
        Disturbed::Done
    }
}

/// Lets every task of the thread run a few times.
pub(crate) async fn let_all_run() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn key(name: &LockName) -> Vec<u8> {
    format!("holdline:{{{}}}", name.as_str()).into_bytes()
}

impl Factory for Fake {
    fn name(&self) -> String {
        format!("redis on a fake server, hand-driven clock, {}", self.test)
    }

    fn command(&self) -> String {
        format!("cargo test -p holdline-sim --test redis {} -- --nocapture", self.test)
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            let number = self.opened.fetch_add(1, Ordering::Relaxed);
            let drawn = AtomicU32::new(number.wrapping_mul(0x85eb_ca6b));
            let inside = Arc::new(SimEnvironment { host: self.host.clone(), drawn });
            let options = RedisOptions::from_url(self.url)?.with_max_waiters(100);
            let options = options.with_environment(inside);
            let engine = RedisEngine::connect(&options, Arc::new(self.clock.clone())).await?;
            self.engines.lock().push(engine.clone());
            let engine: Arc<dyn Engine> = Arc::new(engine);
            Ok(engine)
        })
    }

    fn time(&self) -> Time {
        Time::Manual(Arc::new(HandDrivenClock(self.clock.clone())))
    }

    fn scale(&self) -> Scale {
        Scale { histories: self.histories, ..Scale::manual() }
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

#[tokio::test]
async fn the_suite_passes_on_a_fake_server_in_virtual_time() {
    run(Fake::start("in_virtual_time")).await.conclude();
}

#[tokio::test]
async fn the_suite_passes_with_resp2_in_virtual_time() {
    let fake = Fake::start("by_the_old_protocol");
    run(Fake { url: "redis://fake?protocol=resp2", histories: FEW, ..fake }).await.conclude();
}
