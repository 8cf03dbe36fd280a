//! Commands that waited for the row of their name: durations count from when they have the row.

use holdline_core::{
    AcquireRequest, Certainty, Engine, ErrorKind, ListRequest, Operation, Purpose, RenewReply,
    RenewRequest,
};
use holdline_postgres::PostgresEngine;
use holdline_postgres::tokio_postgres::Transaction;
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{
    HOLD, PATIENCE, connect, ending, engine, let_go, queue, renew, request, sign_in, take,
};

/// How many wait for a row that another session has locked.
const WAITING: &str = "select count(*) from pg_locks where not granted";

/// Waits until a row is waited for. Each wait is short, so this session looks, which is fast.
async fn until_one_waits(session: &Transaction<'_>) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while session.query_one(WAITING, &[]).await.expect("a row").get::<_, i64>(0) == 0 {
        assert!(std::time::Instant::now() < deadline, "nobody waits for the row");
    }
}

/// The server's time, as `now_1` returns it.
const NOW: &str = "select holdline.now_1()";

/// Runs a command that waits for the row of the name `a`, and returns its reply and the moment from
/// which it could have the row.
async fn after_a_wait<T>(server: &PostgresServer, command: impl Future<Output = T>) -> (T, i64) {
    let mut session = sign_in(server.address(), "postgres").await;
    let work = session.transaction().await.expect("begun");
    let taken = work.execute("select from holdline.names where name = 'a' for update", &[]).await;
    assert_eq!(taken.expect("taken"), 1);
    let free_from = async {
        until_one_waits(&work).await;
        let free: i64 = work.query_one(NOW, &[]).await.expect("a row").get(0);
        work.commit().await.expect("committed");
        free
    };
    tokio::join!(command, free_from)
}

/// A name with a waiter, whose holder's lease has expired.
async fn over(server: &PostgresServer, engine: &PostgresEngine) -> AcquireRequest {
    let (dead, waits) = (request("a"), request("a"));
    take(engine, &dead).await;
    queue(engine, &waits).await;
    server.sql("update holdline.names set holder.deadline = 1, used = 1");
    waits
}

fn handed_at(server: &PostgresServer) -> i64 {
    let handed = server.sql("select (holder).since from holdline.names");
    handed[0].parse().expect("a moment")
}

#[tokio::test]
async fn a_renewal_that_waited_for_a_row_hands_over_with_the_whole_lease() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let waits = over(&server, &engine).await;
    let (reply, free) = after_a_wait(&server, renew(&engine, &waits, Purpose::Wait)).await;
    assert!(matches!(reply, Ok(RenewReply::Held { .. })), "{reply:?}");
    let handed = handed_at(&server);
    assert!(handed >= free, "handed over {} µs before it could be", free - handed);
    take(&engine, &AcquireRequest { known: true, ..waits.clone() }).await;
    let_go(&engine, &waits).await;
}

#[tokio::test]
async fn a_look_that_waited_for_a_row_hands_over_with_the_whole_lease() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let waits = over(&server, &engine).await;
    let (shown, free) = after_a_wait(&server, engine.inspect(&waits.name)).await;
    assert!(shown.expect("shown").is_held());
    let handed = handed_at(&server);
    assert!(handed >= free, "handed over {} µs before it could be", free - handed);
    take(&engine, &AcquireRequest { known: true, ..waits.clone() }).await;
    let_go(&engine, &waits).await;
}

/// A batch of several items, one of which has a locked row.
#[tokio::test]
async fn a_locked_row_costs_a_batch_one_item() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let held = ["a", "b", "c"].map(request);
    for one in &held {
        take(&engine, one).await;
    }
    let (waits, lost) = (request("a"), request("d"));
    queue(&engine, &waits).await;
    let mut batch: Vec<RenewRequest> =
        held.iter().map(|one| item(one, Purpose::Keep(HOLD))).collect();
    batch.extend([item(&waits, Purpose::Wait), item(&lost, Purpose::Keep(HOLD))]);
    for locked in ["a", "b", "c"] {
        let mut session = sign_in(server.address(), "postgres").await;
        let work = session.transaction().await.expect("begun");
        let lock = format!("select from holdline.names where name = '{locked}' for update");
        assert_eq!(work.execute(&lock, &[]).await.expect("taken"), 1);
        let reply = engine.renew(&batch).await;
        for (item, reply) in std::iter::zip(&batch, reply) {
            match reply {
                Err(error) if item.name.as_str() == locked => {
                    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
                    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
                }
                Ok(reply) if item.name.as_str() != locked => {
                    let expected = match item.lease_id {
                        id if id == waits.lease_id => matches!(reply, RenewReply::Queued { .. }),
                        id if id == lost.lease_id => reply == RenewReply::Unknown,
                        _ => matches!(reply, RenewReply::Renewed { .. }),
                    };
                    assert!(expected, "{item:?}: {reply:?}");
                }
                reply => panic!("{item:?} while {locked} is locked: {reply:?}"),
            }
        }
        // Nor does it cost a listing.
        let all = ListRequest { limit: 10, ..ListRequest::default() };
        assert_eq!(engine.list(&all).await.expect("listed").names.len(), 3);
        work.commit().await.expect("committed");
        for reply in engine.renew(&batch).await {
            reply.expect("nobody has locked anything");
        }
    }
}

/// A command waits for its row outside of the connection, which all names share.
#[tokio::test]
async fn commands_on_a_locked_row_do_not_delay_other_names() {
    let server = PostgresServer::start(PostgresConfig::default());
    let url = format!("{}?command_timeout_ms=30000", server.url());
    let engine = connect(&url).await.expect("connected");
    let [held, other] = ["a", "b"].map(request);
    let token = take(&engine, &held).await;
    take(&engine, &other).await;
    // With a queue, a look locks the row too.
    queue(&engine, &request("a")).await;
    let mut session = sign_in(server.address(), "postgres").await;
    let work = session.transaction().await.expect("begun");
    let lock = "select from holdline.names where name = 'a' for update";
    assert_eq!(work.execute(lock, &[]).await.expect("taken"), 1);
    let mut on_locked = tokio::task::JoinSet::new();
    for verb in ["try", "wait", "renew", "release", "give up", "show", "revoke", "freeze", "thaw"] {
        for _ in 0..4 {
            let (engine, held, newcomer) = (engine.clone(), held.clone(), request("a"));
            let (name, reason) = (held.name.clone(), "a reason".to_owned());
            let duration = HOLD.duration().expect("a lease");
            on_locked.spawn(async move {
                let done = match verb {
                    "try" => {
                        let asked = AcquireRequest { queue: false, ..newcomer };
                        engine.try_acquire(&asked).await.map(drop)
                    }
                    "wait" => engine.try_acquire(&newcomer).await.map(drop),
                    "renew" => renew(&engine, &held, Purpose::Keep(HOLD)).await.map(drop),
                    "release" => engine.release(&ending(&held, false)).await.map(drop),
                    "give up" => engine.release(&ending(&newcomer, true)).await.map(drop),
                    "show" => engine.inspect(&name).await.map(drop),
                    "revoke" => {
                        let revoke = Operation::Revoke { name, token, reason, now: false };
                        engine.operate(&revoke).await.map(drop)
                    }
                    "freeze" => engine
                        .operate(&Operation::Freeze { name, duration, reason })
                        .await
                        .map(drop),
                    _ => engine.operate(&Operation::Unfreeze { name }).await.map(drop),
                };
                (verb, done)
            });
        }
    }
    // The row of `a` is waited for while this name is renewed again and again.
    for _ in 0..5 {
        until_one_waits(&work).await;
        let reply = renew(&engine, &other, Purpose::Keep(HOLD)).await;
        assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
        let ended = on_locked.try_join_next();
        assert!(ended.is_none(), "before a renewal of another name: {ended:?}");
    }
    work.commit().await.expect("committed");
    while let Some(ended) = on_locked.join_next().await {
        let (verb, done) = ended.expect("no panic");
        done.unwrap_or_else(|error| panic!("{verb}: {error}"));
    }
    let_go(&engine, &other).await;
}

/// What waited in vain was not carried out.
#[tokio::test]
async fn a_command_on_a_row_that_stays_locked_is_not_applied() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = connect(&format!("{}?command_timeout_ms=6000", server.url())).await.expect("one");
    let held = request("a");
    take(&engine, &held).await;
    let mut session = sign_in(server.address(), "postgres").await;
    let work = session.transaction().await.expect("begun");
    let lock = "select from holdline.names where name = 'a' for update";
    assert_eq!(work.execute(lock, &[]).await.expect("taken"), 1);
    // More than are sent at once.
    let asked = (0..24).map(|_| request("a")).collect::<Vec<_>>();
    let mut tries = tokio::task::JoinSet::new();
    for one in asked.clone() {
        let engine = engine.clone();
        tries.spawn(async move { engine.try_acquire(&one).await });
    }
    while let Some(reply) = tries.join_next().await {
        let error = reply.expect("no panic").expect_err("locked");
        assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("waited too long"), "{error}");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    }
    work.commit().await.expect("committed");
    let shown = engine.inspect(&held.name).await.expect("shown");
    assert_eq!((shown.holder_count, shown.queue_length), (1, 0), "{shown:?}");
    let_go(&engine, &held).await;
}

/// A row that is free again soon is waited for.
#[tokio::test]
async fn the_items_of_one_name_wait_for_its_row_and_are_one_command() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let waits = over(&server, &engine).await;
    // Another command on the name would hand it over: so this one is put there by hand.
    let second = request("a");
    let id =
        second.lease_id.as_bytes().iter().fold(String::new(), |text, b| format!("{text}{b:02x}"));
    server.sql(&format!(
        "insert into holdline.waiters select name, place + 1, '\\x{id}', client + 1, 0, mode, \
         permits, total, kind, lease, hand_off_lease, queued_at, heard, metadata \
         from holdline.waiters; \
         update holdline.names set queued = 2, next_place = next_place + 1 where name = 'a'"
    ));
    let batch = [item(&waits, Purpose::Wait), item(&second, Purpose::Wait)];
    let (reply, free) = after_a_wait(&server, engine.renew(&batch)).await;
    assert!(matches!(reply[0], Ok(RenewReply::Held { .. })), "{reply:?}");
    assert!(matches!(reply[1], Ok(RenewReply::Queued { position: Some(0), .. })), "{reply:?}");
    assert!(handed_at(&server) >= free);
}

fn item(asked: &AcquireRequest, purpose: Purpose) -> RenewRequest {
    let (name, lease_id, client) = (asked.name.clone(), asked.lease_id, asked.client);
    RenewRequest { name, lease_id, client, purpose }
}
