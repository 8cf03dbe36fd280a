//! How waiters are woken, and where they are not.

use std::time::Duration;

use futures_util::StreamExt;
use holdline_core::{AcquireRequest, Engine, Hint, Purpose, RenewReply};
use holdline_mysql::MysqlEngine;
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::support::{PATIENCE, connect, engine, eventually, let_go, queue, renew, request, take};

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

/// Hands a name to and fro, with nothing to find it but the wake-up.
async fn hand_over(one: &MysqlEngine, other: &MysqlEngine, times: usize) {
    let mut held = request("a");
    take(one, &held).await;
    for _ in 0..times {
        let waits = waiting_renewals("a");
        queue(other, &waits).await;
        let mut hints = other.watch(&waits.name, waits.lease_id);
        let_go(one, &held).await;
        while next(&mut hints).await != Hint::LookAgain {}
        let waits = AcquireRequest { known: true, ..waits };
        take(other, &waits).await;
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
    while next(&mut hints).await != Hint::LookAgain {}
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
    while next(&mut hints).await != Hint::LookAgain {}
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
         call holdline_clear_holder_10('a', 0); \
         call holdline_hand_over_10('a', \
            timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), @handed, @to_wake); \
         select @handed",
    );
    assert_eq!(handed, ["1"]);
    take(&engine, &next).await;
    let_go(&engine, &next).await;
}
