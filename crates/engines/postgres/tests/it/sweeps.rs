//! Rows of unused names are removed, also if each process takes one lock and ends.

use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{engine, eventually, let_go, request, take};

/// More than one sweep looks at.
const ROWS: usize = 300;
/// In so many runs two sweeps are as good as certain: each run makes one with a chance of 1 in 128.
const RUNS: usize = 4_000;

const SESSIONS: &str = "select count(*) from pg_stat_activity where application_name = 'holdline'";

fn unused(server: &PostgresServer) -> String {
    server.sql("select count(*) from holdline.names where name like 'old/%'").concat()
}

#[tokio::test]
async fn clients_that_take_one_lock_each_remove_the_rows_of_others() {
    let server = PostgresServer::start(PostgresConfig::default());
    let first = engine(&server).await;
    for number in 0..ROWS {
        let asked = request(&format!("old/{number}"));
        take(&first, &asked).await;
        let_go(&first, &asked).await;
    }
    assert_eq!(unused(&server), ROWS.to_string());
    server.sql("update holdline.names set used = 1");
    for _ in 0..RUNS / 50 {
        for _ in 0..50 {
            let short = engine(&server).await;
            let asked = request("short");
            take(&short, &asked).await;
            let_go(&short, &asked).await;
        }
        // A server that is slow to end connections would refuse more of them.
        eventually("their connections end", || server.sql(SESSIONS) == ["1"]).await;
        if unused(&server) == "0" {
            return;
        }
    }
    panic!("{} rows are left after {RUNS} runs", unused(&server));
}

/// Otherwise rows in use at the front would hide all others from processes that sweep once.
#[tokio::test]
async fn a_sweep_continues_where_that_of_another_client_ended() {
    let server = PostgresServer::start(PostgresConfig::default());
    take(&engine(&server).await, &request("made")).await;
    server.sql(
        "insert into holdline.names (name, used) \
         select convert_to('front/' || n, 'UTF8'), 4000000000000000 \
         from generate_series(1, 300) n; \
         insert into holdline.names (name, used) \
         select convert_to('old/' || n, 'UTF8'), 1 from generate_series(1, 50) n",
    );
    for _ in 0..5 {
        server.sql("select holdline.sweep_1(null, 100)");
    }
    assert_eq!(unused(&server), "0");
    assert_eq!(server.sql("select count(*) from holdline.names where used > 1"), ["301"]);
}

/// A sweep that always failed at such a row would never come to the next one.
#[tokio::test]
async fn a_sweep_passes_over_a_row_that_another_session_has_locked() {
    let server = PostgresServer::start(PostgresConfig::default());
    take(&engine(&server).await, &request("made")).await;
    server.sql(
        "insert into holdline.names (name, used, freeze_until) values ('locked', 1, 1); \
         insert into holdline.names (name, used) values ('old/1', 1)",
    );
    let mut other = crate::support::sign_in(server.address(), "postgres").await;
    let held = other.transaction().await.expect("begun");
    held.query("select from holdline.names where name = 'locked' for update", &[])
        .await
        .expect("locked");
    server.sql("set lock_timeout = '1min'; select holdline.sweep_1(null, 100)");
    assert_eq!(unused(&server), "0");
    assert_eq!(server.sql("select count(*) from holdline.names where name = 'locked'"), ["1"]);
    held.rollback().await.expect("ended");
    server.sql("select holdline.sweep_1(null, 100) from generate_series(1, 2)");
    // It was settled by the first, so it was in use until now.
    server.sql("update holdline.names set used = 1 where name = 'locked'");
    server.sql("select holdline.sweep_1(null, 100) from generate_series(1, 2)");
    assert_eq!(server.sql("select count(*) from holdline.names where name = 'locked'"), ["0"]);
}
