//! A server that stands still, forgets, is full, refuses writes, restarts or comes from a copy.

use std::time::Duration;

use holdline::admin::Operation;
use holdline::{
    Certainty, Client, ErrorKind, FencingToken, Guard, Keep, LockError, LockName, LostReason,
};
use holdline_services::{Fault, FaultProxy, Frames, RedisConfig, RedisServer};

use crate::support::{
    Referee, behind, clean, client, client_at, is_valid_no_longer_than_kept, lease, leftovers,
    let_go, patient, queued, renewed, server, soon, take, try_take, unspoilt, until, url_of,
};

fn refused(outcome: Result<Guard, LockError>, says: &str) {
    let error = outcome.expect_err("refused");
    assert!(
        matches!(error.kind(), ErrorKind::Refused { message } if message.contains(says)),
        "{error:?}"
    );
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
}

async fn lost(guard: &Guard) -> LostReason {
    let reason = soon("the loss", guard.lost()).await;
    assert!(!guard.is_valid());
    reason
}

/// Takes a name in a task.
fn taking(client: &Client, name: &'static str) -> tokio::task::JoinHandle<Guard> {
    let client = client.clone();
    tokio::spawn(async move { take(&client, name, &patient()).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_resumes_keeps_nothing_of_what_was_given_up() {
    let server = server();
    let client = client_at(server.address()).await;
    let held = take(&client, "held", &lease(1_500)).await;
    server.stop();
    // One attempt is given up by its caller, one by its limit.
    let mutex = client.mutex_with("dropped", &patient()).expect("a good lock");
    let dropped = tokio::time::timeout(Duration::from_millis(200), mutex.lock()).await;
    assert!(dropped.is_err(), "nobody answers");
    let limited = patient().with_wait(Duration::from_millis(300));
    let limited = client.mutex_with("limited", &limited).expect("a good lock");
    let error = soon("an end", limited.lock()).await.expect_err("nobody answers");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error:?}");
    // The holder learns of the loss by its own clock.
    assert_eq!(lost(&held).await, LostReason::Expired);
    drop(held);
    server.cont();
    clean(&server, &[&client]).await;
}

/// Expiry waits in a pause as well, and what comes after it comes late: it is not believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_after_a_pause_longer_than_its_lease_is_no_guard() {
    let server = RedisServer::start(RedisConfig::default().with_debug_command());
    let patient_url = format!("redis://{}?command_timeout_ms=20000", server.address());
    let (holder, other) = (client_at(server.address()).await, client(&patient_url).await);
    for pause in ["CLIENT PAUSE 2500 ALL", "DEBUG SLEEP 2.5"] {
        // Which of two connections the server reads first nobody knows, and a machine that stands
        // still may ask when the pause is over.
        unspoilt(pause, async || {
            let held = take(&holder, "held", &lease(700).with_keep(Keep::Fixed)).await;
            let mut raw = server.raw();
            raw.write(&pause.split(' ').collect::<Vec<_>>()).expect("sent");
            let asked = try_take(&other, "late", &lease(300)).await;
            let late = match asked {
                Ok(guard) => {
                    let _ = soon("a release", guard.release()).await;
                    false
                }
                Err(error) => {
                    assert!(error.to_string().contains("had expired"), "{pause}: {error:?}");
                    assert_eq!(error.certainty(), Certainty::Unknown);
                    true
                }
            };
            assert_eq!(lost(&held).await, LostReason::RanOut, "{pause}");
            drop(held);
            until("the pause is over", || raw.read().is_ok()).await;
            let next = take(&other, "held", &patient()).await;
            let_go(next).await;
            late
        })
        .await;
    }
    clean(&server, &[&holder, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_and_a_deletion_are_noticed_at_the_next_renewal_and_tokens_grow() {
    let server = server();
    let (holder, other) = (client_at(server.address()).await, client_at(server.address()).await);
    let mut last = 0;
    for wipe in ["FLUSHALL", "DEL holdline:{a} holdline:{a}:1d holdline:{a}:1q holdline:fence"] {
        let guard = take(&holder, "a", &patient()).await;
        assert!(guard.fencing_token().get() > last, "{wipe}");
        let waiter = taking(&other, "a");
        queued(&server, "a", 1).await;
        behind(&server, wipe);
        // The waiter is forgotten too: it asks again and gets the free name.
        let next = soon("the next", waiter).await.expect("no panic");
        assert_eq!(lost(&guard).await, LostReason::Missing, "{wipe}");
        assert!(next.fencing_token() > guard.fencing_token(), "{wipe}");
        last = next.fencing_token().get();
        let outcome = soon("a release", guard.release()).await;
        assert!(!outcome.is_released(), "{outcome:?}");
        assert!(next.is_valid(), "the release of what is lost touches nobody");
        renewed(&next).await;
        let_go(next).await;
    }
    clean(&server, &[&holder, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_lock_is_noticed_at_the_next_renewal() {
    let server = RedisServer::start(RedisConfig::default().with_maxmemory("3mb", "allkeys-random"));
    let client = client_at(server.address()).await;
    let guard = take(&client, "a", &patient()).await;
    let mut raw = server.raw();
    let filling = "x".repeat(10_000);
    for number in 0.. {
        let _ = raw.send(&["SET", &format!("other:{number}"), &filling]).expect("an answer");
        if raw.say("EXISTS holdline:{a}").expect("an answer").integer() == Some(0) {
            break;
        }
    }
    assert_eq!(lost(&guard).await, LostReason::Missing);
    behind(&server, "CONFIG SET maxmemory 0");
    let next = take(&client, "a", &patient()).await;
    assert!(next.fencing_token() > guard.fencing_token());
    let_go(next).await;
    behind(&server, "FLUSHALL");
}

/// Waits until the server has received another heartbeat of those who wait for a name.
async fn await_heartbeat(server: &RedisServer, name: &str) {
    let key = format!("holdline:{{{name}}}:1q");
    let mut raw = server.raw();
    // The largest score is the moment of the last heartbeat.
    let mut last = || raw.send(&["ZRANGE", &key, "-1", "-1", "WITHSCORES"]).expect("an answer");
    let before = last();
    until("a heartbeat", || last() != before).await;
}

/// A client that holds or waits needs no new memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_refuses_new_entries_and_keeps_the_others() {
    let server = server();
    let client = client_at(server.address()).await;
    let held = take(&client, "held", &patient()).await;
    let readers = client.rwlock_with("read", &patient()).expect("a good lock");
    let reader = soon("a read lock", readers.read()).await.expect("a read lock");
    let permits = client.semaphore_with("permits", 2, &patient()).expect("a semaphore");
    let permit = soon("a permit", permits.acquire()).await.expect("a permit");
    let waiter = taking(&client, "held");
    queued(&server, "held", 1).await;
    behind(&server, "CONFIG SET maxmemory 1");
    refused(try_take(&client, "new", &patient()).await, "memory is full");
    for guard in [&held, &reader, &permit] {
        renewed(guard).await;
        renewed(guard).await;
    }
    await_heartbeat(&server, "held").await;
    let before = held.fencing_token();
    let_go(held).await;
    let next = soon("the next", waiter).await.expect("no panic");
    assert!(next.fencing_token() > before);
    for guard in [next, reader, permit] {
        let_go(guard).await;
    }
    behind(&server, "CONFIG SET maxmemory 0");
    let_go(take(&client, "new", &patient()).await).await;
    clean(&server, &[&client]).await;
}

/// What was asked and went unanswered is given up for good, though nothing stands there and the
/// server is full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_still_accepts_releases() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let client = client_at(proxy.address()).await;
    let_go(take(&client, "a", &patient()).await).await;
    behind(&server, "CONFIG SET maxmemory 1");
    // The first request is lost, and its repeat is refused.
    proxy.inject(Frames::requests().containing("holdline:{a}").nth(1), Fault::SwallowThenReset);
    refused(try_take(&client, "a", &patient()).await, "memory is full");
    let tombstones = behind(&server, "KEYS holdline:{a}:1t:*");
    assert_eq!(tombstones.items().map(<[_]>::len), Some(1), "{tombstones:?}");
    clean(&server, &[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_save_refuses_writes_and_holders_lose_in_time() {
    let config = RedisConfig::default().with_line("save 3600 1000000");
    let server = RedisServer::start(config);
    let client = client_at(server.address()).await;
    let guard = take(&client, "a", &lease(8_000)).await;
    let in_the_way = server.directory().join("dump.rdb");
    std::fs::create_dir_all(in_the_way.join("x")).expect("a directory");
    behind(&server, "BGSAVE");
    until("the save fails", || {
        let info = behind(&server, "INFO persistence").text().unwrap_or_default();
        info.contains("rdb_last_bgsave_status:err")
    })
    .await;
    refused(try_take(&client, "b", &patient()).await, "cannot save to disk");
    is_valid_no_longer_than_kept(&guard, &server);
    assert_eq!(lost(&guard).await, LostReason::Expired);
    drop(guard);
    behind(&server, "CONFIG SET stop-writes-on-bgsave-error no");
    let_go(take(&client, "a", &patient()).await).await;
    clean(&server, &[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_are_loaded_again() {
    let server = server();
    let (holder, other) = (client_at(server.address()).await, client_at(server.address()).await);
    let guard = take(&holder, "a", &patient()).await;
    let waiter = taking(&other, "a");
    queued(&server, "a", 1).await;
    for _ in 0..3 {
        behind(&server, "SCRIPT FLUSH");
        renewed(&guard).await;
    }
    behind(&server, "SCRIPT FLUSH");
    let_go(guard).await;
    let next = soon("the next", waiter).await.expect("no panic");
    behind(&server, "SCRIPT FLUSH");
    let_go(next).await;
    clean(&server, &[&holder, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_empty_costs_the_lock_and_no_token() {
    let server = server();
    let client = client_at(server.address()).await;
    let guard = take(&client, "a", &patient()).await;
    server.kill();
    server.restart_settled();
    assert_eq!(lost(&guard).await, LostReason::Missing);
    let next = take(&client, "a", &patient()).await;
    assert!(next.fencing_token() > guard.fencing_token());
    drop(guard);
    let_go(next).await;
    clean(&server, &[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_remembers_is_killed_and_restarted_and_the_lock_is_kept() {
    let server = RedisServer::start(RedisConfig::default().with_appendonly("always"));
    let (holder, other) = (client_at(server.address()).await, client_at(server.address()).await);
    let referee = Referee::default();
    let guard = take(&holder, "a", &patient()).await;
    referee.granted(&guard);
    let waiter = taking(&other, "a");
    queued(&server, "a", 1).await;
    server.kill();
    server.restart_settled();
    renewed(&guard).await;
    let outcome = soon("a release", guard.release()).await;
    assert!(!outcome.is_lost(), "{outcome:?}");
    let next = soon("the next", waiter).await.expect("no panic");
    referee.granted(&next);
    let_go(next).await;
    clean(&server, &[&holder, &other]).await;
}

/// After the fence was raised beyond the clock, an old copy takes tokens back: the operator raises
/// it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_copy_takes_no_token_back_unless_the_fence_was_raised() {
    let server = server();
    let client = client_at(server.address()).await;
    let token = |guard: Guard| async move {
        let token = guard.fencing_token().get();
        let_go(guard).await;
        token
    };
    let before = token(take(&client, "a", &patient()).await).await;
    behind(&server, "SAVE");
    let raised = FencingToken::new(before + 1_000_000_000_000).expect("a token");
    let later = token(take(&client, "a", &patient()).await).await;
    server.kill();
    server.restart_settled();
    let restored = token(take(&client, "a", &patient()).await).await;
    assert!(later > before && restored > later);
    let raise = Operation::RaiseFence { to: raised };
    soon("an answer", client.admin().operate(&raise)).await.expect("raised");
    let high = token(take(&client, "a", &patient()).await).await;
    assert!(high > raised.get());
    server.kill();
    server.restart_settled();
    let fallen = token(take(&client, "a", &patient()).await).await;
    assert!(fallen < high, "why the operator must raise it again");
    let raise = Operation::RaiseFence { to: FencingToken::new(high).expect("a token") };
    soon("an answer", client.admin().operate(&raise)).await.expect("raised");
    assert!(token(take(&client, "a", &patient()).await).await > high);
    clean(&server, &[&client]).await;
}

/// While the server is healthy, a deletion and a revocation by an operator are reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_freed_by_an_operator_is_lost_and_the_next_token_is_larger() {
    let server = server();
    let (holder, other) = (client_at(server.address()).await, client_at(server.address()).await);
    let guard = take(&holder, "a", &patient()).await;
    let waiter = taking(&other, "a");
    queued(&server, "a", 1).await;
    let revoke = Operation::Revoke {
        name: LockName::new("a").expect("a good name"),
        token: guard.fencing_token(),
        reason: "maintenance".to_owned(),
        now: true,
    };
    soon("an answer", other.admin().operate(&revoke)).await.expect("revoked");
    let next = soon("the next", waiter).await.expect("no panic");
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(lost(&guard).await, LostReason::Revoked("maintenance".to_owned()));
    drop(guard);
    let_go(next).await;
    // That it was revoked is remembered for a while, for a late request.
    let kept = ["holdline:{a}:1d"];
    until("the line is gone", || leftovers(&server) == kept).await;
    let marks = behind(&server, "HKEYS holdline:{a}:1d");
    assert_eq!(marks.items().map(<[_]>::len), Some(1), "{marks:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_the_older_protocol_live_through_it_too() {
    let server = server();
    let url = format!("{}&protocol=resp2", url_of(server.address()));
    let (holder, other) = (client(&url).await, client(&url).await);
    let guard = take(&holder, "a", &patient()).await;
    let waiter = taking(&other, "a");
    queued(&server, "a", 1).await;
    behind(&server, "CLIENT KILL TYPE pubsub");
    behind(&server, "CLIENT KILL TYPE normal");
    renewed(&guard).await;
    let outcome = soon("a release", guard.release()).await;
    assert!(!outcome.is_lost(), "{outcome:?}");
    let_go(soon("the next", waiter).await.expect("no panic")).await;
    clean(&server, &[&holder, &other]).await;
}
