//! The verbs on a quorum of Redis servers, and the verb that manages it.

mod sets;

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdline_services::{RedisConfig, RedisServer, Reply, steady};
use serde_json::Value;

use crate::world::{CommandOutput, Running, World, eventually, output};

/// A limit that a machine that is busy does not meet.
const UNHURRIED: &str = "command_timeout_ms=10000";
const JOB: [&str; 5] =
    ["demo", "--", "sh", "-c", "echo $HOLDLINE_FENCING_TOKEN; echo up $$; read line; exit 3"];
const ID: &str = "00112233445566778899aabbccddeeff";

/// Servers, and a world whose commands use them as one set.
pub(crate) struct Redlock {
    servers: Vec<RedisServer>,
    pub(crate) world: World,
}

impl Redlock {
    fn start(count: usize) -> Redlock {
        let config = RedisConfig::default();
        let start = || RedisServer::start(config.clone());
        let servers = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
            starting.into_iter().map(|one| one.join().expect("a server")).collect()
        });
        Redlock { servers, world: World::new() }
    }

    /// Servers that an operator has made a set.
    pub(crate) fn set(count: usize) -> Redlock {
        let redlock = Redlock::start(count);
        redlock.make(&[]);
        redlock
    }

    /// Makes new servers a set that is used at once, as an operator does who knows that they are.
    fn make(&self, options: &[&str]) -> CommandOutput {
        let made = self.run(&[&["quorum", "init"], options].concat());
        assert_eq!(made.code, 0, "{made:?}");
        let vouched = self.run(&["quorum", "vouch", "--yes"]);
        assert_eq!(vouched.code, 0, "{vouched:?}");
        vouched
    }

    pub(crate) fn url(&self) -> String {
        let at: Vec<String> = self.servers.iter().map(|one| one.address().to_string()).collect();
        format!("redlock://{}?{UNHURRIED}", at.join(","))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.command_on(&self.url(), arguments)
    }

    fn command_on(&self, url: &str, arguments: &[&str]) -> Command {
        let mut command = self.world.command(arguments);
        command.env("HOLDLINE_URL", url);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        output(&mut self.command(arguments))
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[&["--json"], arguments].concat());
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    pub(crate) fn kill(&self, server: usize) {
        self.servers[server].kill();
    }

    fn states(&self) -> Vec<String> {
        let status = self.json(&["quorum", "status"]);
        let nodes = status["nodes"].as_array().expect("a list");
        nodes.iter().map(|node| node["state"].as_str().expect("a word").to_owned()).collect()
    }

    fn hold(&self, options: &[&str]) -> (Running, u64) {
        let line = [&["run"], options, &JOB].concat();
        let holder = self.world.start_command(&mut self.command(&line));
        let token = holder.line().parse().expect("a token");
        assert!(holder.line().starts_with("up "));
        (holder, token)
    }

    /// Which servers keep a lock key of this name.
    fn holding(&self, name: &str) -> Vec<usize> {
        let line = format!("EXISTS holdline:{{{name}}}");
        let holds = |one: &RedisServer| one.raw().say(&line).expect("a reply").integer() == Some(1);
        let servers = self.servers.iter().enumerate();
        servers.filter(|(_, one)| holds(one)).map(|(at, _)| at).collect()
    }

    /// What each server keeps of its set.
    fn kept(&self) -> Vec<Vec<String>> {
        self.kept_by(&(0..self.servers.len()).collect::<Vec<_>>())
    }

    /// The same of some of them.
    fn kept_by(&self, list: &[usize]) -> Vec<Vec<String>> {
        let kept = |at: &usize| {
            let reply = self.servers[*at].raw().say("HGETALL holdline:node:1").expect("a reply");
            reply.items().expect("a list").iter().filter_map(Reply::text).collect()
        };
        list.iter().map(kept).collect()
    }

    /// Keys of all servers together.
    fn keys(&self) -> i64 {
        let keys = |one: &RedisServer| one.raw().say("DBSIZE").expect("a reply").integer();
        self.servers.iter().filter_map(keys).sum()
    }
}

#[test]
fn an_operator_makes_a_set_and_looks_at_it() {
    let redlock = Redlock::start(3);
    let before = redlock.run(&["quorum", "status"]);
    assert_eq!(before.code, 69, "{before:?}");
    assert!(before.stdout.contains("blank"), "{before:?}");
    assert!(before.stderr.contains("`holdline quorum init`"), "{before:?}");
    assert_eq!(redlock.keys(), 0, "looking changes nothing");
    let made = redlock.make(&["--max-lease", "2m"]);
    assert!(made.stdout.contains("longest lease 2m"), "{made:?}");
    assert!(made.stdout.contains("3 of 3 vote, 2 must agree: 1 more may fail"), "{made:?}");
    assert_eq!(redlock.run(&["quorum", "status"]).code, 0);
    assert_eq!(redlock.run(&["run", "demo", "--lease", "2m", "--", "true"]).code, 0);
    let before = redlock.kept();
    for again in [
        &["quorum", "init"][..],
        &["quorum", "init", "--max-lease", "2m"],
        &["quorum", "vouch"],
        &["quorum", "rejoin"],
    ] {
        let output = redlock.run(again);
        assert_eq!((output.code, output.stdout.contains("3 of 3 vote")), (0, true), "{output:?}");
    }
    let other = redlock.run(&["quorum", "init", "--max-lease", "1m"]);
    assert_eq!(other.code, 77, "{other:?}");
    assert!(other.stderr.contains("120s and not 60s"), "{other:?}");
    assert_eq!(redlock.kept(), before, "a healthy set is left as it is");
}

#[test]
fn an_even_number_of_servers_gets_a_warning() {
    let redlock = Redlock::start(2);
    let made = redlock.make(&[]);
    let works = "2 of 2 vote, 2 must agree: no more servers may fail\n";
    assert!(made.stdout.contains(works), "{made:?}");
    let warning = "an even number of servers tolerates no more failures than one server fewer\n";
    assert!(made.stdout.ends_with(warning), "{made:?}");
    assert_eq!(redlock.run(&["run", "demo", "--", "true"]).code, 0);
}

#[test]
fn doctor_looks_at_the_set_and_at_each_server() {
    let redlock = Redlock::start(3);
    let blank = redlock.run(&["doctor"]);
    assert_eq!(blank.code, 2, "{blank:?}");
    assert!(blank.stdout.contains("to do: `holdline quorum init` makes them one"), "{blank:?}");
    assert_eq!(redlock.keys(), 0, "looking changes nothing");
    redlock.make(&[]);
    let well = redlock.run(&["doctor"]);
    assert_eq!(well.code, 1, "only a password is missing: {well:?}");
    assert!(well.stdout.contains("all 3: noeviction"), "{well:?}");
    assert!(well.stdout.ends_with("warning: 11 ok, 1 warning, 0 errors\n"), "{well:?}");
    let holds = redlock.run(&["doctor", "--longest-hold", "1h"]);
    assert_eq!(holds.code, 1, "{holds:?}");
    assert!(holds.stdout.contains("to do: not checked: "), "{holds:?}");
    let explained = redlock.run(&["explain"]);
    assert!(explained.stdout.contains("A majority of its servers must agree"), "{explained:?}");
    let bare = format!("{}&dialect=plain&fencing=off", redlock.url());
    let explained = output(&mut redlock.command_on(&bare, &["explain"]));
    // Other libraries share its keys, so they are listed.
    assert!(explained.stdout.contains("- It has: ls.\n"), "{explained:?}");
    assert!(!explained.stdout.contains("hand the fencing token"), "{explained:?}");
}

#[test]
fn an_engine_without_a_quorum_gets_its_own_error() {
    let redlock = Redlock::start(1);
    for (url, code, says) in [
        (redlock.servers[0].url(), 78, "is no quorum"),
        ("local:".to_owned(), 78, "redlock://one,two,three"),
        ("redlock://one,two?prefx=a".to_owned(), 78, "prefix"),
        ("redlock://u:CANARY@one,one".to_owned(), 78, "twice"),
        ("redlock://u:CANARY@one,u:CANARY@two,three".to_owned(), 78, "before the first"),
        (
            "redlock://u:CANARY@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3".to_owned(),
            69,
            "start those that do not",
        ),
    ] {
        let output = output(&mut redlock.command_on(&url, &["quorum", "status"]));
        assert_eq!(output.code, code, "{url}: {output:?}");
        assert!(output.stderr.contains(says), "{url}: {output:?}");
        assert!(!format!("{output:?}").contains("CANARY"), "{output:?}");
    }
    let zero = redlock.run(&["quorum", "init", "--max-lease", "20m"]);
    assert_eq!(zero.code, 64, "{zero:?}");
}

/// The first client on blank servers makes a set that waits; an operator may end the wait.
#[test]
fn a_client_on_blank_servers_gets_the_fix_to_wait_or_ask_an_operator() {
    let redlock = Redlock::start(3);
    // A read-only command makes no set, and does not report that a name is free.
    let token = ["--if-fencing-token", "5", "--reason", "x"];
    for line in [
        &["who", "demo"][..],
        &["wait", "demo", "--wait", "20s"],
        &["check", "demo", "--lease-id", ID],
        &["renew", "demo", "--lease-id", ID],
        &[&["revoke", "demo"][..], &token].concat(),
        &["fence", "bump", "--to", "9"],
    ] {
        let output = redlock.run(line);
        assert_eq!(output.code, 69, "{line:?}: {output:?}");
        assert!(output.stderr.contains("`holdline quorum init`"), "{line:?}: {output:?}");
    }
    assert_eq!(redlock.run(&["explain"]).code, 0);
    assert_eq!(redlock.run(&["release", "demo", "--lease-id", ID]).code, 79);
    assert_eq!(redlock.keys(), 0, "looking changes nothing");
    let early = redlock.run(&["run", "demo", "--try", "--", "true"]);
    assert_eq!(early.code, 69, "{early:?}");
    eventually("founded", || redlock.states() == ["quarantined"; 3]);
    let who = redlock.run(&["who", "demo"]);
    assert_eq!(who.code, 69, "{who:?}");
    assert_eq!(who.stderr.matches("is in its first quarantine for").count(), 3, "{who:?}");
    assert!(who.stderr.contains("`holdline doctor`"), "{who:?}");
    // A waiter shows what it waits for, and waits no longer than its limit.
    let waits = redlock.run(&["run", "demo", "--wait", "3s", "--", "true"]);
    assert_eq!(waits.code, 69, "{waits:?}");
    assert!(waits.stderr.contains("waiting for demo: "), "{waits:?}");
    assert!(waits.stderr.contains("holdline quorum vouch"), "{waits:?}");
    let waits = redlock.run(&["quorum", "status"]);
    assert_eq!(waits.code, 69, "{waits:?}");
    let other = redlock.run(&["quorum", "init", "--max-lease", "2m"]);
    assert_eq!(other.code, 77, "a longest lease never changes: {other:?}");
    // Somebody who sets servers up again after a loss of power does not end the wait by that.
    let again = redlock.run(&["quorum", "init"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.stderr.contains("quorum vouch"), "{again:?}");
    assert_eq!(redlock.states(), ["quarantined"; 3]);
    let unasked = redlock.run(&["quorum", "vouch"]);
    assert_eq!(unasked.code, 64, "{unasked:?}");
    assert!(unasked.stderr.contains("two clients hold one lock"), "{unasked:?}");
    assert_eq!(redlock.states(), ["quarantined"; 3]);
    assert_eq!(redlock.run(&["quorum", "vouch", "--yes"]).code, 0);
    assert_eq!(redlock.run(&["run", "demo", "--", "true"]).code, 0);
}

#[test]
fn a_job_holds_the_name_is_shown_and_hands_it_on() {
    let redlock = Redlock::set(3);
    let (mut holder, token) = redlock.hold(&[]);
    let who = redlock.json(&["who", "demo"]);
    assert_eq!(who["holders"][0]["fencing_token"].as_u64(), Some(token), "{who}");
    let busy = redlock.run(&["run", "demo", "--try", "--", "true"]);
    assert_eq!(busy.code, 75, "{busy:?}");
    let late = redlock.run(&["run", "demo", "--wait", "300ms", "--", "true"]);
    assert_eq!(late.code, 75, "{late:?}");
    let line = ["run", "demo", "--", "sh", "-c", "echo $HOLDLINE_FENCING_TOKEN"];
    let next = redlock.world.start_command(&mut redlock.command(&line));
    assert!(next.said().contains("wait"), "it says for whom");
    holder.let_go();
    assert_eq!(holder.code(), 3);
    assert!(next.line().parse::<u64>().is_ok_and(|next| next > token));
    for lacks in [
        &["ls"][..],
        &["freeze", "demo", "--for", "1h", "--reason", "x"],
        &["run", "demo", "--shared", "--", "true"],
        &["run", "demo", "--permits", "1/2", "--", "true"],
    ] {
        let output = redlock.run(lacks);
        assert_eq!(output.code, 78, "{lacks:?}: {output:?}");
    }
    let bump = (token + 3_600_000_000).to_string();
    assert_eq!(redlock.run(&["fence", "bump", "--to", &bump]).code, 0);
    let above = redlock.run(&line);
    assert!(above.stdout.trim().parse::<u64>().is_ok_and(|next| next > token + 3_600_000_000));
}

#[test]
fn a_lease_is_asked_for_again_under_its_id_and_nothing_is_added_to_it() {
    let redlock = Redlock::set(3);
    let acquire = ["acquire", "demo", "--lease", "20s", "--lease-id", ID];
    let first = redlock.json(&acquire);
    let again = redlock.json(&acquire);
    assert_eq!(first["fencing_token"], again["fencing_token"], "{first} {again}");
    let until = |lease: &Value| lease["valid_until_ms"].as_u64().expect("a time");
    // The time is rounded twice: by the server and by us.
    assert!(until(&again) <= until(&first) + 50, "{first} {again}");
    assert_eq!(redlock.run(&["check", "demo", "--lease-id", ID]).code, 0);
    assert_eq!(redlock.run(&["renew", "demo", "--lease-id", ID, "--lease", "30s"]).code, 0);
    assert_eq!(redlock.run(&["release", "demo", "--lease-id", ID]).code, 0);
    assert_eq!(redlock.run(&["check", "demo", "--lease-id", ID]).code, 79);
}

#[test]
fn a_lease_is_waited_for_and_an_id_of_ones_own_is_good_for_one_attempt() {
    let redlock = Redlock::set(3);
    let first = redlock.json(&["acquire", "demo", "--lease", "2s"]);
    // An id that was refused may have left an undo, and is never taken again.
    let mine = redlock.run(&["acquire", "demo", "--lease-id", ID, "--wait", "20s"]);
    assert_eq!(mine.code, 75, "{mine:?}");
    assert!(mine.stderr.contains("holdline acquire"), "{mine:?}");
    let next = redlock.json(&["acquire", "demo", "--lease", "2s", "--wait", "60s"]);
    assert!(next["fencing_token"].as_u64() > first["fencing_token"].as_u64(), "{first} {next}");
    redlock.servers[1].kill();
    redlock.servers[2].kill();
    let mine = redlock.run(&["acquire", "other", "--lease-id", ID, "--wait", "20s"]);
    assert_eq!(mine.code, 69, "{mine:?}");
}

#[test]
fn operators_revoke() {
    let redlock = Redlock::set(3);
    for now in [&[][..], &["--now"]] {
        let (mut holder, token) = redlock.hold(&["--grace", "300ms"]);
        let token = token.to_string();
        let line = ["revoke", "demo", "--if-fencing-token", &token, "--reason", "rollback"];
        let revoked = redlock.run(&[&line[..], now].concat());
        assert_eq!(revoked.code, 0, "{revoked:?}");
        let rest = holder.rest();
        assert_eq!(holder.code(), 79, "{rest}");
        assert!(rest.contains("rollback"), "{rest}");
    }
}

#[test]
fn one_server_may_be_lost_and_a_majority_not() {
    let redlock = Redlock::set(3);
    redlock.servers[2].kill();
    let (mut holder, _) = redlock.hold(&["--lease", "5s", "--grace", "300ms"]);
    let status = redlock.run(&["quorum", "status"]);
    assert_eq!(status.code, 0, "{status:?}");
    assert!(status.stdout.contains("no more servers may fail"), "{status:?}");
    redlock.servers[1].kill();
    let lost = redlock.run(&["run", "other", "--try", "--", "true"]);
    assert_eq!(lost.code, 69, "{lost:?}");
    let lines = redlock.servers.iter().map(|one| format!("\n  {}: ", one.address()));
    assert!(lines.into_iter().all(|line| lost.stderr.contains(&line)), "{lost:?}");
    assert_eq!(redlock.run(&["quorum", "status"]).code, 69);
    // The job is stopped before the lease can be over.
    let rest = holder.rest();
    assert_eq!(holder.code(), 79, "{rest}");
}

/// A server that was restarted without its data refuses requests, and the status shows that.
#[test]
fn a_server_that_lost_its_data_is_quarantined() {
    let redlock = Redlock::set(3);
    // A client that has seen the server takes it in again.
    let (mut holder, _) = redlock.hold(&[]);
    redlock.servers[0].kill();
    redlock.servers[0].restart();
    eventually("agreed", || redlock.states() == ["quarantined", "votes", "votes"]);
    let status = redlock.json(&["quorum", "status"]);
    assert!(status["nodes"][0]["quarantine_left_ms"].as_u64().is_some_and(|left| left <= 75_000));
    assert!(status["nodes"][0]["fix"].is_string() && status["epoch"] == 3, "{status}");
    holder.let_go();
    assert_eq!(holder.code(), 3);
}

#[test]
fn servers_that_are_not_one_set_are_refused() {
    let (one, other) = (Redlock::set(3), Redlock::set(3));
    let [a, b] = [&one, &other].map(|set| set.servers[0].address());
    let [c, d] = [&one, &other].map(|set| set.servers[1].address());
    let mixed = format!("redlock://{a},{c},{b},{d}?{UNHURRIED}");
    let foreign = output(&mut one.command_on(&mixed, &["run", "demo", "--", "true"]));
    assert_eq!(foreign.code, 77, "{foreign:?}");
    assert!(foreign.stderr.contains("not one set"), "{foreign:?}");
    let twice =
        format!("redlock://{a},localhost:{},{}?{UNHURRIED}", a.port(), one.servers[1].address());
    let twice = output(&mut one.command_on(&twice, &["run", "demo", "--", "true"]));
    assert_eq!(twice.code, 77, "{twice:?}");
    assert!(twice.stderr.contains("are one server"), "{twice:?}");
}

/// One lock with other libraries over the same servers, with tokens and without.
#[test]
fn a_lock_is_shared_with_plain_clients() {
    let redlock = Redlock::start(3);
    let tokens = format!("{}&dialect=plain&key_template=lock:{{name}}", redlock.url());
    let bare = format!("{tokens}&fencing=off");
    let run = |url: &str, arguments: &[&str]| output(&mut redlock.command_on(url, arguments));
    let say = |words: &[&str]| {
        let ask = |one: &RedisServer| one.raw().send(words).expect("the server answers");
        redlock.servers.iter().map(ask).collect::<Vec<Reply>>()
    };
    assert_eq!(run(&tokens, &["quorum", "init"]).code, 0);
    assert_eq!(run(&tokens, &["quorum", "vouch", "--yes"]).code, 0);
    let line =
        [&["run"], &JOB[..4], &["echo ${HOLDLINE_FENCING_TOKEN-none}; echo up $$; read line"]];
    for (url, token) in [(&tokens, true), (&bare, false)] {
        say(&["SET", "lock:demo", "their value", "NX", "PX", "60000"]);
        let who = run(url, &["who", "demo"]);
        assert!(
            who.stdout.contains("a foreign client") && !who.stdout.contains("value"),
            "{who:?}"
        );
        let busy = run(url, &["run", "demo", "--try", "--", "true"]);
        assert_eq!(busy.code, 75, "{busy:?}");
        assert!(busy.stderr.contains("held by a foreign client"), "{busy:?}");
        say(&["DEL", "lock:demo"]);
        let mut holder = redlock.world.start_command(&mut redlock.command_on(url, &line.concat()));
        assert_eq!(holder.line().parse::<u64>().is_ok_and(|token| token > 1), token);
        assert!(holder.line().starts_with("up "));
        let theirs = say(&["SET", "lock:demo", "their value", "NX", "PX", "60000"]);
        let had = theirs.iter().filter(|reply| **reply != Reply::Nil).count();
        assert!(had <= 1, "they have a majority: {theirs:?}");
        holder.let_go();
        assert_eq!(holder.code(), 0);
        say(&["DEL", "lock:demo"]);
    }
    let acquired = run(&tokens, &["acquire", "demo", "--lease", "20s", "--lease-id", ID]);
    assert_eq!(acquired.code, 0, "{acquired:?}");
    assert_eq!(run(&tokens, &["renew", "demo", "--lease-id", ID, "--lease", "30s"]).code, 0);
    assert_eq!(run(&tokens, &["release", "demo", "--lease-id", ID]).code, 0);
}

/// Without tokens there is no set, no lease without a process, and nothing that names a token.
#[test]
fn unsupported_options_and_misspellings_are_errors_with_the_fix() {
    let redlock = Redlock::start(3);
    let with = |parameters: &str| format!("{}&{parameters}", redlock.url());
    let bare = with("dialect=plain&fencing=off");
    for (url, line, says) in [
        (&bare, &["acquire", "demo"][..], "detached leases"),
        (&bare, &["fence", "bump", "--to", "9"], "fencing tokens"),
        (&bare, &["revoke", "demo", "--if-fencing-token", "1", "--reason", "x", "--now"], "revoke"),
        (&bare, &["quorum", "init"], "there is nothing to initialise"),
        (&with("dialect=plian"), &["who", "demo"], "must be `native` or `plain` or `redisson`"),
        (&with("dialect=plain&fencing=no"), &["who", "demo"], "must be `on` or `off`"),
        (&with("fencing=off"), &["who", "demo"], "`dialect=plain`"),
        (&with("dialect=redisson"), &["who", "demo"], "`fencing=off`"),
        (&with("dialect=redisson&fencing=off"), &["fence", "bump", "--to", "9"], "fencing tokens"),
    ] {
        let output = output(&mut redlock.command_on(url, line));
        assert_eq!(output.code, 78, "{line:?}: {output:?}");
        assert!(output.stderr.contains(says), "{line:?}: {output:?}");
    }
    assert_eq!(redlock.keys(), 0, "nothing was asked for");
}

#[test]
fn a_password_is_shown_to_nobody() {
    let redlock = Redlock::set(3);
    for server in &redlock.servers {
        let set = ["CONFIG", "SET", "requirepass", "CANARY"];
        server.raw().send(&set).expect("the server answers");
    }
    let url = redlock.url().replace("redlock://", "redlock://:CANARY@");
    let job = "env; tr '\\0' '\\n' < /proc/$PPID/cmdline";
    let ran = output(&mut redlock.command_on(&url, &["-v", "run", "demo", "--", "sh", "-c", job]));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.contains("HOLDLINE_ENGINE=redlock") && !format!("{ran:?}").contains("CANARY")
    );
    let wrong = url.replace("CANARY", "CANARY2");
    for line in [&["run", "demo", "--", "true"][..], &["quorum", "status"], &["doctor"]] {
        let output = output(&mut redlock.command_on(&wrong, line));
        assert!(output.code != 0 && !format!("{output:?}").contains("CANARY"), "{output:?}");
    }
}

#[test]
fn a_set_of_short_leases_serves_every_verb() {
    let redlock = Redlock::start(3);
    redlock.make(&["--max-lease", "10s"]);
    let id = ["demo", "--lease-id", ID];
    let acquired = redlock.run(&[&["acquire"], &id[..]].concat());
    assert_eq!(acquired.code, 0, "{acquired:?}");
    assert!(acquired.stderr.contains("the lease is 10s"), "{acquired:?}");
    for verb in ["check", "renew", "release"] {
        let output = redlock.run(&[&[verb], &id[..]].concat());
        assert_eq!(output.code, 0, "{verb}: {output:?}");
    }
    assert_eq!(redlock.run(&["who", "demo"]).code, 1);
    assert_eq!(redlock.run(&["wait", "demo"]).code, 0);
    let (mut holder, token) = redlock.hold(&[]);
    let revoke = ["revoke", "demo", "--if-fencing-token", &token.to_string(), "--reason", "x"];
    assert_eq!(redlock.run(&revoke).code, 0);
    assert_eq!(holder.code(), 79);
    assert!(holder.rest().contains("the lease is 10s"));
}

#[test]
fn a_release_without_a_majority_ends_as_unavailable() {
    let redlock = Redlock::set(3);
    let id = ["demo", "--lease-id", ID];
    assert_eq!(redlock.run(&[&["acquire", "--lease", "1m"], &id[..]].concat()).code, 0);
    redlock.servers[0].kill();
    redlock.servers[1].kill();
    for verb in ["check", "renew", "release"] {
        let output = redlock.run(&[&["--json", verb], &id[..]].concat());
        assert_eq!((output.code, output.stdout.as_str()), (69, ""), "{verb}: {output:?}");
    }
}

/// Two of three servers are gone for good: nobody can confirm the release.
#[test]
fn a_wrapper_ends_soon_after_its_job_without_a_majority() {
    steady(|| {
        let redlock = Redlock::set(3);
        let (mut holder, _) = redlock.hold(&["--lease", "1m"]);
        redlock.servers[1].kill();
        redlock.servers[2].kill();
        holder.let_go();
        let ended = Instant::now();
        assert_eq!(holder.code(), 3);
        let (after, talk) = (ended.elapsed(), holder.rest());
        assert!(talk.contains("the store did not confirm the release"), "{talk}");
        let kept = redlock.servers[0].raw().say("EXISTS holdline:{demo}").expect("a reply");
        assert_eq!(kept.integer(), Some(0), "it is released where a server answers");
        // A second is enough once it is known that there is no majority.
        assert!(after < Duration::from_secs(4), "{after:?}");
    });
}

/// The first run of each script on a server takes two requests, of which the second may not have
/// left when a majority has answered.
#[test]
fn a_run_that_ended_has_left_no_vote_on_any_server() {
    let redlock = Redlock::set(3);
    for round in 0..12 {
        let name = format!("demo-{round}");
        let slow = &redlock.servers[round % 3];
        slow.raw().say("SCRIPT FLUSH").expect("flushed");
        let ran = redlock.run(&["run", &name, "--", "true"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(redlock.holding(&name), [0; 0], "round {round}");
    }
}

/// What a contender has on one server, as one that is gone leaves it.
fn vote_of_another(server: &RedisServer, name: &str) {
    let record =
        format!("{}g-l{}{}10000x l30000;{{}}", "ab".repeat(16), "0".repeat(32), "1".repeat(32));
    let set = ["SET", &format!("holdline:{{{name}}}"), &record, "PX", "600000"];
    server.raw().send(&set).expect("set");
}

#[test]
fn a_try_that_was_refused_has_left_no_vote_on_any_server() {
    let redlock = Redlock::set(3);
    vote_of_another(&redlock.servers[0], "demo");
    vote_of_another(&redlock.servers[1], "demo");
    for round in 0..12 {
        redlock.servers[2].raw().say("SCRIPT FLUSH").expect("flushed");
        let refused = redlock.run(&["run", "demo", "--try", "--", "true"]);
        assert_eq!(refused.code, 75, "{refused:?}");
        assert_eq!(redlock.holding("demo"), [0, 1], "round {round}");
    }
}

/// More refusals in a row, of all six together, than there are while one of them holds the name.
const TOO_MANY: usize = 600;

/// Six who never wait get a name that is free in their turns, since none of them leaves a vote.
/// One that did would keep it from all for the ten minutes of its lease.
#[test]
fn six_tries_at_once_do_not_block_each_other_on_a_free_name() {
    let redlock = Redlock::start(3);
    redlock.make(&["--max-lease", "10m"]);
    let in_a_row = AtomicUsize::new(0);
    let contend = || {
        let (mut granted, mut refused) = (0, 0);
        while granted < 5 {
            let tried = ["run", "demo", "--try", "--lease", "10m", "--", "true"];
            match redlock.run(&tried).code {
                0 => (granted, _) = (granted + 1, in_a_row.swap(0, Ordering::Relaxed)),
                75 => refused += 1,
                code => panic!("{code}"),
            }
            let since = in_a_row.fetch_add(1, Ordering::Relaxed);
            assert!(since < TOO_MANY, "{since} refusals in a row, {refused} here");
        }
        refused
    };
    let refused: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(contend)).collect();
        all.into_iter().map(|one| one.join().expect("it ends")).sum()
    });
    println!("{refused} refusals for 30 grants");
    eventually("nothing is left", || redlock.holding("demo").is_empty());
}

#[test]
fn the_metrics_of_a_run_show_the_nodes() {
    let redlock = Redlock::set(3);
    redlock.servers[1].kill();
    let file = redlock.world.path("job.prom");
    let line = ["run", "--metrics-file", "job.prom", "--class", "job", "a", "--", "true"];
    let labels = r#"class="job",engine="redlock""#;
    let up = |at: usize| {
        let node = redlock.servers[at].address();
        format!("holdline_node_up{{{labels},node=\"{node}\"}} {}\n", u8::from(at != 1))
    };
    let margin = format!("holdline_quorum_margin{{{labels}}} 0\n");
    let expected = [up(0), up(1), up(2), margin];
    // A run that is over before all nodes were waited for does not know them all.
    eventually("the nodes are shown", || {
        assert_eq!(redlock.run(&line).code, 0);
        let text = std::fs::read_to_string(&file).expect("written");
        expected.iter().all(|series| text.contains(series))
    });
}
