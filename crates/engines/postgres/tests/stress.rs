//! Contenders under the faults of the server itself, judged by the checker.
//!
//! What contenders do, and how it is judged, stands in the suite; here is what befalls the server
//! and the connections to it.

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
enum Harm {
    /// `kill -9` of all its processes, and a start after a while.
    Kill,
    /// `kill -9` of the process that serves a connection: the server recovers.
    KillWorker,
    /// It ends as in a crash, and is started after a while.
    Crash,
    /// It stands still (`SIGSTOP`).
    Stop,
    /// `pg_terminate_backend`, again and again, of whoever is connected.
    Terminate,
    /// Connections by the proxy are reset, again and again.
    Reset,
    /// The way by the proxy is closed for a while.
    Cut,
}

const HARMS: [Harm; 8] = [
    Harm::Kill,
    Harm::KillWorker,
    Harm::Crash,
    Harm::Stop,
    Harm::Stop,
    Harm::Terminate,
    Harm::Reset,
    Harm::Cut,
];

impl Ground {
    fn suffer(&self, harm: Harm, pick: usize, pause: Duration) {
        const AGAIN: u32 = 5;
        match harm {
            Harm::Kill => self.restarted(PostgresServer::kill, pause),
            Harm::Crash => self.restarted(PostgresServer::crash, pause),
            Harm::KillWorker => {
                let workers = self.ours("pid");
                // All may be looking for the way back from the last harm.
                if let Some(worker) = workers.get(pick % workers.len().max(1)) {
                    self.server.kill_worker(worker.parse().expect("a number"));
                    last(pause);
                    self.server.await_answer();
                }
            }
            Harm::Stop => {
                self.server.stop();
                last(pause);
                self.server.cont();
            }
            Harm::Terminate => (0..AGAIN).for_each(|_| {
                self.ours("pg_terminate_backend(pid)");
                last(pause / AGAIN);
            }),
            Harm::Reset => (0..AGAIN).for_each(|_| {
                self.proxy.reset();
                last(pause / AGAIN);
            }),
            Harm::Cut => {
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
    let url = format!("{url}?command_timeout_ms=1000&connect_timeout_ms=1000");
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
    let suffering = ground.clone();
    let harm = move |seed| {
        stress::in_turn(seed, &HARMS, |harm, random, pause| {
            suffering.suffer(harm, random.random_range(0..100), pause);
        })
    };
    // A waiter that could not send its heartbeat may be passed over: the order is not judged here.
    let rules = Rules { fair: false, without_tokens: false };
    let test = "a_server_that_is_killed_stopped_and_cut_off";
    let replay = format!("cargo test -p holdline-postgres --test stress {test}");
    let violations = stress::rage(&replay, engines, rules, harm).await;
    let told: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    let left = ground.server.sql("select count(*) from holdline.waiters");
    assert_eq!(left, ["0"]);
}
