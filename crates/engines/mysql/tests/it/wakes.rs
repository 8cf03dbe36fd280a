//! How waiters are woken, and where they are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use holdline_core::{AcquireRequest, Engine, FencingToken, Hint, Purpose, RenewReply};
use holdline_mysql::MysqlEngine;
use holdline_mysql::mysql_async::prelude::Queryable;
use holdline_services::{MariaDbConfig, MariaDbServer};
use tokio::task::JoinSet;

use crate::support::{
    PATIENCE, connect, ending, engine, eventually, let_go, queue, renew, request, sign_in, take,
};

/// The connection ids of the sleepers in inboxes.
fn sleepers(server: &MariaDbServer) -> Vec<u64> {
    let ask = "select id from information_schema.processlist where state = 'User sleep' \
        and command <> 'Killed' and user = 'holdline' order by id";
    server.sql(ask).iter().map(|id| id.parse().expect("a number")).collect()
}

/// A contender that has time, on a machine that is busy.
fn waiting_renewals(name: &str) -> AcquireRequest {
    AcquireRequest { hand_off_lease: Duration::from_secs(10), ..request(name) }
}

async fn next(hints: &mut holdline_core::Hints) -> Hint {
    let hint = tokio::time::timeout(PATIENCE, hints.next()).await;
    hint.expect("in time").expect("a watch does not end")
}

/// Waits for the message that is the grant.
async fn granted(hints: &mut holdline_core::Hints) -> FencingToken {
    loop {
        if let Hint::Granted { token } = next(hints).await {
            return token;
        }
    }
}

/// Hands a name to and fro, with nothing to find it but the wake-up.
async fn hand_over(one: &MysqlEngine, other: &MysqlEngine, times: usize) {
    let mut held = request("a");
    take(one, &held).await;
    for _ in 0..times {
        let waits = waiting_renewals("a");
        queue(other, &waits).await;
        let mut hints = other.watch(&waits.name, waits.lease_id);
        let_go(one, &held).await;
        let token = granted(&mut hints).await;
        let waits = AcquireRequest { known: true, ..waits };
        assert_eq!(take(other, &waits).await, token);
        let_go(other, &waits).await;
        held = request("a");
        take(one, &held).await;
    }
    let_go(one, &held).await;
}

/// A wake-up that came between the look and the sleep would be missed for seconds: many come here
/// while the inbox wakes from the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_between_two_sleeps() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let (one, other) = (engine(&server).await, engine(&server).await);
    hand_over(&one, &other, 200).await;
}

/// The reply to a release is the grant of a waiter of the same process: nobody is woken for it.
#[tokio::test]
async fn a_waiter_of_the_process_that_releases_is_granted_by_the_reply() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let (held, waits) = (request("a"), waiting_renewals("a"));
    take(&engine, &held).await;
    queue(&engine, &waits).await;
    let mut hints = engine.watch(&waits.name, waits.lease_id);
    let kills = || server.sql("show global status like 'Com_kill'");
    let before = kills();
    let_go(&engine, &held).await;
    let token = granted(&mut hints).await;
    assert_eq!(kills(), before);
    assert_eq!(take(&engine, &AcquireRequest { known: true, ..waits }).await, token);
}

/// Other sessions see a hand-off before its commit is flushed. A lock named by its id shows that.
#[tokio::test]
async fn a_grant_is_delivered_only_when_its_commit_is_flushed() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let (one, other) = (engine(&server).await, engine(&server).await);
    let (held, waits) = (request("a"), waiting_renewals("a"));
    take(&one, &held).await;
    queue(&other, &waits).await;
    let mut hints = other.watch(&waits.name, waits.lease_id);
    // Somebody has the lock: the session that hands over cannot say when it has flushed.
    let mut session = sign_in(server.address()).await;
    let id = server.sql("select lower(hex(lease_id)) from holdline_waiters").concat();
    let lock = format!("do get_lock('holdline_{id}', 0)");
    session.query_drop(&lock).await.expect("locked");
    let_go(&one, &held).await;
    let first = next(&mut hints).await;
    assert_eq!(first, Hint::LookAgain);
    // As between the commit and its flush: what came later is delivered, and the grant is not.
    server.sql(
        "update holdline_holders set news = 3; \
         insert into holdline_marks \
         select name, 'r', lease_id, deadline, '', inbox from holdline_holders",
    );
    let wake = "select concat('kill query ', is_used_lock(concat('holdline_', lower(hex(inbox))))) \
        from holdline_holders";
    server.sql(&server.sql(wake).concat());
    let mut seen = Vec::new();
    while seen.last() != Some(&Hint::CheckLease) {
        seen.push(next(&mut hints).await);
    }
    assert!(!seen.iter().any(|hint| matches!(hint, Hint::Granted { .. })), "{seen:?}");
    session.query_drop("do release_all_locks()").await.expect("freed");
    server.sql(&server.sql(wake).concat());
    granted(&mut hints).await;
}

/// Hands a name on among waiters of these engines until a request fails; writes down each token.
async fn hand_on(engines: [MysqlEngine; 2], name: String, last: Arc<AtomicU64>) -> Option<()> {
    let mut held = request(&name);
    engines[0].try_acquire(&held).await.ok()?;
    // Within a process and between two, in turn.
    let mut places = [0, 0, 1, 1].into_iter().cycle().peekable();
    while let Some(holder) = places.next().map(|at| &engines[at]) {
        let next = &engines[*places.peek()?];
        let waits = waiting_renewals(&name);
        next.try_acquire(&waits).await.ok()?;
        let mut hints = next.watch(&waits.name, waits.lease_id);
        holder.release(&ending(&held, false)).await.ok()?;
        let token = granted(&mut hints).await;
        last.store(token.get(), Ordering::SeqCst);
        held = waits;
    }
    None
}

/// Eight names are handed on at once, so an inbox is read while other hand-offs are being flushed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_has_every_grant_that_was_delivered() {
    let server = MariaDbServer::start(MariaDbConfig::default().with_fsync());
    for round in 0..5 {
        let engines = [engine(&server).await, engine(&server).await];
        for (number, engine) in engines.iter().enumerate() {
            // The first request that may queue opens the inbox; later ones would not wait for it.
            take(engine, &request(&format!("inbox {round}/{number}"))).await;
        }
        let names: Vec<String> = (0..8).map(|number| format!("n{round}/{number}")).collect();
        let last: Vec<Arc<AtomicU64>> = names.iter().map(|_| Arc::default()).collect();
        let mut running = JoinSet::new();
        for (name, last) in std::iter::zip(&names, &last) {
            running.spawn(hand_on(engines.clone(), name.clone(), last.clone()));
        }
        let tokens = || last.iter().map(|last| last.load(Ordering::SeqCst));
        eventually("names are handed on", || tokens().all(|token| token > 5)).await;
        server.kill();
        running.shutdown().await;
        server.restart();
        for (name, delivered) in std::iter::zip(&names, tokens()) {
            let kept =
                server.sql(&format!("select fence from holdline_heads where name = '{name}'"));
            let kept: u64 = kept[0].parse().expect("a token");
            assert!(kept >= delivered, "{name}: {delivered} was delivered, {kept} is stored");
        }
    }
}

/// The inbox is found by a name that nobody else has, and nothing but its sleep can be met.
#[tokio::test]
async fn only_the_sleep_of_an_inbox_is_ended() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let (one, other) = (engine(&server).await, engine(&server).await);
    let (held, waits) = (request("a"), waiting_renewals("a"));
    take(&one, &held).await;
    queue(&other, &waits).await;
    eventually("both sleep", || sleepers(&server).len() == 2).await;
    // The number of a connection that has gone may be another's: the row has no such number.
    let ids = "select group_concat(id order by id) from information_schema.processlist \
        where user = 'holdline'";
    let before = server.sql(ids);
    server.sql("update holdline_waiters set inbox = x'00000000000000ff'");
    let_go(&one, &held).await;
    assert_eq!(server.sql(ids), before, "nobody was ended");
    let reply = renew(&other, &waits, Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Held { .. })), "the heartbeat finds it: {reply:?}");
}

/// A releasing account may not kill statements of another one. The heartbeat finds the hand-off.
#[tokio::test]
async fn accounts_that_may_not_wake_each_other_are_left_to_the_heartbeat() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    server.sql("create user other@'%' identified by 'x'; grant all on locks.* to other@'%'");
    let one = engine(&server).await;
    let (held, waits) = (request("a"), waiting_renewals("a"));
    take(&one, &held).await;
    let other = connect(&server.url_of("other:x", "locks")).await.expect("let in");
    queue(&other, &waits).await;
    let_go(&one, &held).await;
    let reply = renew(&other, &waits, Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Held { .. })), "{reply:?}");
    let waits = AcquireRequest { known: true, ..waits };
    take(&other, &waits).await;
    let_go(&other, &waits).await;
    // The same account wakes its own from wherever it is.
    let again = connect(&server.url_of("other:x", "locks")).await.expect("let in");
    hand_over(&other, &again, 3).await;
}

#[tokio::test]
async fn an_account_with_the_right_wakes_all() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    server.sql(
        "create user other@'%' identified by 'x'; grant all on locks.* to other@'%'; \
         grant connection admin on *.* to holdline@'%'",
    );
    let one = engine(&server).await;
    let (held, waits) = (request("a"), waiting_renewals("a"));
    take(&one, &held).await;
    let other = connect(&server.url_of("other:x", "locks")).await.expect("let in");
    queue(&other, &waits).await;
    let asleep = "select count(*) from information_schema.processlist \
        where state = 'User sleep' and user = 'other'";
    eventually("it sleeps", || server.sql(asleep) == ["1"]).await;
    let mut hints = other.watch(&waits.name, waits.lease_id);
    let_go(&one, &held).await;
    granted(&mut hints).await;
    take(&other, &AcquireRequest { known: true, ..waits }).await;
}

#[tokio::test]
async fn a_watch_continues_on_a_new_connection() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let (one, other) = (engine(&server).await, engine(&server).await);
    let (held, waits) = (request("a"), waiting_renewals("a"));
    take(&one, &held).await;
    queue(&other, &waits).await;
    let mut hints = other.watch(&waits.name, waits.lease_id);
    eventually("both sleep", || sleepers(&server).len() == 2).await;
    let before = sleepers(&server);
    server.sql("kill user holdline");
    // First that something may have been missed: the connection was lost.
    next(&mut hints).await;
    while renew(&other, &waits, Purpose::Wait).await.is_err() {}
    while renew(&one, &held, Purpose::Keep(held.hold)).await.is_err() {}
    eventually("both sleep again", || {
        let now = sleepers(&server);
        now.len() == 2 && now[0] > before[1]
    })
    .await;
    // From the next heartbeat on its new inbox stands in the queue.
    renew(&other, &waits, Purpose::Wait).await.expect("queued");
    let_go(&one, &held).await;
    granted(&mut hints).await;
    take(&other, &AcquireRequest { known: true, ..waits }).await;
}

/// It sleeps for a few seconds at most: nothing is left of a client that has gone.
#[tokio::test]
async fn an_inbox_of_a_client_that_has_gone_is_soon_no_more() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let (one, other) = (engine(&server).await, engine(&server).await);
    take(&one, &request("a")).await;
    queue(&other, &request("a")).await;
    eventually("both sleep", || sleepers(&server).len() == 2).await;
    drop(other);
    eventually("one has gone", || sleepers(&server).len() == 1).await;
}

/// A batch may hand over more names than it can wake: the rest look by themselves.
#[tokio::test]
async fn a_hand_off_succeeds_without_room_for_one_more_wake_up() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let (held, next) = (request("a"), request("a"));
    take(&engine, &held).await;
    queue(&engine, &next).await;
    let handed = server.sql(
        "set @handed = 0, @to_wake = repeat('x', 1024); \
         call holdline_clear_holder_11('a', 0); \
         call holdline_hand_over_11('a', \
            timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), @handed, @to_wake); \
         select @handed",
    );
    assert_eq!(handed, ["1"]);
    take(&engine, &next).await;
    let_go(&engine, &next).await;
}
