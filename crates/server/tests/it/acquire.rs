//! Acquire, renew, release, wait, repeat, give up.

use crate::ground::{Ground, request, store};

const KEY: &str = "0123456789abcdef0123456789abcdef";
const LONG: &str = r#"{"wait_ms": 60000}"#;

fn with_key() -> String {
    format!("Idempotency-Key: {KEY}\r\n")
}

#[tokio::test]
async fn a_lock_goes_from_hand_to_hand_with_growing_tokens() {
    let ground = Ground::start().await;
    let first = ground.ask("POST", "/v1/locks/a", "").await;
    assert_eq!(first.status, 200, "{first:?}");
    let token = first.token();
    assert!(first.headers.contains(&format!("holdline-fencing-token: {token}")), "{first:?}");
    let valid = first.json()["valid_for_ms"].as_u64().expect("a number");
    assert!((1..30_000).contains(&valid), "{valid}");

    let busy = ground.ask("POST", "/v1/locks/a", "").await;
    assert_eq!((busy.status, busy.text("kind")), (423, "busy".to_owned()));
    assert_eq!(busy.json()["holder"]["fencing_token"], token);
    assert!(busy.headers.contains("retry-after: ") && busy.headers.contains("problem+json"));

    let lease = format!("/v1/locks/a/leases/{}", first.text("lease_id"));
    let renewed = ground.ask("PUT", &lease, r#"{"lease_duration_ms": 60000}"#).await;
    assert_eq!(renewed.status, 200, "{renewed:?}");
    assert!(renewed.json()["valid_for_ms"].as_u64().expect("a number") > 30_000);
    assert_eq!(ground.ask("DELETE", &lease, "").await.status, 200);
    let again = ground.ask("DELETE", &lease, "").await;
    assert_eq!((again.status, again.text("kind")), (410, "lost".to_owned()));
    assert_eq!(ground.ask("PUT", &lease, "").await.status, 410);
    let lost = r#"holdline_lost_total{store="default"} 0"#;
    let metrics = ground.ask("GET", "/metrics", "").await.body;
    assert!(metrics.lines().any(|line| line == lost), "it was released: {metrics}");

    let next = ground.acquire("a", "").await;
    assert!(next["fencing_token"].as_u64().expect("a number") > token);
}

#[tokio::test]
async fn a_wait_ends_with_the_lock_or_with_its_limit() {
    let ground = Ground::start().await;
    let first = ground.acquire("a", "").await;
    let late = ground.ask("POST", "/v1/locks/a", r#"{"wait_ms": 50}"#).await;
    assert_eq!((late.status, late.text("kind")), (423, "timed_out".to_owned()));
    let mut waiting = ground.open().await;
    waiting.send(&request("POST", "/v1/locks/a", "", LONG)).await;
    ground.until_waiting("a", 1).await;
    let lease = format!("/v1/locks/a/leases/{}", first["lease_id"].as_str().expect("an id"));
    assert_eq!(ground.ask("DELETE", &lease, "").await.status, 200);
    let response = waiting.response().await;
    assert_eq!(response.status, 200, "{response:?}");
    assert!(response.json()["waited_ms"].as_u64().is_some(), "{response:?}");
}

#[tokio::test]
async fn a_closed_connection_gives_its_place_up() {
    let ground = Ground::start().await;
    let _held = ground.acquire("a", "").await;
    let mut waiting = ground.open().await;
    waiting.send(&request("POST", "/v1/locks/a", "", LONG)).await;
    ground.until_waiting("a", 1).await;
    drop(waiting);
    ground.until_waiting("a", 0).await;
}

#[tokio::test]
async fn a_place_under_a_key_is_left_to_the_client_and_lapses() {
    let ground = Ground::start().await;
    let held = ground.acquire("a", "").await;
    let mut waiting = ground.open().await;
    waiting.send(&request("POST", "/v1/locks/a", &with_key(), LONG)).await;
    ground.until_waiting("a", 1).await;
    drop(waiting);
    // Nobody gives the id up: it is good for another try, at any server.
    let other = Ground::on(ground.client.clone(), "").await;
    let mut again = other.open().await;
    again.send(&request("POST", "/v1/locks/a", &with_key(), LONG)).await;
    let lease = format!("/v1/locks/a/leases/{}", held["lease_id"].as_str().expect("an id"));
    assert_eq!(ground.ask("DELETE", &lease, "").await.status, 200);
    let response = again.response().await;
    assert_eq!((response.status, response.text("lease_id")), (200, KEY.to_owned()));
}

#[tokio::test]
async fn a_place_under_a_key_that_nobody_asks_for_again_lapses() {
    let ground = Ground::start().await;
    let _held = ground.acquire("a", "").await;
    let mut waiting = ground.open().await;
    waiting.send(&request("POST", "/v1/locks/a", &with_key(), LONG)).await;
    ground.until_waiting("a", 1).await;
    drop(waiting);
    ground.until_waiting("a", 0).await;
}

#[tokio::test]
async fn a_repeated_request_gets_the_same_grant_also_elsewhere() {
    let ground = Ground::start().await;
    let other = Ground::on(ground.client.clone(), "").await;
    let first = ground.ask_with("POST", "/v1/locks/a", &with_key(), "").await;
    assert_eq!(first.status, 200, "{first:?}");
    for server in [&ground, &other] {
        let again = server.ask_with("POST", "/v1/locks/a", &with_key(), "").await;
        assert_eq!(again.status, 200, "{again:?}");
        assert_eq!(again.token(), first.token());
    }
    let shared = r#"{"mode": "shared"}"#;
    let different = ground.ask_with("POST", "/v1/locks/a", &with_key(), shared).await;
    assert_eq!((different.status, different.text("kind")), (422, "invalid".to_owned()));
}

#[tokio::test]
async fn an_id_that_was_given_up_is_never_granted() {
    let ground = Ground::start().await;
    let other = Ground::on(ground.client.clone(), "").await;
    // Before its request arrives, and after its grant.
    for (name, status) in [("a", 410), ("b", 200)] {
        let path = format!("/v1/locks/{name}");
        if status == 200 {
            let granted = ground.ask_with("POST", &path, &with_key(), "").await;
            assert_eq!(granted.status, 200, "{granted:?}");
        }
        let released = ground.ask("DELETE", &format!("{path}/leases/{KEY}"), "").await;
        assert_eq!(released.status, status, "{released:?}");
        // A request that a proxy repeats late must not bring back a lock that nobody knows of.
        for server in [&ground, &other] {
            let late = server.ask_with("POST", &path, &with_key(), LONG).await;
            assert_eq!((late.status, late.text("kind")), (409, "cancelled".to_owned()));
        }
        let shown = ground.ask("GET", &path, "").await.json();
        assert_eq!((&shown["held"], &shown["queue_length"]), (&false.into(), &0.into()));
    }
}

/// A proxy has sent a waiting request twice: there is one place, and one grant for both.
#[tokio::test]
async fn a_request_that_waits_twice_has_one_place_and_one_grant() {
    let ground = Ground::start().await;
    let other = Ground::on(ground.client.clone(), "").await;
    let held = ground.acquire("a", "").await;
    let mut twins = [ground.open().await, other.open().await, ground.open().await];
    for twin in &mut twins {
        twin.send(&request("POST", "/v1/locks/a", &with_key(), LONG)).await;
    }
    let mut behind = ground.open().await;
    behind.send(&request("POST", "/v1/locks/a", "", LONG)).await;
    ground.until_waiting("a", 2).await;
    let lease = format!("/v1/locks/a/leases/{}", held["lease_id"].as_str().expect("an id"));
    assert_eq!(ground.ask("DELETE", &lease, "").await.status, 200);
    let mut tokens = std::collections::BTreeSet::new();
    for twin in &mut twins {
        let response = twin.response().await;
        assert_eq!((response.status, response.text("lease_id")), (200, KEY.to_owned()));
        tokens.insert(response.token());
    }
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    let shown = ground.ask("GET", "/v1/locks/a", "").await.json();
    assert_eq!((&shown["holder_count"], &shown["queue_length"]), (&1.into(), &1.into()));
    let lease = format!("/v1/locks/a/leases/{KEY}");
    assert_eq!(other.ask("DELETE", &lease, "").await.status, 200);
    assert_eq!(behind.response().await.status, 200);
}

#[tokio::test]
async fn a_client_ends_its_wait_through_another_server() {
    let ground = Ground::start().await;
    let other = Ground::on(ground.client.clone(), "").await;
    let _held = ground.acquire("a", "").await;
    let mut waiting = ground.open().await;
    waiting.send(&request("POST", "/v1/locks/a", &with_key(), LONG)).await;
    ground.until_waiting("a", 1).await;
    other.ask("DELETE", &format!("/v1/locks/a/leases/{KEY}"), "").await;
    let response = waiting.response().await;
    assert_eq!((response.status, response.text("kind")), (409, "cancelled".to_owned()));
    ground.until_waiting("a", 0).await;
}

#[tokio::test]
async fn what_a_holder_reports_is_shown() {
    let ground = Ground::start().await;
    let about = r#"{"host": "h", "pid": 7, "user": "u", "program": "p", "reason": "r",
        "labels": {"k": "v"}, "traceparent": "t", "value": "10.0.0.7:80"}"#;
    ground.acquire("a", &format!(r#"{{"about": {about}}}"#)).await;
    let shown = ground.ask("GET", "/v1/locks/a", "").await.json();
    let about: serde_json::Value = serde_json::from_str(about).expect("JSON");
    assert_eq!(shown["holders"][0]["about"], about);
}

/// A grant whose answer was lost is found again under its key, or ends with its lease.
#[tokio::test]
async fn a_grant_whose_answer_was_lost_is_found_by_its_key() {
    let mut ground = Ground::start().await;
    let other = Ground::on(ground.client.clone(), "").await;
    let mut connection = ground.open().await;
    connection.send(&request("POST", "/v1/locks/a", &with_key(), "")).await;
    // The answer is on its way and nobody reads it: the server is gone.
    while !ground
        .client
        .admin()
        .inspect(&"a".parse().expect("a name"))
        .await
        .expect("memory")
        .is_held()
    {
        tokio::task::yield_now().await;
    }
    ground.cut();
    drop(connection);
    let again = other.ask_with("POST", "/v1/locks/a", &with_key(), "").await;
    assert_eq!((again.status, again.text("lease_id")), (200, KEY.to_owned()));
    let lease = format!("/v1/locks/a/leases/{KEY}");
    assert_eq!(other.ask("DELETE", &lease, "").await.status, 200);
}

#[tokio::test]
async fn a_server_that_stops_ends_waits_and_another_goes_on() {
    let client = store().await;
    let mut first = Ground::on(client.clone(), "").await;
    let second = Ground::on(client, "").await;
    let held = second.acquire("a", "").await;
    let mut waiting = first.open().await;
    waiting.send(&request("POST", "/v1/locks/a", &with_key(), LONG)).await;
    first.until_waiting("a", 1).await;
    let (response, ()) = tokio::join!(waiting.response(), first.stop());
    assert_eq!((response.status, response.text("kind")), (503, "stopping".to_owned()));
    let mut again = second.open().await;
    again.send(&request("POST", "/v1/locks/a", &with_key(), LONG)).await;
    let lease = format!("/v1/locks/a/leases/{}", held["lease_id"].as_str().expect("an id"));
    assert_eq!(second.ask("DELETE", &lease, "").await.status, 200);
    assert_eq!(again.response().await.status, 200);
}

#[tokio::test]
async fn modes_permits_and_operators() {
    let ground = Ground::start().await;
    for _ in 0..2 {
        ground.acquire("shared", r#"{"mode": "shared"}"#).await;
        ground.acquire("pool", r#"{"mode": "permits", "permits_of": 2}"#).await;
    }
    let third = ground.ask("POST", "/v1/locks/pool", r#"{"mode":"permits","permits_of":2}"#).await;
    assert_eq!(third.status, 423, "{third:?}");
    let held = ground.acquire("a", r#"{"about": {"program": "p", "reason": "r"}}"#).await;
    let shown = ground.ask("GET", "/v1/locks/a", "").await.json();
    assert_eq!(
        (&shown["held"], &shown["holders"][0]["about"]["reason"]),
        (&true.into(), &"r".into())
    );
    let list = ground.ask("GET", "/v1/locks?prefix=p&limit=1", "").await.json();
    assert_eq!((&list["locks"][0]["name"], &list["cursor"]), (&"pool".into(), &().into()));

    let stale = ground.ask("POST", "/v1/locks/a/revoke", r#"{"fencing_token": 9007199254740991}"#);
    let stale = stale.await;
    assert_eq!((stale.status, stale.text("kind")), (409, "stale".to_owned()));
    let token = &held["fencing_token"];
    let body = format!(r#"{{"fencing_token": {token}, "reason": "now", "force": true}}"#);
    let revoked = ground.ask("POST", "/v1/locks/a/revoke", &body).await;
    assert_eq!((revoked.status, &revoked.json()["ended"]), (200, &true.into()), "{revoked:?}");
    let lease = format!("/v1/locks/a/leases/{}", held["lease_id"].as_str().expect("an id"));
    let lost = ground.ask("PUT", &lease, "").await;
    assert_eq!((lost.status, lost.text("lost")), (410, "revoked".to_owned()));

    let frozen = ground.ask("PUT", "/v1/locks/a/freeze", r#"{"duration_ms": 60000}"#).await;
    assert_eq!(frozen.status, 204, "{frozen:?}");
    assert_eq!(ground.ask("POST", "/v1/locks/a", "").await.status, 423);
    assert_eq!(ground.ask("DELETE", "/v1/locks/a/freeze", "").await.status, 204);
    assert_eq!(ground.ask("DELETE", "/v1/locks/a/freeze", "").await.status, 404);
    assert_eq!(ground.ask("POST", "/v1/fence", r#"{"above": 1000}"#).await.status, 204);
    let next = ground.acquire("a", "").await;
    let next = next["fencing_token"].as_u64().expect("a number");
    assert!(next > 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_locks_is_short_however_many_hold_them() {
    const MOST: usize = 1_000_000;
    let ground = Ground::start().await;
    let mut connection = ground.open().await;
    let reason = "x".repeat(900);
    let body =
        format!(r#"{{"mode": "permits", "permits_of": 1000, "about": {{"reason": "{reason}"}}}}"#);
    for (name, holders) in [("a", 10), ("b", 990), ("c", 700), ("d", 600), ("e", 1)] {
        for _ in 0..holders {
            connection.send(&request("POST", &format!("/v1/locks/{name}"), "", &body)).await;
            assert_eq!(connection.response().await.status, 200);
        }
    }
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let response = ground.ask("GET", &format!("/v1/locks?cursor={cursor}"), "").await;
        assert!(response.body.len() <= MOST + 100, "{}", response.body.len());
        let page = response.json();
        let locks = page["locks"].as_array().expect("locks").iter();
        let shown = locks.map(|lock| {
            let holders = lock["holders"].as_array().map(Vec::len).expect("holders");
            let name = lock["name"].as_str().expect("a name").to_owned();
            (name, lock["holder_count"].as_u64().expect("a count"), holders)
        });
        pages.push(shown.collect::<Vec<_>>());
        match page["cursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    let lock = |name: &str, count, shown| (name.to_owned(), count, shown);
    let expected = vec![
        vec![lock("a", 10, 10), lock("b", 990, 495)],
        vec![lock("c", 700, 700)],
        vec![lock("d", 600, 600), lock("e", 1, 1)],
    ];
    assert_eq!(pages, expected, "all of them, in their order");
}
