//! Contenders under faults of the server itself, judged by the checker.
//!
//! The suite defines what contenders do and how they are judged; this file injects faults into the
//! server and its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdline_conformance::checker::Rules;
use holdline_conformance::clock::MachineClock;
use holdline_conformance::stress::{self, last};
use holdline_core::{Engine, ErrorKind, FencingToken};
use holdline_postgres::{AdvisoryLock, PostgresEngine, PostgresOptions};
use holdline_services::{FaultProxy, PostgresConfig, PostgresServer};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const CLIENTS: usize = 3;
/// What must happen happens within this time, on any machine.
const LONG: Duration = Duration::from_secs(60);

/// A server, and a way to it that can be cut.
struct Ground {
    server: PostgresServer,
    proxy: FaultProxy,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// `kill -9` of all its processes, and a start after a while.
    Kill,
    /// `kill -9` of the process that serves a connection: the server recovers.
    KillWorker,
    /// It ends as in a crash, and is started after a while.
    Crash,
    /// It is stopped (`SIGSTOP`).
    Stop,
    /// `pg_terminate_backend`, again and again, for all connections.
    Terminate,
    /// Connections by the proxy are reset, again and again.
    Reset,
    /// The way by the proxy is closed for a while.
    Cut,
}

const FAULTS: [Fault; 8] = [
    Fault::Kill,
    Fault::KillWorker,
    Fault::Crash,
    Fault::Stop,
    Fault::Stop,
    Fault::Terminate,
    Fault::Reset,
    Fault::Cut,
];

impl Ground {
    fn inject(&self, fault: Fault, pick: usize, pause: Duration) {
        const AGAIN: u32 = 5;
        match fault {
            Fault::Kill => self.restarted(PostgresServer::kill, pause),
            Fault::Crash => self.restarted(PostgresServer::crash, pause),
            Fault::KillWorker => {
                // All sessions may be reconnecting after the last fault, and the one that is seen
                // may be gone before it is killed: then none is killed this time.
                let workers = self.ours("pid");
                let from = pick % workers.len().max(1);
                let mut picked = workers.iter().cycle().skip(from).take(workers.len());
                if picked.any(|pid| self.server.try_kill_worker(pid.parse().expect("a number"))) {
                    last(pause);
                    self.server.await_answer();
                }
            }
            Fault::Stop => {
                self.server.stop();
                last(pause);
                self.server.cont();
            }
            Fault::Terminate => (0..AGAIN).for_each(|_| {
                self.ours("pg_terminate_backend(pid)");
                last(pause / AGAIN);
            }),
            Fault::Reset => (0..AGAIN).for_each(|_| {
                self.proxy.reset();
                last(pause / AGAIN);
            }),
            Fault::Cut => {
                self.proxy.refuse();
                self.proxy.reset();
                last(pause);
                self.proxy.accept();
            }
        }
    }

    fn restarted(&self, end: impl Fn(&PostgresServer), pause: Duration) {
        end(&self.server);
        last(pause);
        self.server.restart();
    }

    /// Asks something about each of the contenders' connections.
    fn ours(&self, what: &str) -> Vec<String> {
        let ask = format!(
            "select {what} from pg_stat_activity where application_name = 'holdline' order by pid"
        );
        self.server.sql(&ask)
    }
}

async fn connect(url: String) -> Arc<dyn Engine> {
    let url = format!("{url}?command_timeout_ms=1000&connect_timeout_ms=4000");
    let options = PostgresOptions::from_url(&url).expect("a good URL");
    let clock = Arc::new(MachineClock);
    Arc::new(PostgresEngine::connect(&options, clock).await.expect("connected"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_stopped_and_cut_off() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    let proxy = FaultProxy::start(server.address());
    let mut engines = vec![connect(server.url()).await];
    for _ in 1..CLIENTS {
        let behind = format!("postgres://postgres@{}/postgres", proxy.address());
        engines.push(connect(behind).await);
    }
    let ground = Arc::new(Ground { server, proxy });
    let injector = ground.clone();
    let fault = move |seed| {
        stress::in_turn(seed, &FAULTS, |fault, random, pause| {
            injector.inject(fault, random.random_range(0..100), pause);
        })
    };
    // A waiter that could not send its heartbeat may be skipped: the order is not judged here.
    let rules = Rules { fair: false, without_tokens: false };
    let test = "a_server_that_is_killed_stopped_and_cut_off";
    let replay = format!("cargo test -p holdline-postgres --test stress {test}");
    let violations = stress::stress(&replay, engines, rules, fault).await;
    let found: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    let left = ground.server.sql("select count(*) from holdline.waiters");
    assert_eq!(left, ["0"]);
}

/// What one attempt at an advisory lock saw.
struct Seen {
    asked: Instant,
    token: FencingToken,
    granted: Instant,
    /// When it was given up, and when the server had said that it was held until then.
    released: Option<(Instant, Instant)>,
}

/// Takes and releases one advisory lock until `over`; reports each grant.
async fn contend(url: String, seed: u64, over: Arc<AtomicBool>) -> Vec<Seen> {
    let mut random = StdRng::seed_from_u64(seed);
    let options = PostgresOptions::from_url(&url).expect("a good URL");
    let lock = AdvisoryLock::new(&options, 7, Arc::new(MachineClock)).expect("good options");
    let mut seen = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let wait = Duration::from_millis(random.random_range(0..5_000));
        let attempt = tokio::time::timeout(LONG, lock.lock(wait)).await;
        let guard = match attempt.expect("every wait ends") {
            Ok(guard) => guard,
            Err(error) => {
                let away = matches!(error.kind(), ErrorKind::Unavailable { .. });
                assert!(away || error.is_contended(), "{error:?}");
                continue;
            }
        };
        let (granted, token) = (Instant::now(), guard.fencing_token());
        let pause = Duration::from_millis(random.random_range(0..20));
        tokio::time::sleep(pause).await; // event: none, it holds for so long
        let gave_up = Instant::now();
        let released = match random.random_bool(0.2) {
            true => {
                drop(guard);
                None
            }
            false => {
                let reply = tokio::time::timeout(LONG, guard.release()).await;
                reply.expect("every release ends").ok().map(|()| (gave_up, Instant::now()))
            }
        };
        seen.push(Seen { asked, token, granted, released });
    }
    seen
}

/// Two that the server says to have held throughout did not overlap, and tokens are distinct and
/// grow from a hold to whatever was asked for after its end.
fn judge(mut seen: Vec<Seen>) {
    seen.sort_by_key(|one| one.token);
    for pair in seen.windows(2) {
        assert!(pair[0].token < pair[1].token, "{} came twice", pair[0].token);
    }
    for (place, earlier) in seen.iter().enumerate() {
        for later in &seen[place + 1..] {
            if let Some((_, known)) = later.released {
                assert!(earlier.asked <= known, "{} after {}", earlier.token, later.token);
            }
            if let (Some((until, _)), Some(_)) = (earlier.released, later.released) {
                assert!(until <= later.granted, "{} beside {}", earlier.token, later.token);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advisory_locks_of_a_server_that_is_killed_stopped_and_cut_off() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    // The schema is there before the first harm.
    connect(server.url()).await;
    let proxy = FaultProxy::start(server.address());
    let over = Arc::new(AtomicBool::new(false));
    let limits = "command_timeout_ms=1000&connect_timeout_ms=2000";
    let tasks = (0..6).map(|task| {
        let at = if task % 2 == 0 { server.address() } else { proxy.address() };
        let url = format!("postgres://postgres@{at}/postgres?{limits}");
        tokio::spawn(contend(url, task, over.clone()))
    });
    let tasks: Vec<_> = tasks.collect();
    let ground = Arc::new(Ground { server, proxy });
    let injector = ground.clone();
    let injecting = tokio::task::spawn_blocking(move || {
        stress::in_turn(1, &FAULTS, |fault, random, pause| {
            injector.inject(fault, random.random_range(0..100), pause);
        })
    });
    let faults = injecting.await.expect("no panic");
    over.store(true, Ordering::Relaxed);
    let mut seen = Vec::new();
    for task in tasks {
        seen.extend(task.await.expect("no panic"));
    }
    let confirmed = seen.iter().filter(|one| one.released.is_some()).count();
    println!("{} grants, {confirmed} confirmed to the end; {faults:?}", seen.len());
    assert!(confirmed > 0, "nobody held to the end");
    judge(seen);
    let left = "select (select count(*) from pg_locks where locktype = 'advisory') \
        + (select count(*) from pg_stat_activity where application_name = 'holdline')";
    let end = Instant::now() + LONG;
    while ground.server.sql(left) != ["0"] {
        assert!(Instant::now() < end, "something is left");
        tokio::task::yield_now().await;
    }
}
