//! The verbs on a Redis server: that they are wired to the engine.

mod faults;
mod limits;
mod secrets;
mod watching;

use std::process::Command;

use holdline_services::{RedisConfig, RedisServer};

use crate::world::{CommandOutput, World, eventually, output};

/// A server, and a world whose commands use it.
struct Redis {
    server: RedisServer,
    world: World,
}

impl Redis {
    fn start() -> Redis {
        Redis { server: RedisServer::start(RedisConfig::default()), world: World::new() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.world.command(arguments);
        // A limit that a machine that is busy does not meet.
        command.env("HOLDLINE_URL", format!("{}?command_timeout_ms=10000", self.server.url()));
        command
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        output(&mut self.command(arguments))
    }

    fn who(&self, name: &str) -> serde_json::Value {
        let output = self.run(&["--json", "who", name]);
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

#[test]
fn a_lock_is_shared_with_a_plain_client() {
    let redis = Redis::start();
    let url = format!("{}?dialect=plain&key_template=lock:{{name}}", redis.server.url());
    let run = |url: &str, arguments: &[&str]| {
        output(redis.world.command(arguments).env("HOLDLINE_URL", url))
    };
    let set = ["SET", "lock:demo", "their value", "NX", "PX", "60000"];
    redis.server.raw().send(&set).expect("the server answers");
    let who = run(&url, &["who", "demo"]);
    assert!(who.stdout.contains("a foreign client") && !who.stdout.contains("value"), "{who:?}");
    let busy = run(&url, &["run", "demo", "--try", "--", "true"]);
    assert_eq!(busy.code, 75, "{busy:?}");
    assert!(busy.stderr.contains("held by a foreign client"), "{busy:?}");
    let script = "echo ${HOLDLINE_FENCING_TOKEN-none}";
    let job = ["run", "other", "--", "sh", "-c", script];
    let token = run(&url, &job).stdout;
    assert!(token.trim().parse::<u64>().is_ok_and(|token| token > 1), "{token}");
    let bare = run(&format!("{url}&fencing=off"), &job);
    assert_eq!((bare.code, bare.stdout.trim()), (0, "none"), "{bare:?}");
}

/// A client crashed between `SETNX` and `EXPIRE`.
#[test]
fn a_key_without_an_expiry_is_found_shown_and_ended_safely() {
    let redis = Redis::start();
    let url = format!("{}?dialect=plain&key_template=lock:{{name}}", redis.server.url());
    let run = |arguments: &[&str]| output(redis.world.command(arguments).env("HOLDLINE_URL", &url));
    let set = |words: &[&str]| redis.server.raw().send(words).expect("the server answers");
    set(&["SETNX", "lock:order", "1"]);
    set(&["SET", "lock:other", "theirs", "PX", "600000"]);
    let doctor = run(&["doctor"]).stdout;
    assert!(doctor.contains("1 without an expiry: order (not used for"), "{doctor}");
    assert!(doctor.contains("holdline revoke order --if-holder"), "{doctor}");
    let listed = run(&["ls"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let marked = |line: &&str| line.contains("no expiry");
    let lines: Vec<&str> = listed.stdout.lines().filter(marked).collect();
    assert!(matches!(lines[..], [one] if one.starts_with("order ")), "{listed:?}");
    let top = run(&["top", "--once"]);
    assert!(top.stdout.contains("no expiry"), "{top:?}");
    assert!(run(&["who", "order"]).stdout.contains("no expiry"));
    let who: serde_json::Value =
        serde_json::from_str(&run(&["--json", "who", "order"]).stdout).expect("an object");
    let holder = &who["holders"][0];
    assert_eq!((&holder["no_expiry"], &holder["left_ms"]), (&true.into(), &().into()), "{who}");
    let busy = run(&["run", "order", "--try", "--", "true"]);
    assert!(busy.stderr.contains("a foreign client, without an expiry"), "{busy:?}");
    let id = holder["lease_id"].as_str().expect("an id");
    let revoke = |id: &str| {
        run(&["revoke", "order", "--if-holder", id, "--now", "--reason", "its client is gone"])
    };
    set(&["SET", "lock:order", "another"]);
    assert_eq!(revoke(id).code, 1, "another client has it");
    set(&["SET", "lock:order", "1"]);
    assert_eq!(revoke(id).code, 0);
    assert_eq!(run(&["who", "order"]).code, 1, "it is free");
    assert_eq!(run(&["run", "order", "--try", "--", "true"]).code, 0);
}

#[test]
fn fair_locks_are_those_of_a_store_that_can_order_its_grants() {
    let redis = Redis::start();
    let run = |parameters: &str, arguments: &[&str]| {
        let url = format!("{}?command_timeout_ms=10000&{parameters}", redis.server.url());
        output(redis.world.command(arguments).env("HOLDLINE_URL", url))
    };
    let job = ["run", "--fair", "demo", "--", "echo", "ran"];
    for parameters in ["dialect=redisson", "dialect=redisson&fencing=off", "dialect=native"] {
        let ran = run(parameters, &job);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "ran\n"), "{parameters}: {ran:?}");
    }
    // Somebody waits for the lock of Redisson, who is dead in a long time only.
    let mut raw = redis.server.raw();
    let owner = "b983c153-7421-469a-addb-44fb92259a1b:77";
    raw.send(&["RPUSH", "redisson_lock_queue:{demo}", owner]).expect("the server answers");
    for fair in [&["--fair"][..], &[]] {
        let line = [&["run", "--try"], fair, &["demo", "--", "true"]].concat();
        let busy = run("dialect=redisson", &line);
        assert_eq!(busy.code, 75, "{line:?}: {busy:?}");
    }
    let who = run("dialect=redisson", &["who", "demo"]);
    assert!(who.stdout.contains("a Redisson client"), "{who:?}");
    let refused = run("dialect=plain", &job);
    assert_eq!(refused.code, 78, "{refused:?}");
    assert!(refused.stderr.contains("the option `fair`"), "{refused:?}");
    let contradicts = run("dialect=redisson", &["run", "--fair", "--shared", "demo", "--", "true"]);
    assert_eq!(contradicts.code, 64, "{contradicts:?}");
}

#[test]
fn a_job_holds_the_name_and_is_shown() {
    let redis = Redis::start();
    let first = redis.run(&["run", "demo", "--", "sh", "-c", "echo $HOLDLINE_FENCING_TOKEN"]);
    assert_eq!(first.code, 0, "{first:?}");
    let token: u64 = first.stdout.trim().parse().expect("a token");
    let job = ["run", "demo", "--", "sh", "-c", "echo up $$; read line; exit 3"];
    let mut holder = redis.world.start_command(&mut redis.command(&job));
    assert!(holder.line().starts_with("up "));
    let who = redis.who("demo");
    let shown = &who["holders"][0];
    assert!(shown["fencing_token"].as_u64().is_some_and(|next| next > token), "{who}");
    assert_eq!((&shown["live"], &shown["program"]), (&false.into(), &"sh".into()));
    assert!(redis.run(&["ls"]).stdout.contains("demo"));
    let busy = redis.run(&["run", "demo", "--try", "--", "true"]);
    assert_eq!(busy.code, 75, "{busy:?}");
    let mut waiter = redis.command(&["run", "demo", "--", "echo", "up 1"]);
    let waiter = redis.world.start_command(&mut waiter);
    eventually("queued", || redis.who("demo")["queue_length"] == 1);
    holder.let_go();
    assert_eq!(waiter.line(), "up 1");
    eventually("free", || redis.who("demo")["held"] == false);
}

#[test]
fn operators_revoke_and_freeze() {
    let redis = Redis::start();
    let job = ["run", "demo", "--", "sh", "-c", "echo up $$; exec sleep 60"];
    let mut holder = redis.world.start_command(&mut redis.command(&job));
    assert!(holder.line().starts_with("up "));
    let token = redis.who("demo")["holders"][0]["fencing_token"].to_string();
    let asked = ["revoke", "demo", "--if-fencing-token", &token, "--reason", "rollback"];
    assert_eq!(redis.run(&asked).code, 0);
    let rest = holder.rest();
    assert_eq!(holder.code(), 79, "{rest}");
    assert!(rest.contains("rollback"), "{rest}");
    assert_eq!(redis.run(&["freeze", "demo", "--for", "1h", "--reason", "moving"]).code, 0);
    let frozen = redis.run(&["run", "demo", "--try", "--", "true"]);
    assert_eq!(frozen.code, 75, "{frozen:?}");
    assert!(frozen.stderr.contains("moving"), "{frozen:?}");
    assert_eq!(redis.run(&["unfreeze", "demo"]).code, 0);
    assert_eq!(redis.run(&["run", "demo", "--", "true"]).code, 0);
}

#[test]
fn a_job_without_the_password_gets_the_fix() {
    let redis = Redis::start();
    let set = redis.server.raw().send(&["CONFIG", "SET", "requirepass", "CANARY"]);
    set.expect("the server answers");
    let url = redis.server.url().replace("redis://", "redis://:CANARY@");
    let inside = [env!("CARGO_BIN_EXE_holdline"), "who", "demo"];
    let mut command = redis.world.command(&[&["run", "demo", "--"], &inside[..]].concat());
    let refused = output(command.env("HOLDLINE_URL", url));
    assert_eq!(refused.code, 77, "{refused:?}");
    assert!(refused.stderr.contains("password_file"), "{refused:?}");
    assert!(!refused.stderr.contains("CANARY"), "{refused:?}");
}

#[test]
fn foreign_data_and_absent_servers_have_their_exit_codes() {
    let redis = Redis::start();
    let planted = redis.server.raw().send(&["SET", "holdline:{demo}", "mine", "NX", "PX", "60000"]);
    planted.expect("planted");
    let foreign = redis.run(&["run", "demo", "--", "true"]);
    assert_eq!(foreign.code, 65, "{foreign:?}");
    let explained = redis.run(&["explain"]);
    assert!(explained.stdout.contains("engine redis"), "{explained:?}");
    redis.server.shutdown();
    let away = redis.run(&["run", "demo", "--", "true"]);
    assert_eq!(away.code, 69, "{away:?}");
    assert_eq!(redis.run(&["doctor"]).code, 2);
}

#[test]
fn a_lease_is_waited_for_in_the_plain_dialect_too() {
    let redis = Redis::start();
    let url = format!("{}?dialect=plain", redis.server.url());
    let acquire = |arguments: &[&str]| {
        let mut command = redis.world.command(&[&["acquire", "demo"], arguments].concat());
        output(command.env("HOLDLINE_URL", &url))
    };
    assert_eq!(acquire(&["--lease", "2s"]).code, 0);
    for own in [&[][..], &["--lease-id", "00112233445566778899aabbccddeeff"]] {
        let next = acquire(&[&["--lease", "2s", "--wait", "60s"], own].concat());
        assert_eq!(next.code, 0, "{own:?}: {next:?}");
    }
}

#[test]
fn a_port_without_tls_is_named_as_such() {
    let server = RedisServer::start(RedisConfig::default());
    let world = World::new();
    let url = format!("rediss://{}", server.address());
    for verb in [&["who", "a"][..], &["ls"], &["run", "a", "--", "true"], &["acquire", "a"]] {
        let output = world.run(&[&["--url", &url], verb].concat());
        assert_eq!(output.code, 77, "{verb:?}: {output:?}");
        assert!(output.stderr.contains("does not speak TLS on this port: write `redis://`"));
    }
}
