//! The same script of commands on every engine: what a script of a user sees does not depend on the
//! engine, but for what an engine cannot do, and that is said with exit 78.

use holdline_services::{
    EtcdConfig, EtcdServer, PostgresConfig, PostgresServer, RedisConfig, RedisServer,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use crate::world::{Told, World};

/// What an engine may lack, by the word of its capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    Freeze,
    Permits,
    Raise,
    Shared,
}

use Needs::{Freeze, Nothing, Permits, Raise, Shared};

/// One line of the script: `{1}` to `{c}` are lease ids, `{token NAME}` is the token of the only
/// holder of a name.
const SCRIPT: &[(Needs, &str)] = &[
    // Nothing is there yet.
    (Nothing, "who a"),
    (Nothing, "ls"),
    (Nothing, "wait a --wait 20s"),
    (Nothing, "check a --lease-id {1}"),
    (Nothing, "release a --lease-id {1}"),
    // A lease from its beginning to its end, each step also by one who has no right to it.
    (Nothing, "acquire a --lease 30s --lease-id {1} --reason first --label team=blue"),
    (Nothing, "acquire a --lease 30s --lease-id {1} --reason first --label team=blue"),
    (Nothing, "acquire a --lease 20s --lease-id {1}"),
    (Nothing, "acquire a --try --lease-id {2}"),
    (Nothing, "acquire a --wait 3s --lease-id {3}"),
    (Nothing, "run a --try -- true"),
    (Nothing, "run a --skip -- true"),
    (Nothing, "run a --try -E 3 -- true"),
    (Nothing, "who a"),
    (Nothing, "ls"),
    (Nothing, "wait a --wait 3s"),
    (Nothing, "check a --lease-id {1}"),
    (Nothing, "check a --lease-id {2}"),
    (Nothing, "renew a --lease-id {1}"),
    (Nothing, "renew a --lease-id {2}"),
    (Nothing, "release a --lease-id {2}"),
    (Nothing, "check a --lease-id {1}"),
    (Nothing, "release a --lease-id {1}"),
    (Nothing, "release a --lease-id {1}"),
    (Nothing, "check a --lease-id {1}"),
    (Nothing, "renew a --lease-id {1}"),
    (Nothing, "who a"),
    // A job under a lock.
    (Nothing, "run a --lease 30s -- sh -c 'exit 7'"),
    (Nothing, "run a --lease 30s -- sh -c 'kill -KILL $$'"),
    (Nothing, "run a --lease 30s -- no-such-program"),
    (Nothing, "run a --lease 30s -- sh -c 'echo $HOLDLINE_NAME ${#HOLDLINE_LEASE_ID}'"),
    (Nothing, "run a --lease 30s -- holdline run a --lease 30s -- true"),
    (Nothing, "run a --lease 30s --max-hold 50ms --grace 50ms -- sleep 30"),
    (Nothing, "run a --lease 1s -- true"),
    // Operators.
    (Nothing, "acquire b --lease 30s --lease-id {4}"),
    (Nothing, "revoke b --if-fencing-token 1 --reason moving"),
    (Nothing, "revoke b --if-fencing-token {token b} --reason moving"),
    (Nothing, "renew b --lease-id {4}"),
    (Nothing, "who b"),
    (Nothing, "release b --lease-id {4}"),
    (Nothing, "acquire b --lease 30s --lease-id {5}"),
    (Nothing, "revoke b --if-fencing-token {token b} --reason moving --now"),
    (Nothing, "check b --lease-id {5}"),
    (Nothing, "who b"),
    (Raise, "fence bump --to 12"),
    (Freeze, "freeze c --for 1m --reason moving"),
    (Freeze, "freeze c --for 1m --reason again"),
    (Freeze, "run c --try -- true"),
    (Freeze, "who c"),
    (Freeze, "unfreeze c"),
    (Freeze, "unfreeze c"),
    (Freeze, "run c --try --lease 30s -- true"),
    // Several at once.
    (Shared, "acquire d --shared --lease 30s --lease-id {6}"),
    (Shared, "acquire d --shared --lease 30s --lease-id {7}"),
    (Shared, "acquire d --try --lease-id {8}"),
    (Shared, "who d"),
    (Shared, "release d --lease-id {6}"),
    (Shared, "release d --lease-id {7}"),
    (Shared, "acquire d --try --lease 30s --lease-id {8}"),
    (Shared, "release d --lease-id {8}"),
    (Permits, "acquire e --permits 2/3 --lease 30s --lease-id {a}"),
    (Permits, "acquire e --permits 2/3 --try --lease-id {b}"),
    (Permits, "acquire e --permits 1/3 --try --lease 30s --lease-id {c}"),
    (Permits, "acquire e --permits 1/4 --try"),
    (Permits, "acquire e --try"),
    (Permits, "who e"),
    (Permits, "release e --lease-id {a}"),
    (Permits, "release e --lease-id {c}"),
    // What no engine is asked for.
    (Nothing, "run"),
    (Nothing, "acquire a --lease 1ms"),
    (Nothing, "acquire a --permits 4/3"),
    (Nothing, "revoke a --reason x"),
    (Nothing, "acquire '' --try"),
    (Nothing, "ls"),
];

/// Makes one transcript comparable with another's: what differs from run to run gets a name by the
/// order of its first appearance.
#[derive(Default)]
struct Names(BTreeMap<(&'static str, String), String>);

impl Names {
    fn of(&mut self, kind: &'static str, value: &Value) -> Value {
        let next = self.0.keys().filter(|(known, _)| *known == kind).count() + 1;
        let name = self.0.entry((kind, value.to_string()));
        name.or_insert_with(|| format!("{kind} {next}")).clone().into()
    }

    fn shape(&mut self, value: Value) -> Value {
        match value {
            Value::Array(all) => all.into_iter().map(|one| self.shape(one)).collect(),
            Value::Object(all) => all
                .into_iter()
                .map(|(key, value)| {
                    let value = self.field(&key, value);
                    (key, value)
                })
                .collect::<Map<_, _>>()
                .into(),
            other => other,
        }
    }

    fn field(&mut self, key: &str, value: Value) -> Value {
        match key {
            _ if value.is_null() => value,
            "fencing_token" => self.of("token", &value),
            // How old something is, not every store can tell.
            "engine" | "message" | "held_for_ms" | "waited_ms" => Value::Null,
            _ if key.ends_with("_ms") => "time".into(),
            _ => self.shape(value),
        }
    }
}

/// Plays the script and writes down what it shows.
fn transcript(url: &str, lacks: &[Needs]) -> Vec<String> {
    let world = World::new();
    let mut names = Names::default();
    SCRIPT.iter().map(|(needs, line)| step(&world, url, &mut names, lacks, *needs, line)).collect()
}

fn step(
    world: &World,
    url: &str,
    names: &mut Names,
    lacks: &[Needs],
    needs: Needs,
    line: &str,
) -> String {
    let mut line = line.to_owned();
    for digit in ["1", "2", "3", "4", "5", "6", "7", "8", "a", "b", "c"] {
        line = line.replace(&format!("{{{digit}}}"), &digit.repeat(32));
    }
    if let Some((before, rest)) = line.clone().split_once("{token ") {
        let (name, after) = rest.split_once('}').expect("a place");
        let who = shell(world, url, &format!("who {name}"));
        let who: Value = serde_json::from_str(&who.stdout).expect("JSON");
        line = format!("{before}{}{after}", who["holders"][0]["fencing_token"]);
    }
    let told = shell(world, url, &line);
    if lacks.contains(&needs) {
        return told.code.to_string();
    }
    let shapes = |text: &str, names: &mut Names| -> Vec<String> {
        let shape = |line: &str| match serde_json::from_str::<Value>(line) {
            Ok(value) => names.shape(value).to_string(),
            Err(_) => line.to_owned(),
        };
        text.lines().map(shape).collect()
    };
    let out = shapes(&told.stdout, names);
    let err = shapes(&told.stderr, names);
    format!("{}\n  out {}\n  err {}", told.code, out.join("\n      "), err.join("\n      "))
}

/// Without the talk while something is waited for, which depends on how long that takes.
fn shell(world: &World, url: &str, line: &str) -> Told {
    world.shell_on(url, &format!("holdline --json --quiet {line}"))
}

/// With a limit that a machine that is busy does not meet.
fn unhurried(url: &str) -> String {
    format!("{url}?command_timeout_ms=10000")
}

fn compare(engine: &str, url: &str, lacks: &[Needs]) {
    let world = World::new();
    let local = transcript(&world.url(), lacks);
    let other = transcript(url, lacks);
    let mut differ = Vec::new();
    for (((needs, line), local), other) in SCRIPT.iter().zip(local).zip(other) {
        if lacks.contains(needs) {
            // The verb itself; what would have come of it is not asked for.
            let asks = ["freeze", "unfreeze", "fence"].iter().any(|verb| line.starts_with(verb));
            assert!(!asks || other == "78", "$ holdline {line}: {other}");
        } else if local != other {
            differ.push(format!("$ holdline {line}\nlocal: {local}\n{engine}: {other}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
}

#[test]
fn redis_tells_what_local_tells() {
    let server = RedisServer::start(RedisConfig::default());
    compare("redis", &unhurried(&server.url()), &[]);
}

#[test]
fn postgres_tells_what_local_tells() {
    let server = PostgresServer::start(PostgresConfig::default());
    compare("postgres", &unhurried(&server.url()), &[]);
}

#[test]
fn etcd_tells_what_local_tells_but_for_what_it_lacks() {
    let server = EtcdServer::start(EtcdConfig::default());
    compare("etcd", &unhurried(&server.url()), &[Freeze, Raise]);
}
