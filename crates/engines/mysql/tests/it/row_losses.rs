//! Locks on the user's own rows, and a server or a connection that is lost meanwhile.

use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::ErrorKind;
use holdline_mysql::mysql_async::Error;
use holdline_mysql::mysql_async::prelude::Queryable;
use holdline_mysql::{RowLock, RowLockError, RowWait, row_lock};
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::rows::{ONE, finish, kind, server, until_a_row_is_waited_for, with_jobs};
use crate::support::{eventually, sign_in};

const HALF: &str = "update jobs set state = 'half' where id = 1";

fn is_unavailable(reply: Result<(), RowLockError<Error>>) {
    let kind = kind(reply);
    assert!(matches!(kind, ErrorKind::Unavailable { .. }), "{kind}");
}

/// Nobody has the row any more, and nothing was done to it.
async fn is_untouched(server: &MariaDbServer) {
    let mut other = sign_in(server.address()).await;
    // The server may be undoing it still.
    let row = RowLock::new(ONE, ()).with_wait(RowWait::AtMost(Duration::from_secs(60)));
    row_lock(&mut other, &row, &MachineClock, async |_, found| {
        assert_eq!(found[0].get::<String, _>(0).as_deref(), Some("new"));
        Ok::<_, Error>(())
    })
    .await
    .expect("free");
}

#[tokio::test]
async fn a_server_that_stands_still_or_dies_before_the_body_is_unavailable() {
    let server = with_jobs(MariaDbConfig::default().with_fsync());
    let mut one = sign_in(server.address()).await;
    server.stop();
    let brief = RowLock::new(ONE, ()).with_answer_limit(Duration::from_millis(200));
    is_unavailable(finish(&mut one, &brief).await);
    drop(one);
    server.cont();
    is_untouched(&server).await;

    let (mut one, mut other) = (sign_in(server.address()).await, sign_in(server.address()).await);
    let waiting_renewals =
        RowLock::new(ONE, ()).with_wait(RowWait::AtMost(Duration::from_secs(60)));
    let at_once = RowLock::new(ONE, ());
    let held = row_lock(&mut one, &at_once, &MachineClock, async |_, _| {
        let killed = async {
            until_a_row_is_waited_for(&server).await;
            server.kill();
        };
        let (reply, ()) = tokio::join!(finish(&mut other, &waiting_renewals), killed);
        is_unavailable(reply);
        Ok::<_, Error>(())
    });
    is_unavailable(held.await);
    is_unavailable(finish(&mut one, &waiting_renewals).await);
    server.restart();
    is_untouched(&server).await;
}

/// A holder that lost its connection cannot commit, also if the body ignores the errors.
#[tokio::test]
async fn a_connection_or_a_server_that_is_lost_in_the_body_undoes_it() {
    let server = with_jobs(MariaDbConfig::default().with_fsync());
    for (kills_server, takes_notice) in [(false, true), (false, false), (true, true), (true, false)]
    {
        let mut one = sign_in(server.address()).await;
        let number = one.id();
        let row = RowLock::new(ONE, ());
        let reply = row_lock(&mut one, &row, &MachineClock, async |work, _| {
            work.query_drop(HALF).await?;
            match kills_server {
                true => server.kill(),
                false => drop(server.sql(&format!("kill {number}"))),
            }
            let lost = work.query_drop(HALF).await;
            assert!(lost.is_err());
            if takes_notice { lost } else { Ok(()) }
        });
        let reply = reply.await;
        match takes_notice {
            true => assert!(matches!(reply, Err(RowLockError::Body(_))), "{reply:?}"),
            false => is_unavailable(reply),
        }
        if kills_server {
            server.restart();
        }
        is_untouched(&server).await;
    }
}

#[tokio::test]
async fn a_commit_that_the_server_refuses_did_nothing() {
    let server = server();
    let mut one = sign_in(server.address()).await;
    let row = RowLock::new(ONE, ());
    let reply = row_lock(&mut one, &row, &MachineClock, async |work, _| {
        let done = work.query_drop(HALF).await;
        server.sql("set global read_only = 1");
        done
    });
    let kind = kind(reply.await);
    assert!(matches!(kind, ErrorKind::Refused { .. }), "{kind}");
    assert!(kind.to_string().contains("refused to commit"), "{kind}");
    server.sql("set global read_only = 0");
    is_untouched(&server).await;
}

/// A commit that waits for a replica is already in the log: killing the wait does not undo it.
#[tokio::test]
async fn a_commit_that_is_killed_while_it_waits_is_not_reported_as_undone() {
    let server = with_jobs(MariaDbConfig::default().with_line("log-bin"));
    server.sql(
        "set global rpl_semi_sync_master_timeout = 600000; \
         set global rpl_semi_sync_master_enabled = 1",
    );
    for (kill, succeeds) in [("kill query", true), ("kill", false)] {
        let mut one = sign_in(server.address()).await;
        let number = one.id();
        let row = RowLock::new(ONE, ()).with_answer_limit(Duration::from_secs(60));
        let write = format!("update jobs set state = '{kill}' where id = 1");
        let reply =
            row_lock(&mut one, &row, &MachineClock, async |work, _| work.query_drop(&write).await);
        let waits = format!(
            "select count(*) from information_schema.processlist \
             where id = {number} and state like '%semi-sync%'"
        );
        let ended = async {
            eventually("it waits for a replica", || server.sql(&waits) == ["1"]).await;
            server.sql(&format!("{kill} {number}"));
        };
        let (reply, ()) = tokio::join!(reply, ended);
        match succeeds {
            true => reply.expect("done"),
            false => assert!(matches!(reply, Err(RowLockError::Unknown(_))), "{reply:?}"),
        }
        eventually("it is committed", || server.sql(ONE) == [kill]).await;
    }
}

/// The rows stay locked until the connection is used again or dropped.
#[tokio::test]
async fn a_future_that_is_dropped_keeps_the_rows_as_long_as_its_connection() {
    let server = server();
    for uses_it_again in [true, false] {
        let mut one = sign_in(server.address()).await;
        let row = RowLock::new(ONE, ());
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let body = row_lock(&mut one, &row, &MachineClock, async |work, _| {
            let done = work.query_drop(HALF).await;
            begun.send(()).expect("a listener");
            std::future::pending::<()>().await;
            done
        });
        tokio::select! {
            reply = body => panic!("{reply:?}"),
            begun = has_begun => begun.expect("begun"),
        }
        let mut other = sign_in(server.address()).await;
        let busy = kind(finish(&mut other, &row).await);
        assert!(matches!(busy, ErrorKind::Busy { .. }), "{busy}");
        match uses_it_again {
            true => one.query_drop("do 1").await.expect("good again"),
            false => drop(one),
        }
        is_untouched(&server).await;
    }
}
