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

fn is_unavailable(told: Result<(), RowLockError<Error>>) {
    let kind = kind(told);
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
    let patient = RowLock::new(ONE, ()).with_wait(RowWait::AtMost(Duration::from_secs(60)));
    let at_once = RowLock::new(ONE, ());
    let held = row_lock(&mut one, &at_once, &MachineClock, async |_, _| {
        let killed = async {
            until_a_row_is_waited_for(&server).await;
            server.kill();
        };
        let (told, ()) = tokio::join!(finish(&mut other, &patient), killed);
        is_unavailable(told);
        Ok::<_, Error>(())
    });
    is_unavailable(held.await);
    is_unavailable(finish(&mut one, &patient).await);
    server.restart();
    is_untouched(&server).await;
}

/// Who lost the connection cannot commit any more, also if the body takes no notice.
#[tokio::test]
async fn a_connection_or_a_server_that_is_lost_in_the_body_undoes_it() {
    let server = with_jobs(MariaDbConfig::default().with_fsync());
    for (kills_server, takes_notice) in [(false, true), (false, false), (true, true), (true, false)]
    {
        let mut one = sign_in(server.address()).await;
        let number = one.id();
        let row = RowLock::new(ONE, ());
        let told = row_lock(&mut one, &row, &MachineClock, async |work, _| {
            work.query_drop(HALF).await?;
            match kills_server {
                true => server.kill(),
                false => drop(server.sql(&format!("kill {number}"))),
            }
            let lost = work.query_drop(HALF).await;
            assert!(lost.is_err());
            if takes_notice { lost } else { Ok(()) }
        });
        let told = told.await;
        match takes_notice {
            true => assert!(matches!(told, Err(RowLockError::Body(_))), "{told:?}"),
            false => is_unavailable(told),
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
    let told = row_lock(&mut one, &row, &MachineClock, async |work, _| {
        let done = work.query_drop(HALF).await;
        server.sql("set global read_only = 1");
        done
    });
    let kind = kind(told.await);
    assert!(matches!(kind, ErrorKind::Refused { .. }), "{kind}");
    assert!(kind.to_string().contains("refused to commit"), "{kind}");
    server.sql("set global read_only = 0");
    is_untouched(&server).await;
}

/// A commit that waits for a replica is in the log already: whoever ends the wait does not undo it.
#[tokio::test]
async fn a_commit_that_is_ended_while_it_waits_is_not_told_as_undone() {
    let server = with_jobs(MariaDbConfig::default().with_line("log-bin"));
    server.sql(
        "set global rpl_semi_sync_master_timeout = 600000; \
         set global rpl_semi_sync_master_enabled = 1",
    );
    for (kill, is_told) in [("kill query", true), ("kill", false)] {
        let mut one = sign_in(server.address()).await;
        let number = one.id();
        let row = RowLock::new(ONE, ()).with_answer_limit(Duration::from_secs(60));
        let write = format!("update jobs set state = '{kill}' where id = 1");
        let told =
            row_lock(&mut one, &row, &MachineClock, async |work, _| work.query_drop(&write).await);
        let waits = format!(
            "select count(*) from information_schema.processlist \
             where id = {number} and state like '%semi-sync%'"
        );
        let ended = async {
            eventually("it waits for a replica", || server.sql(&waits) == ["1"]).await;
            server.sql(&format!("{kill} {number}"));
        };
        let (told, ()) = tokio::join!(told, ended);
        match is_told {
            true => told.expect("done"),
            false => assert!(matches!(told, Err(RowLockError::Unknown(_))), "{told:?}"),
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
            begun.send(()).expect("somebody listens");
            std::future::pending::<()>().await;
            done
        });
        tokio::select! {
            told = body => panic!("{told:?}"),
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
