//! `holdline demo kleppmann`: that it shows what it says, on a store without a server and on Redis.

use std::process::Command;

use holdline_services::steady;
use serde_json::Value;

use crate::world::{World, output};

/// Asserts what the demonstration must show, and that it leaves nothing.
fn shows_it(command: impl Fn(&[&str]) -> Command) {
    let shown = output(&mut command(&["demo", "kleppmann"]));
    assert_eq!(shown.code, 0, "{shown:?}");
    for text in ["goes on, and does not know", "B's sale is lost, and nobody knows"] {
        assert!(shown.stdout.contains(text), "{text}: {shown:?}");
    }
    let too_wide: Vec<_> = shown.stdout.lines().filter(|line| line.len() > 100).collect();
    assert!(too_wide.is_empty(), "{too_wide:?}");

    let object = output(&mut command(&["--json", "demo", "kleppmann"]));
    let object: Value = serde_json::from_str(&object.stdout).expect("one object");
    let paused = &object["paused"];
    assert_eq!((&paused["plain_lost"], &paused["fenced_rejected"]), (&true.into(), &true.into()));
    assert!(paused["first_token"].as_u64() < paused["second_token"].as_u64(), "{object}");

    assert_eq!(output(&mut command(&["-q", "ls", "demo/"])).stdout.lines().count(), 0);
}

#[test]
fn a_paused_client_is_shown_on_this_machine() {
    let world = World::new();
    // A lease of a second is over before its client has it, if the machine stalls.
    steady(|| shows_it(|arguments| world.command(arguments)));
}

#[cfg(feature = "redis")]
#[test]
fn a_paused_client_is_shown_on_redis() {
    let server = holdline_services::RedisServer::start(Default::default());
    let world = World::new();
    let command = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("HOLDLINE_URL", server.url());
        command
    };
    steady(|| shows_it(command));
}

#[cfg(feature = "redis")]
#[test]
fn a_release_that_does_not_compare_ends_the_lock_of_another() {
    let server = holdline_services::RedisServer::start(Default::default());
    let world = World::new();
    let command = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("HOLDLINE_URL", server.url());
        command
    };
    steady(|| {
        let shown = output(&mut command(&["demo", "broken-patterns"]));
        assert_eq!(shown.code, 0, "{shown:?}");
        for text in ["B's lock is gone", "C holds it, too", "nothing is deleted, and A knows"] {
            assert!(shown.stdout.contains(text), "{text}: {shown:?}");
        }
        let too_wide: Vec<_> = shown.stdout.lines().filter(|line| line.len() > 100).collect();
        assert!(too_wide.is_empty(), "{too_wide:?}");
        let object = output(&mut command(&["--json", "demo", "broken-patterns"]));
        let object: Value = serde_json::from_str(&object.stdout).expect("one object");
        let holders = serde_json::json!({ "bare_del_holders": 2, "holdline_holders": 1 });
        assert_eq!(object["broken_patterns"], holders);
    });
    let left = server.raw().say("KEYS *").expect("the server answers");
    let left: Vec<_> = left.items().expect("keys").iter().map(|key| key.text()).collect();
    assert_eq!(left, [Some("holdline:reign:1".to_owned())], "it leaves the master term only");
    let refused = world.run(&["demo", "broken-patterns"]);
    assert_eq!(refused.code, 78, "{refused:?}");
    assert!(refused.stderr.contains("--url redis://HOST"), "{refused:?}");
}

#[test]
fn a_store_of_one_process_is_refused() {
    let refused = World::new().run(&["--url", "memory:", "demo", "kleppmann"]);
    assert_eq!(refused.code, 78, "{refused:?}");
    assert!(refused.stderr.contains("memory: exists in one process"), "{refused:?}");
}
