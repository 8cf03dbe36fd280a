//! Writers at the same time: threads on one resource, and processes on one file.

use super::*;
use crate::fence::SqliteFence;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

const WRITERS: u64 = 4;
const ROUNDS: u64 = 25;

/// The tokens of one writer: those of all writers interleave, as if the name went round.
fn tokens_of(writer: u64) -> impl Iterator<Item = u64> {
    (0..ROUNDS).map(move |round| 1 + round * WRITERS + writer)
}

/// Lets `append` try each token of a writer and returns those that were acknowledged.
fn acknowledged(writer: u64, append: impl Fn(u64) -> Result<(), FenceError>) -> Vec<u64> {
    let accepted = |number: &u64| match append(*number) {
        Ok(()) => true,
        Err(FenceError::Stale(result)) => {
            assert!(result.mine.get() == *number && result.seen > result.mine);
            false
        }
        Err(error) => panic!("{error}"),
    };
    tokens_of(writer).filter(accepted).collect()
}

/// What is stored is what was acknowledged, no more and no less, in the order of the tokens.
fn judge(stored: &[u64], acknowledged: &[u64]) {
    assert!(stored.is_sorted_by(|a, b| a < b), "out of order: {stored:?}");
    let result: BTreeSet<u64> = acknowledged.iter().copied().collect();
    assert_eq!(result.len(), acknowledged.len(), "a token was acknowledged twice");
    assert_eq!(stored.iter().copied().collect::<BTreeSet<u64>>(), result);
    assert!(stored.contains(&(WRITERS * ROUNDS)), "the largest token is never refused");
}

fn in_threads(append: impl Fn(u64, u64) -> Result<(), FenceError> + Sync) -> Vec<u64> {
    let append = &append;
    std::thread::scope(|scope| {
        let run = |writer| scope.spawn(move || acknowledged(writer, |n| append(writer, n)));
        let threads: Vec<_> = (0..WRITERS).map(run).collect();
        threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
    })
}

fn numbers(content: &[u8]) -> Vec<u64> {
    let text = str::from_utf8(content).expect("text");
    text.lines().map(|line| line.parse().expect("a number")).collect()
}

fn append_to(file: &FencedFile, number: u64) -> Result<(), FenceError> {
    file.check_and_write(&proof(number), |content| {
        content.extend(format!("{number}\n").bytes());
        Ok(())
    })
}

#[test]
fn threads_on_a_cell() {
    let cell = FencedCell::new(Vec::new());
    let result = in_threads(|_, number| {
        cell.check_and_write(&proof(number), |stored| {
            stored.push(number);
            Ok(())
        })
    });
    judge(&cell.into_inner(), &result);
}

#[test]
fn threads_on_a_file() {
    let home = Home::new();
    let file = FencedFile::at(home.join("log")).expect("a place");
    let result = in_threads(|_, number| append_to(&file, number));
    let stored = file.read(&proof(WRITERS * ROUNDS)).expect("the newest");
    judge(&numbers(&stored), &result);
}

#[test]
fn threads_on_a_database() {
    let home = Home::new();
    let path = home.join("log.db");
    let open = || {
        let db = rusqlite::Connection::open(&path).expect("a database");
        db.busy_timeout(Duration::from_secs(30)).expect("a limit");
        db
    };
    let db = open();
    SqliteFence::create_table(&db).expect("a table");
    db.execute_batch(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE log(place INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER)",
    )
    .expect("a table");
    let result = in_threads(|writer, number| {
        let (db, fence) = (open(), SqliteFence::new("log"));
        let number = i64::try_from(number).expect("small");
        let mine = proof(number.unsigned_abs());
        // Two ways to the same end, side by side.
        if writer % 2 == 0 {
            fence.check_and_write(&db, &mine, |db| insert(db, number))
        } else {
            let begun = db.unchecked_transaction().expect("a transaction");
            fence.seal(&begun, &mine)?;
            insert(&begun, number).expect("written");
            begun.commit().map_err(|error| FenceError::unsure("committing", error))
        }
    });
    let mut rows = db.prepare("SELECT number FROM log ORDER BY place").expect("a query");
    let stored = rows.query_map([], |row| row.get::<_, i64>(0)).expect("rows");
    let stored: Vec<u64> = stored.map(|n| n.expect("a number").unsigned_abs()).collect();
    judge(&stored, &result);
}

fn insert(db: &rusqlite::Connection, number: i64) -> rusqlite::Result<()> {
    db.execute("INSERT INTO log(number) VALUES (?1)", [number]).map(drop)
}

const PATH: &str = "HOLDLINE_TEST_FENCE_LOG";
const WRITER: &str = "HOLDLINE_TEST_FENCE_WRITER";

/// One of the processes of the next test; does nothing when run by itself.
#[test]
fn one_process_of_several() {
    let (Ok(path), Ok(writer)) = (std::env::var(PATH), std::env::var(WRITER)) else { return };
    let file = FencedFile::at(path).expect("a place").with_lock_wait(Duration::from_secs(60));
    let writer = writer.parse().expect("a number");
    for number in acknowledged(writer, |number| append_to(&file, number)) {
        println!("acknowledged {number}");
    }
}

#[test]
fn processes_on_a_file() {
    let home = Home::new();
    let path = home.join("log");
    let start = |writer: u64| {
        Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "fence::tests::writers::one_process_of_several", "--nocapture"])
            .env(PATH, &path)
            .env(WRITER, writer.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process")
    };
    let children: Vec<_> = (0..WRITERS).map(start).collect();
    let mut result = Vec::new();
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success(), "{text}");
        let lines = text.lines().filter_map(|line| line.strip_prefix("acknowledged "));
        result.extend(lines.map(|number| number.parse::<u64>().expect("a number")));
    }
    let file = FencedFile::at(&path).expect("a place");
    judge(&numbers(&file.read(&proof(WRITERS * ROUNDS)).expect("the newest")), &result);
}
