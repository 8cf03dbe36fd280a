//! The fence of PostgreSQL: what it accepts, who waits for whom, and what a failure leaves.

use std::num::NonZeroU64;

use holdline_fence::{Certainty, FenceError, FencingToken, LockName, PostgresFence, Proof, Rules};
use holdline_services::PostgresServer;
use tokio_postgres::{Client, Transaction};

use crate::sql_fences::{
    marks_only_grow, other_names_are_refused, refused_is_unwritten, rollbacks_keep_the_mark,
};
use crate::support::{LONG, client, database, proof, soon, token, until, word_of};
use crate::writers::{Way, in_tasks};

fn apples(server: &PostgresServer) -> String {
    server.sql("SELECT apples FROM stock WHERE id = 17").concat()
}

async fn put(step: &Transaction<'_>, apples: i32) -> Result<u64, tokio_postgres::Error> {
    step.execute("UPDATE stock SET apples = $1 WHERE id = 17", &[&apples]).await
}

async fn begin(db: &mut Client) -> Transaction<'_> {
    db.transaction().await.expect("begun")
}

#[tokio::test]
async fn a_mark_is_raised_by_seals_and_writes_and_never_falls() {
    marks_only_grow!(PostgresFence, database(), client, &);
}

#[tokio::test]
async fn what_is_refused_was_not_written() {
    refused_is_unwritten!(PostgresFence, database(), client, &);
}

#[tokio::test]
async fn a_rollback_leaves_no_mark() {
    rollbacks_keep_the_mark!(PostgresFence, database(), client, &);
}

#[tokio::test]
async fn inside_a_transaction_of_mine_a_write_that_gives_up_is_undone_alone() {
    let server = database();
    let mut db = client(&server.url()).await;
    let fence = PostgresFence::new("stock/17");
    let mut step = begin(&mut db).await;
    put(&step, 9).await.expect("written");
    let answer = fence
        .check_and_write(&mut step, &proof(34), async |inner| {
            put(inner, 8).await.map_err(|error| error.to_string())?;
            Err::<(), _>("no more apples".to_owned())
        })
        .await;
    assert_eq!(word_of(&answer), "write");
    step.commit().await.expect("what came before the call stands");
    assert_eq!(apples(&server), "9");
    assert_eq!(fence.mark(&db).await.expect("readable"), None);
}

/// `public` comes first in the search path, and has an operator or a function for each of ours.
#[tokio::test]
async fn planted_functions_do_not_run() {
    let server = database();
    server.plant_traps();
    let mut db = client(&server.url()).await;
    db.batch_execute("SET application_name = 'holdline'; SET synchronous_commit = off")
        .await
        .expect("set");
    PostgresFence::create_table(&db).await.expect("made before");
    let limit = NonZeroU64::new(10).expect("not zero");
    let fence = PostgresFence::new("stock/17").with_rules(Rules::default().max_jump(limit));
    for (mine, says) in [(33, "yes"), (34, "yes"), (33, "stale 33 34"), (99, "far")] {
        assert_eq!(word_of(&fence.seal(&db, &proof(mine)).await), says, "{mine}");
        let wrote = fence
            .check_and_write(&mut db, &proof(mine), async |step| step.batch_execute("SELECT").await)
            .await;
        assert_eq!(word_of(&wrote), says, "{mine}");
    }
    assert_eq!(fence.mark(&db).await.expect("readable"), Some(token(34)));
    assert_eq!(server.sprung(), [""; 0]);
}

/// Waits until somebody waits for a lock of another transaction.
async fn somebody_waits(server: &PostgresServer) {
    until("somebody waits for a lock", || {
        server.sql("SELECT count(*) FROM pg_locks WHERE NOT granted").concat() == "1"
    })
    .await;
}

/// `READ COMMITTED`: a writer that has waited for another transaction compares itself with the mark
/// which that one committed, not with the one before.
#[tokio::test]
async fn a_concurrent_writer_waits_and_is_compared_with_the_committed_mark() {
    for (first_mark, ends, says, mark) in [
        (None, "commit", "stale 33 34", 34),
        (None, "rollback", "yes", 33),
        (Some(30), "commit", "stale 33 34", 34),
        (Some(30), "rollback", "yes", 33),
    ] {
        let server = database();
        let (mut newer, late) = (client(&server.url()).await, client(&server.url()).await);
        let fence = PostgresFence::new("stock/17");
        if let Some(first) = first_mark {
            fence.seal(&newer, &proof(first)).await.expect("the first");
        }
        let step = begin(&mut newer).await;
        fence.seal(&step, &proof(34)).await.expect("newer");
        let waiting = tokio::spawn({
            let fence = fence.clone();
            async move { (fence.seal(&late, &proof(33)).await, late) }
        });
        somebody_waits(&server).await;
        match ends {
            "commit" => step.commit().await.expect("committed"),
            _ => step.rollback().await.expect("rolled back"),
        }
        let (answer, late) = soon("an answer", waiting).await.expect("no panic");
        assert_eq!(word_of(&answer), says, "{first_mark:?} and a {ends}");
        assert_eq!(fence.mark(&late).await.expect("readable"), Some(token(mark)));
    }
}

/// In a stricter level there is nothing to judge anew: PostgreSQL refuses, and nothing is changed.
#[tokio::test]
async fn an_old_snapshot_is_busy_and_changes_nothing() {
    let server = database();
    let (mut db, newer) = (client(&server.url()).await, client(&server.url()).await);
    let fence = PostgresFence::new("stock/17");
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for first in ["nothing", "a mark"] {
            server.sql("DELETE FROM holdline_fence");
            if first == "a mark" {
                fence.seal(&newer, &proof(30)).await.expect("the first");
            }
            db.batch_execute(&format!(
                "SET default_transaction_isolation = '{}'",
                level.to_lowercase()
            ))
            .await
            .expect("set");
            let step = begin(&mut db).await;
            fence.check(&step, &proof(35)).await.expect("its snapshot is taken here");
            fence.seal(&newer, &proof(34)).await.expect("newer");
            let answer = fence.seal(&step, &proof(35)).await;
            assert_eq!(word_of(&answer), "busy", "{level}, {first}: {answer:?}");
            step.rollback().await.expect("rolled back");
            assert_eq!(fence.mark(&db).await.expect("readable"), Some(token(34)));
            assert_eq!(word_of(&fence.seal(&db, &proof(33)).await), "stale 33 34");
        }
    }
}

#[tokio::test]
async fn writers_at_once_store_in_the_order_of_their_tokens() {
    let server = database();
    server.sql("CREATE TABLE log(place BIGSERIAL, number BIGINT)");
    let (fence, insert) = (PostgresFence::new("log"), "INSERT INTO log(number) VALUES ($1)");
    let write = async |db: &mut Client, number: u64, way: Way| {
        let value = i64::try_from(number).expect("small");
        match way {
            Way::Write => {
                let write = async |step: &Transaction<'_>| step.execute(insert, &[&value]).await;
                fence.check_and_write(db, &proof(number), write).await.map(drop)
            }
            Way::Seal => {
                let step = begin(db).await;
                let sealed = fence.seal(&step, &proof(number)).await;
                if sealed.is_ok() {
                    step.execute(insert, &[&value]).await.expect("written");
                    step.commit().await.expect("committed");
                }
                sealed
            }
        }
    };
    let stored = || server.sql("SELECT number FROM log ORDER BY place");
    in_tasks(async || client(&server.url()).await, write, stored).await;
}

#[tokio::test]
async fn tokens_of_another_name_are_refused_or_kept_apart() {
    let server = database();
    let db = client(&server.url()).await;
    let (stock, other) = (PostgresFence::new("stock/17"), PostgresFence::new("stock/18"));
    stock.seal(&db, &proof(34)).await.expect("the first");
    other.seal(&db, &proof(1)).await.expect("the first there");
    assert_eq!(word_of(&stock.seal(&db, &proof(33)).await), "stale 33 34");
    assert_eq!(other.mark(&db).await.expect("readable"), Some(token(1)));
    other_names_are_refused!(stock, db, &);
}

/// PostgreSQL answers the commit of a failed transaction as if it were one.
#[tokio::test]
async fn a_statement_that_failed_unseen_is_no_write() {
    let server = database();
    let mut db = client(&server.url()).await;
    let fence = PostgresFence::new("stock/17");
    let answer = fence
        .check_and_write(&mut db, &proof(34), async |step| {
            put(step, 9).await?;
            let _ = step.execute("SELECT 1 / 0", &[]).await;
            Ok::<_, tokio_postgres::Error>(())
        })
        .await;
    assert_eq!(word_of(&answer), "write", "{answer:?}");
    assert_eq!(fence.mark(&db).await.expect("readable"), None);
    assert_eq!(apples(&server), "10");
}

#[tokio::test]
async fn a_commit_that_is_refused_changed_nothing_for_certain() {
    let server = database();
    server.sql("CREATE TABLE child(parent INTEGER REFERENCES stock DEFERRABLE INITIALLY DEFERRED)");
    let mut db = client(&server.url()).await;
    let fence = PostgresFence::new("stock/17");
    let answer = fence
        .check_and_write(&mut db, &proof(34), async |step| {
            step.execute("INSERT INTO child VALUES (1)", &[]).await
        })
        .await;
    assert_eq!(word_of(&answer), "failed NotApplied", "{answer:?}");
    assert_eq!(fence.mark(&db).await.expect("readable"), None);
}

/// A commit that waits for no disk is undone by a crash, and with it the mark that was reported.
#[tokio::test]
async fn a_crash_takes_no_mark_back_that_a_session_without_synchronous_commit_raised() {
    let server = database();
    server.sql("ALTER SYSTEM SET wal_writer_delay = '10s'");
    server.sql("ALTER SYSTEM SET synchronous_commit = off");
    server.sql("SELECT pg_reload_conf()");
    let fence = PostgresFence::new("stock/17");
    for (mine, way) in [(34, "alone"), (35, "in one"), (36, "in mine")] {
        let mut db = client(&server.url()).await;
        db.batch_execute("SET synchronous_commit = off").await.expect("set");
        match way {
            "alone" => fence.seal(&db, &proof(mine)).await.expect("newer"),
            "in one" => {
                let write = async |step: &Transaction<'_>| put(step, 1).await;
                fence.check_and_write(&mut db, &proof(mine), write).await.map(drop).expect("newer");
            }
            _ => {
                let step = begin(&mut db).await;
                fence.seal(&step, &proof(mine)).await.expect("newer");
                step.commit().await.expect("committed");
            }
        }
        // What the session does besides is as it was.
        let after = db.query_one("SHOW synchronous_commit", &[]).await.expect("a row");
        assert_eq!(after.get::<_, String>(0), "off");
        server.crash();
        server.restart();
        let db = client(&server.url()).await;
        assert_eq!(fence.mark(&db).await.expect("readable"), Some(token(mine)), "{way}");
    }
    assert_eq!(apples(&server), "1");
}

/// What the server says arrives: its words, the code and its advice.
#[tokio::test]
async fn an_error_of_the_server_keeps_its_message() {
    let server = database();
    server.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           RAISE 'not today' USING HINT = 'come back tomorrow', ERRCODE = 'P1234'; END $$; \
         CREATE TRIGGER refuse BEFORE INSERT ON holdline_fence EXECUTE FUNCTION refuse()",
    );
    let mut db = client(&server.url()).await;
    let fence = PostgresFence::new("stock/17");
    let refused = fence.seal(&db, &proof(34)).await.expect_err("refused");
    let gave_up = fence
        .check_and_write(&mut db, &proof(34), async |step| put(step, 1).await)
        .await
        .expect_err("refused");
    server.sql("DROP TRIGGER refuse ON holdline_fence");
    server.sql("CREATE TRIGGER refuse BEFORE UPDATE ON stock EXECUTE FUNCTION refuse()");
    let write = fence
        .check_and_write(&mut db, &proof(34), async |step| put(step, 1).await)
        .await
        .expect_err("refused");
    for (error, words) in [
        (refused, "raising the mark: not today (P1234; come back tomorrow)"),
        (gave_up, "raising the mark: not today (P1234; come back tomorrow)"),
        (write, "the write gave up: db error: ERROR: not today; HINT: come back tomorrow"),
    ] {
        assert_eq!(error.to_string(), words);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_in_doubt_only_where_it_may_have_come_through() {
    let server = database();
    let mut db = client(&server.url()).await;
    let fence = PostgresFence::new("stock/17");
    let end = |pid: i32| server.sql(&format!("SELECT pg_terminate_backend({pid}, 60000)"));
    let pid = |row: tokio_postgres::Row| row.get::<_, i32>(0);

    let answer = fence
        .check_and_write(&mut db, &proof(34), async |step| {
            let row = step.query_one("SELECT pg_backend_pid()", &[]).await?;
            put(step, 9).await?;
            end(pid(row));
            Ok::<_, tokio_postgres::Error>(())
        })
        .await;
    let error = answer.expect_err("the connection is gone");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    assert_eq!(apples(&server), "10");

    let error = fence.seal(&db, &proof(34)).await.expect_err("still gone");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    let error = fence.check(&db, &proof(34)).await.expect_err("still gone");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
}

#[tokio::test]
async fn a_missing_or_foreign_table_is_an_error_and_left_unchanged() {
    let server = database();
    let db = client(&server.url()).await;
    let fence = PostgresFence::new("a");
    server.sql("DROP TABLE holdline_fence");
    let error = fence.seal(&db, &proof(34)).await.expect_err("no table");
    assert!(error.to_string().contains("create_table"), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied);

    for table in [
        "(other TEXT)",
        "(resource TEXT, mark BIGINT)",
        "(resource TEXT PRIMARY KEY, mark TEXT)",
        "(resource TEXT PRIMARY KEY, mark BIGINT, more TEXT NOT NULL)",
        "(resource INTEGER PRIMARY KEY, mark BIGINT)",
    ] {
        server.sql(&format!("CREATE TABLE holdline_fence{table}"));
        let answer = fence.seal(&db, &proof(34)).await;
        assert_eq!(word_of(&answer), "foreign", "{table}: {answer:?}");
        assert_eq!(server.sql("SELECT count(*) FROM holdline_fence"), ["0"]);
        server.sql("DROP TABLE holdline_fence");
    }

    for (value, says) in [("0", "is 0,"), ("-5", "is -5,"), ("NULL", "is NULL,")] {
        server.sql(&format!(
            "CREATE TABLE holdline_fence(resource TEXT PRIMARY KEY, mark BIGINT);
             INSERT INTO holdline_fence VALUES ('a', {value})"
        ));
        let error = fence.seal(&db, &proof(34)).await.expect_err("no token");
        assert!(matches!(error, FenceError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        let kept =
            format!("SELECT count(*) FROM holdline_fence WHERE mark IS NOT DISTINCT FROM {value}");
        assert_eq!(server.sql(&kept), ["1"], "{value} was left as it is");
        server.sql("DROP TABLE holdline_fence");
    }
    server.sql(
        "CREATE TABLE holdline_fence(resource TEXT PRIMARY KEY, mark BIGINT);
         INSERT INTO holdline_fence VALUES ('a', 9007199254740992)",
    );
    let answer = fence.seal(&db, &proof(34)).await;
    assert_eq!(word_of(&answer), "foreign", "beyond all tokens: {answer:?}");
}

#[tokio::test]
async fn the_table_is_made_once_by_many_and_used_with_few_rights() {
    let server = database();
    server.sql("DROP TABLE holdline_fence");
    let mut makers = Vec::new();
    for _ in 0..8 {
        let db = client(&server.url()).await;
        makers.push(tokio::spawn(async move { PostgresFence::create_table(&db).await }));
    }
    for maker in makers {
        soon("a table", maker).await.expect("no panic").expect("made, by whomever");
    }

    server.sql(
        "CREATE SCHEMA \"a\"\"b\"; ALTER TABLE holdline_fence SET SCHEMA \"a\"\"b\";
         CREATE ROLE writer LOGIN; GRANT USAGE ON SCHEMA \"a\"\"b\" TO writer",
    );
    let db = client(&server.url_of("writer", "postgres")).await;
    let fence = PostgresFence::new("stock/17").in_schema("a\"b");
    let error = fence.seal(&db, &proof(34)).await.expect_err("no right");
    assert!(error.to_string().contains("grant SELECT, INSERT and UPDATE"), "{error}");
    server.sql("GRANT SELECT, INSERT, UPDATE ON \"a\"\"b\".holdline_fence TO writer");
    fence.seal(&db, &proof(34)).await.expect("that is all it takes");
    assert_eq!(word_of(&fence.seal(&db, &proof(33)).await), "stale 33 34");
    assert_eq!(fence.mark(&db).await.expect("readable"), Some(token(34)));
}

/// What another maker of the table leaves is no error; what somebody else has left there is one.
#[tokio::test]
async fn a_type_with_the_name_of_the_table_is_an_error() {
    let server = database();
    server.sql("DROP TABLE holdline_fence; CREATE TYPE holdline_fence AS ENUM ()");
    let db = client(&server.url()).await;
    let error = PostgresFence::create_table(&db).await.expect_err("no table can be there");
    assert!(error.to_string().contains("already exists"), "{error}");
    server.sql("DROP TYPE holdline_fence");
    PostgresFence::create_table(&db).await.expect("made");
}

/// A statement timeout while another is at work is `Busy`: nothing was changed.
#[tokio::test]
async fn a_wait_that_ends_by_its_limit_is_busy() {
    let server = database();
    let (mut newer, late) = (client(&server.url()).await, client(&server.url()).await);
    let fence = PostgresFence::new("stock/17");
    late.batch_execute("SET lock_timeout = '100ms'").await.expect("set");
    let step = begin(&mut newer).await;
    fence.seal(&step, &proof(34)).await.expect("the first");
    let answer = tokio::time::timeout(LONG, fence.seal(&late, &proof(35))).await;
    assert_eq!(word_of(&answer.expect("in time")), "busy");
    step.rollback().await.expect("rolled back");
    assert_eq!(fence.mark(&late).await.expect("readable"), None);
}
