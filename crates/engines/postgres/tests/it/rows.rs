//! Rows that are locked in the transaction that writes them, with real rows and two clients.

use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::{Certainty, ErrorKind, LockError};
use holdline_postgres::tokio_postgres::{Client, Row, Transaction};
use holdline_postgres::{RowLock, RowLockError, RowWait, row_lock};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{eventually, growing, sign_in, yields};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(100);
const JOB: &str = "select state from jobs where id = $1";
/// How many wait for a lock, of whatever kind.
const WAITING: &str = "select count(*) from pg_locks where not granted";

type Outcome<T> = Result<T, RowLockError<tokio_postgres::Error>>;

async fn client(server: &PostgresServer) -> Client {
    sign_in(server.address(), "postgres").await
}

fn with_jobs(count: u32) -> PostgresServer {
    start_with_jobs(PostgresConfig::default(), count)
}

fn start_with_jobs(config: PostgresConfig, count: u32) -> PostgresServer {
    let server = PostgresServer::start(config);
    server.sql(&format!(
        "set synchronous_commit = local; create table jobs (id int primary key, state text); \
         insert into jobs select id, 'new' from generate_series(1, {count}) id"
    ));
    server
}

fn states(server: &PostgresServer) -> Vec<String> {
    server.sql("select state from jobs order by id")
}

/// Adds a letter to the state of a job.
async fn mark(client: &mut Client, id: i32, wait: RowWait, letter: &str) -> Outcome<String> {
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&id];
    let rows = RowLock::new(JOB, &parameters).with_wait(wait).with_answer_limit(LONG);
    row_lock(client, &rows, &MachineClock, async |work: &mut Transaction<'_>, found: Vec<Row>| {
        let state = found[0].get::<_, String>(0) + letter;
        work.execute("update jobs set state = $1 where id = $2", &[&state, &id]).await?;
        Ok(state)
    })
    .await
}

fn kind<T: std::fmt::Debug>(outcome: Outcome<T>) -> ErrorKind {
    match outcome {
        Err(RowLockError::Failed(error)) => {
            assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
            error.kind().clone()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn writes_of_the_body_are_committed_under_the_lock() {
    let server = with_jobs(2);
    let (mut one, mut other) = (client(&server).await, client(&server).await);
    let rows = RowLock::new("select id from jobs where id = 1 -- the first", &[]);
    let done: Outcome<i32> = row_lock(&mut one, &rows, &MachineClock, async |work, found| {
        // Held by this transaction: others get their error, and another row is free.
        assert_eq!(kind(mark(&mut other, 1, RowWait::Never, "x").await), busy());
        assert_eq!(kind(mark(&mut other, 1, RowWait::SkipLocked, "x").await), busy());
        let late = kind(mark(&mut other, 1, RowWait::AtMost(SHORT), "x").await);
        assert!(matches!(late, ErrorKind::TimedOut { waited, .. } if waited >= SHORT), "{late:?}");
        assert_eq!(mark(&mut other, 2, RowWait::Never, "+").await.expect("free"), "new+");
        work.execute("update jobs set state = 'done' where id = 1", &[]).await?;
        Ok(found[0].get(0))
    })
    .await;
    assert_eq!(done.expect("done"), 1);
    assert_eq!(states(&server), ["done", "new+"]);
    assert_eq!(mark(&mut other, 1, RowWait::Never, "!").await.expect("free"), "done!");
}

fn busy() -> ErrorKind {
    ErrorKind::Busy { holder: None }
}

/// Each row is locked in time, all of them together are not.
#[tokio::test]
async fn a_wait_for_one_row_after_another_times_out_and_is_no_silent_server() {
    let server = with_jobs(12);
    let mut holders = Vec::new();
    for id in 1..=12 {
        let holder = client(&server).await;
        let take = format!("begin; select from jobs where id = {id} for update");
        holder.batch_execute(&take).await.expect("taken");
        holders.push(holder);
    }
    let wait = RowWait::AtMost(Duration::from_secs(1));
    let all = RowLock::new("select from jobs order by id", &[]);
    let all = all.with_wait(wait).with_answer_limit(Duration::from_secs(6));
    let mut waits = client(&server).await;
    let one_by_one = async {
        for holder in &holders {
            eventually("it waits", || server.sql(WAITING) != ["0"]).await;
            holder.batch_execute("select pg_sleep(0.8); commit").await.expect("let go");
        }
        std::future::pending::<()>().await;
    };
    let body = async |_: &mut Transaction<'_>, found: Vec<Row>| {
        assert_eq!(found.len(), 12);
        Ok(())
    };
    let outcome: Outcome<()> = tokio::select! {
        biased;
        outcome = row_lock(&mut waits, &all, &MachineClock, body) => outcome,
        () = one_by_one => unreachable!("it never ends"),
    };
    let kind = kind(outcome);
    assert!(matches!(kind, ErrorKind::TimedOut { .. }), "{kind:?}");
}

#[tokio::test]
async fn a_missing_row_is_no_locked_one() {
    let server = with_jobs(1);
    let mut client = client(&server).await;
    for wait in [RowWait::Never, RowWait::SkipLocked, RowWait::AtMost(LONG)] {
        let outcome = mark(&mut client, 7, wait, "x").await;
        assert!(matches!(outcome, Err(RowLockError::Missing)), "{outcome:?}");
    }
    assert_eq!(mark(&mut client, 1, RowWait::Never, "+").await.expect("free"), "new+");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_reads_the_row_as_the_last_holder_left_it() {
    let server = with_jobs(1);
    let tasks = (0..8).map(|_| {
        let address = server.address();
        tokio::spawn(async move {
            let mut client = sign_in(address, "postgres").await;
            for _ in 0..5 {
                mark(&mut client, 1, RowWait::AtMost(LONG), ".").await.expect("its turn");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    assert_eq!(states(&server), ["new".to_owned() + &".".repeat(40)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_skip_locked_jobs_do_each_job_once() {
    let server = with_jobs(40);
    let tasks = (0..4).map(|_| {
        let address = server.address();
        tokio::spawn(async move {
            let mut client = sign_in(address, "postgres").await;
            let next = "select id from jobs where state not like '%done' order by id limit 1";
            let rows = RowLock::new(next, &[]).with_wait(RowWait::SkipLocked);
            loop {
                let done: Outcome<()> =
                    row_lock(&mut client, &rows, &MachineClock, async |work, found| {
                        let add = "update jobs set state = state || ' done' where id = $1";
                        work.execute(add, &[&found[0].get::<_, i32>(0)]).await.map(drop)
                    })
                    .await;
                match done {
                    Ok(()) => {}
                    Err(RowLockError::Missing) => return,
                    Err(RowLockError::Failed(error)) if error.is_contended() => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    assert!(states(&server).iter().all(|state| state == "new done"));
}

/// But not its details, which quote the rows.
#[tokio::test]
async fn a_refused_body_returns_the_servers_error() {
    let server = with_jobs(1);
    let mut client = client(&server).await;
    server.sql("create unique index once on jobs (state)");
    let rows = RowLock::new("select from jobs", &[]);
    let twice = "insert into jobs values (2, 'secret'), (3, 'secret')";
    let bare: Outcome<()> = row_lock(&mut client, &rows, &MachineClock, async |work, _| {
        work.batch_execute(twice).await
    })
    .await;
    type Boxed = Box<dyn std::error::Error + Send + Sync>;
    let boxed: Result<(), RowLockError<Boxed>> =
        row_lock(&mut client, &rows, &MachineClock, async |work, _| {
            Ok(work.batch_execute(twice).await?)
        })
        .await;
    let words = "duplicate key value violates unique constraint \"once\", 23505 (rolled back)";
    assert_eq!(bare.expect_err("refused").to_string(), words);
    assert_eq!(boxed.expect_err("refused").to_string(), words);
}

#[tokio::test]
async fn a_body_that_fails_is_rolled_back_and_so_is_one_that_hides_it() {
    let server = with_jobs(1);
    let mut client = client(&server).await;
    let rows = RowLock::new("select from jobs", &[]);
    let write = "update jobs set state = 'half'";
    let failed: Result<(), _> = row_lock(&mut client, &rows, &MachineClock, async |work, _| {
        work.batch_execute(write).await.map_err(|_| "not written")?;
        Err("on second thought")
    })
    .await;
    assert!(matches!(failed, Err(RowLockError::Body("on second thought"))), "{failed:?}");
    assert_eq!(states(&server), ["new"]);
    let hidden: Outcome<()> = row_lock(&mut client, &rows, &MachineClock, async |work, _| {
        work.batch_execute(write).await?;
        let _ = work.batch_execute("select 1 / 0").await;
        Ok(())
    })
    .await;
    let error = hidden.expect_err("the server would roll back");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    assert!(error.to_string().contains("a statement of the body failed"), "{error}");
    // Behind a savepoint a failure is the body's own matter.
    let saved: Outcome<()> = row_lock(&mut client, &rows, &MachineClock, async |work, _| {
        let inner = work.transaction().await?;
        assert!(inner.batch_execute("select 1 / 0").await.is_err());
        inner.rollback().await?;
        work.batch_execute("update jobs set state = 'whole'").await
    })
    .await;
    saved.expect("committed");
    assert_eq!(states(&server), ["whole"]);
}

#[tokio::test]
async fn a_refused_commit_and_a_wrong_query_are_not_applied() {
    let server = with_jobs(1);
    server.sql(
        "create table parts (job int references jobs deferrable initially deferred); \
         create role reader login; grant select on jobs to reader",
    );
    let mut client = client(&server).await;
    let rows = RowLock::new("select from jobs", &[]);
    let refused: Outcome<()> = row_lock(&mut client, &rows, &MachineClock, async |work, _| {
        work.batch_execute("insert into parts values (99)").await
    })
    .await;
    let kind_of = kind(refused);
    let says = format!("{kind_of}");
    assert!(matches!(kind_of, ErrorKind::Refused { .. }) && says.contains("23503"), "{says}");
    let nothing = async |_: &mut Transaction<'_>, _| Ok(());
    for query in ["selct 1", "select from nowhere", "select 1 / 0 from jobs"] {
        let rows = RowLock::new(query, &[]);
        let outcome: Outcome<()> = row_lock(&mut client, &rows, &MachineClock, nothing).await;
        let kind = kind(outcome);
        assert!(matches!(kind, ErrorKind::Invalid { field: "query", .. }), "{query}: {kind:?}");
    }
    let mut reader = sign_in(server.address(), "reader").await;
    let outcome: Outcome<()> = row_lock(&mut reader, &rows, &MachineClock, nothing).await;
    assert!(kind(outcome).to_string().contains("grant it UPDATE"));
}

#[tokio::test]
async fn the_body_waits_as_its_session_does() {
    let server = with_jobs(1);
    let mut client = client(&server).await;
    let set = "set lock_timeout = '7s'; set statement_timeout = '1h'";
    client.batch_execute(set).await.expect("set");
    let ask =
        "select current_setting('lock_timeout') || ' ' || current_setting('statement_timeout')";
    let rows = RowLock::new("select from jobs", &[]).with_wait(RowWait::AtMost(SHORT));
    let reply: Outcome<String> = row_lock(&mut client, &rows, &MachineClock, async |work, _| {
        Ok(work.query_one(ask, &[]).await?.get(0))
    })
    .await;
    assert_eq!(reply.expect("committed"), "7s 1h");
    let after = client.query_one(ask, &[]).await.expect("a row");
    assert_eq!(after.get::<_, String>(0), "7s 1h");
}

#[tokio::test]
async fn a_server_that_is_down_or_stands_still_is_neither_busy_nor_missing() {
    let server = with_jobs(1);
    let mut client = client(&server).await;
    let rows = RowLock::new("select from jobs", &[]).with_answer_limit(SHORT);
    let nothing = async |_: &mut Transaction<'_>, _| Ok(());
    server.stop();
    let outcome: Outcome<()> = row_lock(&mut client, &rows, &MachineClock, nothing).await;
    assert!(matches!(kind(outcome), ErrorKind::Unavailable { .. }));
    server.cont();
    server.crash();
    let outcome: Outcome<()> = row_lock(&mut client, &rows, &MachineClock, nothing).await;
    assert!(matches!(kind(outcome), ErrorKind::Unavailable { .. }));
}

/// A commit hangs, once behind its effect and once before it: what became of it can be asked.
#[tokio::test]
async fn a_commit_without_an_answer_is_unknown_and_can_be_asked_for() {
    let config = PostgresConfig::default().with_line("synchronous_standby_names = 'nobody'");
    let server = start_with_jobs(config, 1);
    server.sql(
        "set synchronous_commit = local; create function hangs() returns trigger \
         language plpgsql as $$ begin perform pg_sleep(600); return null; end $$; \
         create constraint trigger hangs after insert on jobs deferrable initially deferred \
         for each row execute function hangs()",
    );
    for (write, setting, state, status) in [
        ("update jobs set state = 'sent' where id = 1", "on", "sent", "committed"),
        ("insert into jobs values (2, 'new')", "local", "sent", "aborted"),
    ] {
        let mut client = client(&server).await;
        client.batch_execute(&format!("set synchronous_commit = {setting}")).await.expect("set");
        let outcome: Outcome<()> = {
            let limited = RowLock::new("select from jobs where id = 1", &[]);
            let limited = limited.with_answer_limit(Duration::from_secs(5));
            row_lock(&mut client, &limited, &MachineClock, async |work, _| {
                work.batch_execute(write).await
            })
            .await
        };
        let Err(RowLockError::Unknown { error, transaction_id }) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
            where pid <> pg_backend_pid() and backend_type = 'client backend'";
        server.sql(end);
        let ask = format!("select pg_xact_status('{transaction_id}'::xid8)");
        eventually("it ended", || server.sql(&ask) == [status]).await;
        assert_eq!(states(&server), [state]);
    }
}

#[tokio::test]
async fn it_can_be_dropped_at_every_await() {
    let server = with_jobs(1);
    let (mut one, mut other) = (client(&server).await, client(&server).await);
    let (mut finished, mut dropped) = (0, 0);
    for times in growing() {
        let before = states(&server)[0].len();
        let done = tokio::select! {
            biased;
            done = mark(&mut one, 1, RowWait::Never, "+") => Some(done.expect("free")),
            () = yields(times) => None,
        };
        // The connection is good, nothing is locked, and the state is the old or the new one.
        mark(&mut other, 1, RowWait::AtMost(LONG), "-").await.expect("free");
        mark(&mut one, 1, RowWait::AtMost(LONG), "-").await.expect("free");
        let added = states(&server)[0].len() - before;
        match done {
            Some(_) => {
                assert_eq!(added, 3);
                finished += 1;
            }
            None => {
                assert!(added == 2 || added == 3, "{added}");
                dropped += 1;
            }
        }
        if finished == 2 {
            break;
        }
    }
    assert!(dropped > 3, "only {dropped} were dropped");
}

/// The wait goes on in the server until its limit, and then nothing is left of it.
#[tokio::test]
async fn a_dropped_waiter_for_a_row_leaves_nothing() {
    let server = with_jobs(1);
    let (mut one, mut other) = (client(&server).await, client(&server).await);
    let rows = RowLock::new("select from jobs", &[]);
    let held: Outcome<()> = row_lock(&mut one, &rows, &MachineClock, async |_, _| {
        tokio::select! {
            biased;
            done = mark(&mut other, 1, RowWait::AtMost(Duration::from_secs(2)), "x") => {
                panic!("{done:?}");
            }
            () = eventually("it waits", || server.sql(WAITING) == ["1"]) => {}
        }
        eventually("nobody waits", || server.sql(WAITING) == ["0"]).await;
        Ok(())
    })
    .await;
    held.expect("committed");
    assert_eq!(states(&server), ["new"]);
    mark(&mut other, 1, RowWait::Never, "+").await.expect("free");
}

#[test]
fn an_error_reports_its_certainty() {
    let failed = LockError::invalid("postgres", "query", "wrong");
    let failed: RowLockError<std::fmt::Error> = failed.into();
    assert_eq!(failed.certainty(), Certainty::NotApplied);
    assert!(std::error::Error::source(&failed).is_some());
}
