//! What clients cost a server, in requests: the pieces that docs/scale.md multiplies.

use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, ClientOptions, Guard, LockOptions};
use holdline_conformance::Factory;

use super::conformance::{Fake, let_all_run};

const S: Duration = Duration::from_secs(1);
/// How far time moves at once.
const STEP: Duration = Duration::from_millis(50);

/// A server and clients, each with an engine and a connection of its own.
struct Costs(Fake);

impl Costs {
    fn start() -> Costs {
        Costs(Fake::start("costs"))
    }

    async fn client(&self) -> Client {
        let engine = self.0.open().await.expect("the server is up");
        let options = ClientOptions::default().with_clock(Arc::new(self.0.clock.clone()));
        Client::with_options(engine, options).expect("good options")
    }

    /// Returns how many requests the server gets while time passes.
    async fn requests(&self, time: Duration) -> u64 {
        let before = self.0.host.server().requests();
        for _ in 0..time.as_nanos() / STEP.as_nanos() {
            let_all_run().await;
            self.0.clock.advance(STEP);
        }
        let_all_run().await;
        self.0.host.server().requests() - before
    }
}

fn is_about(requests: u64, expected: u64) -> bool {
    (expected * 9 / 10..=expected * 11 / 10).contains(&requests)
}

#[tokio::test]
async fn a_client_renews_40_leases_or_more_with_a_request() {
    let costs = Costs::start();
    let client = costs.client().await;
    let options = LockOptions::default().with_lease_duration(30 * S);
    let mut held: Vec<Guard> = Vec::new();
    for number in 0..1_280 {
        let mutex = client.mutex_with(format!("orders/{number}"), &options).expect("good");
        held.push(mutex.try_lock().await.expect("free"));
    }
    let requests = costs.requests(120 * S).await;
    // Twelve rounds. Ten requests each would do, but renewals are spread over time.
    assert!((120..12 * 1_280 / 40).contains(&requests), "{requests} requests");
    assert!(held.iter().all(Guard::is_valid));
}

#[tokio::test]
async fn a_waiting_client_sends_a_request_a_second_however_many_of_its_tasks_wait() {
    let costs = Costs::start();
    let holder = costs.client().await;
    let options = LockOptions::default().with_lease_duration(300 * S);
    let held = holder.mutex_with("orders", &options).expect("good").lock().await.expect("free");
    for tasks in [1, 10] {
        let mut waiting = Vec::new();
        for _ in 0..8 {
            let client = costs.client().await;
            waiting.extend((0..tasks).map(|_| {
                let mutex = client.mutex("orders").expect("good");
                tokio::spawn(async move { mutex.lock().await.map(drop) })
            }));
        }
        costs.requests(2 * S).await;
        let requests = costs.requests(20 * S).await;
        assert!(is_about(requests, 8 * 20), "{requests} requests of 8 clients, {tasks} tasks each");
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        costs.requests(2 * S).await;
    }
    assert!(held.is_valid());
}

#[tokio::test]
async fn a_hand_off_costs_three_requests_however_many_wait() {
    const ROUNDS: u64 = 20;
    for clients in [2, 16] {
        let costs = Costs::start();
        let before = costs.0.host.server().requests();
        let mut contenders = Vec::new();
        for _ in 0..clients {
            let client = costs.client().await;
            contenders.push(tokio::spawn(async move {
                let mutex = client.mutex("orders").expect("good");
                for _ in 0..ROUNDS {
                    drop(mutex.lock().await.expect("in the end").release().await);
                    tokio::task::yield_now().await;
                }
            }));
        }
        while !contenders.iter().all(tokio::task::JoinHandle::is_finished) {
            let_all_run().await;
        }
        let requests = costs.0.host.server().requests() - before;
        let each = requests * 10 / (clients * ROUNDS);
        assert!((20..=36).contains(&each), "{each} tenths of a request, {clients} clients");
    }
}
