//! A master that takes no writes, or no commands at all, while the sentinels go on naming it:
//! nothing is granted or renewed there, and it is found again when it is well.

use std::time::Duration;

use holdline::{Certainty, Client, ErrorKind, Guard, LockError};
use holdline_services::{RedisConfig, RedisServer, SentinelConfig};

use super::ground::{Group, fixed, patient, quarantined};
use crate::support::{behind, let_go, reached, renewed, take, try_take, unspoilt, until};

/// A group whose sentinels find nobody dead while a test runs.
fn unmoved(servers: RedisConfig) -> Group {
    let config = SentinelConfig::default().with_servers(servers);
    Group::start_with(&config.with_down_after(Duration::from_secs(600)))
}

/// Nothing was granted, for there is no master that may.
fn no_master(outcome: Result<Guard, LockError>, says: &[&str]) {
    let error = outcome.expect_err("nothing is granted");
    assert!(matches!(error.kind(), ErrorKind::NoQuorum { .. }), "{error:?}");
    not_now(&error, says);
}

/// Nothing was done, for a reason that may pass.
fn not_now(error: &LockError, says: &[&str]) {
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    let message = error.to_string();
    assert!(says.iter().any(|part| message.contains(part)), "{message}");
}

fn is_free(server: &RedisServer, name: &str) -> bool {
    behind(server, &format!("EXISTS holdline:{{{name}}}")).integer() == Some(0)
}

/// How often the server has refused with this word.
fn refusals(server: &RedisServer, code: &str) -> u64 {
    let stats = behind(server, "INFO errorstats").text().expect("text");
    let line = format!("errorstat_{code}:count=");
    let count = stats.lines().find_map(|stat| stat.strip_prefix(&line));
    count.map_or(0, |count| count.trim().parse().expect("a number"))
}

async fn until_quarantined(client: &Client, name: &str) {
    reached(client).await;
    quarantined(try_take(client, name, &patient()).await);
}

/// `READONLY`, `MASTERDOWN`: clients leave it. When it is a master again, it refuses requests as
/// after any promotion, since it may have lost its data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_was_demoted_is_left_and_refuses_requests_when_it_is_back() {
    let group = unmoved(RedisConfig::default());
    let (client, master) = (group.client("").await, group.server(0));
    for (stale, code) in [("yes", "READONLY"), ("no", "MASTERDOWN")] {
        unspoilt("it took longer than the lease", async || {
            let guard = take(&client, "a", &patient()).await;
            let before = refusals(master, code);
            behind(master, &format!("CONFIG SET replica-serve-stale-data {stale}"));
            behind(master, "REPLICAOF 127.0.0.1 1");
            for _ in 0..3 {
                let says = ["no longer the master", "a failover is under way", "lost its master"];
                no_master(try_take(&client, "b", &patient()).await, &says);
            }
            until("it has refused", || refusals(master, code) > before).await;
            behind(master, "REPLICAOF NO ONE");
            assert!(is_free(master, "b"));
            until_quarantined(&client, "b").await;
            if !guard.is_valid() {
                return false;
            }
            renewed(&guard).await;
            let_go(guard).await;
            group.0.settle(0);
            for kind in ["pubsub", "normal"] {
                behind(master, &format!("CLIENT KILL TYPE {kind}"));
            }
            reached(&client).await;
            true
        })
        .await;
    }
    let_go(take(&client, "b", &patient()).await).await;
}

/// `NOREPLICAS`: it may be cut off and replaced, so nothing that it was asked for counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_without_its_replicas_grants_and_renews_nothing() {
    let group = unmoved(RedisConfig::default());
    let (client, master) = (group.client("").await, group.server(0));
    unspoilt("it took longer than the lease", async || {
        let guard = take(&client, "a", &patient()).await;
        behind(master, "CONFIG SET min-replicas-to-write 3");
        let first = refusals(master, "NOREPLICAS");
        until("a renewal is refused", || refusals(master, "NOREPLICAS") > first).await;
        let (second, believed) = (refusals(master, "NOREPLICAS"), guard.valid_until());
        until("and another", || refusals(master, "NOREPLICAS") > second).await;
        no_master(try_take(&client, "b", &patient()).await, &["min-replicas-to-write"]);
        let stranger = Client::connect(&group.url("")).await.expect_err("it takes no writes");
        assert!(stranger.to_string().contains("min-replicas-to-write"), "{stranger:?}");
        assert_eq!(guard.valid_until(), believed, "what is refused prolongs nothing");
        assert!(is_free(master, "b"));
        behind(master, "CONFIG SET min-replicas-to-write 0");
        if !guard.is_valid() {
            return false;
        }
        renewed(&guard).await;
        let_go(guard).await;
        let_go(take(&client, "b", &patient()).await).await;
        true
    })
    .await;
}

/// The heartbeats of a waiter are refused meanwhile: the waiter keeps its position, and is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_survives_a_master_that_refuses_writes() {
    let group = unmoved(RedisConfig::default());
    let (client, master) = (group.client("").await, group.server(0));
    let holder = take(&client, "a", &fixed()).await;
    let options = patient();
    let other = group.client("").await;
    let waiter = tokio::spawn(async move { take(&other, "a", &options).await });
    until("it waits", || behind(master, "ZCARD holdline:{a}:1q").integer() > Some(0)).await;
    let first = refusals(master, "NOREPLICAS");
    behind(master, "CONFIG SET min-replicas-to-write 3");
    until("heartbeats are refused", || refusals(master, "NOREPLICAS") > first + 2).await;
    behind(master, "CONFIG SET min-replicas-to-write 0");
    let_go(holder).await;
    let_go(waiter.await.expect("it survives")).await;
}

/// `BUSY`, `LOADING`. `TRYAGAIN` only a node of a cluster says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_busy_or_loads_its_data_is_asked_again() {
    // It looks at its connections after each 1024 keys: five times a second, for about 2 s.
    let slow = RedisConfig::default().with_appendonly("always").with_line("key-load-delay 200");
    let group = unmoved(slow.with_start_while_loading());
    let (client, master) = (group.client("").await, group.server(0));
    behind(master, "CONFIG SET busy-reply-threshold 10");
    let guard = take(&client, "a", &patient()).await;
    let mut busy = master.raw();
    busy.write(&["EVAL", "while true do end", "0"]).expect("sent");
    until("it is busy", || refuses(master, "BUSY")).await;
    let error = try_take(&client, "b", &patient()).await.expect_err("it answers nobody else");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error:?}");
    not_now(&error, &["busy with a script"]);
    behind(master, "SCRIPT KILL");
    busy.read().expect("an answer");
    let_go(take(&client, "b", &patient()).await).await;
    let fill = "for i = 1, 10000 do redis.call('SET', i, 1) end";
    master.raw().send(&["EVAL", fill, "0"]).expect("an answer");
    let token = guard.fencing_token();
    drop(guard);
    master.restart();
    no_master(try_take(&client, "b", &patient()).await, &["loading its data", "nobody listens"]);
    // Nobody knows what it has lost: it refuses requests like any server that was restarted.
    until("it has loaded", || !refuses(master, "LOADING")).await;
    until_quarantined(&client, "b").await;
    let next = take(&client, "b", &patient()).await;
    assert!(next.fencing_token() > token);
    let_go(next).await;
}

fn refuses(server: &RedisServer, code: &str) -> bool {
    let reply = behind(server, "GET nothing");
    reply.error().is_some_and(|words| words.starts_with(code))
}
