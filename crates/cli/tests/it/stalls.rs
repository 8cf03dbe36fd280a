//! A store that stands still: a leased job is stopped in time all the same.
//!
//! The store stands still from just behind the grant, so the first lease is never renewed and its
//! end is what the job finds in its environment. The job writes down when it still ran.

use std::fs::File;

use holdline_services::steady;
use rusqlite::Connection;

use crate::clock::{build_shim, number};
use crate::world::{Running, World, eventually};

/// Prints when it receives TERM, and writes down every moment in which it still runs.
const JOB: &str = "trap 'echo term' TERM; echo up $$; echo $HOLDLINE_VALID_UNTIL_MS
                   while :; do date +%s%3N >> ran; sleep 0.02; done";

fn started(world: &World, lease: &str, grace: &str, environment: &[(&str, &str)]) -> Running {
    let line = ["run", "--lease", lease, "--grace", grace, "a", "--", "sh", "-c", JOB];
    world.start_command(world.command(&line).envs(environment.iter().copied()))
}

/// Opens a store in which nobody has locked yet. Also returns how many commits were seen.
fn store(world: &World) -> (Connection, i64) {
    assert_eq!(world.run(&["run", "first", "true"]).code, 0);
    let store = Connection::open(world.path("store/locks.db")).expect("a database");
    let commits = commits(&store);
    (store, commits)
}

/// A number that changes with each commit of another program.
fn commits(store: &Connection) -> i64 {
    store.query_row("PRAGMA data_version", [], |row| row.get(0)).expect("read")
}

/// The job receives TERM, and does not run when the lease is over.
fn is_stopped_in_time(world: &World, holder: &Running) {
    assert!(holder.line().starts_with("up "));
    let valid_until = number(&holder.line());
    assert_eq!(holder.line(), "term", "TERM comes, and comes before KILL");
    holder.expect_silence();
    let ran = std::fs::read_to_string(world.path("ran")).expect("the job ran");
    let last = number(ran.lines().last().expect("the job ran"));
    assert!(last < valid_until, "it ran {} ms too long", last - valid_until);
}

#[test]
fn a_database_locked_by_another_program_delays_neither_term_nor_kill() {
    for (lease, grace) in [("6s", "1s"), ("4s", "600ms")] {
        steady(|| {
            let world = World::new();
            let (store, before) = store(&world);
            let mut holder = started(&world, lease, grace, &[]);
            eventually("granted", || commits(&store) != before);
            store.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
            is_stopped_in_time(&world, &holder);
            drop(store);
            assert_eq!(holder.code(), 79);
        });
    }
}

#[test]
fn a_disk_that_hangs_delays_neither_term_nor_kill() {
    steady(|| {
        let world = World::new();
        let shim = build_shim(&world, "stalled_disk");
        let (stall, shim) = (world.path("stall"), shim.to_string_lossy().into_owned());
        let (store, before) = store(&world);
        let stalled = stall.to_string_lossy().into_owned();
        let environment = [("LD_PRELOAD", shim.as_str()), ("STALL_FILE", stalled.as_str())];
        let mut holder = started(&world, "4s", "600ms", &environment);
        eventually("granted", || commits(&store) != before);
        std::fs::write(&stall, "").expect("a file");
        is_stopped_in_time(&world, &holder);
        std::fs::remove_file(&stall).expect("there");
        assert_eq!(holder.code(), 79);
    });
}

#[test]
fn an_unanswered_renewal_is_reported_with_its_duration() {
    let world = World::new();
    let mut holder = world.hold(&["--lease", "6s", "--grace", "1s", "a"]);
    let directory = File::open(world.path("store")).expect("a directory");
    directory.lock().expect("the lock is short");
    assert_eq!(holder.code(), 79);
    drop(directory);
    let talk = holder.rest();
    assert!(talk.contains("the lease cannot be renewed: local: no answer: nothing"), "{talk}");
    assert!(!talk.contains("within 10s"), "{talk}");
}
