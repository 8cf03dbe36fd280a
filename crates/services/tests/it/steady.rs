//! A scenario begins anew only after this process was paused.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::Duration;

use holdline_services::steady;

/// Run by the tests below in processes of their own, which they may stop.
const ROLE: &str = "HOLDLINE_TEST_STEADY";

/// Fails its first tries, after it has reported that and got a reply.
#[test]
fn scenario() {
    let Some(fails) = std::env::var(ROLE).ok().and_then(|fails| fails.parse().ok()) else { return };
    let tries = Cell::new(0_u32);
    steady(|| {
        tries.set(tries.get() + 1);
        println!("\ntry {}", tries.get());
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        assert!(tries.get() > fails, "failed");
    });
}

/// Runs the scenario and stops it at each try; returns how often it began, and whether it was well.
fn stopped_at_each_try(fails: u32) -> (usize, bool) {
    use std::io::{BufRead, BufReader, Write};
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args(["steady::scenario", "--exact", "--nocapture"])
        .env(ROLE, fails.to_string())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let signal = |signal: &str, pid: u32| {
        let reply = Command::new("kill").args([signal, &pid.to_string()]).status();
        assert!(reply.expect("kill runs").success());
    };
    let (pid, mut input) = (child.id(), child.stdin.take().expect("a pipe"));
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut tries = 0;
    for _ in lines.filter(|line| line.starts_with("try ")) {
        tries += 1;
        signal("-STOP", pid);
        std::thread::sleep(Duration::from_millis(900)); // event: the pause is tested
        signal("-CONT", pid);
        input.write_all(b"\n").expect("it reads");
    }
    (tries, child.wait().expect("it ends").success())
}

#[test]
fn an_attempt_that_failed_during_a_stall_begins_anew() {
    assert_eq!(stopped_at_each_try(0), (1, true));
    assert_eq!(stopped_at_each_try(2), (3, true));
}

#[test]
fn an_attempt_that_fails_again_and_again_fails() {
    assert_eq!(stopped_at_each_try(100), (5, false));
}

/// On a machine with constant pauses this cannot be tested; it is tried until it can.
#[test]
fn an_attempt_that_fails_without_a_stall_fails_at_once() {
    let at_once = (0..100).any(|_| {
        let tries = Cell::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            steady(|| {
                tries.set(tries.get() + 1);
                panic!("failed");
            });
        }));
        assert!(outcome.is_err());
        tries.get() == 1
    });
    assert!(at_once);
}
