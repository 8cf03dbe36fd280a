//! Several names at once on real servers: of two engines, and some of several.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdline::admin::Operation;
use holdline::{Client, Guards, LockName, ReleaseOutcome};
use holdline_services::{PostgresConfig, PostgresServer, RedisServer};

use crate::support::{client, client_at, let_go, patient, server, soon, take};

/// A server of each of two engines.
struct Two {
    redis: RedisServer,
    postgres: PostgresServer,
}

impl Two {
    fn start() -> Two {
        Two { redis: server(), postgres: PostgresServer::start(PostgresConfig::default()) }
    }

    /// A client of each.
    async fn clients(&self) -> [Client; 2] {
        let url = format!("{}?command_timeout_ms=10000", self.postgres.url());
        [client_at(self.redis.address()).await, client(&url).await]
    }
}

async fn stands(client: &Client, name: &str) -> (usize, usize) {
    let name = LockName::new(name).expect("a good name");
    let snapshot = soon("a look", client.admin().inspect(&name)).await.expect("an answer");
    (snapshot.holder_count, snapshot.queue_length)
}

/// Waits until the name has so many holders and waiters.
async fn await_stands(client: &Client, name: &str, wanted: (usize, usize)) {
    soon("it stands so", async {
        while stands(client, name).await != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await; // event: another client's request
        }
    })
    .await;
}

async fn are_released(guards: Guards) {
    let outcomes = soon("they are released", guards.release()).await;
    assert!(outcomes.iter().all(ReleaseOutcome::is_released), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_two_engines_in_opposite_orders_cause_no_deadlock() {
    let two = Two::start();
    let held = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for worker in 0..4 {
        let [redis, postgres] = two.clients().await;
        let held = held.clone();
        workers.push(tokio::spawn(async move {
            for _ in 0..10 {
                let mut names = [(&redis, "a"), (&postgres, "a"), (&redis, "b")];
                if worker % 2 == 1 {
                    names.reverse();
                }
                let all = holdline::lock_all_with(names, &patient()).await.expect("in the end");
                assert!(!held.swap(true, Ordering::SeqCst), "two hold the names");
                tokio::task::yield_now().await;
                held.store(false, Ordering::SeqCst);
                let _ = all.release().await;
            }
        }));
    }
    for worker in workers {
        soon("no deadlock", worker).await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_two_engines_that_is_lost_is_reported_and_the_other_stays_until_it_is_released()
{
    let two = Two::start();
    let clients = two.clients().await;
    for lost in 0..2 {
        let [redis, postgres] = &clients;
        let names = [(redis, "a"), (postgres, "a")];
        let both = soon("both", holdline::lock_all_with(names, &patient())).await.expect("free");
        let name = LockName::new("a").expect("a good name");
        let snapshot =
            soon("a look", clients[lost].admin().inspect(&name)).await.expect("an answer");
        let token = snapshot.holders[0].summary.token.expect("a token");
        let revoke = Operation::Revoke { name, token, reason: "moved".into(), now: true };
        soon("revoked", clients[lost].admin().operate(&revoke)).await.expect("revoked");
        soon("the loss", both.lost()).await;
        assert!(!both.is_valid());
        assert_eq!(both.guards().iter().filter(|guard| guard.is_valid()).count(), 1);
        assert_eq!(stands(&clients[1 - lost], "a").await, (1, 0));
        soon("released", both.release()).await;
        for client in &clients {
            assert_eq!(stands(client, "a").await, (0, 0));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_attempt_for_names_of_two_engines_leaves_nothing() {
    let two = Two::start();
    let (holders, clients) = (two.clients().await, two.clients().await);
    for held in 0..2 {
        let guard = take(&holders[held], "a", &patient()).await;
        let attempt = {
            let [redis, postgres] = clients.clone();
            tokio::spawn(async move {
                let names = [(&redis, "a"), (&postgres, "a")];
                holdline::lock_all_with(names, &patient()).await.map(drop)
            })
        };
        await_stands(&holders[held], "a", (1, 1)).await;
        attempt.abort();
        await_stands(&holders[held], "a", (1, 0)).await;
        await_stands(&holders[1 - held], "a", (0, 0)).await;
        let_go(guard).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn some_of_several_names_are_all_or_none_and_a_dropped_attempt_leaves_nothing() {
    let two = Two::start();
    let (holders, clients) = (two.clients().await, two.clients().await);
    for (holder, client) in holders.iter().zip(&clients) {
        let held = [take(holder, "a", &patient()).await, take(holder, "b", &patient()).await];
        let names = client.any_of_with(["c", "b", "a"], &patient()).expect("good");
        let refused = soon("an answer", names.try_lock_many(2)).await;
        assert!(refused.is_err_and(|error| error.is_contended()), "one is free");
        assert_eq!(stands(holder, "c").await, (0, 0));
        let start = || {
            let names = names.clone();
            tokio::spawn(async move { names.lock_many(2).await })
        };
        let attempt = start();
        await_stands(holder, "a", (1, 1)).await;
        attempt.abort();
        for (name, holders) in [("a", 1), ("b", 1), ("c", 0)] {
            await_stands(holder, name, (holders, 0)).await;
        }
        let attempt = start();
        await_stands(holder, "a", (1, 1)).await;
        let [a, b] = held;
        let_go(a).await;
        let guards = soon("two", attempt).await.expect("no panic").expect("two are free");
        let taken: Vec<_> = guards.guards().iter().map(|guard| guard.name().as_str()).collect();
        assert_eq!(taken, ["a", "c"]);
        assert_eq!(stands(holder, "b").await, (1, 0), "it waits nowhere");
        are_released(guards).await;
        let_go(b).await;
    }
}
