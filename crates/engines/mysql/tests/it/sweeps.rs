//! Rows of unused names are removed, also if each process takes one lock and ends.

use holdline_core::AcquireRequest;
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::support::{engine, eventually, let_go, request, take};

/// More than one sweep looks at.
const ROWS: usize = 300;
/// In so many runs two sweeps are as good as certain: each run makes one with a chance of 1 in 128.
const RUNS: usize = 4_000;

/// Whether only the connections of one client are left: one for commands, and one for wake-ups.
const SESSIONS: &str =
    "select count(*) <= 2 from information_schema.processlist where user = 'holdline'";

fn unused(server: &MariaDbServer) -> String {
    server.sql("select count(*) from holdline_heads where name like 'old/%'").concat()
}

#[tokio::test]
async fn clients_that_take_one_lock_each_remove_the_rows_of_others() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let first = engine(&server).await;
    for number in 0..ROWS {
        let asked = request(&format!("old/{number}"));
        take(&first, &asked).await;
        let_go(&first, &asked).await;
    }
    assert_eq!(unused(&server), ROWS.to_string());
    server.sql("update holdline_heads set used = 1");
    for _ in 0..RUNS / 50 {
        for _ in 0..50 {
            let short = engine(&server).await;
            // A connection for wake-ups would sleep in the server for seconds after its end.
            let asked = AcquireRequest { queue: false, ..request("short") };
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
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    take(&engine, &request("made")).await;
    server.sql(
        "insert into holdline_heads (name, used) \
         select concat('front/', seq), 4000000000000000 from seq_1_to_300; \
         insert into holdline_heads (name, used, fence) \
         select concat('old/', seq), 1, 7000 from seq_1_to_50",
    );
    for _ in 0..5 {
        server.sql("call holdline_sweep_11(100)");
    }
    assert_eq!(unused(&server), "0");
    assert_eq!(server.sql("select count(*) from holdline_heads"), ["301"]);
    // Their tokens stay used.
    let next = request("old/1");
    assert!(take(&engine, &next).await.get() > 7_000);
    let_go(&engine, &next).await;
}
