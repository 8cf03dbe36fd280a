//! What `--json` prints has the fields of `docs/json.md`: all of them, and no others.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::world::World;

const DOCUMENT: &str = include_str!("../../../../docs/json.md");

/// The fields in the first column of the first table of the page after these words.
fn documented(after: &str) -> BTreeSet<String> {
    documented_in(DOCUMENT, after)
}

fn documented_in(page: &str, after: &str) -> BTreeSet<String> {
    let (_, rest) = page.split_once(after).unwrap_or_else(|| panic!("no {after}"));
    let table = rest.lines().skip_while(|line| !line.starts_with('|'));
    let rows = table.take_while(|line| line.starts_with('|')).skip(2);
    rows.flat_map(|row| quoted(row.split('|').nth(1).unwrap_or_default())).collect()
}

/// The words between backquotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(Into::into).collect()
}

/// The fields in the braces of a verb's row.
fn of_verb(verb: &str) -> BTreeSet<String> {
    let (_, verbs) = DOCUMENT.split_once("## The other verbs").expect("a heading");
    let row = verbs.lines().find(|line| {
        line.split('|').nth(1).is_some_and(|first| quoted(first).iter().any(|word| word == verb))
    });
    let row = row.unwrap_or_else(|| panic!("no {verb}"));
    let (_, rest) = row.split_once("`{").expect("braces");
    rest.split_once("}`").expect("braces").0.split(", ").map(Into::into).collect()
}

fn fields(object: &Value) -> BTreeSet<String> {
    object.as_object().expect("an object").keys().cloned().collect()
}

fn json(world: &World, arguments: &[&str]) -> Value {
    let output = world.run(&[&["--json"], arguments].concat());
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

const ID: &str = "00112233445566778899aabbccddeeff";

#[test]
fn a_name_has_the_documented_fields() {
    let world = World::new();
    let _holder = world.hold(&["--label", "k=v", "a"]);
    let _waiter = world.start(&["run", "a", "--", "true"]);
    world.queued("a", 1);
    assert_eq!(world.run(&["freeze", "a", "--for", "1h", "--reason", "x"]).code, 0);
    let who = world.who("a");
    assert_eq!(fields(&who), documented("## A name: `who`"));
    assert_eq!(fields(&json(&world, &["ls"])), fields(&who));
    let holder = documented("A holder:");
    assert_eq!(fields(&who["holders"][0]), holder);
    let own = ["pid", "host", "user", "program", "reason", "labels", "traceparent", "value"];
    let waiter = ["lease_id", "mode", "permits", "waited_ms"];
    let waiter: BTreeSet<String> = waiter.into_iter().chain(own).map(Into::into).collect();
    assert_eq!(fields(&who["queue"][0]), waiter);
    let (_, freeze) = DOCUMENT.split_once("| `freeze` | `{").expect("a row");
    let freeze = freeze.split_once('}').expect("braces").0;
    assert_eq!(fields(&who["freeze"]), freeze.split(", ").map(Into::into).collect());
}

#[test]
fn every_verb_has_the_documented_fields() {
    let world = World::new();
    let id = ["a", "--lease-id", ID];
    let acquired = json(&world, &[&["acquire"], &id[..]].concat());
    assert_eq!(fields(&acquired), of_verb("acquire"));
    for verb in ["renew", "check", "release"] {
        let object = json(&world, &[&[verb], &id[..]].concat());
        assert_eq!(fields(&object), of_verb(verb), "{verb}");
    }
    assert_eq!(fields(&json(&world, &["wait", "a"])), documented("## A name: `who`"));
    for (verb, more) in [("freeze", &["--for", "1h", "--reason", "x"][..]), ("unfreeze", &[])] {
        let object = json(&world, &[&[verb, "a"], more].concat());
        assert_eq!(fields(&object), of_verb(verb), "{verb}");
    }
    let acquired = json(&world, &["acquire", "b"]);
    let token = acquired["fencing_token"].to_string();
    let revoke = ["revoke", "b", "--if-fencing-token", &token, "--reason", "x", "--now"];
    assert_eq!(fields(&json(&world, &revoke)), of_verb("revoke"));
    assert_eq!(fields(&json(&world, &["explain"])), of_verb("explain"));
    assert_eq!(fields(&json(&world, &["latch", "a"])), of_verb("latch"));
    #[cfg(feature = "top")]
    the_object_of_top(&world);
    let seal = json(&world, &["fence", "seal", "mark", "--token", "1"]);
    assert_eq!(fields(&seal), of_verb("fence seal"));
    assert_eq!(fields(&json(&world, &["fence", "bump", "--to", "9"])), of_verb("fence bump"));
    assert_eq!(fields(&json(&world, &["audit", "--limit", "1"])), of_verb("audit"));
    assert_eq!(fields(&json(&world, &["demo", "kleppmann"])), of_verb("demo kleppmann"));
}

#[cfg(feature = "top")]
fn the_object_of_top(world: &World) {
    let _holder = world.hold(&["t"]);
    let _waiter = world.start(&["run", "t", "--", "true"]);
    world.queued("t", 1);
    let object = json(world, &["top", "--once", "t"]);
    assert_eq!(fields(&object), of_verb("top --once"));
    assert_eq!(fields(&object), documented("## The object of `top`"));
    assert_eq!(fields(&object["names"][0]), documented("## A name: `who`"));
    let (_, blocking) = DOCUMENT.split_once("Each of `blocking` is `{").expect("a sentence");
    let blocking = blocking.split_once('}').expect("braces").0;
    let blocking = blocking.split(", ").map(Into::into).collect();
    assert_eq!(fields(&object["blocking"][0]), blocking);
}

#[cfg(feature = "torture")]
#[test]
fn the_report_of_torture_has_the_documented_fields() {
    let torture = ["torture", "--seconds", "1", "--nemesis", "kill", "--seed", "7"];
    let report = json(&World::new(), &torture);
    let page = include_str!("../../../../docs/contributing/torture-report.md");
    assert_eq!(fields(&report), documented_in(page, "# The report of `torture`"));
}

#[test]
fn a_report_and_a_failure_have_the_documented_fields() {
    let world = World::new();
    let holder = world.hold(&["a"]);
    let report = |code: i32| {
        let line = ["--json", "run", "--try", "--report", "r", "a", "true"];
        let output = world.run(&line);
        assert_eq!(output.code, code, "{output:?}");
        let text = std::fs::read_to_string(world.path("r")).expect("a report");
        (serde_json::from_str::<Value>(&text).expect("JSON"), output.stderr)
    };
    let (busy, failure) = report(75);
    assert_eq!(fields(&busy), documented("## The report of"));
    let failure: Value = serde_json::from_str(&failure).expect("JSON");
    assert_eq!(fields(&failure), documented("and for a failure"));
    let seen = fields(&busy["in_the_way"]);
    assert!(seen.is_subset(&documented("A holder:")), "{seen:?}");
    let (row, _) = DOCUMENT.split_once("each as in `who`").expect("the row");
    for field in quoted(row.rsplit_once("| `in_the_way` |").expect("the row").1) {
        assert!(field == "null" || seen.contains(&field), "{field}");
    }
    drop(holder);
    world.free("a");
    assert_eq!(fields(&report(0).0), fields(&busy));
}
