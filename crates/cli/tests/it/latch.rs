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

#[cfg(all(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
mod stores {
    use crate::stores::{Kind, Store, on_stores};

    on_stores! {
        a_waiter_whose_store_goes_away_returns_when_the_latch_is_open: redis, sentinel;
    }

    fn a_waiter_whose_store_goes_away_returns_when_the_latch_is_open(kind: Kind) {
        let store = Store::start(kind);
        // A master that was just promoted answers no request of a latch.
        let latch = |line: &[&str]| {
            let line = [&["latch", "ready"], line].concat();
            let mut output = store.run(&line);
            while output.code == 69 {
                output = store.run(&line);
            }
            (output.code, output.stdout)
        };
        assert_eq!(latch(&["--set", "2"]), (0, "2\n".to_owned()));
        let mut waiting = store.begin(&["latch", "ready", "--wait"]);
        waiting.says("waiting for ready: its count is 2");
        store.interrupt();
        assert_eq!(latch(&["--wait", "100ms"]).0, 75);
        assert_eq!(latch(&["--set", "5"]).0, 1, "it is set");
        assert_eq!(latch(&["--count-down"]), (0, "1\n".to_owned()));
        // Below zero is zero, and it opens without any message.
        assert_eq!(latch(&["--count-down=7"]), (0, "0\n".to_owned()));
        assert_eq!(waiting.code(), 0, "{}", waiting.rest());
    }
}
