//! What is SQLite's own: the user's transactions, and tables that are not as they should be.

use super::*;
use crate::SqliteFence;
use rusqlite::{Connection, TransactionBehavior};

fn number(db: &Connection) -> i64 {
    db.query_row("SELECT number FROM shelf", [], |row| row.get(0)).expect("one row")
}

fn put(db: &Connection, number: i64) -> rusqlite::Result<()> {
    db.execute("UPDATE shelf SET number = ?1", [number]).map(drop)
}

fn fresh() -> (Connection, SqliteFence) {
    (shelf_database(Path::new(":memory:")), SqliteFence::new("shelf"))
}

#[test]
fn a_seal_belongs_to_the_users_transaction() {
    let (mut db, fence) = fresh();
    let begun = db.transaction().expect("begun");
    fence.seal(&begun, &proof(34)).expect("the first");
    put(&begun, 7).expect("written");
    begun.rollback().expect("rolled back");
    assert_eq!((fence.mark(&db).expect("readable"), number(&db)), (None, 0));

    let begun = db.transaction().expect("begun");
    fence.seal(&begun, &proof(34)).expect("the first");
    put(&begun, 7).expect("written");
    begun.commit().expect("committed");
    assert_eq!((fence.mark(&db).expect("readable"), number(&db)), (Some(token(34)), 7));
}

#[test]
fn a_write_that_gives_up_is_undone_alone() {
    let (mut db, fence) = fresh();
    let begun = db.transaction().expect("begun");
    put(&begun, 1).expect("written");
    let result = fence.check_and_write(&begun, &proof(34), |db| {
        put(db, 7)?;
        Err::<(), _>(rusqlite::Error::QueryReturnedNoRows)
    });
    assert!(matches!(result, Err(FenceError::Write { .. })), "{result:?}");
    assert_eq!(fence.mark(&begun).expect("readable"), None);
    begun.commit().expect("what came before the call stands");
    assert_eq!(number(&db), 1);

    let result = fence.check_and_write(&db, &proof(34), |db| {
        put(db, 7)?;
        Err::<(), _>(rusqlite::Error::QueryReturnedNoRows)
    });
    assert!(matches!(result, Err(FenceError::Write { .. })), "{result:?}");
    assert!(db.is_autocommit(), "no transaction stays open");
    assert_eq!((fence.mark(&db).expect("readable"), number(&db)), (None, 1));
}

#[test]
fn a_write_that_panics_leaves_nothing() {
    for nested in [false, true] {
        let (db, fence) = fresh();
        if nested {
            db.execute_batch("BEGIN; UPDATE shelf SET number = 1").expect("begun");
        }
        let write = || {
            fence.check_and_write(&db, &proof(34), |db| -> rusqlite::Result<()> {
                put(db, 7)?;
                panic!("in the middle")
            })
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(write));
        assert!(result.is_err());
        assert_eq!(db.is_autocommit(), !nested, "the user's transaction is the user's to end");
        assert_eq!(number(&db), i64::from(nested));
        assert_eq!(fence.mark(&db).expect("readable"), None);
    }
}

#[test]
fn resources_of_one_database_have_marks_of_their_own() {
    let (db, fence) = fresh();
    let other = SqliteFence::new("another");
    fence.seal(&db, &proof(34)).expect("the first");
    other.seal(&db, &proof(1)).expect("the first there");
    assert!(is_stale(&fence.seal(&db, &proof(33))));
    assert_eq!(other.mark(&db).expect("readable"), Some(token(1)));
}

/// An old snapshot cannot be written on: SQLite refuses, and so do we.
#[test]
fn a_transaction_that_was_overtaken_after_its_first_read_cannot_write() {
    let home = Home::new();
    let path = home.join("shelf.db");
    let db = shelf_database(&path);
    db.execute_batch("PRAGMA journal_mode = WAL").expect("a mode");
    let mut late = Connection::open(&path).expect("the same");
    let fence = SqliteFence::new("shelf");
    fence.seal(&db, &proof(33)).expect("the first");

    let begun = late.transaction_with_behavior(TransactionBehavior::Deferred).expect("begun");
    fence.check(&begun, &proof(33)).expect("it still holds");
    fence.check_and_write(&db, &proof(34), |db| put(db, 7)).expect("newer");
    let result = fence.check_and_write(&begun, &proof(33), |db| put(db, 8));
    assert!(matches!(result, Err(FenceError::Busy { .. })), "{result:?}");
    begun.rollback().expect("rolled back");
    assert!(is_stale(&fence.seal(&late, &proof(33))));
    assert_eq!(number(&db), 7);
}

#[test]
fn another_writer_is_busy_and_nothing_was_changed() {
    let home = Home::new();
    let path = home.join("shelf.db");
    let db = shelf_database(&path);
    let other = Connection::open(&path).expect("the same");
    other.busy_timeout(std::time::Duration::ZERO).expect("no wait");
    db.execute_batch("BEGIN IMMEDIATE").expect("begun");
    let result = SqliteFence::new("shelf").seal(&other, &proof(34));
    assert!(matches!(result, Err(FenceError::Busy { .. })), "{result:?}");
    assert!(other.is_autocommit());
}

/// A deferred constraint fails at the commit, which then is undone.
#[test]
fn a_commit_that_fails_is_undone_and_certain() {
    let (db, fence) = fresh();
    db.execute_batch(
        "PRAGMA foreign_keys = ON; CREATE TABLE parent(id INTEGER PRIMARY KEY);
         CREATE TABLE child(parent INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
    )
    .expect("tables");
    let result = fence.check_and_write(&db, &proof(34), |db| {
        db.execute("INSERT INTO child(parent) VALUES (1)", [])
    });
    let result = result.expect_err("no such parent");
    assert_eq!(result.certainty(), holdline_core::Certainty::NotApplied, "{result}");
    assert!(db.is_autocommit());
    assert_eq!(fence.mark(&db).expect("readable"), None);
}

#[test]
fn a_missing_or_foreign_table_is_an_error_and_left_unchanged() {
    let missing = Connection::open_in_memory().expect("a database");
    let result = SqliteFence::new("a").seal(&missing, &proof(1)).expect_err("no table");
    assert!(result.to_string().contains("create_table"), "{result}");
    assert!(missing.is_autocommit());

    let columns = Connection::open_in_memory().expect("a database");
    columns.execute_batch("CREATE TABLE holdline_fence(other TEXT)").expect("a table");
    SqliteFence::create_table(&columns).expect("there is one of that name");
    let result = SqliteFence::new("a").seal(&columns, &proof(1)).expect_err("other columns");
    assert_eq!(result.certainty(), holdline_core::Certainty::NotApplied, "{result}");

    for (value, says) in [
        ("0", "is 0,"),
        ("-5", "is -5,"),
        ("9007199254740992", "9007199254740992"),
        ("'x'", "Text"),
    ] {
        let db = Connection::open_in_memory().expect("a database");
        db.execute_batch(&format!(
            "CREATE TABLE holdline_fence(resource TEXT PRIMARY KEY, mark);
             INSERT INTO holdline_fence VALUES ('a', {value})"
        ))
        .expect("a table");
        let result = SqliteFence::new("a").seal(&db, &proof(34)).expect_err("no token");
        assert!(matches!(result, FenceError::Foreign { .. }), "{result}");
        assert!(result.to_string().contains(says), "{result}");
        let kept = format!("SELECT count(*) FROM holdline_fence WHERE mark = {value}");
        let kept: i64 = db.query_row(&kept, [], |row| row.get(0)).expect("a count");
        assert_eq!(kept, 1, "{value} was left as it is");
    }
}

/// The statements that the docs give to those who write SQL themselves.
fn documented() -> [Vec<String>; 2] {
    let module = include_str!("../sqlite.rs").replace("//!", "");
    let page = include_str!("../../../../docs/fencing.md");
    [module.as_str(), page].map(|text| {
        let blocks = text.split("```sql\n").skip(1);
        blocks.filter_map(|rest| rest.split("```").next()).map(str::to_owned).take(2).collect()
    })
}

#[test]
fn the_documented_statements_refuse_by_changing_no_row() {
    for blocks in documented() {
        let (db, fence) = fresh();
        let [table, raise] = blocks.as_slice() else { panic!("two statements: {blocks:?}") };
        db.execute_batch("DROP TABLE holdline_fence").expect("ours");
        db.execute_batch(table).expect("the documented table");
        for (mine, rows, mark) in [(33, 1, 33), (33, 1, 33), (34, 1, 34), (33, 0, 34), (35, 1, 35)]
        {
            let named = rusqlite::named_params! { ":resource": "shelf", ":token": mine };
            assert_eq!(db.execute(raise, named).expect("valid"), rows, "{mine}: {raise}");
            // Both sides meet on one table.
            assert_eq!(fence.mark(&db).expect("readable"), Some(token(mark)));
        }
        assert!(is_stale(&fence.seal(&db, &proof(34))));
    }
}
