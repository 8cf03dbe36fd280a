//! `who`, `ls`, `wait`, `revoke`, `freeze`, `unfreeze`, `explain`, `doctor`.

use serde_json::{Value, json};

use crate::world::{Running, World, is_alive};

#[test]
fn who_shows_holders_and_queue() {
    let world = World::new();
    let free = world.run(&["who", "a"]);
    assert_eq!((free.code, free.stdout.as_str()), (1, "a: free\n"));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let job = ["--label", "team=billing", "a", "--", "sh", "-c", "echo up $$; read line; exit 3"];
    let mut command = world.command(&[&["run", "--reason", "month end"], &job[..]].concat());
    let holder = Running::start(command.env("TRACEPARENT", trace));
    assert!(holder.line().starts_with("up "));
    let _waiter = world.start(&["run", "--reason", "too", "a", "--", "true"]);
    world.queued("a", 1);
    let output = world.run(&["who", "a"]);
    assert_eq!(output.code, 0);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines[0], "a: held");
    for word in ["TOKEN", "LEASE", "MODE", "STATE", "SINCE", "PID", "PROGRAM", "KEPT BY"] {
        assert!(lines[1].contains(word), "{}", output.stdout);
    }
    for word in ["exclusive", "live", "tester", "sh", "month end"] {
        assert!(lines[2].contains(word), "{}", output.stdout);
    }
    assert_eq!(lines[3], "1 waiting");
    assert!(lines[5].contains("too"), "{}", output.stdout);
    let who = world.who("a");
    let first = &who["holders"][0];
    assert_eq!(first["pid"], holder.pid());
    assert_eq!(first["traceparent"], trace);
    assert_eq!(first["labels"], json!({ "team": "billing" }));
    assert_eq!((&first["live"], &first["left_ms"]), (&true.into(), &Value::Null));
    let mut pids: Vec<u64> =
        first["pids"].as_array().expect("pids").iter().flat_map(Value::as_u64).collect();
    pids.sort_unstable();
    let mut expected = [u64::from(holder.pid()), u64::from(holder.job.get())];
    expected.sort_unstable();
    assert_eq!(pids, expected);
    assert_eq!(who["queue"][0]["reason"], "too");
}

#[test]
fn ls_lists_what_is_held_and_waited_for() {
    let world = World::new();
    assert_eq!(world.run(&["ls"]).stdout, "");
    let _one = world.hold(&["--reason", "one", "deploy/web"]);
    let _two = world.hold(&["--shared", "deploy/db"]);
    let _other = world.hold(&["report"]);
    let output = world.run(&["ls", "deploy/"]);
    let names: Vec<&str> =
        output.stdout.lines().skip(1).flat_map(|line| line.split_whitespace().next()).collect();
    assert_eq!((output.code, names), (0, vec!["deploy/db", "deploy/web"]), "{}", output.stdout);
    assert!(output.stdout.contains("one"));
    let output = world.run(&["--json", "ls"]);
    let names: Vec<Value> = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["name"].clone())
        .collect();
    assert_eq!(names, ["deploy/db", "deploy/web", "report"]);
}

#[test]
fn wait_waits_and_takes_nothing() {
    let world = World::new();
    assert_eq!(world.run(&["wait", "a"]).code, 0);
    let mut holder = world.hold(&["--reason", "month end", "a"]);
    let output = world.run(&["wait", "a", "--wait", "100ms"]);
    assert_eq!(output.code, 75);
    assert!(output.stderr.contains("month end"), "{output:?}");
    let mut waiting = world.start(&["wait", "a"]);
    assert!(waiting.said().contains("waiting for a: held by sh (pid"));
    assert_eq!(world.who("a")["queue_length"], 0);
    holder.let_go();
    assert_eq!((holder.code(), waiting.code()), (3, 0));
}

#[test]
fn a_polite_revoke_stops_the_job_and_is_reported() {
    for options in [&["a"][..], &["--lease", "30s", "a"]] {
        let world = World::new();
        let mut holder = world.hold(options);
        let token = world.token("a");
        let revoke = ["revoke", "a", "--if-fencing-token", &token, "--reason", "rollback"];
        let output = world.run(&revoke);
        assert_eq!(output.code, 0, "{options:?}: {output:?}");
        assert_eq!(holder.code(), 79, "{options:?}");
        let said = holder.rest();
        assert!(said.contains("revoked by an operator: rollback"), "{said}");
        assert!(!is_alive(holder.job.get()));
        let again = world.run(&revoke);
        assert_eq!(again.code, 1, "{again:?}");
    }
}

#[test]
fn a_waiter_is_removed_from_the_queue_and_reports_why() {
    let world = World::new();
    let mut holder = world.hold(&["a"]);
    let mut waiting = world.start(&["run", "a", "--", "true"]);
    assert!(waiting.said().contains("waiting for a"));
    let queue = world.who("a")["queue"].clone();
    let id = queue[0]["lease_id"].as_str().expect("an id").to_owned();
    let remove = ["revoke", "a", "--waiter", &id, "--reason", "rollback"];
    let output = world.run(&remove);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(waiting.code(), 79);
    let said = waiting.rest();
    assert!(said.contains("removed from the queue: rollback"), "{said}");
    let again = world.run(&remove);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.stderr.contains("nobody waits for it"), "{again:?}");
    holder.let_go();
    assert_eq!(holder.code(), 3);
}

#[test]
fn a_stopped_job_is_notified_of_its_revoke_before_it_is_killed() {
    let world = World::new();
    let job = "trap 'echo tidied; exit 9' TERM; echo up $$; while :; do read line; done";
    let mut holder = world.start(&["run", "a", "--", "sh", "-c", job]);
    assert!(holder.line().starts_with("up "));
    let token = world.token("a");
    // As `^Z` leaves them.
    holder.signal(rustix::process::Signal::STOP);
    let pid = i32::try_from(holder.job.get()).ok().and_then(rustix::process::Pid::from_raw);
    let stop = rustix::process::Signal::STOP;
    rustix::process::kill_process_group(pid.expect("the job's"), stop).expect("it runs");
    let revoke = ["revoke", "a", "--if-fencing-token", &token, "--reason", "x", "--grace", "50s"];
    let output = world.run(&revoke);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(holder.line(), "tidied");
    assert_eq!(holder.code(), 79);
}

#[test]
fn a_wait_that_timed_out_on_a_frozen_name_reports_the_freeze() {
    let world = World::new();
    let freeze = ["freeze", "a", "--for", "1h", "--reason", "moving"];
    assert_eq!(world.run(&freeze).code, 0);
    let output = world.run(&["wait", "a", "--wait", "50ms"]);
    assert_eq!(output.code, 75, "{output:?}");
    assert!(!output.stderr.contains("another"), "{output:?}");
    assert!(output.stderr.lines().all(|line| line.contains("frozen: moving")), "{output:?}");
}

#[test]
fn a_job_that_lost_its_wrapper_is_revoked_too() {
    let world = World::new();
    let stubborn = "trap '' TERM; echo up $$; read line";
    let holder = world.start(&["run", "a", "--", "sh", "-c", stubborn]);
    assert!(holder.line().starts_with("up "));
    holder.signal(rustix::process::Signal::KILL);
    let token = world.token("a");
    let output = world.run(&[
        "revoke",
        "a",
        "--if-fencing-token",
        &token,
        "--reason",
        "x",
        "--grace",
        "200ms",
    ]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(!is_alive(holder.job.get()), "KILL came after the grace");
}

#[test]
fn another_token_revokes_nobody() {
    let world = World::new();
    let mut holder = world.hold(&["a"]);
    let other = (world.token("a").parse::<u64>().expect("a number") + 1).to_string();
    let output = world.run(&["revoke", "a", "--if-fencing-token", &other, "--reason", "x"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("holdline who a"), "{output:?}");
    holder.let_go();
    assert_eq!(holder.code(), 3);
}

#[test]
fn a_holder_that_ignores_a_revoke_keeps_the_name() {
    let world = World::new();
    let output = world.run(&["--json", "acquire", "a", "--lease", "1h"]);
    let lease: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let token = lease["fencing_token"].to_string();
    let output = world.run(&[
        "revoke",
        "a",
        "--if-fencing-token",
        &token,
        "--reason",
        "x",
        "--grace",
        "100ms",
    ]);
    assert_eq!(output.code, 75, "{output:?}");
    assert!(output.stderr.contains("--now"), "{output:?}");
    let id = lease["lease_id"].as_str().expect("an id");
    assert_eq!(world.run(&["renew", "a", "--lease-id", id]).code, 79, "renewals are refused");
    let now = ["revoke", "a", "--if-fencing-token", &token, "--reason", "x", "--now"];
    assert_eq!(world.run(&now).code, 0);
    assert_eq!(world.run(&["run", "--try", "a", "true"]).code, 0);
}

#[test]
fn a_freeze_excludes_everybody_until_it_ends() {
    let world = World::new();
    let mut holder = world.hold(&["a"]);
    let output = world.run(&["freeze", "a", "--for", "1h", "--reason", "moving house"]);
    assert_eq!(output.code, 0);
    assert!(output.stderr.contains("when its holder is done"), "{output:?}");
    holder.let_go();
    assert_eq!(holder.code(), 3);
    let who = world.run(&["who", "a"]);
    assert_eq!(who.code, 0);
    assert!(who.stdout.starts_with("a: frozen\nfrozen for "), "{}", who.stdout);
    assert!(who.stdout.contains("moving house"));
    let output = world.run(&["run", "--try", "a", "true"]);
    assert_eq!(output.code, 75, "{output:?}");
    assert_eq!(world.run(&["unfreeze", "a"]).code, 0);
    assert_eq!(world.run(&["unfreeze", "a"]).code, 1);
    assert_eq!(world.run(&["run", "--try", "a", "true"]).code, 0);
}

#[test]
fn tokens_can_be_raised_after_a_restore() {
    let world = World::new();
    assert_eq!(world.run(&["fence", "bump", "--to", "5000000000"]).code, 0);
    let output = world.run(&["run", "a", "--", "sh", "-c", "echo $HOLDLINE_FENCING_TOKEN"]);
    assert!(output.stdout.trim().parse::<u64>().is_ok_and(|token| token > 5_000_000_000));
}

#[test]
fn explain_says_what_is_promised_and_where() {
    let world = World::new();
    let output = world.run(&["explain"]);
    assert_eq!(output.code, 0);
    let store = world.path("store").display().to_string();
    for words in [&*store, "from HOLDLINE_URL", "engine local", "paused process", "in the order"] {
        assert!(output.stdout.contains(words), "{}", output.stdout);
    }
    let output = world.run(&["--json", "explain", "memory:"]);
    let explained: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(explained["capabilities"]["engine"], "memory");
    assert!(explained["guarantees"].as_array().is_some_and(|all| all.len() > 5));
}

#[test]
fn doctor_reports_problems_and_their_fixes() {
    let world = World::new();
    let output = world.run(&["doctor"]);
    assert!(output.stdout.contains("database     not made yet"), "{output:?}");
    assert_eq!(world.run(&["run", "a", "--", "true"]).code, 0);
    let output = world.run(&["--json", "doctor"]);
    let found: Value = serde_json::from_str(&output.stdout).expect("an object");
    assert_eq!(found["engine"], "local");
    // How much room the machine has is not ours to say, but nothing is broken.
    assert!(output.code < 2 && found["health"] != "error", "{output:?}");

    let database = world.path("store/locks.db");
    std::fs::write(&database, "not a database, but long enough to be looked at".repeat(99))
        .expect("ours to break");
    let output = world.run(&["doctor"]);
    assert_eq!(output.code, 2, "{output:?}");
    for words in ["error    database", "it matters: ", "to do: ", "1 error\n"] {
        assert!(output.stdout.contains(words), "{}", output.stdout);
    }
    assert_eq!(world.run(&["doctor", "locla:"]).code, 78);
    for verb in ["doctor", "explain"] {
        let named = world.run(&[verb, "--url", "local:"]);
        assert_eq!((named.code, named.stderr.as_str()), (0, ""), "{verb} --url");
        let twice = world.run(&[verb, "--url", "local:", "local:"]);
        assert_eq!(twice.code, 64, "{}", twice.stderr);
    }
}

/// What `doctor` says of holds that are longer than this.
fn holds(world: &World, limit: &str) -> Value {
    let output = world.run(&["--json", "doctor", "--longest-hold", limit]);
    let found: Value = serde_json::from_str(&output.stdout).expect("an object");
    let mut findings = found["findings"].as_array().expect("findings").iter();
    findings.find(|finding| finding["check"] == "holds").expect("the check").clone()
}

#[test]
fn doctor_reports_a_hold_beyond_the_limit_and_who_has_it() {
    let world = World::new();
    let none = holds(&world, "1h");
    assert_eq!((&none["health"], &none["found"]), (&"ok".into(), &"nothing is held".into()));
    assert!(!world.path("store/locks.db").exists(), "doctor made a store");
    let _holder = world.hold(&["a"]);
    let short = holds(&world, "1h");
    let found = short["found"].as_str().expect("a text");
    assert_eq!(short["health"], "ok");
    assert!(found.starts_with("1 held; the longest: a by ") && found.contains("(pid "), "{found}");
    // A millisecond of the store's clock has passed some time after the grant.
    crate::world::eventually("a warning", || holds(&world, "1ms")["health"] == "warning");
    let fix = holds(&world, "1ms")["fix"].as_str().expect("a fix").to_owned();
    assert!(fix.starts_with("1 held for more than "), "{fix}");
}

#[test]
fn a_job_that_ends_before_its_wrapper_notices_the_revoke_has_lost() {
    let world = World::new();
    let mut holder = world.hold(&["--report", "r", "a"]);
    let token = world.token("a");
    // The wrapper learns nothing before the job has ended.
    holder.signal(rustix::process::Signal::STOP);
    let revoke = ["revoke", "a", "--if-fencing-token", &token, "--reason", "rollback"];
    let mut operator = world.start(&[&revoke[..], &["--grace", "30s"]].concat());
    crate::world::eventually("ended", || !is_alive(holder.job.get()));
    holder.signal(rustix::process::Signal::CONT);
    assert_eq!((holder.code(), operator.code()), (79, 0));
    let report = std::fs::read_to_string(world.path("r")).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((&report["outcome"], &report["lost"]["kind"]), (&"lost".into(), &"revoked".into()));
}
