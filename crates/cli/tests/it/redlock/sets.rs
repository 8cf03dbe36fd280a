//! What operators change of a set, and what those do who only look: nothing.

use std::process::Command;

use holdline_services::{RedisServer, Reply};
use serde_json::Value;

use super::{ID, Redlock, UNHURRIED};
use crate::world::{CommandOutput, output};

impl Redlock {
    fn address(&self, server: usize) -> String {
        self.servers[server].address().to_string()
    }

    /// Runs a verb with a list of some of the servers.
    fn run_on(&self, list: &[usize], arguments: &[&str]) -> CommandOutput {
        let at: Vec<String> = list.iter().map(|one| self.address(*one)).collect();
        let url = format!("redlock://{}?{UNHURRIED}", at.join(","));
        output(&mut self.command_on(&url, arguments))
    }

    /// Runs a verb in a pseudo-terminal, and types this.
    fn type_to(&self, answer: &str, arguments: &[&str]) -> CommandOutput {
        let command = self.command(arguments);
        let mut typist = Command::new("python3");
        typist.args(["-c", TYPIST, answer]).arg(command.get_program()).args(command.get_args());
        let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        typist.envs(variables);
        output(&mut typist)
    }

    /// All that the servers keep: every key, and what stands there.
    fn all_kept(&self) -> Vec<Vec<String>> {
        let dump = |one: &RedisServer| {
            let mut raw = one.raw();
            let keys = raw.say("KEYS *").expect("a reply");
            let mut keys: Vec<String> =
                keys.items().expect("a list").iter().filter_map(Reply::text).collect();
            keys.sort_unstable();
            let dumped = keys.into_iter().map(|key| {
                let value = match raw.send(&["TYPE", &key]).expect("a reply").text().as_deref() {
                    Some("hash") => raw.send(&["HGETALL", &key]),
                    _ => raw.send(&["GET", &key]),
                };
                format!("{key} {:?}", value.expect("a reply"))
            });
            dumped.collect()
        };
        self.servers.iter().map(dump).collect()
    }
}

/// Runs a program in a pseudo-terminal, and types the first argument.
const TYPIST: &str = "
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0: os.execvp(sys.argv[2], sys.argv[2:])
os.write(terminal, (sys.argv[1] + '\\n').encode())
try:
    while said := os.read(terminal, 4096): os.write(1, said)
except OSError: pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

/// At a terminal a person is asked, and only `yes` is one.
#[test]
fn a_person_is_asked_before_a_wait_ends() {
    let redlock = Redlock::start(3);
    assert_eq!(redlock.run(&["quorum", "init"]).code, 0);
    for no in ["", "no", "y"] {
        let output = redlock.type_to(no, &["quorum", "vouch"]);
        assert_eq!(output.code, 64, "{output:?}");
        assert!(output.stdout.contains("nothing was changed"), "{output:?}");
        assert_eq!(redlock.states(), ["quarantined"; 3]);
    }
    let output = redlock.type_to("yes", &["quorum", "vouch"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(redlock.states(), ["votes"; 3]);
}

/// A server has forgotten, another was started again, and the list has one that is wrong: clients
/// would see to the first two.
#[test]
fn verbs_that_only_look_change_nothing() {
    let redlock = Redlock::start(6);
    let right = [0, 1, 2, 3, 4];
    for line in [&["quorum", "init", "--max-lease", "10m"][..], &["quorum", "vouch", "--yes"]] {
        let done = redlock.run_on(&right, line);
        assert_eq!(done.code, 0, "{done:?}");
    }
    let held = redlock.run_on(&right, &["acquire", "demo", "--lease-id", ID, "--lease", "10m"]);
    assert_eq!(held.code, 0, "{held:?}");
    redlock.servers[0].raw().say("FLUSHALL").expect("flushed");
    redlock.servers[1].kill();
    redlock.servers[1].restart();
    let before = redlock.all_kept();
    for list in [&right[..], &[0, 1, 2, 3, 5], &[5, 1, 2, 3, 4]] {
        for line in [
            &["quorum", "status"][..],
            &["who", "demo"],
            &["check", "demo", "--lease-id", ID],
            &["wait", "demo", "--wait", "1s"],
            &["explain"],
            &["doctor"],
            &["ls"],
        ] {
            redlock.run_on(list, line);
            assert_eq!(redlock.all_kept(), before, "{line:?} with {list:?}");
        }
    }
    // A client that reaches a quorum of the set sees how the name stands.
    let who = redlock.run_on(&right, &["who", "demo"]);
    assert_eq!(who.code, 0, "{who:?}");
    let check = redlock.run_on(&right, &["check", "demo", "--lease-id", ID]);
    assert_eq!(check.code, 0, "{check:?}");
    assert_eq!(redlock.all_kept(), before);
}

/// The six steps of docs/cli.md, "From three servers to five".
#[test]
fn a_set_of_five_takes_the_place_of_a_set_of_three() {
    let redlock = Redlock::start(8);
    let (old, new) = ([0, 1, 2], [3, 4, 5, 6, 7]);
    let done = |list: &[usize], arguments: &[&str]| {
        let output = redlock.run_on(list, arguments);
        assert_eq!(output.code, 0, "{arguments:?}: {output:?}");
        output
    };
    let token = |list: &[usize]| {
        let job = ["run", "demo", "--", "sh", "-c", "echo $HOLDLINE_FENCING_TOKEN"];
        done(list, &job).stdout.trim().parse::<u64>().expect("a token")
    };
    let largest = |list: &[usize]| {
        let output = done(list, &["--json", "quorum", "status"]);
        let status: Value = serde_json::from_str(&output.stdout).expect("JSON");
        let nodes = status["nodes"].as_array().expect("a list");
        nodes.iter().filter_map(|node| node["largest_token"].as_u64()).max().expect("a token")
    };
    done(&old, &["quorum", "init", "--max-lease", "2m"]);
    done(&old, &["quorum", "vouch", "--yes"]);
    // An operator has raised the tokens of the old set, so no clock gives the new one larger ones.
    let raised = token(&old) + 1_000_000_000_000;
    done(&old, &["fence", "bump", "--to", &raised.to_string()]);
    let held = ["acquire", "demo", "--lease-id", ID, "--lease", "2m"];
    done(&old, &held);
    // 1 and 2.
    let made = done(&new, &["quorum", "init", "--max-lease", "2m"]);
    assert!(made.stdout.contains("longest lease 2m"), "{made:?}");
    done(&new, &["quorum", "vouch", "--yes"]);
    // 3: what is given until all have stopped is covered by the margin.
    let seen = largest(&old);
    let shown = done(&old, &["quorum", "status"]);
    assert!(shown.stdout.contains(&seen.to_string()), "{shown:?}");
    assert!(seen > raised, "{seen} {raised}");
    done(&new, &["fence", "bump", "--to", &(seen + 3_600_000_000).to_string()]);
    // 4.
    done(&old, &["who", "demo"]);
    done(&old, &["release", "demo", "--lease-id", ID]);
    let last = token(&old);
    assert!(last > seen, "tokens are given until then: {last} {seen}");
    assert_eq!(redlock.run_on(&old, &["who", "demo"]).code, 1, "nothing is held");
    // 5.
    assert!(token(&new) > last);
    // A list of both is no way between them.
    let mixed = redlock.run_on(&[0, 1, 2, 3, 4], &["run", "demo", "--try", "--", "true"]);
    assert_eq!(mixed.code, 77, "{mixed:?}");
    assert!(mixed.stderr.contains("not one set"), "{mixed:?}");
    // 6.
    old.iter().for_each(|server| redlock.servers[*server].kill());
    assert!(token(&new) > last);
    assert_eq!(redlock.run_on(&old, &["run", "demo", "--try", "--", "true"]).code, 69);
}

#[test]
fn an_operator_replaces_a_server_that_is_gone() {
    let redlock = Redlock::start(4);
    for line in [&["quorum", "init"][..], &["quorum", "vouch", "--yes"]] {
        assert_eq!(redlock.run_on(&[0, 1, 2], line).code, 0);
    }
    redlock.servers[2].kill();
    let list = [0, 1, 3];
    let job = redlock.run_on(&list, &["run", "demo", "--", "true"]);
    assert_eq!(job.code, 0, "two of the set vote: {job:?}");
    let status = redlock.run_on(&list, &["quorum", "status"]);
    assert!(status.stdout.contains("mislisted"), "{status:?}");
    assert!(status.stdout.contains("quorum replace OLD NEW"), "{status:?}");
    let [old, new] = [2, 3].map(|server| redlock.address(server));
    let before = redlock.kept_by(&list);
    let unasked = redlock.run_on(&list, &["quorum", "replace", &old, &new]);
    assert_eq!(unasked.code, 64, "nobody can be asked: {unasked:?}");
    assert!(unasked.stderr.contains(&format!("{old} (id ")), "{unasked:?}");
    assert!(unasked.stderr.contains(&format!("its slot goes to {new}")), "{unasked:?}");
    assert!(unasked.stderr.contains("--yes"), "{unasked:?}");
    let odd = redlock.run_on(&list, &["quorum", "replace", &old, &new, &old, "--yes"]);
    assert_eq!(odd.code, 64, "{odd:?}");
    let wrong = redlock.run_on(&list, &["quorum", "replace", "nobody:1", &new, "--yes"]);
    assert_eq!(wrong.code, 77, "{wrong:?}");
    assert_eq!(redlock.kept_by(&list), before);
    let done = redlock.run_on(&list, &["quorum", "replace", &old, &new, "--yes"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("epoch 3"), "{done:?}");
    assert!(done.stdout.contains("quarantined"), "{done:?}");
    // The old one is back. A client that lists it sees what it is, and evicts nobody.
    redlock.servers[2].restart();
    let rejoined = redlock.run_on(&[0, 1, 2], &["quorum", "rejoin"]);
    assert!(rejoined.stdout.contains("mislisted") || rejoined.stdout.contains("replaced"));
    assert!(redlock.run_on(&list, &["quorum", "status"]).stdout.contains("epoch 3"));
}

#[test]
fn a_vouch_and_a_rejoin_that_change_nothing_say_so() {
    let redlock = Redlock::start(4);
    for line in [&["quorum", "init"][..], &["quorum", "vouch", "--yes"]] {
        assert_eq!(redlock.run_on(&[0, 1, 2], line).code, 0);
    }
    let [old, new] = [2, 3].map(|server| redlock.address(server));
    let list = [0, 1, 3];
    let done = redlock.run_on(&list, &["quorum", "replace", &old, &new, "--yes"]);
    assert_eq!(done.code, 0, "{done:?}");
    // The new one waits, and two servers have their data.
    let vouched = redlock.run_on(&list, &["quorum", "vouch", "--yes"]);
    assert_eq!(vouched.code, 0, "{vouched:?}");
    assert!(vouched.stderr.contains("nothing was changed"), "{vouched:?}");
    assert!(!vouched.stderr.contains("you vouch"), "{vouched:?}");
    assert!(vouched.stdout.contains("quarantined"), "{vouched:?}");
    // The old one has its data, and no slot.
    let rejoined = redlock.run_on(&[0, 1, 2], &["quorum", "rejoin"]);
    assert_eq!(rejoined.code, 0, "{rejoined:?}");
    assert!(rejoined.stdout.contains("replaced"), "{rejoined:?}");
    assert!(rejoined.stderr.contains(&format!("{old}: not readmitted")), "{rejoined:?}");
    assert!(!rejoined.stderr.contains("not recorded"), "nothing was done: {rejoined:?}");
}

#[test]
fn a_vouch_for_a_set_that_does_not_wait_says_why_it_changes_nothing() {
    let redlock = Redlock::set(3);
    let all_vote = redlock.run(&["quorum", "vouch", "--yes"]);
    assert_eq!(all_vote.code, 0, "{all_vote:?}");
    assert!(all_vote.stderr.contains("nothing was changed: every server votes"), "{all_vote:?}");
    for server in &redlock.servers[..2] {
        server.raw().say("FLUSHALL").expect("flushed");
    }
    // Their wait begins when an operator has confirmed their addresses.
    let too_early = redlock.run(&["quorum", "vouch", "--yes"]);
    assert_eq!(too_early.code, 69, "{too_early:?}");
    assert!(too_early.stderr.contains("nothing was changed: no server waits"), "{too_early:?}");
    let flushed = redlock.address(0);
    assert!(too_early.stderr.contains(&format!("{flushed}: ")), "{too_early:?}");
}

/// Most servers have lost their data, and no client runs that has seen them.
#[test]
fn a_person_is_asked_before_servers_get_slots_and_before_they_vote() {
    let redlock = Redlock::set(3);
    for server in &redlock.servers[..2] {
        server.raw().say("FLUSHALL").expect("flushed");
    }
    let [one, two, three] = [0, 1, 2].map(|server| redlock.address(server));
    let refused = redlock.run(&["run", "demo", "--try", "--", "true"]);
    assert_eq!(
        refused.code, 69,
        "only an operator knows whether these are the servers: {refused:?}"
    );
    assert!(refused.stderr.contains("quorum rejoin"), "{refused:?}");
    let before = redlock.all_kept();
    let unasked = redlock.run(&["quorum", "rejoin"]);
    assert_eq!(unasked.code, 64, "nobody can be asked: {unasked:?}");
    for address in [&one, &two] {
        assert!(unasked.stderr.contains(&format!("its slot goes to {address}")), "{unasked:?}");
    }
    assert!(unasked.stderr.contains("must lead to the right servers"), "{unasked:?}");
    assert!(unasked.stderr.contains("nothing was changed: there is no terminal"), "{unasked:?}");
    let at = |text: &str| unasked.stderr.find(text).unwrap_or_else(|| panic!("{unasked:?}"));
    assert!(at("nothing was changed") < at("to be evicted"), "{unasked:?}");
    assert_eq!(redlock.all_kept(), before);
    let rejoined = redlock.run(&["quorum", "rejoin", "--yes"]);
    assert_eq!(rejoined.code, 69, "they wait: {rejoined:?}");
    assert_eq!(redlock.states(), ["quarantined", "quarantined", "votes"]);
    let before = redlock.all_kept();
    let unasked = redlock.run(&["quorum", "vouch"]);
    assert_eq!(unasked.code, 64, "nobody can be asked: {unasked:?}");
    assert!(unasked.stderr.contains(&format!("held on {one}, {two}: ")), "{unasked:?}");
    assert!(!unasked.stderr.contains(&three), "it has its data: {unasked:?}");
    assert_eq!(redlock.all_kept(), before);
    assert_eq!(redlock.run(&["quorum", "vouch", "--yes"]).code, 0);
    assert_eq!(redlock.states(), ["votes"; 3]);
}

/// An operator vouched while one server did not answer: a majority votes, and that one waits as
/// long as at first.
#[test]
fn a_server_that_an_operator_did_not_reach_is_vouched_for_later() {
    let redlock = Redlock::start(3);
    assert_eq!(redlock.run(&["quorum", "init"]).code, 0);
    redlock.servers[2].stop();
    let vouched = redlock.run(&["quorum", "vouch", "--yes"]);
    redlock.servers[2].cont();
    assert_eq!(vouched.code, 0, "{vouched:?}");
    assert_eq!(redlock.states(), ["votes", "votes", "quarantined"]);
    let unasked = redlock.run(&["quorum", "vouch"]);
    assert_eq!(unasked.code, 64, "{unasked:?}");
    assert!(unasked.stderr.contains(&format!("held on {}: ", redlock.address(2))), "{unasked:?}");
    let vouched = redlock.run(&["quorum", "vouch", "--yes"]);
    assert_eq!(vouched.code, 0, "{vouched:?}");
    assert_eq!(redlock.states(), ["votes"; 3]);
}
