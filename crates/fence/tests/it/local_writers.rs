//! Writers at the same time: threads on one resource, and processes on one file.

use std::process::{Command, Stdio};

use holdline_fence::{FenceError, Fenced, FencedCell, FencedFile, SqliteFence};

use crate::home::Home;
use crate::support::{LONG, proof};
use crate::writers::{LARGEST, WRITERS, Way, in_threads, is_acknowledged, judge, tokens_of};

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
    let result = in_threads(|_| {
        |number| {
            cell.check_and_write(&proof(number), |stored| {
                stored.push(number);
                Ok(())
            })
        }
    });
    judge(&cell.into_inner(), &result);
}

#[test]
fn threads_on_a_file() {
    let home = Home::new();
    let file = FencedFile::at(home.join("log")).expect("a place").with_lock_wait(LONG);
    let result = in_threads(|_| |number| append_to(&file, number));
    let stored = file.read(&proof(LARGEST)).expect("the newest");
    judge(&numbers(&stored), &result);
}

#[test]
fn threads_on_a_database() {
    let home = Home::new();
    let path = home.join("log.db");
    let open = || {
        let db = rusqlite::Connection::open(&path).expect("a database");
        db.busy_timeout(LONG).expect("a limit");
        db
    };
    let db = open();
    SqliteFence::create_table(&db).expect("a table");
    db.execute_batch(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE log(place INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER)",
    )
    .expect("a table");
    let result = in_threads(|writer| {
        let (db, fence) = (open(), SqliteFence::new("log"));
        move |number| match Way::of(writer) {
            Way::Write => fence.check_and_write(&db, &proof(number), |db| insert(db, number)),
            Way::Seal => {
                let begun = db.unchecked_transaction().expect("a transaction");
                fence.seal(&begun, &proof(number))?;
                insert(&begun, number).expect("written");
                begun.commit().map_err(|error| FenceError::unsure("committing", error))
            }
        }
    });
    let mut rows = db.prepare("SELECT number FROM log ORDER BY place").expect("a query");
    let stored = rows.query_map([], |row| row.get::<_, i64>(0)).expect("rows");
    let stored: Vec<u64> = stored.map(|n| n.expect("a number").unsigned_abs()).collect();
    judge(&stored, &result);
}

fn insert(db: &rusqlite::Connection, number: u64) -> rusqlite::Result<()> {
    let number = i64::try_from(number).expect("small");
    db.execute("INSERT INTO log(number) VALUES (?1)", [number]).map(drop)
}

const PATH: &str = "HOLDLINE_TEST_FENCE_LOG";
const WRITER: &str = "HOLDLINE_TEST_FENCE_WRITER";

/// One of the processes of the next test; does nothing when run by itself.
#[test]
fn one_process_of_several() {
    let (Ok(path), Ok(writer)) = (std::env::var(PATH), std::env::var(WRITER)) else { return };
    let file = FencedFile::at(path).expect("a place").with_lock_wait(LONG);
    let writer = writer.parse().expect("a number");
    for number in tokens_of(writer) {
        if is_acknowledged(number, append_to(&file, number)) {
            println!("acknowledged {number}");
        }
    }
}

#[test]
fn processes_on_a_file() {
    let home = Home::new();
    let path = home.join("log");
    let start = |writer: u64| {
        Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "local_writers::one_process_of_several", "--nocapture"])
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
    judge(&numbers(&file.read(&proof(LARGEST)).expect("the newest")), &result);
}
