//! `run --once-per`: a job once per slot.

use rustix::process::Signal;

use crate::world::{CommandOutput, Running, World, eventually};

/// A daily slot whose ends are hours away from now.
fn daily() -> String {
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    format!("0 {} * * *", (now / 3_600 + 12) % 24)
}

/// Runs a job once per slot.
fn run(world: &World, slot: &str, flags: &[&str], job: &[&str]) -> CommandOutput {
    let first = ["run", "--once-per", slot];
    world.run(&[&first[..], flags, &["report", "--"], job].concat())
}

/// Starts a job once per slot that says `up PID` and then waits for its input to end, for 3.
fn start(world: &World, flags: &[&str]) -> Running {
    let (slot, job) = (daily(), ["report", "--", "sh", "-c", "echo up $$; read line; exit 3"]);
    let running = world.start(&[&["run", "--once-per", &slot], flags, &job].concat());
    assert!(running.line().starts_with("up "), "the job runs");
    running
}

fn is_done_already(output: &CommandOutput) {
    assert_eq!((output.code, &*output.stdout), (0, ""), "{output:?}");
    assert!(output.stderr.contains("report: the job has run in this slot"), "{output:?}");
    assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
}

#[test]
fn the_job_runs_once_in_a_slot_and_the_rest_end_well() {
    // A lease keeps the daily slot, a freeze the yearly one.
    for slot in [&*daily(), "@yearly"] {
        let world = World::new();
        let output = run(&world, slot, &[], &["echo", "worked"]);
        assert_eq!((output.code, &*output.stdout), (0, "worked\n"), "{output:?}");
        for _ in 0..2 {
            is_done_already(&run(&world, slot, &["--report", "r.json"], &["echo", "again"]));
        }
        let report = std::fs::read_to_string(world.path("r.json")).expect("written");
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        assert_eq!((&report["outcome"], &report["exit"]), (&"already_ran".into(), &0.into()));
        assert_eq!(report["ran_by"]["program"], "echo", "{report}");
        assert!(report["ran_by"]["since_ms"].is_u64(), "{report}");
    }
}

#[test]
fn a_failed_job_frees_its_slot_unless_a_flag_keeps_it() {
    let fails = ["sh", "-c", "echo tried; exit 7"];
    for (flags, again) in
        [(&[][..], true), (&["--keep-on-failure"], false), (&["--at-most-once"], false)]
    {
        let world = World::new();
        let output = run(&world, &daily(), flags, &fails);
        assert_eq!((output.code, &*output.stdout), (7, "tried\n"), "{output:?}");
        let output = run(&world, &daily(), flags, &["echo", "again"]);
        if again {
            assert_eq!((output.code, &*output.stdout), (0, "again\n"), "{flags:?}: {output:?}");
        } else {
            is_done_already(&output);
        }
    }
}

#[test]
fn a_waiter_learns_that_the_job_ended_elsewhere() {
    let world = World::new();
    let mut running = start(&world, &[]);
    let output = run(&world, &daily(), &["--try"], &["echo", "again"]);
    assert_eq!(output.code, 75, "{output:?}");
    assert!(output.stderr.contains("report: the job runs elsewhere: sh (pid "), "{output:?}");
    let output = run(&world, &daily(), &["--skip"], &["echo", "again"]);
    assert_eq!((output.code, &*output.stdout), (0, ""), "{output:?}");
    let output = run(&world, &daily(), &["--wait", "200ms"], &["echo", "again"]);
    assert_eq!(output.code, 75, "{output:?}");

    let waits = ["run", "--once-per", &daily(), "report", "--", "echo", "mine"];
    let mut waiting = world.start(&waits);
    assert!(waiting.said().contains("waiting for report: the job runs elsewhere"));
    running.let_go();
    assert_eq!(running.code(), 3, "it failed, and gave the slot back");
    assert_eq!((waiting.line(), waiting.code()), ("mine".to_owned(), 0));
}

#[test]
fn it_waits_for_a_holder_that_is_not_the_job() {
    let world = World::new();
    let mut other = world.start(&["run", "report", "--", "sh", "-c", "echo up; read line"]);
    assert_eq!(other.line(), "up");
    for (flags, code) in [(&["--try"][..], 75), (&["--skip"], 0), (&["--wait", "200ms"], 75)] {
        let output = run(&world, &daily(), flags, &["echo", "mine"]);
        assert_eq!((output.code, &*output.stdout), (code, ""), "{flags:?}: {output:?}");
        assert!(output.stderr.contains("held by sh ("), "{flags:?}: {output:?}");
        let waits = flags[0] == "--wait";
        assert_eq!(output.stderr.contains("waiting for report, held by"), waits, "{output:?}");
        assert_eq!(output.stderr.contains("report: not free after "), waits, "{output:?}");
    }

    let (slot, job) = (daily(), ["report", "--", "echo", "mine"]);
    for flags in [&[][..], &["--wait", "1m"]] {
        let mut waiting = world.start(&[&["run", "--once-per", &slot], flags, &job].concat());
        assert!(waiting.said().contains("waiting for report, held by sh ("), "{flags:?}");
        if flags.is_empty() {
            waiting.signal(Signal::TERM);
            assert_eq!(waiting.code(), 143, "a signal ends the wait");
            continue;
        }
        other.let_go();
        assert_eq!((waiting.line(), waiting.code()), ("mine".to_owned(), 0));
    }
}

#[test]
fn it_waits_for_the_end_of_an_operators_freeze() {
    let world = World::new();
    let frozen = world.run(&["freeze", "report", "--for", "1h", "--reason", "moving house"]);
    assert_eq!(frozen.code, 0, "{frozen:?}");
    let waits = ["run", "--once-per", &daily(), "--wait", "1m", "report", "--", "echo", "mine"];
    let mut waiting = world.start(&waits);
    assert!(waiting.said().contains("held by an operator's freeze: moving house"));
    assert_eq!(world.run(&["unfreeze", "report"]).code, 0);
    assert_eq!((waiting.line(), waiting.code()), ("mine".to_owned(), 0));
}

#[test]
fn another_takes_over_from_one_that_is_killed_unless_the_job_runs_at_most_once() {
    let world = World::new();
    let mut dies = start(&world, &[]);
    dies.signal(Signal::KILL);
    assert_eq!(dies.code(), 137);
    let output = run(&world, &daily(), &[], &["echo", "mine"]);
    assert_eq!((output.code, &*output.stdout), (0, "mine\n"), "{output:?}");

    let world = World::new();
    let mut dies = start(&world, &["--at-most-once"]);
    dies.signal(Signal::KILL);
    assert_eq!(dies.code(), 137);
    is_done_already(&run(&world, &daily(), &["--at-most-once"], &["echo", "mine"]));
}

#[test]
fn one_that_is_stopped_past_its_lease_is_overtaken_and_its_job_is_stopped() {
    let world = World::new();
    let lease = ["--lease", "3s", "--grace", "0s"];
    let mut stopped = start(&world, &lease);
    stopped.signal(Signal::STOP);
    let output = run(&world, &daily(), &lease, &["echo", "mine"]);
    assert_eq!((output.code, &*output.stdout), (0, "mine\n"), "{output:?}");
    stopped.signal(Signal::CONT);
    assert_eq!(stopped.code(), 79, "the lease was lost");
    eventually("the job is gone", || !crate::world::is_alive(stopped.job.get()));
    is_done_already(&run(&world, &daily(), &lease, &["echo", "again"]));
}

#[test]
fn a_wrong_value_is_reported_with_its_flag() {
    let world = World::new();
    for (flags, says) in [
        (&["--once-per", "0s"][..], "--once-per 0s: must be above zero"),
        (&["--once-per", "15"], "did you mean 15s?"),
        (&["--once-per", "1d"], "--once-per 1d: days are no unit: write 24h"),
        (&["--once-per", "8785h"], "too long"),
        (&["--once-per", "0 0 30 2 *"], "--once-per: fires less than once in 366 days"),
        (&["--once-per", "every day"], "--once-per: every day is no cron expression"),
        (&["--once-per", "0 3 * * *", "--tz", "Mars/Base"], "no time zone is called Mars/Base"),
        (&["--once-per", "15m", "--tz", "UTC"], "--tz: a slot of a fixed length"),
        (&["--once-per", "15m", "--max-skew", "1h"], "--max-skew: must be at most"),
        (&["--once-per", "15m", "--shared"], "cannot be used with"),
        (&["--at-most-once"], "--once-per"),
    ] {
        let failed = world.run(&[&["run"], flags, &["report", "--", "echo", "no"]].concat());
        assert_eq!((failed.code, &*failed.stdout), (64, ""), "{flags:?}: {failed:?}");
        assert!(failed.stderr.contains(says), "{flags:?}: {failed:?}");
    }
    assert!(!world.path("store").exists() || world.run(&["ls"]).stdout.is_empty());
}
