//! The fence of MariaDB: what it accepts, who waits for whom, and what a failure leaves.

use std::num::NonZeroU64;
use std::sync::Arc;

use holdline_fence::{
    Certainty, FenceError, FencingToken, LockName, MysqlFence, Proof, Refusal, Refusals, Rules,
};
use holdline_services::{MariaDbConfig, MariaDbServer};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Transaction, TxOpts};
use parking_lot::Mutex;

use crate::sql_fences::{
    marks_only_grow, other_names_are_refused, refused_is_unwritten, rollbacks_keep_the_mark,
};
use crate::support::{
    mariadb, mariadb_with, mysql_client as client, proof, soon, token, until, word_of,
};
use crate::writers::{Way, in_tasks};

fn apples(server: &MariaDbServer) -> String {
    server.sql("SELECT apples FROM stock WHERE id = 17").concat()
}

async fn put(step: &mut impl Queryable, apples: i32) -> Result<(), Error> {
    step.exec_drop("UPDATE stock SET apples = ? WHERE id = 17", (apples,)).await
}

async fn begin(db: &mut Conn) -> Transaction<'_> {
    db.start_transaction(TxOpts::default()).await.expect("begun")
}

#[tokio::test]
async fn a_mark_is_raised_by_seals_and_writes_and_never_falls() {
    marks_only_grow!(MysqlFence, mariadb(), client, &mut);
}

#[tokio::test]
async fn what_is_refused_was_not_written() {
    refused_is_unwritten!(MysqlFence, mariadb(), client, &mut);
}

#[tokio::test]
async fn a_rollback_leaves_the_old_mark() {
    rollbacks_keep_the_mark!(MysqlFence, mariadb(), client, &mut);
}

/// Waits until somebody waits for a lock of another transaction.
async fn somebody_waits(server: &MariaDbServer) {
    until("somebody waits for a lock", || {
        let waits = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'";
        server.sql(waits).concat().ends_with("|1")
    })
    .await;
}

/// A writer that has waited for another transaction compares itself with the mark which that one
/// committed, not with the one before; alone, and in a transaction of each level.
#[tokio::test]
async fn a_concurrent_writer_waits_and_is_compared_with_the_committed_mark() {
    let server = mariadb();
    let mut cases = Vec::new();
    for level in ["alone", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for first_mark in [None, Some(30)] {
            cases.push((level, first_mark, "commit", "stale 33 34", 34));
            cases.push((level, first_mark, "rollback", "yes", 33));
        }
    }
    for (level, first_mark, ends, says, mark) in cases {
        let case = format!("{level}, {first_mark:?} and a {ends}");
        server.sql("DELETE FROM holdline_fence");
        let (mut newer, mut late) = (client(&server.url()).await, client(&server.url()).await);
        let fence = MysqlFence::new("stock/17");
        if let Some(first) = first_mark {
            fence.seal(&mut newer, &proof(first)).await.expect("the first");
        }
        let mut step = begin(&mut newer).await;
        fence.seal(&mut step, &proof(34)).await.expect("newer");
        // Another resource waits for nobody.
        MysqlFence::new("stock/18").seal(&mut late, &proof(1)).await.expect("apart");
        let waiting = tokio::spawn({
            let fence = fence.clone();
            async move {
                if level == "alone" {
                    return (fence.seal(&mut late, &proof(33)).await, late);
                }
                let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
                late.query_drop(set).await.expect("set");
                let mut step = begin(&mut late).await;
                let answer = fence.seal(&mut step, &proof(33)).await;
                match answer {
                    Ok(()) => step.commit().await.expect("committed"),
                    Err(_) => step.rollback().await.expect("rolled back"),
                }
                (answer, late)
            }
        });
        somebody_waits(&server).await;
        match ends {
            "commit" => step.commit().await.expect("committed"),
            _ => step.rollback().await.expect("rolled back"),
        }
        let (answer, mut late) = soon("an answer", waiting).await.expect("no panic");
        assert_eq!(word_of(&answer), says, "{case}");
        assert_eq!(fence.mark(&mut late).await.expect("readable"), Some(token(mark)), "{case}");
    }
}

/// The seal is the first statement, and fixes nothing of what is read after it: else what the other
/// has written would be overwritten from an old snapshot.
#[tokio::test]
async fn a_writer_that_has_waited_reads_the_others_write() {
    let server = mariadb();
    let (mut older, mut newer) = (client(&server.url()).await, client(&server.url()).await);
    let fence = MysqlFence::new("stock/17");
    let mut step = begin(&mut older).await;
    fence.seal(&mut step, &proof(33)).await.expect("the first");
    put(&mut step, 9).await.expect("written");
    let waiting = tokio::spawn(async move {
        let fence = MysqlFence::new("stock/17");
        fence
            .check_and_write(&mut newer, &proof(34), async |step| {
                let read = "SELECT apples FROM stock WHERE id = 17";
                let found: Option<i32> = step.query_first(read).await?;
                put(step, found.expect("one row") - 1).await
            })
            .await
    });
    somebody_waits(&server).await;
    step.commit().await.expect("committed");
    soon("an answer", waiting).await.expect("no panic").expect("newer");
    assert_eq!(apples(&server), "8");
}

/// A transaction that has read before is judged by the newest mark all the same; a server that
/// guards snapshots refuses it.
#[tokio::test]
async fn an_old_snapshot_admits_nobody() {
    let server = mariadb();
    let (mut db, mut newer) = (client(&server.url()).await, client(&server.url()).await);
    let fence = MysqlFence::new("stock/17");
    for (guarded, mine, says) in
        [("OFF", 33, "stale 33 34"), ("OFF", 35, "yes"), ("ON", 33, "busy"), ("ON", 35, "busy")]
    {
        server.sql("DELETE FROM holdline_fence");
        fence.seal(&mut newer, &proof(30)).await.expect("the first");
        db.query_drop(format!("SET SESSION innodb_snapshot_isolation = {guarded}"))
            .await
            .expect("set");
        let mut step = begin(&mut db).await;
        fence.check(&mut step, &proof(35)).await.expect("its snapshot is taken here");
        fence.seal(&mut newer, &proof(34)).await.expect("newer");
        let answer = fence.seal(&mut step, &proof(mine)).await;
        assert_eq!(word_of(&answer), says, "{guarded}, {mine}: {answer:?}");
        step.rollback().await.expect("rolled back");
        assert_eq!(fence.mark(&mut db).await.expect("readable"), Some(token(34)));
    }
}

#[tokio::test]
async fn writers_at_once_store_in_the_order_of_their_tokens() {
    let server = mariadb();
    server.sql("CREATE TABLE log(place BIGINT AUTO_INCREMENT PRIMARY KEY, number BIGINT)");
    let (fence, insert) = (MysqlFence::new("log"), "INSERT INTO log(number) VALUES (?)");
    let write = async |db: &mut Conn, number: u64, way: Way| match way {
        Way::Write => {
            let write = async |step: &mut Transaction<'_>| step.exec_drop(insert, (number,)).await;
            fence.check_and_write(db, &proof(number), write).await
        }
        Way::Seal => {
            let mut step = begin(db).await;
            let sealed = fence.seal(&mut step, &proof(number)).await;
            if sealed.is_ok() {
                step.exec_drop(insert, (number,)).await.expect("written");
                step.commit().await.expect("committed");
            } else {
                step.rollback().await.expect("rolled back");
            }
            sealed
        }
    };
    let stored = || server.sql("SELECT number FROM log ORDER BY place");
    in_tasks(async || client(&server.url()).await, write, stored).await;
}

/// Whatever the session's character set makes of text.
#[tokio::test]
async fn names_are_apart_byte_by_byte() {
    let server = mariadb();
    let mut db = client(&server.url()).await;
    let names = ["stock", "Stock", "stock ", "stock\0", "stöck", "sto\u{308}ck", "日", "本", ""];
    for session in ["SET NAMES utf8mb4", "SET collation_connection = latin1_swedish_ci"] {
        server.sql("DELETE FROM holdline_fence");
        db.query_drop(session).await.expect("set");
        for (mark, name) in (34..).zip(names) {
            let fence = MysqlFence::new(name);
            assert_eq!(fence.mark(&mut db).await.expect("readable"), None, "{session}: {name:?}");
            fence.seal(&mut db, &proof(mark)).await.expect("the first there");
        }
        for (mark, name) in (34..).zip(names) {
            let fence = MysqlFence::new(name);
            let late = word_of(&fence.seal(&mut db, &proof(mark - 1)).await);
            assert_eq!(late, format!("stale {} {mark}", mark - 1), "{session}: {name:?}");
        }
        // As they stand in anybody else's statement.
        let stored = "SELECT mark FROM holdline_fence WHERE resource = 'Stock'";
        assert_eq!(server.sql(stored), ["35"], "{session}");
    }

    // What reads like a statement is a name.
    let hostile = MysqlFence::new("'); DROP TABLE holdline_fence; -- ");
    hostile.seal(&mut db, &proof(34)).await.expect("the first there");
    assert_eq!(hostile.mark(&mut db).await.expect("readable"), Some(token(34)));

    let longest = MysqlFence::new("x".repeat(255));
    longest.seal(&mut db, &proof(34)).await.expect("there is room");
    db.query_drop("SET SESSION sql_mode = ''").await.expect("set");
    let too_long = MysqlFence::new("x".repeat(256));
    let error = too_long.seal(&mut db, &proof(35)).await.expect_err("cut off it would be another");
    assert!(error.to_string().contains("MODIFY resource VARBINARY(256)"), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    assert_eq!(longest.mark(&mut db).await.expect("readable"), Some(token(34)));
}

#[tokio::test]
async fn tokens_of_another_name_are_refused() {
    let server = mariadb();
    let mut db = client(&server.url()).await;
    other_names_are_refused!(MysqlFence::new("stock/17"), db, &mut);
}

#[tokio::test]
async fn each_refusal_is_counted_and_reported_once() {
    let server = mariadb();
    let mut db = client(&server.url()).await;
    let notes = Arc::new(Mutex::new(Vec::new()));
    let written = notes.clone();
    let rules = Rules::default().with_observer(move |refusal: &Refusal<'_>| {
        written.lock().push(format!("{}: {}", refusal.resource, refusal.error));
    });
    let fence = MysqlFence::new("stock/17").with_rules(rules);
    fence.seal(&mut db, &proof(34)).await.expect("the first");
    let before = Refusals::of_this_process();
    assert!(fence.check(&mut db, &proof(31)).await.is_err());
    assert!(fence.seal(&mut db, &proof(32)).await.is_err());
    let write = async |step: &mut Transaction<'_>| put(step, 9).await;
    assert!(fence.check_and_write(&mut db, &proof(33), write).await.is_err());
    let says =
        |mine| format!("stock/17: fencing token {mine} is stale: the resource has accepted 34");
    assert_eq!(*notes.lock(), [says(31), says(32), says(33)]);
    // Other tests of this process count too.
    assert!(Refusals::of_this_process().stale >= before.stale + 3);
}

/// The server undoes a whole transaction to break a deadlock; a write that takes no notice is
/// found out before the commit.
#[tokio::test]
async fn a_transaction_that_the_server_ended_is_not_reported_as_done() {
    let server = mariadb();
    let mut db = client(&server.url()).await;
    let fence = MysqlFence::new("stock/17");
    let answer = fence
        .check_and_write(&mut db, &proof(34), async |step| {
            put(step, 9).await?;
            // As the server does it in a deadlock.
            step.query_drop("ROLLBACK").await
        })
        .await;
    assert_eq!(word_of(&answer), "failed Unknown", "{answer:?}");
    let error = answer.expect_err("found out").to_string();
    assert!(error.contains("let the write fail when a statement does"), "{error}");
    assert_eq!(fence.mark(&mut db).await.expect("readable"), None);
    assert_eq!(apples(&server), "10");
}

#[tokio::test]
async fn a_deadlock_is_busy_for_one_and_changes_nothing_there() {
    let server = mariadb();
    let (mut one, mut other) = (client(&server.url()).await, client(&server.url()).await);
    let (a, b) = (MysqlFence::new("a"), MysqlFence::new("b"));
    for fence in [&a, &b] {
        fence.seal(&mut one, &proof(30)).await.expect("the first");
    }
    let (mut first, mut second) = (begin(&mut one).await, begin(&mut other).await);
    a.seal(&mut first, &proof(34)).await.expect("newer");
    b.seal(&mut second, &proof(34)).await.expect("newer");
    let (p, q) = (proof(34), proof(34));
    let both = async { tokio::join!(b.seal(&mut first, &p), a.seal(&mut second, &q)) };
    let (to_first, to_second) = soon("the server sees the deadlock", both).await;
    let mut says = [word_of(&to_first), word_of(&to_second)];
    says.sort();
    assert_eq!(says, ["busy", "yes"]);
    for (step, answer) in [(first, to_first), (second, to_second)] {
        match answer {
            Ok(()) => step.commit().await.expect("committed"),
            Err(_) => step.rollback().await.expect("rolled back"),
        }
    }
    for fence in [&a, &b] {
        assert_eq!(fence.mark(&mut one).await.expect("readable"), Some(token(34)));
    }
}

/// A wait that ends by its limit while another is at work is `Busy`: nothing was changed.
#[tokio::test]
async fn a_wait_that_ends_by_its_limit_is_busy() {
    let server = mariadb();
    let (mut newer, mut late) = (client(&server.url()).await, client(&server.url()).await);
    let fence = MysqlFence::new("stock/17");
    late.query_drop("SET SESSION innodb_lock_wait_timeout = 1").await.expect("set");
    let mut step = begin(&mut newer).await;
    fence.seal(&mut step, &proof(34)).await.expect("the first");
    let answer = soon("the limit", fence.seal(&mut late, &proof(35))).await;
    assert_eq!(word_of(&answer), "busy", "{answer:?}");
    step.rollback().await.expect("rolled back");
    assert_eq!(fence.mark(&mut late).await.expect("readable"), None);
}

/// A mark is as durable as any other row: a server that crashes after it has answered has it.
#[tokio::test]
async fn a_mark_outlives_a_crash_of_the_server() {
    let server = mariadb_with(MariaDbConfig::default().with_fsync());
    let fence = MysqlFence::new("stock/17");
    let mut db = client(&server.url()).await;
    for (newest, late) in [(34, 33), (40, 39)] {
        let wrote =
            fence.check_and_write(&mut db, &proof(newest), async |step| put(step, 9).await).await;
        assert_eq!(word_of(&wrote), "yes");
        // One that was under way when the server crashed has raised nothing.
        let mut begun = begin(&mut db).await;
        fence.seal(&mut begun, &proof(newest + 5)).await.expect("newer");
        server.kill();
        server.restart();
        drop(begun);
        db = client(&server.url()).await;
        assert_eq!(fence.mark(&mut db).await.expect("readable"), Some(token(newest)));
        let stale = format!("stale {late} {newest}");
        assert_eq!(word_of(&fence.seal(&mut db, &proof(late)).await), stale);
        let write = async |step: &mut Transaction<'_>| put(step, 1).await;
        assert_eq!(word_of(&fence.check_and_write(&mut db, &proof(late), write).await), stale);
        assert_eq!(apples(&server), "9");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_in_doubt_only_where_it_may_have_come_through() {
    let server = mariadb();
    let mut db = client(&server.url()).await;
    let fence = MysqlFence::new("stock/17");
    let end = |id: u32| drop(server.sql(&format!("KILL {id}")));

    let answer = fence
        .check_and_write(&mut db, &proof(34), async |step| {
            put(step, 9).await?;
            end(step.id());
            Ok::<_, Error>(())
        })
        .await;
    let error = answer.expect_err("the connection is gone");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    assert_eq!(apples(&server), "10");

    let mut db = client(&server.url()).await;
    fence.mark(&mut db).await.expect("a look is prepared");
    end(db.id());
    let error = fence.check(&mut db, &proof(34)).await.expect_err("gone");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
}

/// What is not as we make it is refused before anything is changed, and the error says what mends
/// it: each of these mended tables is taken.
#[tokio::test]
async fn a_foreign_table_is_an_error_and_left_unchanged() {
    let server = mariadb();
    let mut db = client(&server.url()).await;
    let fence = MysqlFence::new("a");
    server.sql("DROP TABLE holdline_fence");
    let error = fence.seal(&mut db, &proof(34)).await.expect_err("no table");
    assert!(error.to_string().contains("create_table"), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied);

    let resource = "MODIFY resource VARBINARY(255) NOT NULL";
    for (table, mends) in [
        ("(resource VARCHAR(255) PRIMARY KEY, mark BIGINT NOT NULL)", resource),
        (
            "(resource VARCHAR(255) COLLATE utf8mb4_bin PRIMARY KEY, mark BIGINT) \
             CHARSET utf8mb4",
            resource,
        ),
        ("(resource BINARY(20) PRIMARY KEY, mark BIGINT)", resource),
        ("(resource VARBINARY(255) PRIMARY KEY, mark INT)", "MODIFY mark BIGINT NOT NULL"),
        (
            "(resource VARBINARY(255) PRIMARY KEY, mark BIGINT UNSIGNED)",
            "MODIFY mark BIGINT NOT NULL",
        ),
        ("(resource VARBINARY(255), mark BIGINT)", "ADD PRIMARY KEY (resource)"),
    ] {
        server.sql(&format!("CREATE TABLE holdline_fence{table}"));
        let mut db = client(&server.url()).await;
        for error in [
            fence.seal(&mut db, &proof(34)).await.expect_err("not ours"),
            fence.mark(&mut db).await.expect_err("not ours"),
            MysqlFence::create_table(&mut db).await.expect_err("not ours"),
        ] {
            assert!(matches!(error, FenceError::Foreign { .. }), "{table}: {error}");
            assert!(error.to_string().contains(mends), "{table}: {error}");
        }
        assert_eq!(server.sql("SELECT count(*) FROM holdline_fence"), ["0"]);
        server.sql(&format!("ALTER TABLE holdline_fence {mends}"));
        fence.seal(&mut db, &proof(34)).await.unwrap_or_else(|why| panic!("{table}: {why}"));
        server.sql("DROP TABLE holdline_fence");
    }

    for table in [
        "TABLE holdline_fence(other TEXT)",
        "TABLE holdline_fence(resource VARBINARY(9), mark BIGINT, PRIMARY KEY (resource, mark))",
        "TABLE holdline_fence(resource VARBINARY(9) PRIMARY KEY, mark BIGINT UNIQUE)",
        "TABLE holdline_fence(resource VARBINARY(9) PRIMARY KEY, mark BIGINT, more INT NOT NULL)",
        "TABLE holdline_fence(resource VARBINARY(9) PRIMARY KEY, mark BIGINT CHECK (mark < 9))",
    ] {
        server.sql(&format!("CREATE {table}"));
        let mut db = client(&server.url()).await;
        let answer = fence.seal(&mut db, &proof(34)).await;
        assert_eq!(word_of(&answer), "foreign", "{table}: {answer:?}");
        assert_eq!(server.sql("SELECT count(*) FROM holdline_fence"), ["0"]);
        server.sql("DROP TABLE holdline_fence");
    }
}

/// A connection that knew the table before it became another refuses it too, and from the second
/// time on before anything is changed.
#[tokio::test]
async fn a_table_that_was_replaced_under_a_connection_is_refused() {
    let server = mariadb();
    let mut db = client(&server.url()).await;
    let fence = MysqlFence::new("a");
    fence.seal(&mut db, &proof(34)).await.expect("the first");
    server.sql(
        "DROP TABLE holdline_fence; \
         CREATE TABLE holdline_fence(resource VARCHAR(255) PRIMARY KEY, mark BIGINT)",
    );
    let mut step = begin(&mut db).await;
    assert_eq!(word_of(&fence.seal(&mut step, &proof(35)).await), "foreign");
    step.rollback().await.expect("rolled back");
    assert_eq!(word_of(&fence.seal(&mut db, &proof(35)).await), "foreign");
    assert_eq!(server.sql("SELECT count(*) FROM holdline_fence"), ["0"]);
}

/// Without transactions a mark is locked for nobody.
#[tokio::test]
async fn a_table_without_transactions_is_an_error_with_the_fix() {
    let server = mariadb();
    let mut db = client(&server.url()).await;
    let fence = MysqlFence::new("stock/17");
    for (engine, sql_mode) in [("MyISAM", ""), ("Aria", "ORACLE"), ("MEMORY", "ANSI_QUOTES")] {
        server.sql(&format!("ALTER TABLE holdline_fence ENGINE = {engine}"));
        db.query_drop(format!("SET SESSION sql_mode = '{sql_mode}'")).await.expect("set");
        let write = async |step: &mut Transaction<'_>| put(step, 9).await;
        for error in [
            fence.seal(&mut db, &proof(34)).await.expect_err("not fit"),
            fence.check_and_write(&mut db, &proof(34), write).await.expect_err("not fit"),
            MysqlFence::create_table(&mut db).await.expect_err("not fit"),
        ] {
            assert!(matches!(error, FenceError::Foreign { .. }), "{error}");
            let says = error.to_string();
            assert!(says.contains(engine) && says.contains("ENGINE = InnoDB"), "{says}");
        }
        assert_eq!(apples(&server), "10");
    }
    server.sql("ALTER TABLE holdline_fence ENGINE = InnoDB");
    fence.seal(&mut db, &proof(34)).await.expect("mended");
    server.sql(
        "RENAME TABLE holdline_fence TO elsewhere; \
         CREATE VIEW holdline_fence AS SELECT * FROM elsewhere",
    );
    let answer = fence.seal(&mut db, &proof(35)).await;
    assert_eq!(word_of(&answer), "foreign", "{answer:?}");
}

#[tokio::test]
async fn a_value_that_is_no_token_is_an_error_and_left_unchanged() {
    let server = mariadb();
    let mut db = client(&server.url()).await;
    let fence = MysqlFence::new("a");
    for (value, says) in [
        ("0", "is 0,"),
        ("-5", "is -5,"),
        ("NULL", "is NULL,"),
        ("9007199254740992", "is 9007199254740992,"),
    ] {
        server.sql(&format!(
            "DROP TABLE holdline_fence; \
             CREATE TABLE holdline_fence(resource VARBINARY(255) PRIMARY KEY, mark BIGINT); \
             INSERT INTO holdline_fence VALUES ('a', {value})"
        ));
        let error = fence.seal(&mut db, &proof(34)).await.expect_err("no token");
        assert!(matches!(error, FenceError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        let kept = format!("SELECT count(*) FROM holdline_fence WHERE mark <=> {value}");
        assert_eq!(server.sql(&kept), ["1"], "{value} was left as it is");
    }
}

#[tokio::test]
async fn the_table_is_made_once_by_many_and_used_with_few_rights() {
    let server = mariadb();
    server.sql("DROP TABLE holdline_fence");
    let mut makers = Vec::new();
    for _ in 0..8 {
        let mut db = client(&server.url()).await;
        makers.push(tokio::spawn(async move { MysqlFence::create_table(&mut db).await }));
    }
    for maker in makers {
        soon("a table", maker).await.expect("no panic").expect("made, by whomever");
    }
    let fence = MysqlFence::new("stock/17");
    fence.seal(&mut client(&server.url()).await, &proof(30)).await.expect("the first");
    MysqlFence::create_table(&mut client(&server.url()).await).await.expect("it stands");

    server.sql(
        "CREATE USER writer@'%' IDENTIFIED BY 'secret'; GRANT SELECT ON locks.stock TO writer@'%'",
    );
    let mut db = client(&server.url_of("writer:secret", "locks")).await;
    let error = fence.seal(&mut db, &proof(34)).await.expect_err("no right");
    assert!(error.to_string().contains("grant SELECT, INSERT and UPDATE"), "{error}");
    server.sql("GRANT SELECT, INSERT, UPDATE ON locks.holdline_fence TO writer@'%'");
    fence.seal(&mut db, &proof(34)).await.expect("that is all it takes");
    assert_eq!(word_of(&fence.seal(&mut db, &proof(33)).await), "stale 33 34");
    assert_eq!(fence.mark(&mut db).await.expect("readable"), Some(token(34)));
    server.sql("ALTER TABLE holdline_fence ENGINE = MyISAM");
    let answer = fence.seal(&mut db, &proof(35)).await;
    assert_eq!(word_of(&answer), "foreign", "seen with few rights too: {answer:?}");
}

/// What the server says arrives: its words and the code, and what to do about it.
#[tokio::test]
async fn an_error_of_the_server_keeps_its_message() {
    let server = mariadb();
    server.sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON holdline_fence FOR EACH ROW \
         SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not today'",
    );
    let mut db = client(&server.url()).await;
    let fence = MysqlFence::new("stock/17");
    let error = fence.seal(&mut db, &proof(34)).await.expect_err("refused");
    assert_eq!(error.to_string(), "raising the mark: not today (1644)");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    server.sql("DROP TRIGGER refuse; SET GLOBAL read_only = ON");
    let error = fence.seal(&mut db, &proof(34)).await.expect_err("refused");
    assert!(error.to_string().contains("name the primary"), "{error}");
    server.sql("SET GLOBAL read_only = OFF");
    fence.seal(&mut db, &proof(34)).await.expect("the first");
}
