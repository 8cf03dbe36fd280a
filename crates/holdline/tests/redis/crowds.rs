//! Very many who wait for one name, in one process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline::{Client, LockOptions};
use holdline_services::{PrivateNetwork, RedisServer};
use parking_lot::Mutex;

use crate::support::{
    Referee, behind, clean, client, kept_their_positions, let_go, line, patient, queued, server,
    take, unspoilt, until,
};

const COUNT: u16 = 10_000;
/// The batches of one heartbeat of all, of 128 lines at most.
const BATCHES: f64 = 79.0;
/// How long all of them may take together, on any machine.
const ALL: Duration = Duration::from_secs(1_200);

/// The figure behind a word of `INFO`.
fn info(server: &RedisServer, section: &str, word: &str) -> f64 {
    let text = behind(server, &format!("INFO {section}")).text().expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_default();
    let figure: String = line.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    figure.parse().unwrap_or_default()
}

fn calls(server: &RedisServer, command: &str) -> f64 {
    info(server, "commandstats", &format!("cmdstat_{command}:calls="))
}

/// The most memory that this process ever had, in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("read");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

struct Crowd {
    client: Client,
    options: LockOptions,
    referee: Referee,
    order: Mutex<Vec<String>>,
}

impl Crowd {
    async fn wait(self: Arc<Self>) {
        let mutex = self.client.mutex_with("a", &self.options).expect("a good lock");
        let guard = mutex.lock().await.expect("the lock");
        self.referee.granted(&guard);
        self.order.lock().push(guard.lease_id().to_hex());
        let_go(guard).await;
    }
}

/// In a process of its own, so that its memory is measured apart from that of other tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_of_one_process_are_served_in_order() {
    let name = "crowds::ten_thousand_waiters_of_one_process_are_served_in_order";
    let Some(_network) = PrivateNetwork::enter(name) else { return };
    let server = server();
    let url = format!("redis://{}?command_timeout_ms=20000&max_waiters=100000", server.address());
    let (holder, client) = (client(&url).await, client(&url).await);
    let before = peak();
    unspoilt("the order of the queue", async || {
        let guard = take(&holder, "a", &patient()).await;
        let options = patient().with_wait(ALL);
        let (client, referee) = (client.clone(), Referee::default());
        let crowd = Arc::new(Crowd { client, options, referee, order: Mutex::default() });
        let waiters: Vec<_> = (0..COUNT).map(|_| tokio::spawn(crowd.clone().wait())).collect();
        queued(&server, "a", usize::from(COUNT)).await;
        let wanted = line(&server, "a");
        behind(&server, "CONFIG RESETSTAT");
        let begun = Instant::now();
        let_go(guard).await;
        let all = async {
            for waiter in waiters {
                waiter.await.expect("no panic");
            }
        };
        tokio::time::timeout(ALL, all).await.expect("all have had it");
        assert_eq!(crowd.referee.grants(), usize::from(COUNT));
        if !kept_their_positions(&crowd.order.lock(), &wanted) {
            return false;
        }
        let (scripts, published) = (calls(&server, "evalsha"), calls(&server, "publish"));
        // A release and a message each; the heartbeats of all go in batches, each second.
        let (few, beats) = (f64::from(COUNT), begun.elapsed().as_secs_f64() * BATCHES);
        assert!((few..1.5 * few + beats).contains(&scripts), "{scripts} scripts");
        assert!((few..1.1 * few).contains(&published), "{published} messages");
        true
    })
    .await;
    let cpu = info(&server, "cpu", "used_cpu_user:");
    assert!(cpu < 60.0, "{cpu} s of the server for {COUNT} hand-offs: about 2 are right");
    let (here, there) = (peak() - before, info(&server, "memory", "used_memory_peak:") / 1e6);
    assert!(here < 400, "{here} MiB here for {COUNT} waiters: about 100 are right");
    assert!(there < 60.0, "{there} MB there: about 10 are right");
    until("the line is gone", || behind(&server, "EXISTS holdline:{a}:1q").integer() == Some(0))
        .await;
    clean(&server, &[&client, &holder]).await;
}

/// More requests than may be unanswered on a connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_thousand_locks_at_once_wait_for_their_turn() {
    let server = server();
    let client = client(&format!("redis://{}?command_timeout_ms=60000", server.address())).await;
    behind(&server, "CLIENT PAUSE 2000 ALL");
    let tasks: Vec<_> = (0..50_000)
        .map(|number| {
            let mutex = client.mutex_with(format!("a{number}"), &patient()).expect("a good lock");
            tokio::spawn(async move { mutex.try_lock().await.map(drop) })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic").expect("the lock");
    }
    client.shutdown(ALL).await;
}
