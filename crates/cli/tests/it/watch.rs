//! `holdline watch`: what it prints, and when it ends.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::Value;

use crate::world::World;

/// Reads events until one of this kind.
pub(crate) fn event(watch: &crate::world::Running, kind: &str) -> Value {
    for _ in 0..100 {
        let line = watch.line();
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        if event["event"] == kind {
            return event;
        }
    }
    panic!("no {kind} among 100 events");
}

#[test]
fn each_change_is_one_object() {
    let world = World::new();
    let mut holder = world.hold(&["--reason", "nightly", "job/a"]);
    let _other = world.hold(&["other"]);
    let watch = world.start(&["watch", "job/*", "--json", "--interval", "100ms"]);
    let held = event(&watch, "granted");
    assert_eq!((&held["name"], &held["found"]), (&"job/a".into(), &true.into()));
    assert_eq!(held["holder"]["reason"], "nightly");
    let token = held["holder"]["fencing_token"].clone();
    assert!(token.is_u64(), "{held}");
    let keys: BTreeSet<&String> = held.as_object().expect("an object").keys().collect();

    let mut waiter = world.start(&["run", "job/a", "--", "true"]);
    let queued = event(&watch, "queued");
    assert_eq!(queued["position"], 0);
    assert_eq!(queued["waiter"]["pid"], waiter.pid());
    holder.let_go();
    let ended = event(&watch, "ended");
    assert_eq!(ended["holder"]["fencing_token"], token);
    assert_eq!(ended["ended_when"], "no_lease");
    assert!(ended["within_ms"].is_u64(), "{ended}");
    assert_eq!(waiter.code(), 0);

    assert_eq!(world.run(&["freeze", "job/a", "--for", "1h", "--reason", "x\u{1b}[2J"]).code, 0);
    let frozen = event(&watch, "frozen");
    assert_eq!(frozen["freeze"]["reason"], "x\u{1b}[2J");
    assert_eq!(world.run(&["unfreeze", "job/a"]).code, 0);
    let unfrozen = event(&watch, "unfrozen");
    let same: BTreeSet<&String> = unfrozen.as_object().expect("an object").keys().collect();
    assert_eq!(same, keys, "each event has all keys");
}

#[test]
fn lines_for_people_are_escaped_and_a_signal_ends_it() {
    let world = World::new();
    let _holder = world.hold(&["--reason", "x\u{1b}[31m\nfake", "a\u{202e}b"]);
    let mut watch = world.start(&["watch"]);
    let line = watch.line();
    assert!(line.contains("Z a\\u{202e}b held by token "), "{line}");
    let (date, _) = line.split_once('T').expect("a date and a time");
    assert!(date.split('-').map(str::len).eq([4, 2, 2]), "{line}");
    assert!(line.contains("x\\u{1b}[31m\\u{a}fake"), "{line}");
    watch.signal(Signal::TERM);
    assert_eq!(watch.code(), 128 + 15);
}

#[test]
fn a_reader_that_has_gone_ends_it_silently() {
    let world = World::new();
    let _holder = world.hold(&["a"]);
    let output = world.shell("holdline watch --interval 100ms 2>err | head -n 1; cat err");
    assert!(output.stdout.contains(" a held by "), "{output:?}");
    assert_eq!(output.stdout.lines().count(), 1, "{output:?}");
}

#[test]
fn wrong_patterns_and_pauses_are_refused() {
    let world = World::new();
    let _holder = world.hold(&["a"]);
    for wrong in [
        &["watch", "a\\"][..],
        &["watch", "--interval", "1ms"],
        &["watch", "--max-names", "0"],
        &["watch", "a\u{7}*"],
    ] {
        let output = world.run(wrong);
        assert_eq!(output.code, 64, "{wrong:?} {output:?}");
        assert_eq!(output.stdout, "");
    }
}
