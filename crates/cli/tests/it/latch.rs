//! `holdline latch`.

use crate::world::World;

fn is(world: &World, line: &[&str], code: i32, stdout: &str) {
    let output = world.run(&[&["latch", "ready"], line].concat());
    assert_eq!((output.code, &*output.stdout), (code, stdout), "{line:?}: {output:?}");
}

#[test]
fn a_latch_is_set_counted_down_and_waited_for() {
    let world = World::new();
    is(&world, &[], 0, "0\n");
    is(&world, &["--set", "3"], 0, "3\n");
    is(&world, &["--set", "5"], 1, "");
    let mut waiting = world.start(&["latch", "ready", "--wait"]);
    assert_eq!(waiting.said(), "holdline: waiting for ready: its count is 3");
    is(&world, &["--wait", "100ms"], 75, "");
    is(&world, &["--count-down"], 0, "2\n");
    is(&world, &["--count-down=2"], 0, "0\n");
    assert_eq!(waiting.code(), 0);
    is(&world, &["--wait", "1m"], 0, "");
    is(&world, &["--json"], 0, "{\"count\":0,\"name\":\"ready\"}\n");
    // It is no lock, and nobody sees one.
    assert_eq!(world.run(&["ls"]).stdout, "");
}

#[test]
fn wrong_arguments_are_named() {
    let world = World::new();
    for (line, says) in [
        (&["--set", "0"][..], "must be a whole number from 1 to 1000000000"),
        (&["--set", "-3"], "must not be negative"),
        (&["--count-down=-1"], "must not be negative"),
        (&["--count-down=x"], "must be a whole number"),
        (&["--set", "1", "--wait", "1s"], "cannot be used with"),
    ] {
        let failed = world.run(&[&["latch", "ready"], line].concat());
        assert_eq!(failed.code, 64, "{line:?}: {failed:?}");
        assert!(failed.stderr.contains(says), "{line:?}: {failed:?}");
    }
}
