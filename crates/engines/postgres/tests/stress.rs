//! Contenders under faults of the server itself, judged by the checker.
//!
//! The suite defines what contenders do and how they are judged; this file injects faults into the
//! server and its connections.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::checker::Rules;
use holdline_conformance::clock::MachineClock;
use holdline_conformance::stress::{self, last};
use holdline_core::Engine;
use holdline_postgres::{PostgresEngine, PostgresOptions};
use holdline_services::{FaultProxy, PostgresConfig, PostgresServer};
use rand::RngExt;

const CLIENTS: usize = 3;

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
