//! Long queues, many leases and old snapshots: what a command reads does not grow with them.
//!
//! Costs are counted in rows and pages, not in time.

use std::time::Duration;

use futures_util::StreamExt;
use holdline_core::{
    AcquireReply, AcquireRequest, ClientId, Engine, Hint, Hold, LeaseId, Purpose, RenewReply,
    RenewRequest,
};
use holdline_mysql::MysqlEngine;
use holdline_mysql::mysql_async::prelude::Queryable;
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::support::{PATIENCE, engine, let_go, name, queue, renew, request, sign_in, take};

/// No test takes so long.
const LONG: Hold = Hold::Leased(Duration::from_secs(600));
const CROWD: usize = 10_000;
/// As many items as one batch has.
const BATCH: usize = 128;

/// The sum of some counters of the server.
fn counted(server: &MariaDbServer, names: &str) -> u64 {
    let ask = format!(
        "select cast(sum(variable_value) as unsigned) from information_schema.global_status \
         where variable_name in ({names})"
    );
    server.sql(&ask)[0].parse().expect("a number")
}

fn rows_read(server: &MariaDbServer) -> u64 {
    counted(
        server,
        "'Handler_read_first', 'Handler_read_key', 'Handler_read_next', 'Handler_read_prev', \
         'Handler_read_rnd_next'",
    )
}

fn pages_read(server: &MariaDbServer) -> u64 {
    counted(server, "'Innodb_buffer_pool_read_requests'")
}

/// Takes a name for the length of a test.
async fn take_long(engine: &MysqlEngine, request: &AcquireRequest) {
    take(engine, request).await;
    let reply = renew(engine, request, Purpose::Keep(LONG)).await;
    assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
}

/// The waiter at a place of the crowd.
fn heartbeat(place: usize) -> RenewRequest {
    RenewRequest {
        name: name("a"),
        lease_id: LeaseId::from_bytes((place as u128 + 1).to_be_bytes()),
        client: ClientId::from_u64(1),
        purpose: Purpose::Wait,
    }
}

/// Puts waiters into the queue of `a` from a place on, which nobody drops.
fn add_waiters(server: &MariaDbServer, from: usize, to: usize) {
    server.sql(&format!(
        "insert into holdline_waiters \
         select 'a', seq, unhex(lpad(hex(seq + 1), 32, '0')), unhex('0000000000000001'), \
            unhex('0000000000000000'), 'x', 0, 0, 'l', 30000000, 10000000, at.now, \
            at.now + 600000000, '' \
         from seq_{from}_to_{to}, \
            (select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) as now) at; \
         update holdline_heads set queued = 1 + {to} - {from}, first_place = {from}, \
            next_place = {to} + 1, \
            heard_since = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + 600000000 \
         where name = 'a'",
    ));
}

#[tokio::test]
async fn heartbeats_in_a_queue_of_ten_thousand_do_not_count_the_queue() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let held = request("a");
    take_long(&engine, &held).await;
    add_waiters(&server, 0, CROWD - 1);
    let before = rows_read(&server);
    let began = std::time::Instant::now();
    for first in (0..CROWD).step_by(BATCH) {
        let batch: Vec<_> = (first..CROWD.min(first + BATCH)).map(heartbeat).collect();
        for (at, reply) in engine.renew(&batch).await.into_iter().enumerate() {
            let place = first + at;
            let Ok(RenewReply::Queued { position, .. }) = reply else {
                panic!("{place}: {reply:?}")
            };
            assert_eq!(position, Some(place));
        }
    }
    let read = rows_read(&server) - before;
    println!("{CROWD} heartbeats read {read} rows and took {:?}", began.elapsed());
    assert!(read < 200 * CROWD as u64, "{read} rows for {CROWD} heartbeats");
    // The head is served, and the next one is at the head.
    let_go(&engine, &held).await;
    let reply = engine.renew(&[heartbeat(0), heartbeat(1)]).await;
    assert!(matches!(reply[0], Ok(RenewReply::Held { .. })), "{reply:?}");
    assert!(matches!(reply[1], Ok(RenewReply::Queued { position: Some(0), .. })), "{reply:?}");
}

/// As a dump or a forgotten transaction does it: rows that were removed stay to be read over. Each
/// command reads from the first place that is in use.
#[tokio::test]
async fn commands_do_not_walk_the_rows_that_an_old_snapshot_keeps() {
    const GONE: usize = 80_000;
    const TIMES: u64 = 20;
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let held = request("a");
    take_long(&engine, &held).await;
    let mut old = sign_in(server.address()).await;
    old.query_drop("start transaction with consistent snapshot").await.expect("begun");
    add_waiters(&server, 0, GONE - 1);
    server.sql("delete from holdline_waiters");
    add_waiters(&server, GONE, GONE + 9);
    let silent = "update holdline_heads set heard_since = 1; \
        update holdline_waiters set heard = 4000000000000000";
    let run_out = "update holdline_holders set since = 0, deadline = 1; \
        update holdline_heads set ends = 1";
    for (way, prepare, times) in [
        ("heartbeat", "", TIMES),
        ("heartbeat", silent, TIMES),
        ("again", "", TIMES),
        ("look", "", TIMES),
        ("run out", run_out, 1),
        ("hand-off", "", 1),
    ] {
        let mut read = 0;
        for _ in 0..times {
            if !prepare.is_empty() {
                server.sql(prepare);
            }
            let before = pages_read(&server);
            go(way, &engine, &heartbeat(GONE), &heartbeat(GONE + 9)).await;
            read += pages_read(&server) - before;
        }
        println!("{way}: {read} pages, {times} times");
        assert!(read < 250 * (times + 1), "{way}: {read} pages, {times} times");
    }
    old.query_drop("rollback").await.expect("still there");
}

/// One way of a command to a queue of ten.
async fn go(way: &str, engine: &MysqlEngine, head: &RenewRequest, last: &RenewRequest) {
    let asked = |item: &RenewRequest, known| AcquireRequest {
        lease_id: item.lease_id,
        client: item.client,
        known,
        ..request("a")
    };
    match way {
        "heartbeat" => {
            let reply = engine.renew(std::slice::from_ref(last)).await;
            let is_queued = matches!(reply[0], Ok(RenewReply::Queued { position: Some(9), .. }));
            assert!(is_queued, "{reply:?}");
        }
        "again" => {
            let reply = engine.try_acquire(&asked(last, false)).await.expect("asked");
            let is_queued = matches!(reply, AcquireReply::Queued { position: Some(9), .. });
            assert!(is_queued, "{reply:?}");
        }
        "look" => {
            let shown = engine.inspect(&name("a")).await.expect("shown");
            assert_eq!((shown.queue_length, shown.queue.len()), (10, 10));
        }
        "run out" => {
            let reply = engine.renew(std::slice::from_ref(head)).await;
            assert!(matches!(reply[0], Ok(RenewReply::Held { .. })), "{reply:?}");
        }
        _ => {
            let first = asked(head, true);
            take(engine, &first).await;
            let_go(engine, &first).await;
        }
    }
}

/// What is not new does not count: an inbox that wakes reads hand-offs and revocations alone.
#[tokio::test]
async fn an_inbox_that_is_woken_does_not_read_every_lease() {
    const LEASES: usize = 3_000;
    const TIMES: u64 = 10;
    let server = MariaDbServer::start(MariaDbConfig::default());
    let (one, other) = (engine(&server).await, engine(&server).await);
    let (mut held, waits) = (request("a"), request("a"));
    take_long(&one, &held).await;
    queue(&other, &waits).await;
    let inbox = server.sql("select hex(inbox) from holdline_waiters")[0].clone();
    server.sql(&format!(
        "insert into holdline_heads (name, fence, held, ends, used) \
         select concat('n', seq), 1, 1, 4000000000000000, 4000000000000000 \
         from seq_1_to_{LEASES}; \
         insert into holdline_holders \
         select concat('n', seq), 0, unhex(lpad(hex(seq), 32, '0')), unhex('0000000000000001'), \
            unhex('{inbox}'), 'x', 0, 0, 'l', 30000000, 'l', 30000000, 1, 0, 4000000000000000, 0, \
            null, '' from seq_1_to_{LEASES}"
    ));
    let mut waits = waits;
    let before = rows_read(&server);
    for _ in 0..TIMES {
        let mut hints = other.watch(&waits.name, waits.lease_id);
        let_go(&one, &held).await;
        loop {
            let hint = tokio::time::timeout(PATIENCE, hints.next()).await;
            if matches!(hint.expect("in time"), Some(Hint::Granted { .. })) {
                break;
            }
        }
        let known = AcquireRequest { known: true, ..waits.clone() };
        take(&other, &known).await;
        let_go(&other, &known).await;
        (held, waits) = (request("a"), request("a"));
        take_long(&one, &held).await;
        queue(&other, &waits).await;
    }
    let read = rows_read(&server) - before;
    println!("{TIMES} hand-offs read {read} rows");
    assert!(read < 300 * TIMES, "{read} rows for {TIMES} hand-offs");
}
