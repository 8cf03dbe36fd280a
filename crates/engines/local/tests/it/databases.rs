//! Databases that are not ours, damaged, of another version, or that cannot be written.

use std::path::Path;
use std::process::Command;

use holdline_core::{Answer, Certainty, Engine as _, ErrorKind, LockError};
use rusqlite::Connection;

use crate::role::Player;
use crate::support::{Scratch, Verbs, ask, wait};

/// A scratch directory whose database is a single whole file.
fn made() -> Scratch {
    let scratch = Scratch::new();
    scratch.open().granted(&ask("a", 1));
    let database = Connection::open(scratch.database()).expect("opened");
    let moved = database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
    assert_eq!(moved, Ok(0));
    scratch
}

/// Opens the engine, which must fail, and leave the file as it is.
fn refused(scratch: &Scratch) -> LockError {
    let before = std::fs::read(scratch.database()).ok();
    let error = holdline_local::LocalEngine::open(&scratch.options()).expect_err("refused");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    assert_eq!(std::fs::read(scratch.database()).ok(), before);
    error
}

fn is_foreign(error: &LockError) -> bool {
    matches!(error.kind(), ErrorKind::Foreign { .. })
}

#[test]
fn a_directory_at_the_database_path_is_foreign() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.database()).expect("made");
    let error = refused(&scratch);
    assert!(is_foreign(&error) && error.to_string().contains("not a file"), "{error}");
}

#[test]
fn a_truncated_file_is_an_error_and_is_never_created_again() {
    let whole = std::fs::read(made().database()).expect("read");
    for length in [0, 1, 15, 16, 99, 100, 512, 4_095, 4_096, 4_097] {
        let scratch = Scratch::new();
        std::fs::write(scratch.database(), &whole[..length]).expect("written");
        let error = refused(&scratch);
        assert!(is_foreign(&error), "{length}: {error}");
    }
}

#[test]
fn a_log_that_has_lost_its_database_is_not_given_to_another() {
    let scratch = Scratch::new();
    scratch.open().granted(&ask("a", 1));
    std::fs::rename(scratch.database(), scratch.path().join("moved.db")).expect("moved");
    let error = refused(&scratch);
    assert!(is_foreign(&error) && error.to_string().contains("put the database back"), "{error}");
    std::fs::rename(scratch.path().join("moved.db"), scratch.database()).expect("moved");
    assert!(scratch.open().report().expect("a report").next_token > 1);
}

#[test]
fn damage_is_an_error() {
    let whole = std::fs::read(made().database()).expect("read");
    for at in [0, 20, 4_096, 4_100] {
        let scratch = Scratch::new();
        let mut damaged = whole.clone();
        damaged[at..at + 16].fill(0xa5);
        std::fs::write(scratch.database(), &damaged).expect("written");
        let result = holdline_local::LocalEngine::open(&scratch.options())
            .and_then(|engine| engine.acquire(&ask("a", 1)).map(|_| ()));
        let error = result.expect_err("damaged");
        assert!(is_foreign(&error), "{at}: {error}");
    }
}

#[test]
fn databases_of_other_programs_are_foreign() {
    let text = Scratch::new();
    std::fs::write(text.database(), "my notes\n".repeat(1_000)).expect("written");
    assert!(is_foreign(&refused(&text)));
    for (setup, says) in [
        ("CREATE TABLE notes (text)", "another application"),
        ("PRAGMA application_id = 7; CREATE TABLE notes (text)", "another application"),
        ("PRAGMA application_id = 0x486c646e; CREATE TABLE notes (text)", "layout 0"),
        (
            "PRAGMA application_id = 0x486c646e; PRAGMA user_version = 1; CREATE TABLE notes (a)",
            "tables",
        ),
    ] {
        let scratch = Scratch::new();
        let database = Connection::open(scratch.database()).expect("opened");
        database.execute_batch(setup).expect("set up");
        drop(database);
        let opened = holdline_local::LocalEngine::open(&scratch.options());
        let error = opened.expect_err("refused");
        assert!(is_foreign(&error) && error.to_string().contains(says), "{setup}: {error}");
        let database = Connection::open(scratch.database()).expect("still there");
        database.query_row("SELECT count(*) FROM notes", [], |_| Ok(())).expect("still whole");
    }
}

#[test]
fn a_counter_that_is_not_ours_is_foreign() {
    for change in
        ["UPDATE slot SET value = x'00' WHERE key = x''", "DELETE FROM slot WHERE key = x''"]
    {
        let scratch = made();
        let database = Connection::open(scratch.database()).expect("opened");
        database.execute(change, []).expect("changed");
        drop(database);
        let opened = holdline_local::LocalEngine::open(&scratch.options());
        let error = opened.expect_err("refused");
        assert!(is_foreign(&error) && error.to_string().contains("counter"), "{error}");
    }
}

#[test]
fn a_newer_version_is_refused_with_the_way_out() {
    let scratch = made();
    let database = Connection::open(scratch.database()).expect("opened");
    database.pragma_update(None, "user_version", 2).expect("changed");
    drop(database);
    let opened = holdline_local::LocalEngine::open(&scratch.options());
    let error = opened.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{error}");
    assert!(error.to_string().contains("layout 2") && error.to_string().contains("newer"));
}

#[test]
fn another_programs_transaction_has_its_own_error() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    let other = Connection::open(scratch.database()).expect("opened");
    other.execute_batch("BEGIN IMMEDIATE").expect("begun");
    let error = engine.acquire(&ask("a", 1)).expect_err("busy");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    other.execute_batch("ROLLBACK").expect("ended");
    engine.granted(&ask("a", 1));
}

/// The caller may have deadlines to keep on its thread, as `holdline run` has.
#[test]
fn no_caller_blocks_its_thread_for_another_program() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    let other = Connection::open(scratch.database()).expect("opened");
    other.execute_batch("BEGIN IMMEDIATE").expect("begun");
    let asked = ask("a", 1);
    let Answer::Later(later) = engine.try_acquire(&asked) else {
        panic!("it waited before it answered");
    };
    let error = wait(later).expect_err("the other program goes on");
    assert!(error.to_string().contains("another program"), "{error}");
}

/// A command that runs `script` with `$0` as directory in mounts of its own, and then the rest.
/// Needs root, or a system that lets users have namespaces.
fn in_own_mounts(script: &str, directory: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.arg(if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" });
    command.args(["sh", "-ec", &format!("{script}; exec \"$@\"")]).arg(directory);
    command
}

#[test]
fn a_full_disk_is_refused_and_nothing_is_applied() {
    let scratch = Scratch::new();
    let mount = in_own_mounts("mount -t tmpfs -o size=512k tmpfs \"$0\"", scratch.path());
    let result = Player::behind(mount, "filler", scratch.path()).finish();
    assert_eq!(result.len(), 3, "{result:?}");
    assert!(result[0].starts_with("NotApplied local: n") && result[0].contains("refused: no room"));
    assert!(result[1].contains("refused: "), "{result:?}");
    assert!(result[2].starts_with("granted "), "{result:?}");
}

#[test]
fn a_read_only_store_is_refused() {
    let scratch = made();
    let script = "mount --bind \"$0\" \"$0\"; mount -o remount,ro,bind \"$0\"";
    let mount = in_own_mounts(script, scratch.path());
    let result = Player::behind(mount, "player", scratch.path()).finish();
    assert_eq!(result.len(), 1, "{result:?}");
    assert!(result[0].contains("refused: ") && result[0].contains("ead-only"), "{result:?}");
}
