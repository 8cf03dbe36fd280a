//! `elect`: one candidate's command runs at a time, and observers see which.
//! Read next: `elections`, the same on real stores.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{Running, World, is_alive};

/// Says its term and waits for its input to end.
const JOB: &str = "echo term $HOLDLINE_FENCING_TOKEN; echo up $$; read line; exit 3";

fn candidate(world: &World, flags: &[&str]) -> Running {
    world.start(&[&["elect", "e"], flags, &["--", "sh", "-c", JOB]].concat())
}

/// Waits until its command runs; returns the term.
fn leads(candidate: &Running) -> u64 {
    let line = candidate.line();
    let term = line.strip_prefix("term ").unwrap_or_else(|| panic!("{line}"));
    assert!(candidate.line().starts_with("up "));
    term.parse().expect("a term")
}

fn next(observer: &Running) -> Value {
    serde_json::from_str(&observer.line()).expect("JSON")
}

#[test]
fn observers_see_who_leads_and_the_next_one_leads_when_it_ends() {
    let world = World::new();
    let observer = world.start(&["elect", "e", "--observe"]);
    assert!(observer.said().contains("no store yet"));
    let mut one = candidate(&world, &["--value", "one:80", "--once"]);
    let first = leads(&one);
    let seen = next(&observer);
    assert_eq!((&seen["name"], &seen["value"]), (&"e".into(), &"one:80".into()), "{seen}");
    assert_eq!(seen["term"], first);
    assert!(seen["since_ms"].is_u64() && seen["host"].is_string(), "{seen}");
    assert_eq!(world.who("e")["holders"][0]["value"], "one:80");

    let two = candidate(&world, &[]);
    world.queued("e", 1);
    one.let_go();
    assert_eq!(one.code(), 3, "with --once, the code of the command");
    let second = leads(&two);
    assert!(second > first);
    let seen = next(&observer);
    assert_eq!((&seen["term"], &seen["value"]), (&second.into(), &Value::Null), "{seen}");
}

/// The leader stays: nothing more is written that could fail.
#[test]
fn an_observer_ends_when_the_reader_of_its_output_has_gone() {
    let world = World::new();
    let leader = candidate(&world, &[]);
    let term = leads(&leader);
    let observe = "{ timeout 60 holdline elect e --observe; echo exit $? >&2; } | head -n 1";
    let output = world.shell(observe);
    assert!(output.stderr.ends_with("exit 0\n"), "{output:?}");
    let seen: Value = serde_json::from_str(&output.stdout).expect("one line");
    assert_eq!(seen["term"], term);
}

#[test]
fn a_candidate_whose_command_ended_resigns_and_campaigns_again() {
    let world = World::new();
    let job = "echo term $HOLDLINE_FENCING_TOKEN; echo up $$; exit 4";
    let one = world.start(&["elect", "e", "--", "sh", "-c", job]);
    let first = leads(&one);
    assert!(one.said().contains("COMMAND ended with 4; campaigning again"));
    assert!(leads(&one) > first);
}

#[test]
fn who_is_asked_to_end_campaigns_no_more() {
    let world = World::new();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut one = candidate(&world, &[]);
        leads(&one);
        let mut waiter = candidate(&world, &[]);
        world.queued("e", 1);
        waiter.signal(signal);
        assert_eq!(waiter.code(), 128 + signal.as_raw(), "while it waits");
        one.signal(signal);
        assert_eq!(one.code(), 128 + signal.as_raw(), "while it leads");
        assert!(!is_alive(one.job.get()));
        world.free("e");
    }
}

#[test]
fn a_leader_resigns_at_its_signal_and_its_command_does_not_get_it() {
    let world = World::new();
    let job = format!("trap 'echo stopped; exit 0' TERM; trap 'echo signal' USR1; {JOB}");
    let flags = ["elect", "e", "--resign-on", "USR1", "--grace", "30s", "--", "sh", "-c", &job];
    let one = world.start(&flags);
    let first = leads(&one);
    let two = candidate(&world, &["--once", "--resign-on", "usr1"]);
    world.queued("e", 1);
    // Nothing to resign: a candidate that waits goes on waiting.
    two.signal(Signal::USR1);
    // A signal that comes with the hand-over is for the new leader.
    std::thread::sleep(Duration::from_millis(300)); // event: the signal is handled
    one.signal(Signal::USR1);
    assert_eq!(one.line(), "stopped", "TERM, and not the signal");
    let second = leads(&two);
    assert!(second > first);
    let mut two = two;
    two.signal(Signal::USR1);
    assert_eq!(two.code(), 0, "with --once, to resign is the end");
    assert!(leads(&one) > second, "it has campaigned again");
}

#[test]
fn a_leader_whose_term_is_revoked_stops_its_command_and_campaigns_again() {
    let world = World::new();
    let flags = ["--lease", "30s", "--grace", "5s"];
    let one = candidate(&world, &flags);
    let first = leads(&one);
    let pid = one.job.get();
    let token = first.to_string();
    let revoke = ["revoke", "e", "--if-fencing-token", &token, "--reason", "moving"];
    assert_eq!(world.run(&revoke).code, 0);
    assert!(leads(&one) > first);
    assert!(!is_alive(pid), "its first command is gone");
    let mut other = candidate(&world, &["--once", "--lease", "30s"]);
    world.queued("e", 1);
    let token = world.token("e");
    let revoke = ["revoke", "e", "--if-fencing-token", &token, "--reason", "moving"];
    assert_eq!(world.run(&revoke).code, 0);
    let token = leads(&other).to_string();
    let revoke = ["revoke", "e", "--if-fencing-token", &token, "--reason", "moving"];
    assert_eq!(world.run(&revoke).code, 0);
    assert_eq!(other.code(), 79, "with --once, a lost term is the end");
}

#[test]
fn bad_input_is_refused_before_anything_is_asked() {
    let world = World::new();
    let long = "x".repeat(1_025);
    let fits_alone = "x".repeat(1_024);
    let name = "n".repeat(500);
    for (line, says) in [
        (&["elect", "e", "--value", &long, "--", "true"][..], "--value <TEXT>': may have 1024"),
        (&["elect", "e", "--value", &fits_alone, "--", "true"], "shorten the value"),
        (&["elect", &name, "--", "true"], "499 bytes"),
        (&["elect", "e", "--resign-on", "TERM", "--", "true"], "write HUP, USR1 or USR2"),
        (&["elect", "e"], "<COMMAND>"),
        (&["elect", "e", "--observe", "--once"], "--once"),
        (&["elect", "e", "--observe", "true"], "COMMAND"),
        (&["elect", "--", "ls", "-l"], "NAME: is missing before `--`"),
        (&["elect", "e", "--lease", "2s", "--grace", "5s", "--", "true"], "--lease 2s"),
    ] {
        let output = world.run(line);
        assert_eq!(output.code, 64, "{line:?}: {output:?}");
        assert!(output.stderr.contains(says), "{says}: {output:?}");
    }
    assert_eq!(world.who("e")["holder_count"], 0);
    let none = world.run(&["elect", "e", "--", "./not-there"]);
    assert_eq!(none.code, 127, "a program that is not there is not tried again: {none:?}");
}
