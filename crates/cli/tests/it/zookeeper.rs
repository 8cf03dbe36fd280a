//! The verbs on a ZooKeeper server: that they are wired to the engine.

use std::process::Command;

use holdline_services::{ZooKeeper, ZooKeeperConfig};
use rustix::process::Signal;

use crate::world::{CommandOutput, World, eventually, output};

/// A server, and a world whose commands use it.
struct Ground {
    server: ZooKeeper,
    world: World,
}

impl Ground {
    fn start() -> Ground {
        Ground { server: ZooKeeper::start(&ZooKeeperConfig::default()), world: World::new() }
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
fn a_job_holds_the_name_and_hands_it_on_and_a_killed_one_frees_it() {
    let ground = Ground::start();
    let job = ["run", "demo", "--", "sh", "-c", "echo up $$; read line; exit 3"];
    let mut holder = ground.world.start_command(&mut ground.command(&job));
    assert!(holder.line().starts_with("up "));
    let first = ground.who("demo")["holders"][0]["fencing_token"].as_u64().expect("a token");
    assert!(ground.run(&["ls"]).stdout.contains("demo"));
    assert_eq!(ground.run(&["run", "demo", "--try", "--", "true"]).code, 75);
    let lasting = ["--lease", "4s", "--grace", "500ms", "--", "sh", "-c"];
    let next = ["echo $HOLDLINE_FENCING_TOKEN; exec sleep 60"];
    let next = [&["run", "demo"][..], &lasting, &next].concat();
    let waiter = ground.world.start_command(&mut ground.command(&next));
    eventually("queued", || ground.who("demo")["queue_length"] == 1);
    holder.let_go();
    let second = waiter.line().parse::<u64>().expect("a token");
    assert!(second > first, "{second} after {first}");
    waiter.signal(Signal::KILL);
    let last = ground.run(&["run", "demo", "--", "sh", "-c", "echo $HOLDLINE_FENCING_TOKEN"]);
    assert!(last.stdout.trim().parse::<u64>().is_ok_and(|token| token > second), "{last:?}");
}

#[test]
fn errors_have_their_exit_codes() {
    let ground = Ground::start();
    let job = ["run", "demo", "--", "sh", "-c", "echo up $$; read line"];
    let mut holder = ground.world.start_command(&mut ground.command(&job));
    assert!(holder.line().starts_with("up "));
    let token = ground.who("demo")["holders"][0]["fencing_token"].to_string();
    let revoke = ["revoke", "demo", "--if-fencing-token", &token, "--reason", "moving", "--now"];
    assert_eq!(ground.run(&revoke).code, 0);
    assert_eq!(ground.run(&["run", "demo", "--try", "--", "true"]).code, 0);
    holder.let_go();
    assert_eq!(ground.run(&["acquire", "demo"]).code, 78);
    assert_eq!(ground.run(&["freeze", "other", "--for", "1h", "--reason", "x"]).code, 78);
    let explained = ground.run(&["explain"]);
    assert!(explained.stdout.contains("session"), "{explained:?}");
    assert_eq!(ground.run(&["doctor"]).code, 1);
    for (url, code) in
        [("zk://127.0.0.1:1", 69), ("zk://127.0.0.1?famly=kazoo", 78), ("zk://127.0.0.1?ca=x", 78)]
    {
        let mut command = ground.world.command(&["run", "demo", "--", "true"]);
        let output = output(command.env("HOLDLINE_URL", url));
        assert_eq!(output.code, code, "{output:?}");
    }
    ground.server.kill(0);
    assert_eq!(ground.run(&["run", "demo", "--", "true"]).code, 69);
    assert_eq!(ground.run(&["doctor"]).code, 2);
}

#[test]
fn a_job_holds_the_name_by_tls_and_a_wrong_authority_is_an_error_of_rights() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default().with_tls());
    let world = World::new();
    let run = |ca: &std::path::Path| {
        let url = format!("{}?ca={}&command_timeout_ms=10000", server.secure_url(), ca.display());
        output(world.command(&["run", "demo", "--", "echo", "up"]).env("HOLDLINE_URL", url))
    };
    let held = run(&server.certificates().ca());
    assert_eq!((held.code, held.stdout.trim()), (0, "up"), "{held:?}");
    let refused = run(&server.certificates().other_ca());
    assert_eq!(refused.code, 77, "{refused:?}");
    assert!(refused.stderr.contains("not from the authority in `ca`"), "{refused:?}");
}
