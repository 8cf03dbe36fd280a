//! What the store can do to a command line: refuse, be somebody else's, fall silent, go away.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use rusqlite::Connection;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::world::{CommandOutput, Running, World, is_alive};

/// A world whose store gives up waiting soon.
fn impatient() -> World {
    World::with_parameters("?transaction_limit_ms=1000")
}

fn says(output: &CommandOutput, code: i32, words: &[&str]) {
    assert_eq!(output.code, code, "{output:?}");
    for word in words {
        assert!(output.stderr.contains(word), "{word}: {}", output.stderr);
    }
}

#[test]
fn foreign_tables_are_reported_and_left() {
    let world = World::new();
    std::fs::create_dir(world.path("store")).expect("made");
    let database = world.path("store/locks.db");
    std::fs::write(&database, "not a database, but somebody's text").expect("written");
    says(&world.run(&["run", "a", "true"]), 65, &["left as it is"]);
    let kept = std::fs::read_to_string(&database).expect("still there");
    assert_eq!(kept, "not a database, but somebody's text");

    std::fs::remove_file(&database).expect("removed");
    let other = Connection::open(&database).expect("a database");
    other.execute_batch("CREATE TABLE t(a); PRAGMA application_id = 7").expect("filled");
    drop(other);
    says(&world.run(&["run", "a", "true"]), 65, &["left as it is"]);
}

#[test]
fn a_database_of_a_later_version_is_a_protocol_error() {
    let world = World::new();
    assert_eq!(world.run(&["run", "a", "true"]).code, 0);
    let database = Connection::open(world.path("store/locks.db")).expect("a database");
    database.execute_batch("PRAGMA user_version = 1000").expect("changed");
    drop(database);
    says(&world.run(&["run", "a", "true"]), 76, &["layout 1000", "newer holdline"]);
}

#[test]
fn an_unusable_directory_is_refused() {
    let world = World::new();
    std::fs::write(world.path("file"), "").expect("written");
    let below = format!("local://{}", world.path("file/store").display());
    for url in [below.as_str(), "local:///proc/self/holdline"] {
        let output = world.run(&["--url", url, "run", "a", "--", "echo", "ran"]);
        assert_eq!(output.code, 78, "{output:?}");
        assert_eq!(output.stdout, "");
    }
    let itself = format!("local://{}", world.path("file").display());
    says(&world.run(&["--url", &itself, "run", "a", "true"]), 78, &["it is not a directory"]);
}

#[test]
fn a_locked_store_names_the_process_that_locks_it() {
    let world = impatient();
    assert_eq!(world.run(&["run", "a", "true"]).code, 0);
    let directory = File::open(world.path("store")).expect("a directory");
    directory.lock().expect("nobody has it");
    let me = std::process::id().to_string();
    says(&world.run(&["run", "a", "true"]), 69, &[&me]);
    says(&world.run(&["who", "a"]), 69, &[&me]);
    drop(directory);
    assert_eq!(world.run(&["run", "a", "true"]).code, 0);
}

#[test]
fn a_lease_that_cannot_be_renewed_stops_the_job_before_its_end() {
    let world = impatient();
    let job = "trap 'echo term' TERM; echo up $$; while :; do read line; done";
    let options =
        ["run", "--lease", "18s", "--grace", "5s", "--report", "report", "a", "--", "sh", "-c"];
    let mut holder = world.start(&[&options[..], &[job]].concat());
    assert!(holder.line().starts_with("up "));
    let directory = File::open(world.path("store")).expect("a directory");
    directory.lock().expect("the lock is short");
    assert_eq!(holder.line(), "term", "TERM comes first");
    assert_eq!(holder.code(), 79);
    assert!(!is_alive(holder.job.get()));
    drop(directory);
    let talk = holder.rest();
    assert!(talk.contains("the lease cannot be renewed"), "{talk}");
    let report = std::fs::read_to_string(world.path("report")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((&report["outcome"], &report["lost"]["kind"]), (&"lost".into(), &"expired".into()));
}

#[test]
fn a_store_that_is_deleted_ends_live_holders_too() {
    let world = World::new();
    let mut holder = world.hold(&["a"]);
    std::fs::remove_dir_all(world.path("store")).expect("deleted");
    assert_eq!(holder.code(), 79);
    assert!(!is_alive(holder.job.get()));
    let talk = holder.rest();
    assert!(talk.contains("lost"), "{talk}");
}

#[test]
fn a_stderr_that_takes_nothing_holds_up_neither_the_wait_nor_the_kill() {
    let world = impatient();
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    let status = fcntl_getfl(&writer).expect("flags");
    fcntl_setfl(&writer, status | OFlags::NONBLOCK).expect("set");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    fcntl_setfl(&writer, status).expect("set");
    let job = "trap 'echo term' TERM; echo up $$; while :; do read line; done";
    let line = ["run", "-v", "--lease", "18s", "--grace", "5s", "a", "--", "sh", "-c", job];
    let mut first = world.hold(&["a"]);
    let mut command = world.command(&line);
    let mut holder = Running::start_with_stderr(&mut command, writer.into());
    world.queued("a", 1);
    first.let_go();
    assert!(holder.line().starts_with("up "), "it keeps its position and acquires the name");
    let directory = File::open(world.path("store")).expect("a directory");
    directory.lock().expect("the lock is short");
    assert_eq!(holder.line(), "term", "TERM comes first");
    assert_eq!(holder.code(), 79);
    assert!(!is_alive(holder.job.get()));
}

#[test]
fn who_and_doctor_agree_with_run_on_an_unusable_directory() {
    let world = World::new();
    std::fs::write(world.path("file"), "").expect("written");
    std::os::unix::fs::symlink("nowhere", world.path("link")).expect("a link");
    let places = ["link", "link/store", "file", "file/store"].map(|place| world.path(place));
    let mut urls: Vec<String> = places.map(|place| format!("local://{}", place.display())).into();
    urls.push("local:///proc/self/holdline".into());
    for url in urls {
        for verb in [
            &["run", "a", "--", "true"][..],
            &["who", "a"],
            &["ls"],
            &["wait", "a"],
            &["check", "a", "--lease-id", &"0".repeat(32)],
        ] {
            let output = world.run(&[&["--url", &url], verb].concat());
            assert_eq!(output.code, 78, "{url} {verb:?}: {output:?}");
        }
        let output = world.run(&["doctor", &url]);
        assert_eq!(output.code, 2, "{url}: {output:?}");
    }
    let names: Vec<_> = std::fs::read_dir(world.path("")).expect("ours").collect();
    assert_eq!(names.len(), 2, "nothing was made: {names:?}");
}

#[test]
fn every_message_about_a_database_names_its_file() {
    let drop_table = "PRAGMA writable_schema = 1; DELETE FROM sqlite_schema";
    let harms: [&dyn Fn(&Path); 4] = [
        &|file| std::fs::write(file, "no database, but somebody's text").expect("written"),
        &|file| change(file, "UPDATE slot SET value = x'00' WHERE key = x''"),
        &|file| change(file, drop_table),
        &|file| {
            change(file, "PRAGMA wal_checkpoint(TRUNCATE)");
            let mut bytes = std::fs::read(file).expect("a database");
            bytes[4_096..].fill(0xa5);
            std::fs::write(file, bytes).expect("written");
        },
    ];
    for harm in harms {
        let world = World::new();
        assert_eq!(world.run(&["acquire", "a", "--lease", "1m"]).code, 0);
        let file = world.path("store/locks.db");
        harm(&file);
        says(&world.run(&["who", "a"]), 65, &[&file.to_string_lossy()]);
    }
    let world = World::new();
    assert_eq!(world.run(&["run", "a", "true"]).code, 0);
    let file = world.path("store/locks.db");
    let other = Connection::open(&file).expect("a database");
    other.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    says(&world.run(&["who", "a"]), 69, &["another program keeps", &file.to_string_lossy()]);
}

fn change(file: &Path, sql: &str) {
    let database = Connection::open(file).expect("a database");
    database.execute_batch(sql).expect("changed");
}

#[test]
fn a_release_that_is_not_confirmed_says_so_by_its_code() {
    let world = impatient();
    let id = ["a", "--lease-id", "00112233445566778899aabbccddeeff"];
    assert_eq!(world.run(&[&["acquire", "--lease", "1m"], &id[..]].concat()).code, 0);
    let other = Connection::open(world.path("store/locks.db")).expect("a database");
    other.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    let release = world.run(&[&["release"], &id[..]].concat());
    says(&release, 69, &["another program keeps", "the end of the lease frees the name"]);
    other.execute_batch("ROLLBACK").expect("ended");
    assert_eq!(world.run(&[&["release"], &id[..]].concat()).code, 0);
}
