//! The verbs on an etcd server: that they are wired to the engine.

use std::process::Command;

use holdline_services::{EtcdConfig, EtcdServer};
use rustix::process::Signal;

use crate::world::{CommandOutput, World, eventually, output};

/// A server, and a world whose commands use it.
struct Etcd {
    server: EtcdServer,
    world: World,
}

impl Etcd {
    fn start() -> Etcd {
        Etcd { server: EtcdServer::start(EtcdConfig::default()), world: World::new() }
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
fn a_url_of_http_names_the_scheme_of_etcd() {
    let etcd = Etcd::start();
    let url = format!("http://{}", etcd.server.address());
    for verb in [&["ls"][..], &["who", "a"], &["run", "a", "--", "true"]] {
        let output = etcd.world.run(&[&["--url", &url], verb].concat());
        assert_eq!(output.code, 77, "{verb:?}: {output:?}");
        assert!(output.stderr.contains("an etcd cluster is `etcd://`"), "{verb:?}: {output:?}");
    }
}

#[test]
fn a_job_holds_the_name_and_hands_it_on() {
    let etcd = Etcd::start();
    let job = ["run", "demo", "--", "sh", "-c", "echo up $$; read line; exit 3"];
    let mut holder = etcd.world.start_command(&mut etcd.command(&job));
    assert!(holder.line().starts_with("up "));
    let first = etcd.who("demo")["holders"][0]["fencing_token"].as_u64().expect("a token");
    assert!(etcd.run(&["ls"]).stdout.contains("demo"));
    assert_eq!(etcd.run(&["run", "demo", "--try", "--", "true"]).code, 75);
    let next = ["run", "demo", "--", "sh", "-c", "echo $HOLDLINE_FENCING_TOKEN"];
    let waiter = etcd.world.start_command(&mut etcd.command(&next));
    eventually("queued", || etcd.who("demo")["queue_length"] == 1);
    holder.let_go();
    assert!(waiter.line().parse::<u64>().is_ok_and(|token| token > first));
    eventually("free", || etcd.who("demo")["held"] == false);
}

#[test]
fn a_job_whose_key_was_overwritten_has_lost_the_lock_and_the_value_stays() {
    let etcd = Etcd::start();
    let job = ["run", "demo", "--", "sh", "-c", "echo up $$; read line; exit 3"];
    let mut holder = etcd.world.start_command(&mut etcd.command(&job));
    assert!(holder.line().starts_with("up "));
    let key = etcd.server.ctl(&["get", "holdline/demo", "--prefix", "--keys-only"]);
    let key = key.trim();
    etcd.server.ctl(&["put", key, "junk"]);
    holder.let_go();
    assert_eq!(holder.code(), 79, "{}", holder.rest());
    assert_eq!(etcd.server.ctl(&["get", key, "--print-value-only"]).trim(), "junk");
}

#[test]
fn a_killed_holder_frees_the_name_with_its_session() {
    let etcd = Etcd::start();
    let job = [
        "run",
        "demo",
        "--lease",
        "4s",
        "--grace",
        "500ms",
        "--",
        "sh",
        "-c",
        "echo up $$; exec sleep 60",
    ];
    let holder = etcd.world.start_command(&mut etcd.command(&job));
    assert!(holder.line().starts_with("up "));
    let first = etcd.who("demo")["holders"][0]["fencing_token"].as_u64().expect("a token");
    holder.signal(Signal::KILL);
    let next = etcd.run(&["run", "demo", "--", "sh", "-c", "echo $HOLDLINE_FENCING_TOKEN"]);
    assert!(next.stdout.trim().parse::<u64>().is_ok_and(|token| token > first), "{next:?}");
}

#[test]
fn etcdctl_keeps_a_job_waiting_and_is_shown() {
    let etcd = Etcd::start();
    let mut theirs = etcd.server.ctl_command();
    let mut theirs = theirs.args(["lock", "holdline/demo"]).spawn().expect("etcdctl starts");
    eventually("theirs", || etcd.who("demo")["held"] == true);
    let busy = etcd.run(&["run", "demo", "--try", "--", "true"]);
    assert_eq!(busy.code, 75, "{busy:?}");
    let token = etcd.who("demo")["holders"][0]["fencing_token"].to_string();
    let revoke = ["revoke", "demo", "--if-fencing-token", &token, "--reason", "moving"];
    assert_eq!(etcd.run(&revoke).code, 78);
    assert_eq!(etcd.run(&[&revoke[..], &["--now"]].concat()).code, 0);
    assert_eq!(etcd.run(&["run", "demo", "--try", "--", "true"]).code, 0);
    theirs.kill().expect("killed");
    theirs.wait().expect("reaped");
}

#[test]
fn errors_have_their_exit_codes() {
    let etcd = Etcd::start();
    etcd.server.ctl(&["put", "holdline/demo/config", "mine"]);
    assert_eq!(etcd.run(&["run", "demo", "--", "true"]).code, 65);
    assert_eq!(etcd.server.ctl(&["get", "holdline/demo/config", "--print-value-only"]), "mine\n");
    assert_eq!(etcd.run(&["freeze", "other", "--for", "1h", "--reason", "x"]).code, 78);
    let explained = etcd.run(&["explain"]);
    assert!(explained.stdout.contains("session"), "{explained:?}");
    assert_eq!(etcd.run(&["doctor"]).code, 1);
    for (url, code) in
        [("etcd://127.0.0.1:1", 69), ("etcd://127.0.0.1?prefx=a/", 78), ("etcd://127.0.0.1/db", 78)]
    {
        let mut command = etcd.world.command(&["run", "demo", "--", "true"]);
        let output = output(command.env("HOLDLINE_URL", url));
        assert_eq!(output.code, code, "{output:?}");
    }
    etcd.server.kill();
    assert_eq!(etcd.run(&["run", "demo", "--", "true"]).code, 69);
    assert_eq!(etcd.run(&["doctor"]).code, 2);
}
