//! Work under a mark's lock, by this process and by the programs that it starts.

use crate::tests::{Home, is_stale, proof, token};
use crate::{FenceError, FileMark, HeldMark};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn at_once(mark: &FileMark) -> FileMark {
    mark.clone().with_lock_wait(Duration::ZERO)
}

#[test]
fn work_under_a_held_mark_delays_newer_holders_and_refuses_older_ones() {
    let home = Home::new();
    let mark = FileMark::at(home.join("mark")).expect("a place");
    let held = mark.hold(&proof(34)).expect("the first");
    assert_eq!(mark.mark().expect("readable"), Some(token(34)), "raised before the work");
    assert!(is_stale(&mark.seal(&proof(33))), "a stale holder need not wait for the refusal");
    mark.check(&proof(34)).expect("a check does not wait");
    let reported = at_once(&mark).hold(&proof(35)).map(drop);
    assert!(matches!(reported, Err(FenceError::Busy { .. })), "{reported:?}");
    drop(held);
    assert_eq!(at_once(&mark).check_and_run(&proof(35), || 7).expect("free"), 7);
    let _again: HeldMark = at_once(&mark).hold(&proof(35)).expect("free after the work");
}

#[test]
fn a_waiting_holder_goes_on_when_the_work_ends() {
    let home = Home::new();
    let mark = FileMark::at(home.join("mark")).expect("a place");
    let held = mark.hold(&proof(34)).expect("the first");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| mark.hold(&proof(35)).map(drop));
        drop(held);
        waiting.join().expect("no panic").expect("free");
    });
    assert_eq!(mark.mark().expect("readable"), Some(token(35)));
}

const PATH: &str = "HOLDLINE_TEST_FENCE_MARK";
const INHERIT: &str = "HOLDLINE_TEST_FENCE_INHERIT";

/// The process that the next test kills; does nothing when run by itself.
#[test]
fn one_process_that_holds() {
    let Ok(path) = std::env::var(PATH) else { return };
    let mark = FileMark::at(path).expect("a place");
    let held = mark.hold(&proof(34)).expect("the first");
    if std::env::var(INHERIT).is_ok() {
        held.let_children_inherit().expect("a descriptor of ours");
    }
    // `cat` copies what we were given until that ends, whatever becomes of us.
    let mut program = Command::new("cat").stdout(Stdio::null()).spawn().expect("coreutils");
    println!("\nholding");
    program.wait().expect("it ends");
}

/// Starts a holder that runs a program, and waits until it runs.
fn start_holder(path: &std::path::Path, inherit: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["--exact", "file::tests::held::one_process_that_holds", "--nocapture"])
        .env(PATH, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if inherit {
        command.env(INHERIT, "1");
    }
    let mut child = command.spawn().expect("a process");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let holds = output.lines().any(|line| line.is_ok_and(|line| line == "holding"));
    assert!(holds, "the holder ended before it held");
    child
}

#[test]
fn a_program_keeps_the_inherited_lock_when_its_starter_is_killed() {
    for inherit in [true, false] {
        let home = Home::new();
        let mark = FileMark::at(home.join("mark")).expect("a place");
        let mut holder = start_holder(&home.join("mark"), inherit);
        let reported = at_once(&mark).hold(&proof(35)).map(drop);
        assert!(matches!(reported, Err(FenceError::Busy { .. })), "{reported:?}");

        // The program still runs: it ends when its input does, which we hold open.
        let input = holder.stdin.take().expect("piped");
        holder.kill().expect("ours");
        holder.wait().expect("killed");
        let reported = at_once(&mark).hold(&proof(35)).map(drop);
        assert_eq!(reported.is_err(), inherit, "{reported:?}");

        drop(input);
        mark.hold(&proof(36)).map(drop).expect("free when the program has ended");
    }
}
