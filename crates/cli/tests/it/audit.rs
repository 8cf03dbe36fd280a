//! `holdline audit`, and the records of the verbs that operators use.

use std::os::unix::fs::MetadataExt as _;

use serde_json::Value;

use crate::world::{World, output};

/// The records of a store, the oldest first.
fn records(world: &World, arguments: &[&str]) -> Vec<Value> {
    let listed = world.run(&[&["--json", "audit"], arguments].concat());
    assert_eq!(listed.code, 0, "{listed:?}");
    listed.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn each_action_is_recorded_once_with_who_where_why_and_what_became_of_it() {
    let world = World::new();
    assert_eq!(world.run(&["audit"]).stdout, "", "no store, no records");
    let mut holder = world.hold(&["deploy"]);
    let token = world.token("deploy");
    let reason = "roll\u{1b}[31mback";
    let revoke = ["revoke", "deploy", "--if-fencing-token", &token, "--reason", reason];
    assert_eq!(world.run(&revoke).code, 0);
    assert_eq!(holder.code(), 79);
    assert_eq!(world.run(&revoke).code, 1);
    assert_eq!(world.run(&["freeze", "db", "--for", "1h", "--reason", "x"]).code, 0);
    let long = "x".repeat(600);
    assert_eq!(world.run(&["freeze", "db", "--for", "1h", "--reason", &long]).code, 64);
    assert_eq!(world.run(&["unfreeze", "db"]).code, 0);
    assert_eq!(world.run(&["fence", "bump", "--to", "5000000"]).code, 0);
    let all = records(&world, &[]);
    let shown: Vec<(&str, &str, &str, &str)> = all
        .iter()
        .map(|record| {
            let text = |field: &str| record[field].as_str().unwrap_or_default();
            (text("action"), text("name"), text("reason"), text("outcome"))
        })
        .collect();
    let expected = [
        ("revoke", "deploy", reason, "notified"),
        ("revoke", "deploy", reason, "nothing_there"),
        ("freeze", "db", "x", "done"),
        ("freeze", "db", &long[..512], "refused"),
        ("unfreeze", "db", "", "done"),
        ("fence_bump", "", "", "done"),
    ];
    assert_eq!(shown, expected);
    assert_eq!(all[0]["fencing_token"].to_string(), token);
    assert_eq!(all[0]["who"], "tester");
    assert!(all[0]["from"].as_str().expect("a text").contains("(pid "), "{}", all[0]);
    assert!(all[3]["detail"].as_str().expect("a text").contains("reason"), "{}", all[3]);
    assert_eq!(records(&world, &["d*", "--limit", "2"]).len(), 2);
    assert_eq!(records(&world, &["depl?y"]).len(), 2, "only this name");
    assert_eq!(records(&world, &["--since", "1h"]).len(), 6);
    assert_eq!(records(&world, &["--since", "2999-01-01T00:00:00Z"]).len(), 0);
    let table = world.run(&["audit", "--limit", "5"]);
    assert!(table.stdout.starts_with("TIME") && table.stdout.contains("roll\\u{1b}[31mback"));
    assert!(table.stderr.contains("older records are not shown"), "{table:?}");
}

#[test]
fn wrong_arguments_are_named() {
    let world = World::new();
    for (line, says) in [
        (&["--since", "yesterday"][..], "or write a time"),
        (&["--limit", "0"], "0 is not in 1..=10000"),
        (&["a\\"], "escapes nothing"),
    ] {
        let failed = world.run(&[&["audit"], line].concat());
        assert_eq!(failed.code, 64, "{line:?}: {failed:?}");
        assert!(failed.stderr.contains(says), "{line:?}: {failed:?}");
    }
}

/// The memory engine keeps a trail, and a quorum does not: here its servers are not even there.
#[test]
#[cfg(feature = "redis")]
fn an_action_that_no_store_records_goes_to_the_file_or_is_said_to_be_in_none() {
    let world = World::new();
    let url = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?connect_timeout_ms=100";
    let bump = |file: Option<&std::path::Path>| {
        let mut command = world.command(&["--url", url, "fence", "bump", "--to", "7"]);
        command.envs(file.map(|file| ("HOLDLINE_AUDIT_FILE", file)));
        output(&mut command)
    };
    let without = bump(None);
    assert!(without.code != 0, "{without:?}");
    let init = world.run(&["--url", url, "quorum", "init"]);
    assert!(init.stderr.contains("quorum init: not recorded"), "{init:?}");
    let file = world.path("audit.jsonl");
    let mut command = world.command(&["--url", url, "quorum", "init"]);
    let init = output(command.env("HOLDLINE_AUDIT_FILE", &file));
    assert!(!init.stderr.contains("not recorded"), "{init:?}");
    let text = std::fs::read_to_string(&file).expect("a file");
    let line: Value = serde_json::from_str(text.trim_end()).expect("one line of JSON");
    assert_eq!((&line["action"], &line["who"]), (&"quorum_init".into(), &"tester".into()));
    assert!(line["outcome"] == "refused" || line["outcome"] == "unknown", "{line}");
    assert_eq!(std::fs::metadata(&file).expect("a file").mode() & 0o777, 0o600);
    let init = output(command.env("HOLDLINE_AUDIT_FILE", world.path("")));
    assert!(init.stderr.contains("warning: quorum init: not recorded in"), "{init:?}");
}

#[test]
#[cfg(feature = "redis")]
fn an_action_without_the_right_to_the_trail_is_done_and_reported_as_it_was_typed() {
    let world = World::new();
    let server = holdline_services::RedisServer::start(holdline_services::RedisConfig::default());
    let rule = "ACL SETUSER plain on >canary ~* &* +@all -xadd";
    assert_eq!(server.raw().say(rule).expect("a reply").error(), None);
    let url = format!("redis://plain:canary@{}", server.address());
    let on_server = |line: &[&str]| output(world.command(line).env("HOLDLINE_URL", &url));
    assert_eq!(on_server(&["acquire", "a", "--lease", "1h"]).code, 0);
    let who: Value =
        serde_json::from_str(&on_server(&["--json", "who", "a"]).stdout).expect("JSON");
    let token = who["holders"][0]["fencing_token"].to_string();
    let revoke = ["revoke", "a", "--now", "--if-fencing-token", &token, "--reason", "x"];
    let revoked = on_server(&revoke);
    assert_eq!(revoked.code, 0, "{revoked:?}");
    let says = "warning: revoke --now: not recorded in the audit trail: ";
    assert!(revoked.stderr.contains(says), "{revoked:?}");
}
