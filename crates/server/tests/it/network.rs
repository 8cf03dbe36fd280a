//! Clients that vanish without a word: a cable is pulled, a machine is switched off.

use std::time::Duration;

use holdline_services::{Loss, PrivateNetwork};

use crate::ground::{DEADLINE, Ground, request};

/// The kernel says nothing of it: the server asks the client's machine, and gives up after 30 s.
#[tokio::test]
async fn a_client_that_vanishes_while_it_waits_gives_its_place_up() {
    let test = "network::a_client_that_vanishes_while_it_waits_gives_its_place_up";
    let Some(network) = PrivateNetwork::enter(test) else { return };
    let ground = Ground::start().await;
    ground.acquire("a", r#"{"lease_duration_ms": 600000}"#).await;
    let [mut vanishes, mut stays] = [ground.open().await, ground.open().await];
    for (count, waiter) in [&mut vanishes, &mut stays].into_iter().enumerate() {
        waiter.send(&request("POST", "/v1/locks/a", "", r#"{"wait_ms": 600000}"#)).await;
        ground.until_waiting("a", count + 1).await;
    }
    network.lose(Loss::From(vanishes.address()));
    ground.until_waiting("a", 1).await;
    // The one that is silent but there is still in the queue.
    let token = ground.ask("GET", "/v1/locks/a", "").await.json();
    let token = &token["holders"][0]["fencing_token"];
    let revoke = format!(r#"{{"fencing_token": {token}, "force": true}}"#);
    assert_eq!(ground.ask("POST", "/v1/locks/a/revoke", &revoke).await.status, 200);
    assert_eq!(stays.response().await.status, 200);
}

/// Its machine is gone when the lock is granted: the answer is never acknowledged.
#[tokio::test]
async fn a_client_that_vanishes_before_its_answer_gets_no_long_lease() {
    let test = "network::a_client_that_vanishes_before_its_answer_gets_no_long_lease";
    let Some(network) = PrivateNetwork::enter(test) else { return };
    let ground = Ground::start().await;
    let held = ground.acquire("a", r#"{"lease_duration_ms": 600000}"#).await;
    let mut vanishes = ground.open().await;
    let body = r#"{"wait_ms": 600000, "lease_duration_ms": 86400000}"#;
    vanishes.send(&request("POST", "/v1/locks/a", "", body)).await;
    ground.until_waiting("a", 1).await;
    network.lose(Loss::From(vanishes.address()));
    let path = format!("/v1/locks/a/leases/{}", held["lease_id"].as_str().expect("an id"));
    assert_eq!(ground.ask("DELETE", &path, "").await.status, 200);
    let free = async {
        loop {
            let shown = ground.ask("GET", "/v1/locks/a", "").await.json();
            if shown["held"] == false {
                return;
            }
            let left = shown["holders"][0]["left_ms"].as_u64();
            assert!(left <= Some(30_000), "{shown}");
            tokio::time::sleep(Duration::from_millis(200)).await; // event: can only be looked at
        }
    };
    tokio::time::timeout(DEADLINE, free).await.expect("its first lease ends");
}
