//! What survives a restart of the machine: the database is made to belong to another boot.

use std::time::Duration;

use holdline_core::{
    AcquireRequest, Engine, ErrorKind, Hold, Mode, Operation, Purpose, RenewReply,
};
use holdline_local::LocalEngine;
use rusqlite::Connection;

use crate::support::{LEASE, Scratch, Verbs, ask, name, wait};

/// The counter's row holds the boot id in these bytes.
const BOOT: std::ops::Range<usize> = 17..33;

/// Makes the database belong to another boot, as if the machine had restarted since.
pub(crate) fn reboot(scratch: &Scratch) {
    let database = Connection::open(scratch.database()).expect("opened");
    let select = "SELECT value FROM slot WHERE key = x''";
    let mut row: Vec<u8> = database.query_row(select, [], |row| row.get(0)).expect("there");
    row[BOOT].fill(0x11);
    database.execute("UPDATE slot SET value = ?1 WHERE key = x''", [row]).expect("changed");
}

#[test]
fn only_detached_leases_survive_a_reboot_and_start_again() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    let detached = Hold::Detached(Duration::from_secs(20));
    let shared = |hold, number| AcquireRequest { hold, mode: Mode::Shared, ..ask("a", number) };
    let (kept, _) = engine.granted(&shared(detached, 1));
    engine.granted(&shared(LEASE, 2));
    engine.queued(&ask("a", 3));
    engine.granted(&AcquireRequest { hold: Hold::Live, ..ask("b", 4) });
    let freeze = Operation::Freeze {
        name: name("c"),
        duration: Duration::from_secs(3_600),
        reason: "disks".into(),
    };
    wait(engine.operate(&freeze)).expect("frozen");
    let before = engine.report().expect("a report");
    drop(engine);
    reboot(&scratch);
    let engine = scratch.open_after_live_grants();
    let after = engine.look("a");
    assert_eq!((after.holder_count, after.queue_length), (1, 0));
    assert_eq!(after.holders[0].summary.token, Some(kept));
    assert!(after.holders[0].summary.left.is_some_and(|left| left > Duration::from_secs(10)));
    let renewed = engine.line("a", 1, Purpose::Keep(detached));
    assert!(matches!(renewed, Ok(RenewReply::Renewed { .. })), "{renewed:?}");
    assert!(!engine.look("b").is_held());
    let frozen = engine.look("c").freeze.expect("still frozen");
    assert!(frozen.active && frozen.left > Duration::from_secs(3_000));
    // Whatever may have been given before and is forgotten: later tokens are larger.
    let (token, _) = engine.granted(&ask("d", 5));
    assert!(token.get() >= before.reserved_to);
    assert_eq!(std::fs::read_dir(scratch.path().join("live")).expect("listed").count(), 1);
}

#[test]
fn nothing_is_removed_while_a_process_of_the_other_boot_lives() {
    let scratch = Scratch::new();
    let engine = scratch.open();
    engine.granted(&ask("a", 1));
    reboot(&scratch);
    let error = LocalEngine::open(&scratch.options()).expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert!(error.to_string().contains("still locked"), "{error}");
    assert!(engine.look("a").is_held());
    // Nor does the one that is still here give tokens that the other boot might give as well.
    let error = engine.acquire(&ask("b", 2)).expect_err("another boot");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    drop(engine);
    let engine = scratch.open();
    assert!(!engine.look("a").is_held());
}

#[test]
fn foreign_rows_survive_a_reboot_unchanged() {
    let scratch = Scratch::new();
    drop(scratch.open());
    let database = Connection::open(scratch.database()).expect("opened");
    let plant = "INSERT INTO slot VALUES (CAST('bad' AS BLOB), x'99')";
    database.execute(plant, []).expect("planted");
    drop(database);
    reboot(&scratch);
    let engine = scratch.open();
    let error = wait(holdline_core::Engine::inspect(&engine, &name("bad"))).expect_err("foreign");
    assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error}");
}
