//! Stores that are away, and those of several servers.

use std::time::Duration;

use holdline_services::{RedisConfig, RedisServer};
use serde_json::Value;

use super::pty::Pty;
use crate::redlock::Redlock;
use crate::world::World;

#[test]
fn a_store_that_is_away_is_a_state_and_no_end() {
    let world = World::new();
    let server = RedisServer::start(RedisConfig::default());
    let url = server.url();
    let on_server = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("HOLDLINE_URL", &url);
        command
    };
    assert_eq!(crate::world::output(&mut on_server(&["acquire", "a", "--lease", "1h"])).code, 0);
    let top = Pty::start(&world, &["top", "--url", &url, "--interval", "100ms"], (24, 80));
    top.sees("  up");
    server.kill();
    top.sees("DOWN for ");
    top.expect("what was seen, and how old it is", |screen| {
        (screen.contains("as of ") && screen.contains("\na ")).then_some(())
    });
    // An operator's command fails with a reason, and the screen goes on.
    top.keys("Bx\r");
    top.expect("the command has failed", |screen| {
        let last = screen.lines().last()?;
        (!last.contains("revoking") && !last.contains("? help")).then_some(())
    });
    server.restart();
    // The server has no data file, so the name is gone.
    top.sees("no name is held");
    top.sees("  up");
    top.keys("5");
    top.sees("store up");
    top.sees("store down: ");
    assert_eq!(top.quit("q"), 0);
}

#[test]
fn a_store_that_is_away_at_the_start_is_awaited() {
    let world = World::new();
    let server = RedisServer::start(RedisConfig::default());
    server.kill();
    let url = server.url();
    let top = Pty::start(&world, &["top", "--url", &url, "--interval", "100ms"], (24, 80));
    top.sees("DOWN for ");
    top.sees("nothing seen yet");
    server.restart();
    top.sees("  up");
    assert_eq!(top.quit("q"), 0);
    // A script must not wait for what may never come.
    server.kill();
    let once = world.run(&["--url", &url, "top", "--once", "--json"]);
    assert_eq!((once.code, once.stdout.as_str()), (69, ""), "{once:?}");
}

/// The times on the screen are the store's; rounds and keys depend on no time of day.
#[test]
fn a_stepped_clock_of_the_store_delays_no_round_and_no_key() {
    let world = World::new();
    let server = RedisServer::start(RedisConfig::default().with_clock());
    let url = server.url();
    let acquire = |name: &str| {
        let line = ["--url", &url, "acquire", name, "--lease", "5h"];
        assert_eq!(world.run(&line).code, 0);
    };
    acquire("a");
    let top = Pty::start(&world, &["top", "--url", &url, "--interval", "100ms"], (24, 80));
    let shows = |what: &str, name: &'static str, left: &'static str| {
        top.expect(what, |screen| {
            let row = screen.lines().find(|line| line.starts_with(name))?;
            (row.contains(left) && screen.contains("  up  ")).then_some(())
        });
    };
    shows("almost the whole lease", "a ", " 4h5");
    server.clock().step_forward(Duration::from_secs(2 * 3_600));
    shows("less is left, and it is still held", "a ", " 2h5");
    acquire("b");
    shows("a round after the step", "b ", " 4h5");
    server.clock().step_back(Duration::from_secs(10 * 3_600));
    shows("more is left than was asked for", "a ", " 12h");
    acquire("c");
    shows("a round after the step back", "c ", " 4h5");
    top.keys("n");
    top.sees("sort: name, reversed");
    assert_eq!(top.quit("q"), 0);
}

#[test]
fn the_servers_of_a_quorum_are_shown() {
    let redlock = Redlock::set(3);
    let object = redlock.json(&["top", "--once"]);
    assert_eq!((&object["names"], &object["held"]), (&Value::Null, &Value::Null));
    assert_eq!(object["quorum"]["votes"], 3);
    let url = redlock.url();
    let top = Pty::start(&redlock.world, &["top", "--url", &url, "--interval", "100ms"], (24, 120));
    // The engine cannot list names, so the page with the servers is all that it has.
    top.sees("names cannot be listed");
    top.sees("give one exact name");
    top.keys("4");
    top.expect("three servers that vote", |screen| {
        (screen.matches("votes").count() >= 3).then_some(())
    });
    redlock.kill(0);
    top.expect("one is down", |screen| {
        screen.lines().any(|line| line.contains(" down ")).then_some(())
    });
    assert_eq!(top.quit("q"), 0);
    let exact = redlock.json(&["top", "--once", "demo"]);
    assert_eq!((&exact["held"], &exact["names"]), (&0.into(), &Value::Array(vec![])));
}
