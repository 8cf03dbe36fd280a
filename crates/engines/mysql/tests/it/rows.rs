//! Locks on the user's own rows, with other sessions at the same rows.

use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::{Certainty, ErrorKind};
use holdline_mysql::mysql_async::prelude::Queryable;
use holdline_mysql::mysql_async::{Conn, Error};
use holdline_mysql::{RowLock, RowLockError, RowWait, row_lock};
use holdline_services::{Fault, FaultProxy, Frames, MariaDbConfig, MariaDbServer};

use crate::support::{eventually, sign_in};

pub(crate) fn server() -> MariaDbServer {
    with_jobs(MariaDbConfig::default())
}

pub(crate) fn with_jobs(config: MariaDbConfig) -> MariaDbServer {
    let server = MariaDbServer::start(config);
    server.sql(
        "create table jobs (id int primary key, state varchar(10) not null) engine = InnoDB; \
         insert into jobs values (1, 'new'), (2, 'new')",
    );
    server
}

pub(crate) const ONE: &str = "select state from jobs where id = 1";

pub(crate) async fn finish(
    connection: &mut Conn,
    rows: &RowLock<'_>,
) -> Result<(), RowLockError<Error>> {
    row_lock(connection, rows, &MachineClock, async |work, _| {
        work.query_drop("update jobs set state = 'done' where id = 1").await
    })
    .await
}

pub(crate) fn kind(reply: Result<(), RowLockError<Error>>) -> ErrorKind {
    match reply {
        Err(RowLockError::Failed(error)) => {
            assert_eq!(error.certainty(), Certainty::NotApplied);
            error.kind().clone()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn rows_that_others_have_locked_are_reported_and_nothing_is_done() {
    let server = server();
    let (mut one, mut other) = (sign_in(server.address()).await, sign_in(server.address()).await);
    row_lock(&mut one, &RowLock::new(ONE, ()), &MachineClock, async |_, found| {
        assert_eq!(found.len(), 1);
        for (wait, expected) in [
            (RowWait::Never, "Busy"),
            (RowWait::SkipLocked, "Busy"),
            (RowWait::AtMost(Duration::from_millis(10)), "TimedOut"),
        ] {
            let rows = RowLock::new(ONE, ()).with_wait(wait);
            let reply = format!("{:?}", kind(finish(&mut other, &rows).await));
            assert!(reply.starts_with(expected), "{wait:?}: {reply}");
        }
        // The next that nobody has.
        let free = RowLock::new("select id from jobs order by id limit 1", ());
        let free = free.with_wait(RowWait::SkipLocked);
        let id: Option<i32> = row_lock(&mut other, &free, &MachineClock, async |_, found| {
            Ok::<_, Error>(found[0].get(0))
        })
        .await
        .expect("locked");
        assert_eq!(id, Some(2));
        Ok::<_, Error>(())
    })
    .await
    .expect("locked");
    assert_eq!(server.sql(ONE), ["new"]);
    finish(&mut other, &RowLock::new(ONE, ())).await.expect("done");
    assert_eq!(server.sql(ONE), ["done"]);
}

#[tokio::test]
async fn missing_wrong_and_failing_queries_leave_nothing() {
    let server = server();
    let mut one = sign_in(server.address()).await;
    let missing = RowLock::new("select state from jobs where id = 9", ());
    assert!(matches!(finish(&mut one, &missing).await, Err(RowLockError::Missing)));
    let wrong = RowLock::new("select stat from jobs", ());
    assert!(matches!(kind(finish(&mut one, &wrong).await), ErrorKind::Invalid { .. }));
    let rows = RowLock::new(ONE, ());
    let failed = row_lock(&mut one, &rows, &MachineClock, async |work, _| {
        work.query_drop("update jobs set state = 'half' where id = 1").await?;
        work.query_drop("no such words").await
    });
    assert!(matches!(failed.await, Err(RowLockError::Body(Error::Server(_)))));
    assert_eq!(server.sql(ONE), ["new"]);
    finish(&mut one, &RowLock::new(ONE, ())).await.expect("done");
}

/// Begins a transaction that has the second row, and has changed so much that in a deadlock
/// it is the other one that the server undoes.
async fn stranger_at_the_second_row(server: &MariaDbServer) -> Conn {
    let mut stranger = sign_in(server.address()).await;
    for statement in [
        "create table if not exists heavy (a int) engine = InnoDB",
        "begin",
        "insert into heavy select seq from seq_1_to_1000",
        "select state from jobs where id = 2 for update",
    ] {
        stranger.query_drop(statement).await.expect(statement);
    }
    stranger
}

/// Waits until a session waits for a row.
pub(crate) async fn until_a_row_is_waited_for(server: &MariaDbServer) {
    let waits = "Innodb_row_lock_current_waits";
    eventually("a session waits for a row", || status(server, waits) == "1").await;
}

pub(crate) fn status(server: &MariaDbServer, name: &str) -> String {
    let row = server.sql(&format!("show global status like '{name}'")).concat();
    row.strip_prefix(&format!("{name}|")).expect("known to the server").to_owned()
}

const FIRST_ROW: &str = "select state from jobs where id = 1 for update";

/// The server breaks a deadlock while the rows are being locked (1213).
#[tokio::test]
async fn a_deadlock_on_the_rows_is_reported_and_nothing_is_done() {
    let server = server();
    let (mut one, mut stranger) =
        (sign_in(server.address()).await, stranger_at_the_second_row(&server).await);
    let both = RowLock::new("select state from jobs order by id", ());
    let both = both.with_wait(RowWait::AtMost(Duration::from_secs(60)));
    let closing = async {
        until_a_row_is_waited_for(&server).await;
        stranger.query_drop(FIRST_ROW).await.expect("it is not the one that is undone");
    };
    let (reply, ()) = tokio::join!(finish(&mut one, &both), closing);
    let kind = kind(reply);
    assert!(matches!(kind, ErrorKind::Unavailable { .. }), "{kind}");
    assert!(kind.to_string().contains("a deadlock") && kind.to_string().contains("1213"), "{kind}");
    assert_eq!(status(&server, "Innodb_deadlocks"), "1", "there was a deadlock");
    drop(stranger);
    finish(&mut one, &both).await.expect("the connection is good");
    assert_eq!(server.sql(ONE), ["done"]);
}

/// The same while the body runs: the whole transaction is undone. A body that takes no notice goes
/// on outside of any, which is found out before the commit.
#[tokio::test]
async fn a_deadlock_in_the_body_undoes_it_and_is_not_reported_as_done() {
    for takes_notice in [true, false] {
        let server = server();
        let (mut one, mut stranger) =
            (sign_in(server.address()).await, stranger_at_the_second_row(&server).await);
        let row = RowLock::new(ONE, ());
        let reply = row_lock(&mut one, &row, &MachineClock, async |work, _| {
            work.query_drop("update jobs set state = 'half' where id = 1").await?;
            // The stranger gets the row when the server has undone this transaction.
            let waits = tokio::spawn(async move {
                stranger.query_drop(FIRST_ROW).await.expect("it is not the one that is undone");
                stranger.query_drop("rollback").await
            });
            until_a_row_is_waited_for(&server).await;
            let undone = work.query_drop("update jobs set state = 'half' where id = 2").await;
            assert!(matches!(&undone, Err(Error::Server(words)) if words.code == 1213));
            waits.await.expect("no panic")?;
            if takes_notice {
                return undone;
            }
            work.query_drop("insert into jobs values (3, 'after')").await
        });
        let error = reply.await.expect_err("undone");
        assert_eq!(status(&server, "Innodb_deadlocks"), "1", "there was a deadlock");
        let left = server.sql("select id, state from jobs order by id");
        if takes_notice {
            assert!(matches!(&error, RowLockError::Body(Error::Server(w)) if w.code == 1213));
            assert_eq!(left, ["1|new", "2|new"]);
        } else {
            assert!(matches!(error, RowLockError::Unknown(_)), "{error}");
            assert!(error.to_string().contains("took no notice"), "{error}");
            assert_eq!(left, ["1|new", "2|new", "3|after"], "what came after the deadlock stands");
        }
    }
}

/// A statement of the body waits for another row for too long (1205): the server undoes that
/// statement, and the whole transaction only if it is set so.
#[tokio::test]
async fn a_lock_timeout_in_the_body_is_left_to_the_body() {
    let server = server();
    let (mut one, _stranger) =
        (sign_in(server.address()).await, stranger_at_the_second_row(&server).await);
    one.query_drop("set session innodb_lock_wait_timeout = 1").await.expect("set");
    let row = RowLock::new(ONE, ());
    for takes_notice in [true, false] {
        let reply = row_lock(&mut one, &row, &MachineClock, async |work, _| {
            work.query_drop("update jobs set state = 'done' where id = 1").await?;
            let waited = work.query_drop("update jobs set state = 'done' where id = 2").await;
            assert!(matches!(&waited, Err(Error::Server(words)) if words.code == 1205));
            if takes_notice { waited } else { Ok(()) }
        });
        let reply = reply.await;
        if takes_notice {
            assert!(matches!(&reply, Err(RowLockError::Body(Error::Server(w))) if w.code == 1205));
            assert_eq!(server.sql(ONE), ["new"]);
        } else {
            reply.expect("all but the statement that failed is committed");
        }
    }
    assert_eq!(server.sql("select id, state from jobs order by id"), ["1|done", "2|new"]);
}

/// The same where a wait that is too long undoes the whole transaction.
#[tokio::test]
async fn a_timeout_that_undid_the_transaction_is_not_reported_as_done() {
    let config = MariaDbConfig::default().with_line("innodb-rollback-on-timeout=ON");
    let server = with_jobs(config);
    let (mut one, _stranger) =
        (sign_in(server.address()).await, stranger_at_the_second_row(&server).await);
    one.query_drop("set session innodb_lock_wait_timeout = 1").await.expect("set");
    let row = RowLock::new(ONE, ());
    let reply = row_lock(&mut one, &row, &MachineClock, async |work, _| {
        work.query_drop("update jobs set state = 'half' where id = 1").await?;
        let waited = work.query_drop("update jobs set state = 'half' where id = 2").await;
        assert!(matches!(&waited, Err(Error::Server(words)) if words.code == 1205));
        Ok::<_, Error>(())
    });
    let error = reply.await.expect_err("found out");
    assert!(matches!(error, RowLockError::Unknown(_)), "{error}");
    assert_eq!(server.sql(ONE), ["new"]);
}

#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_unknown() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let mut behind = sign_in(proxy.address()).await;
    let rows = RowLock::new(ONE, ());
    let reply = row_lock(&mut behind, &rows, &MachineClock, async |work, _| {
        let done = work.query_drop("update jobs set state = 'done' where id = 1").await;
        // The answer to the savepoint passes, that to the commit does not.
        proxy.inject(Frames::replies().after(1), Fault::SwallowThenReset);
        done
    });
    let error = reply.await.expect_err("no answer");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    assert_eq!(server.sql(ONE), ["done"], "it was committed all the same");
}
