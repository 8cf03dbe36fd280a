//! The verbs on servers that Sentinels monitor: over a failover, and with wrong words.

use std::process::Command;

use holdline_services::{RedisServer, SentinelConfig, SentinelGroup};
use rustix::process::Signal;

use crate::world::{CommandOutput, Running, World, eventually, output};

/// The longest lease in seconds; nothing is granted for so long after a failover.
const LONGEST: u64 = 15;
const RUN: [&str; 4] = ["run", "demo", "--grace", "200ms"];
const LONG: [&str; 2] = ["--lease", "15s"];
const JOB: [&str; 4] =
    ["--", "sh", "-c", "echo $HOLDLINE_FENCING_TOKEN; echo up $$; read line; exit 3"];
const TOKEN: [&str; 4] = ["--", "sh", "-c", "echo $HOLDLINE_FENCING_TOKEN"];

/// A group, and a world whose commands use it.
struct Sentinels {
    group: SentinelGroup,
    world: World,
}

impl Sentinels {
    fn start() -> Sentinels {
        let group = SentinelGroup::start(&SentinelConfig::default());
        group.settle(0);
        Sentinels { group, world: World::new() }
    }

    fn url(&self) -> String {
        let longest = LONGEST * 1_000;
        let url = self.group.url();
        // Limits that a machine that is busy does not meet.
        format!("{url}?command_timeout_ms=10000&max_lease_duration_ms={longest}&old_master_ms=0")
    }

    fn command_on(&self, url: &str, arguments: &[&str]) -> Command {
        let mut command = self.world.command(arguments);
        command.env("HOLDLINE_URL", url);
        command
    }

    fn run_on(&self, url: &str, arguments: &[&str]) -> CommandOutput {
        output(&mut self.command_on(url, arguments))
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.run_on(&self.url(), arguments)
    }

    fn start_command(&self, arguments: &[&str]) -> Running {
        self.world.start_command(&mut self.command_on(&self.url(), arguments))
    }

    fn queue_length(&self) -> u64 {
        let output = self.run(&["--json", "who", "demo"]);
        let who: serde_json::Value = serde_json::from_str(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        who["queue_length"].as_u64().expect("a number")
    }
}

#[test]
fn a_job_goes_on_over_a_failover_and_hands_on_when_the_new_master_may_grant() {
    let sentinels = Sentinels::start();
    let mut holder = sentinels.start_command(&[&RUN[..], &LONG, &JOB].concat());
    let token: u64 = holder.line().parse().expect("a token");
    assert!(holder.line().starts_with("up "));
    let waiter = sentinels.start_command(&[&RUN[..], &LONG, &TOKEN].concat());
    eventually("queued", || sentinels.queue_length() == 1);
    sentinels.group.await_replicated();
    sentinels.group.servers()[0].kill();
    sentinels.group.await_promotion(0);
    let early = sentinels.run(&["acquire", "other", "--try", "--lease", "15s"]);
    assert_eq!(early.code, 69, "{early:?}");
    assert!(early.stderr.contains("grants nothing for"), "{early:?}");
    holder.let_go();
    assert_eq!(holder.code(), 3);
    assert!(waiter.line().parse::<u64>().is_ok_and(|next| next > token));
}

#[test]
fn a_killed_holder_frees_the_name_at_the_end_of_its_lease() {
    let sentinels = Sentinels::start();
    let holder = sentinels.start_command(&[&RUN[..], &["--lease", "4s"], &JOB].concat());
    let token: u64 = holder.line().parse().expect("a token");
    assert!(holder.line().starts_with("up "));
    holder.signal(Signal::KILL);
    let next = sentinels.run(&[&RUN[..], &LONG, &TOKEN].concat());
    assert!(next.stdout.trim().parse::<u64>().is_ok_and(|next| next > token), "{next:?}");
}

#[test]
fn a_start_without_a_master_waits_for_one_within_its_limit() {
    let sentinels = Sentinels::start();
    sentinels.group.servers().iter().rev().for_each(RedisServer::kill);
    let begin = |arguments: &[&[&str]]| sentinels.start_command(&arguments.concat());
    let wait = ["--wait", "60s"];
    let mut waiters = [
        begin(&[&RUN, &LONG, &wait, &TOKEN]),
        begin(&[&["acquire", "mine"], &LONG, &wait]),
        begin(&[&["wait", "demo"], &wait]),
    ];
    for waiter in &waiters {
        let says = waiter.said();
        assert!(says.contains("waiting to connect: no quorum: no master accepts it"), "{says}");
    }
    for (limit, name) in [(&["--try"][..], "a"), (&["--wait", "1s"], "b")] {
        let output = sentinels.run(&[&["acquire", name][..], &LONG, limit].concat());
        assert_eq!(output.code, 69, "{output:?}");
        assert!(output.stderr.contains("no master accepts it: "), "{output:?}");
    }
    sentinels.group.servers()[0].restart();
    for waiter in &mut waiters {
        assert_eq!(waiter.code(), 0, "{}", waiter.rest());
    }
}

#[test]
fn wait_reports_each_change_of_what_it_waits_for() {
    let sentinels = Sentinels::start();
    let mut holder =
        sentinels.start_command(&[&RUN[..], &["--on-lost", "warn"], &LONG, &JOB].concat());
    holder.line();
    assert!(holder.line().starts_with("up "));
    let mut waiter = sentinels.start_command(&["wait", "demo"]);
    let says = waiter.said();
    assert!(says.contains("waiting for demo: held by sh"), "{says}");
    sentinels.group.servers().iter().rev().for_each(RedisServer::kill);
    let says = waiter.said();
    assert!(says.contains("waiting for demo: no quorum: no master"), "{says}");
    holder.let_go();
    sentinels.group.servers()[0].restart();
    assert_eq!(waiter.code(), 0, "{}", waiter.rest());
}

#[test]
fn errors_have_their_exit_codes_and_leave_nothing() {
    let sentinels = Sentinels::start();
    let url = sentinels.url();
    let raw = |line: &str| sentinels.group.servers()[0].raw().say(line).expect("an answer");
    let keys = raw("DBSIZE").integer();
    let user = url.replace("redis+sentinel://", "redis+sentinel://nobody:CANARY@");
    for (url, code, says) in [
        (url.replace("/locks", "/lock"), 77, "they watch, such as locks"),
        (url.replace("/locks", ""), 78, "names no service"),
        (url.replace("old_master_ms", "old_mater_ms"), 78, "old_master_ms"),
        (format!("{url}&replicas=most"), 78, "`all`, `majority`"),
        (user, 77, "user or password is wrong"),
        ("redis+sentinel://127.0.0.1:1,127.0.0.1:2/locks".to_owned(), 69, "none of the sentinels"),
    ] {
        let output = sentinels.run_on(&url, &["acquire", "demo", "--try", "--lease", "15s"]);
        assert_eq!(output.code, code, "{url}: {output:?}");
        assert!(output.stderr.contains(says), "{url}: {output:?}");
        assert!(!format!("{output:?}").contains("CANARY"), "{output:?}");
    }
    let long = sentinels.run(&["acquire", "demo", "--try", "--lease", "16s"]);
    assert_eq!(long.code, 64, "{long:?}");
    assert!(long.stderr.contains("15s"), "{long:?}");
    assert_eq!(raw("DBSIZE").integer(), keys);
    raw("SET holdline:{demo} theirs");
    let foreign = sentinels.run(&["acquire", "demo", "--try", "--lease", "15s"]);
    assert_eq!(foreign.code, 65, "{foreign:?}");
    assert_eq!(raw("GET holdline:{demo}").text().as_deref(), Some("theirs"));
}

#[test]
fn doctor_and_explain_know_the_sentinels() {
    let sentinels = Sentinels::start();
    let found = sentinels.run(&["doctor"]);
    assert_eq!(found.code, 1, "{found:?}");
    let sentinels_say = "3 of 3 answer, 3 are known, of which 3 are up, quorum 2";
    for says in [sentinels_say, "min-replicas-to-write 0 of 2", "clocks"] {
        assert!(found.stdout.contains(says), "{says}: {found:?}");
    }
    let explained = sentinels.run(&["explain"]);
    assert_eq!(explained.code, 0, "{explained:?}");
    let first = sentinels.group.sentinels()[0].address().to_string();
    assert!(explained.stdout.contains(&first), "{explained:?}");
}
