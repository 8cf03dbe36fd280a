//! Locks on the user's own rows, with somebody else at the same rows.

use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::{Certainty, ErrorKind};
use holdline_mysql::mysql_async::prelude::Queryable;
use holdline_mysql::mysql_async::{Conn, Error, OptsBuilder};
use holdline_mysql::{RowLock, RowLockError, RowWait, row_lock};
use holdline_services::{Fault, FaultProxy, Frames, MariaDbConfig, MariaDbServer};

fn server() -> MariaDbServer {
    let server = MariaDbServer::start(MariaDbConfig::default());
    server.sql(
        "create table jobs (id int primary key, state varchar(9) not null) engine = InnoDB; \
         insert into jobs values (1, 'new'), (2, 'new')",
    );
    server
}

async fn sign_in(address: std::net::SocketAddr) -> Conn {
    let options = OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some("holdline"))
        .pass(Some(MariaDbServer::PASSWORD))
        .db_name(Some("locks"))
        .prefer_socket(false);
    Conn::new(options).await.expect("let in")
}

const ONE: &str = "select state from jobs where id = 1";

async fn finish(connection: &mut Conn, rows: &RowLock<'_>) -> Result<(), RowLockError<Error>> {
    row_lock(connection, rows, &MachineClock, async |work, _| {
        work.query_drop("update jobs set state = 'done' where id = 1").await
    })
    .await
}

fn kind(told: Result<(), RowLockError<Error>>) -> ErrorKind {
    match told {
        Err(RowLockError::Failed(error)) => {
            assert_eq!(error.certainty(), Certainty::NotApplied);
            error.kind().clone()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn rows_that_others_have_are_told_as_that_and_nothing_is_done() {
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
            let told = format!("{:?}", kind(finish(&mut other, &rows).await));
            assert!(told.starts_with(expected), "{wait:?}: {told}");
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
async fn what_is_missing_wrong_or_fails_leaves_nothing() {
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

/// The server undoes a whole transaction to break a ring of waits; a body that takes no notice is
/// found out before the commit.
#[tokio::test]
async fn a_transaction_that_the_server_ended_is_not_told_as_done() {
    let server = server();
    let mut one = sign_in(server.address()).await;
    let rows = RowLock::new(ONE, ());
    let told = row_lock(&mut one, &rows, &MachineClock, async |work, _| {
        // As the server does it in a ring of waits.
        work.query_drop("rollback").await
    });
    let error = told.await.expect_err("found out");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    assert!(error.to_string().contains("took no notice"), "{error}");
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_unknown() {
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let mut behind = sign_in(proxy.address()).await;
    let rows = RowLock::new(ONE, ());
    let told = row_lock(&mut behind, &rows, &MachineClock, async |work, _| {
        let done = work.query_drop("update jobs set state = 'done' where id = 1").await;
        // The answer to the savepoint passes, that to the commit does not.
        proxy.inject(Frames::replies().after(1), Fault::SwallowThenReset);
        done
    });
    let error = told.await.expect_err("no answer");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    assert_eq!(server.sql(ONE), ["done"], "it was committed all the same");
}
