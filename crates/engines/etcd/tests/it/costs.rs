//! What waiting costs a server, by its own count: it must not grow with the number of waiters.

use std::sync::Arc;

use holdline::{Client, ClientOptions};
use holdline_core::{Mode, Purpose, RenewReply};
use holdline_services::{EtcdConfig, EtcdServer};
use tokio::task::JoinSet;

use crate::support::{Contender, Counts, contender, engine};

/// How often the names go round.
const ROUNDS: usize = 6;

/// Has this many clients take turns, and returns what a grant has cost.
async fn cost_of_a_grant(server: &EtcdServer, clients: usize, permits: u32) -> Counts {
    let name = format!("{clients} of {permits}");
    let mut tasks = JoinSet::new();
    let before = Counts::read(server).await;
    for _ in 0..clients {
        let engine = engine(&server.url()).await;
        let name = name.clone();
        tasks.spawn(async move {
            let client = Client::with_options(Arc::new(engine), ClientOptions::default());
            let semaphore = client.expect("a client").semaphore(name, permits).expect("good");
            for _ in 0..ROUNDS {
                let guard = semaphore.acquire().await.expect("a grant");
                tokio::task::yield_now().await;
                let outcome = guard.release().await;
                drop(outcome);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    let after = Counts::read(server).await;
    after.since(&before).divided_by(u64::try_from(clients * ROUNDS).expect("few"))
}

/// Makes a queue of this length, and returns what one more enqueue, heartbeat and release cost.
async fn cost_of_a_waiter(server: &EtcdServer, length: usize, mode: Mode) -> [Counts; 3] {
    let name = format!("{length} {mode}");
    let engine = engine(&server.url()).await;
    let one = || contender(&engine, &name).in_mode(mode);
    let mut ahead: Vec<Contender> = (0..length).map(|_| one()).collect();
    for contender in &mut ahead {
        contender.ask().await.expect("an answer");
    }
    let mut last = one();
    let start = Counts::read(server).await;
    last.queue().await;
    let queued = Counts::read(server).await;
    let reply = last.renew(Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Queued { .. })), "{reply:?}");
    let confirmed = Counts::read(server).await;
    last.release(true).await.expect("an answer");
    let released = Counts::read(server).await;
    [queued.since(&start), confirmed.since(&queued), released.since(&confirmed)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn print_them() {
    let server = EtcdServer::start(EtcdConfig::default());
    for permits in [1, 2, 4, 8] {
        for clients in [10, 20, 40] {
            let cost = cost_of_a_grant(&server, clients, permits).await;
            println!("grant among {clients}, {permits} permits: {cost:?}");
        }
    }
    for mode in [Mode::Exclusive, Mode::Permits { count: 1, of: 4 }] {
        for length in [10, 100, 400] {
            let cost = cost_of_a_waiter(&server, length, mode).await;
            println!("waiter behind {length} {mode}: {cost:?}");
        }
    }
}
