//! A crash at every write of the database, and an old copy that was put back.
//!
//! A crash leaves a beginning of what was written. So the log is cut at every frame's end, in the
//! middle of every frame and just beside both; the database is mixed of old and new pages as a
//! crash in the middle of moving the log would leave it; and the log's own new beginning is cut
//! over the old one. Each time the state must be that after some command, no earlier than the
//! last one whose frames are whole, and no token may come twice.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{AcquireRequest, Clock, Engine, Hold, Mode, Moment, Operation, OperationReply};
use holdline_local::LocalEngine;
use rusqlite::Connection;

use crate::reboots::reboot;
use crate::support::{Scratch, Verbs, ask, until, wait};

/// How many commands are recorded.
const COMMANDS: u64 = 24;
const LOG_HEAD: usize = 32;
const FRAME: usize = 24 + PAGE;
const PAGE: usize = 4_096;

/// What can be seen of a store: every name's holders and queue, and the next token.
type Seen = (Vec<(u64, usize)>, u64);

fn see(engine: &LocalEngine) -> Seen {
    let names = ["a", "b", "c"].map(|text| {
        let snapshot = engine.look(text);
        let tokens = snapshot.holders.iter().filter_map(|h| h.summary.token.map(|t| t.get()));
        (tokens.sum(), snapshot.queue_length)
    });
    (names.to_vec(), engine.report().expect("a report").next_token)
}

/// Holds that hang on no process: the copies have no liveness files.
fn detached(text: &str, number: u64) -> AcquireRequest {
    let hold = Hold::Detached(Duration::from_secs(30));
    AcquireRequest { hold, mode: Mode::Shared, ..ask(text, number) }
}

/// Files of a store that was in use, and what was seen after each command.
struct Recorded {
    database: Vec<u8>,
    log: Vec<u8>,
    seen: Vec<Seen>,
    /// How many frames the log had after each command.
    frames: Vec<usize>,
}

fn command(engine: &LocalEngine, step: u64) {
    match step % 6 {
        0 => drop(engine.acquire(&detached("a", step))),
        1 => drop(engine.acquire(&detached("b", step))),
        2 => drop(engine.acquire(&ask("a", step))),
        3 => drop(engine.acquire(&detached("c", step))),
        4 => drop(engine.end("b", step - 3)),
        _ => drop(engine.end("a", step - 5)),
    }
}

/// A clock that stands still: what a store looks like must not depend on when it is looked at.
#[derive(Debug)]
pub(crate) struct Still;

impl Clock for Still {
    fn now(&self) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs(1_000))
    }

    fn sleep_until(&self, _: Moment) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::pending())
    }
}

/// Opens once what was let go is seen to be: a process that another test is just starting has its
/// descriptors, too, until it has become another program.
fn open(scratch: &Scratch) -> LocalEngine {
    let options = scratch.options().with_clock(Arc::new(Still));
    until(|| match LocalEngine::open(&options) {
        Err(error) if error.to_string().contains("still locked") => None,
        opened => Some(opened.expect("opened")),
    })
}

fn record() -> Recorded {
    let scratch = Scratch::new();
    let engine = open(&scratch);
    let log = || std::fs::read(scratch.path().join("locks.db-wal")).expect("read");
    let frames = |log: &[u8]| (log.len() - LOG_HEAD) / FRAME;
    let mut recorded = Recorded {
        database: std::fs::read(scratch.database()).expect("read"),
        log: Vec::new(),
        seen: vec![see(&engine)],
        frames: vec![frames(&log())],
    };
    for step in 0..COMMANDS {
        command(&engine, step);
        recorded.seen.push(see(&engine));
        recorded.frames.push(frames(&log()));
    }
    recorded.log = log();
    recorded
}

/// A store that a crash has left with these files.
struct Crashed {
    scratch: Scratch,
    /// The processes that had asked live on: one that was handed a name may still ask for it.
    living: Vec<std::fs::File>,
}

fn after_crash(database: &[u8], log: &[u8]) -> Crashed {
    let scratch = Scratch::new();
    std::fs::write(scratch.database(), database).expect("written");
    std::fs::write(scratch.path().join("locks.db-wal"), log).expect("written");
    let live = scratch.path().join("live");
    std::fs::create_dir(&live).expect("made");
    let living = (0..COMMANDS).map(|client| {
        let file = std::fs::File::create(live.join(format!("client-{client:016x}")));
        file.and_then(|file| file.lock_shared().map(|()| file)).expect("locked")
    });
    Crashed { living: living.collect(), scratch }
}

impl Crashed {
    fn open(&self) -> LocalEngine {
        open(&self.scratch)
    }

    fn reboot(&mut self) {
        self.living.clear();
        reboot(&self.scratch);
    }
}

#[test]
fn a_log_that_is_cut_anywhere_gives_an_old_or_the_new_state() {
    let recorded = record();
    let last_frame = (recorded.log.len() - LOG_HEAD) / FRAME;
    assert_eq!(recorded.frames.last(), Some(&last_frame));
    let first = recorded.frames[0];
    let mut seen_states = 0;
    for frame in first..=last_frame {
        let end = LOG_HEAD + frame * FRAME;
        for cut in [end - 1, end, end + 1, end + 24, end + FRAME / 2] {
            let cut = cut.min(recorded.log.len());
            let whole = (cut - LOG_HEAD) / FRAME;
            if whole < first {
                // The first use of the boot is flushed before anything is given: never cut.
                continue;
            }
            let mut crashed = after_crash(&recorded.database, &recorded.log[..cut]);
            let engine = crashed.open();
            let last = recorded.frames.iter().rposition(|frames| *frames <= whole);
            let expected = &recorded.seen[last.expect("after the first use")];
            assert_eq!(&see(&engine), expected, "cut at {cut}");
            // A crash of a process: the next request gets a token that nobody has seen.
            let (token, _) = engine.granted(&detached("d", 1_000));
            assert_eq!(token.get(), expected.1, "cut at {cut}");
            seen_states += 1;
            // A power cut: tokens of commands that it took back were seen, and never come back.
            drop(engine);
            crashed.reboot();
            let (token, _) = crashed.open().granted(&detached("d", 1_001));
            let largest = recorded.seen.last().expect("recorded").1;
            assert!(token.get() >= largest, "cut at {cut}: {token} after {largest}");
        }
    }
    assert!(seen_states > 100);
}

/// Moves the whole log into the database, in a directory of its own.
fn checkpointed(recorded: &Recorded) -> (Vec<u8>, Vec<u8>) {
    let Crashed { scratch, .. } = after_crash(&recorded.database, &recorded.log);
    let database = Connection::open(scratch.database()).expect("opened");
    let left = database.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| row.get(0));
    assert_eq!(left, Ok(0));
    let files = [scratch.database(), scratch.path().join("locks.db-wal")];
    let [database, log] = files.map(|path| std::fs::read(path).expect("read"));
    (database, log)
}

#[test]
fn a_crash_while_the_log_is_moved_loses_nothing() {
    let recorded = record();
    let (moved, log) = checkpointed(&recorded);
    assert!(moved.len() > PAGE && moved != recorded.database);
    for pages in 0..=moved.len() / PAGE {
        for torn in [0, 100, PAGE / 2] {
            let new = (pages * PAGE + torn).min(moved.len());
            let mut mixed = moved[..new].to_vec();
            mixed.extend_from_slice(recorded.database.get(new..).unwrap_or_default());
            let crashed = after_crash(&mixed, &log);
            assert_eq!(Some(&see(&crashed.open())), recorded.seen.last());
        }
    }
}

#[test]
fn a_crash_while_the_log_begins_anew_loses_nothing() {
    let recorded = record();
    let (moved, old_log) = checkpointed(&recorded);
    let crashed = after_crash(&moved, &old_log);
    let before = recorded.seen.last().expect("recorded").clone();
    let (after, new_log) = {
        let database = Connection::open(crashed.scratch.database()).expect("opened");
        let left = database.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| row.get(0));
        assert_eq!(left, Ok(0));
        let engine = crashed.open();
        engine.granted(&detached("d", 2_000));
        (see(&engine), read_log(crashed.scratch.path()))
    };
    assert_ne!(new_log[..LOG_HEAD], old_log[..LOG_HEAD]);
    let written = LOG_HEAD + FRAME;
    for cut in [0, 8, LOG_HEAD - 1, LOG_HEAD, LOG_HEAD + 24, written / 2, written - 1, written] {
        let mut mixed = new_log[..cut].to_vec();
        mixed.extend_from_slice(&old_log[cut..]);
        let seen = see(&after_crash(&moved, &mixed).open());
        assert!(seen == before || seen == after, "cut at {cut}: {seen:?}");
        assert!(cut < written || seen == after, "a whole command is lost");
    }
}

fn read_log(directory: &Path) -> Vec<u8> {
    std::fs::read(directory.join("locks.db-wal")).expect("read")
}

#[test]
fn a_database_left_half_created_by_a_crash_is_created_again() {
    let scratch = Scratch::new();
    let unfinished = format!("locks.db.new-{}", rustix::process::geteuid().as_raw());
    for end in ["", "-wal", "-shm", "-journal"] {
        let left = scratch.path().join(format!("{unfinished}{end}"));
        std::fs::write(left, "torn").expect("written");
    }
    open(&scratch).granted(&ask("a", 1));
    assert!(!scratch.path().join(unfinished).exists());
}

#[test]
fn after_a_restored_old_copy_the_operator_raises_the_fence() {
    let recorded = record();
    let lost = recorded.seen.last().expect("recorded").1 + 5_000;
    let mut crashed = after_crash(&recorded.database, &recorded.log);
    let engine = crashed.open();
    // The copy knows nothing of what was given after it was made: no engine could.
    let (stale, _) = engine.granted(&detached("d", 1));
    assert!(stale.get() < lost);
    let to = holdline_core::FencingToken::new(lost).expect("a token");
    let raised = wait(engine.operate(&Operation::RaiseFence { to }));
    assert_eq!(raised.ok(), Some(OperationReply::Done));
    let (token, _) = engine.granted(&detached("d", 2));
    assert!(token > to);
    drop(engine);
    crashed.reboot();
    let (later, _) = crashed.open().granted(&detached("d", 3));
    assert!(later > token);
}
