//! `holdline torture`: that it is wired to the run, and what it may do to whom.
//!
//! What a run finds on which engine is tested beside it, in `crates/torture`.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::world::{Running, World, eventually, is_alive, output};

const SHORT: [&str; 5] = ["torture", "--seconds", "1", "--seed", "7"];

fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_run_keeps_its_promises_and_its_history() {
    let world = World::new();
    let output = world.run(&[&["--json"], &SHORT[..], &["--history", "h"]].concat());
    assert_eq!(output.code, 0, "{output:?}");
    let report = object(&output.stdout);
    assert_eq!((&report["verdict"], &report["seed"]), (&"kept".into(), &7.into()));
    assert!(report["faults"]["pause-holder"].as_u64() > Some(0), "{report}");
    assert!(report["unfenced_lost"].as_u64() > Some(0), "{report}");
    let history = fs::read_to_string(world.path("h")).expect("a history");
    let lines: Vec<Value> = history.lines().map(object).collect();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).count() as u64;
    assert_eq!(Some(of("granted")), report["acquisitions"].as_u64());
    assert!(of("fault") > 0 && of("wrote") > 0 && of("called") >= of("granted"));
    let at = |line: &Value| line["at_ns"].as_u64().expect("a time");
    assert!(lines.windows(2).all(|pair| at(&pair[0]) <= at(&pair[1])));
}

#[test]
fn a_planted_bug_is_found_with_its_witness() {
    let world = World::new();
    let output = world.run(&[&SHORT[..], &["--plant", "accept-stale"]].concat());
    assert_eq!(output.code, 1, "{output:?}");
    // Which of the two it is depends on whether the late writer had asked before the other's grant.
    let witnesses = ["a late write was accepted", "accepted an older token (C3)"];
    assert!(witnesses.iter().any(|it| output.stdout.contains(it)), "{output:?}");
    assert!(
        output.stdout.lines().nth(1).is_some_and(|line| line.ends_with("broken")),
        "{output:?}"
    );
    assert!(output.stderr.contains("--seed 7 repeats the same faults"), "{output:?}");
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_done() {
    let world = World::new();
    for (arguments, code, says) in [
        (&["--nemesis", "flush-all"][..], 64, "--store-is-expendable"),
        (&["--nemesis", "pauze"], 64, "did you mean 'pause'?"),
        (&["--nemesis", "cut"], 64, "which is impossible for this store"),
        (&["--store-is-expendable"], 64, "nothing here erases that store"),
        (&["--history", "no/such/h"], 64, "nothing was started"),
        (&["--url", "memory:"], 78, "workers would share nothing"),
        (&["--seconds", "0"], 64, "--seconds"),
    ] {
        let said = world.run(&[&SHORT[..1], arguments].concat());
        assert_eq!(said.code, code, "{arguments:?}: {said:?}");
        assert!(said.stderr.contains(says), "{arguments:?}: {said:?}");
    }
    assert!(!world.path("store").exists());
}

fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Returns whether a worker receives its orders. By then it dies with its run.
fn receives_orders(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.any(|name| name.trim_end() == "orders")
}

/// The workers of a run; not one that is about to be, which does not die with it yet.
fn workers(of: &Running) -> Vec<u32> {
    let pid = of.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.filter(|pid| receives_orders(*pid)).collect()
}

/// Starts a run that would last, and waits for its workers.
fn long_run(command: &mut Command) -> Running {
    command.args(["torture", "--seconds", "600", "--nemesis", "pause", "--workers", "3"]);
    let run = Running::start(command);
    eventually("three workers", || workers(&run).len() == 3);
    run
}

#[test]
fn workers_die_with_the_run_even_when_they_are_stopped() {
    let world = World::new();
    let mut run = long_run(&mut world.command::<&str>(&[]));
    let workers = workers(&run);
    let stopped = i32::try_from(workers[0]).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(stopped, Signal::STOP).expect("it runs");
    run.signal(Signal::KILL);
    assert_eq!(run.code(), 137);
    eventually("nobody is left", || !workers.iter().any(|pid| is_alive(*pid)));
}

#[cfg(feature = "redis")]
#[test]
fn a_password_is_on_no_workers_command_line() {
    use holdline_services::{RedisConfig, RedisServer};
    let server = RedisServer::start(RedisConfig::default().with_password("CANARY"));
    let world = World::new();
    let mut command = world.command::<&str>(&[]);
    command.env("HOLDLINE_URL", format!("redis://:CANARY@{}", server.address()));
    let run = long_run(&mut command);
    for pid in workers(&run) {
        let line = command_line(pid);
        assert!(!line.contains("CANARY"), "{line}");
    }
}

#[cfg(feature = "redis")]
#[test]
fn an_expendable_redis_is_struck_itself() {
    use holdline_services::{RedisConfig, RedisServer};
    let server = RedisServer::start(RedisConfig::default());
    let world = World::new();
    let faults = "pause-holder,cut,reset,script-flush,client-kill,flush-all";
    let mut command = world.command(&["--json", "torture", "--nemesis", faults]);
    command.args(["--seconds", "6", "--seed", "3", "--store-is-expendable"]);
    command.env("HOLDLINE_URL", server.url());
    let output = output(&mut command);
    assert_eq!(output.code, 0, "{output:?}");
    let report = object(&output.stdout);
    for fault in ["script-flush", "client-kill", "flush-all", "reset"] {
        assert!(report["faults"][fault].as_u64() > Some(0), "{fault}: {report}");
    }
    // What the only server forgets, no lock on it survives; the resource lost nothing.
    assert_eq!((&report["exclusion_judged"], &report["fenced_lost"]), (&false.into(), &0.into()));
}

#[cfg(feature = "redis")]
#[test]
fn the_master_of_an_expendable_group_is_replaced() {
    use holdline_services::{SentinelConfig, SentinelGroup};
    let group = SentinelGroup::start(&SentinelConfig::default());
    group.settle(0);
    let world = World::new();
    let mut command = world.command(&["--json", "torture", "--nemesis", "pause-holder,failover"]);
    command.args(["--seconds", "8", "--seed", "3", "--store-is-expendable"]);
    let limits = "max_lease_duration_ms=1000&old_master_ms=1500";
    command.env("HOLDLINE_URL", format!("{}?{limits}", group.url()));
    let output = output(&mut command);
    assert_eq!(output.code, 0, "{output:?}");
    let report = object(&output.stdout);
    assert!(report["faults"]["failover"].as_u64() > Some(0), "{report}");
    assert_eq!((&report["exclusion_judged"], &report["fenced_lost"]), (&true.into(), &0.into()));
}
