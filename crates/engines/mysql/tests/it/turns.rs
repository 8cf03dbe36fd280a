//! Rows that another session has locked: waits, deadlocks, and the time from which durations count.

use std::sync::Arc;

use futures_util::future::join_all;
use holdline_core::{
    AcquireRequest, Certainty, Engine, Hold, ListRequest, Operation, Purpose, ReleaseReply,
    RenewReply, RenewRequest,
};
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::rows::until_a_row_is_waited_for;
use crate::support::{
    HOLD, connect, ending, engine, eventually, let_go, queue, renew, request, take,
};

/// Keeps the row of the name `a` in a table until the thread that does so is killed by this.
struct Keeper {
    server: Arc<MariaDbServer>,
    thread: Option<std::thread::JoinHandle<Result<Vec<String>, String>>>,
}

impl Keeper {
    async fn start(server: &Arc<MariaDbServer>) -> Keeper {
        Keeper::of(server, "holdline_heads").await
    }

    async fn of(server: &Arc<MariaDbServer>, table: &str) -> Keeper {
        let keeper = server.clone();
        let keep =
            format!("begin; select 1 from {table} where name = 'a' for update; select sleep(600)");
        let thread = std::thread::spawn(move || keeper.try_sql(&keep));
        let sleeps = "select count(*) from information_schema.processlist \
            where info = 'select sleep(600)'";
        eventually("the row is kept", || server.sql(sleeps) == ["1"]).await;
        Keeper { server: server.clone(), thread: Some(thread) }
    }

    fn end(&mut self) {
        let id = "select id from information_schema.processlist where info = 'select sleep(600)'";
        for id in self.server.sql(id) {
            self.server.sql(&format!("kill {id}"));
        }
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(matches!(ended, Some(Ok(Err(_)))), "{ended:?}");
    }
}

#[tokio::test]
async fn a_locked_row_costs_a_timeout_and_nothing_is_done() {
    let server = Arc::new(MariaDbServer::start(MariaDbConfig::default()));
    let url = format!("{}?command_timeout_ms=4000", server.url());
    let held = request("a");
    take(&self::engine(&server).await, &held).await;
    let engine = connect(&url).await.expect("connected");
    let mut keeper = Keeper::start(&server).await;
    for _ in 0..2 {
        let error = renew(&engine, &held, Purpose::Keep(HOLD)).await.expect_err("locked");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
        assert!(error.to_string().contains("waited too long"), "{error}");
        let error = engine.release(&ending(&held, false)).await.expect_err("locked");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
        assert!(error.to_string().contains("waited too long"), "{error}");
    }
    keeper.end();
    // A waiter that timed out has released everything: the next one is not blocked.
    renew(&engine, &held, Purpose::Keep(HOLD)).await.expect("renewed");
    let_go(&engine, &held).await;
}

/// Commands on a locked row wait apart from all others, and no connection is given up.
#[tokio::test]
async fn a_locked_row_delays_no_command_on_another_name() {
    const ROUNDS: usize = 20;
    let server = Arc::new(MariaDbServer::start(MariaDbConfig::default()));
    let engine = engine(&server).await;
    let (held, kept) = (request("a"), request("b"));
    take(&engine, &held).await;
    take(&engine, &kept).await;
    let sessions = "select group_concat(id order by id) from information_schema.processlist \
        where user = 'holdline'";
    let before = server.sql(sessions).concat();
    let mut keeper = Keeper::start(&server).await;
    let newcomers = [request("a"), request("a"), request("a")];
    let end = ending(&held, false);
    let acquires = join_all(newcomers.iter().map(|asked| engine.try_acquire(asked)));
    let mut stuck = std::pin::pin!(async { tokio::join!(acquires, engine.release(&end)) });
    let others = async {
        until_a_row_is_waited_for(&server).await;
        for _ in 0..ROUNDS {
            renew(&engine, &kept, Purpose::Keep(HOLD)).await.expect("renewed");
            let next = request("c");
            take(&engine, &next).await;
            let_go(&engine, &next).await;
        }
    };
    tokio::select! {
        biased;
        reply = &mut stuck => panic!("the row is locked, and others wait behind it: {reply:?}"),
        () = others => {}
    }
    assert!(server.sql(sessions).concat().starts_with(&before), "a connection was given up");
    keeper.end();
    let (acquired, released) = stuck.await;
    assert!(acquired.iter().all(Result::is_ok), "{acquired:?}");
    assert!(matches!(released, Ok(ReleaseReply::Released { .. })), "{released:?}");
    // One of them has it, and the others queue.
    let shown = engine.inspect(&held.name).await.expect("shown");
    assert_eq!((shown.holder_count, shown.queue_length), (1, 2), "{shown:?}");
}

/// An item of a batch.
fn item(asked: &AcquireRequest, purpose: Purpose) -> RenewRequest {
    RenewRequest {
        name: asked.name.clone(),
        lease_id: asked.lease_id,
        client: asked.client,
        purpose,
    }
}

/// The other items of the batch are answered, and other commands are not delayed for as long as
/// the row is locked.
#[tokio::test]
async fn a_locked_row_fails_its_own_item_of_a_batch_and_no_other() {
    let server = Arc::new(MariaDbServer::start(MariaDbConfig::default()));
    let engine = engine(&server).await;
    let held: Vec<_> = ["0", "a", "a", "b"].map(request).into();
    for at in [0, 1, 3] {
        take(&engine, &held[at]).await;
    }
    queue(&engine, &held[2]).await;
    let mut keeper = Keeper::start(&server).await;
    let batch: Vec<_> = std::iter::zip(&held, [0, 1, 2, 3])
        .map(|(one, at)| item(one, if at == 2 { Purpose::Wait } else { Purpose::Keep(HOLD) }))
        .collect();
    let reply = engine.renew(&batch).await;
    for at in [0, 3] {
        assert!(matches!(reply[at], Ok(RenewReply::Renewed { .. })), "{at}: {reply:?}");
    }
    for at in [1, 2] {
        let error = reply[at].as_ref().expect_err("locked");
        assert!(error.to_string().contains("locked by another session"), "{error}");
    }
    // A page of names is shown with the one that cannot be brought up to date.
    let all = ListRequest { limit: 10, ..ListRequest::default() };
    assert_eq!(engine.list(&all).await.expect("listed").names.len(), 3);
    keeper.end();
    let reply = engine.renew(&batch).await;
    assert!(reply.iter().all(Result::is_ok), "{reply:?}");
}

/// Within a statement the server's clock does not advance, also while it waits.
#[tokio::test]
async fn a_command_that_waited_for_a_row_hands_over_with_the_whole_lease() {
    let server = Arc::new(MariaDbServer::start(MariaDbConfig::default()));
    let engine = engine(&server).await;
    let (dead, waits) = (request("a"), request("a"));
    take(&engine, &dead).await;
    queue(&engine, &waits).await;
    server.sql(
        "update holdline_holders set deadline = 1 where name = 'a'; \
         update holdline_heads set ends = 1 where name = 'a'",
    );
    let mut keeper = Keeper::start(&server).await;
    let waiting = "select count(*) from information_schema.processlist \
        where user = 'holdline' and info like '%holdline_heads%'";
    let free_from = async {
        eventually("it waits", || server.sql(waiting) == ["1"]).await;
        let now = "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";
        let free: i64 = server.sql(now)[0].parse().expect("a moment");
        keeper.end();
        free
    };
    // Any command on the name hands it over.
    let stranger = ending(&request("a"), false);
    let (reply, free) = tokio::join!(engine.release(&stranger), free_from);
    assert!(matches!(reply, Ok(ReleaseReply::NotHeld { .. })), "{reply:?}");
    let handed = "select since from holdline_holders where name = 'a' and slot = 0 \
        and news = 3 and deadline = since + 10000000";
    let handed: i64 = server.sql(handed)[0].parse().expect("a moment");
    assert!(handed >= free, "handed over {} µs before it could be", free - handed);
    take(&engine, &AcquireRequest { known: true, ..waits.clone() }).await;
    let_go(&engine, &waits).await;
}

/// The server breaks a deadlock by undoing one transaction: the engine repeats that command.
#[tokio::test]
async fn a_command_that_is_undone_to_break_a_deadlock_is_repeated_unnoticed() {
    let server = Arc::new(MariaDbServer::start(MariaDbConfig::default()));
    let engine = engine(&server).await;
    let held = request("a");
    take(&engine, &held).await;
    // A stranger locks the rows of the name in the other order, and has changed so much that the
    // server undoes us.
    let stranger = server.clone();
    let thread = std::thread::spawn(move || {
        stranger.try_sql(
            "create table if not exists heavy (a int primary key, b int) engine = InnoDB; begin; \
             insert into heavy select seq, seq from seq_1_to_1000; \
             select 1 from holdline_holders where name = 'a' for update; \
             do sleep(1); select 1 from holdline_heads where name = 'a' for update; rollback",
        )
    });
    let sleeps =
        "select count(*) from information_schema.processlist where info like 'do sleep(1)%'";
    eventually("the row is kept", || server.sql(sleeps) == ["1"]).await;
    let_go(&engine, &held).await;
    thread.join().expect("no panic").expect("it was not the one that is undone");
    let deadlocks = server.sql("show global status like 'Innodb_deadlocks'");
    assert_eq!(deadlocks, ["Innodb_deadlocks|1"], "the deadlock was there");
}

/// A command that is ended in the middle leaves its transaction open; nothing of it may be
/// committed by what comes next.
#[tokio::test]
async fn a_command_that_is_killed_in_the_middle_leaves_nothing() {
    let server = Arc::new(MariaDbServer::start(MariaDbConfig::default()));
    let engine = engine(&server).await;
    let (held, other) = (request("a"), request("b"));
    take(&engine, &held).await;
    take(&engine, &other).await;
    // The release has written its tombstone by then.
    let mut keeper = Keeper::of(&server, "holdline_holders").await;
    let waits = "select id from information_schema.processlist \
        where user = 'holdline' and info like 'update holdline_holders%'";
    let killed = async {
        eventually("it waits", || !server.sql(waits).is_empty()).await;
        for id in server.sql(waits) {
            server.sql(&format!("kill query {id}"));
        }
    };
    let release = ending(&held, true);
    let (reply, ()) = tokio::join!(engine.release(&release), killed);
    let error = reply.expect_err("stopped");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    keeper.end();
    renew(&engine, &other, Purpose::Keep(HOLD)).await.expect("renewed");
    assert_eq!(server.sql("select count(*) from information_schema.innodb_trx"), ["0"]);
    let reply = renew(&engine, &held, Purpose::Keep(HOLD)).await;
    assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
}

#[tokio::test]
async fn a_late_renewal_of_a_revoked_grant_returns_the_reason() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let hold = Hold::Leased(std::time::Duration::from_secs(2));
    let held = AcquireRequest { hold, ..request("a") };
    let token = take(&engine, &held).await;
    let (name, reason) = (held.name.clone(), "moving".to_owned());
    let revoke = Operation::Revoke { name, token, reason, now: false };
    engine.operate(&revoke).await.expect("a reply");
    let is_over = "select deadline < timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) \
        from holdline_holders";
    eventually("its lease is over", || server.sql(is_over) == ["1"]).await;
    let reply = renew(&engine, &held, Purpose::Keep(hold)).await;
    let is_revoked = matches!(&reply, Ok(RenewReply::Revoked { reason, .. }) if reason == "moving");
    assert!(is_revoked, "{reply:?}");
}
