//! `run --any-of`: whichever of several names is free first.

use crate::world::World;

const JOB: &str = "echo $HOLDLINE_NAME";

#[test]
fn the_first_free_name_is_held_and_passed_to_the_job() {
    let world = World::new();
    let output = world.run(&["run", "--any-of", "gpu/0,gpu/1", "--", "sh", "-c", JOB]);
    assert_eq!((output.code, &*output.stdout), (0, "gpu/0\n"), "{output:?}");
    let _held = world.hold(&["gpu/0"]);
    let report = ["--report", "r.json"];
    let line =
        [&["run", "--any-of", "gpu/0,gpu/1"][..], &report, &["--", "sh", "-c", JOB]].concat();
    let output = world.run(&line);
    assert_eq!((output.code, &*output.stdout), (0, "gpu/1\n"), "{output:?}");
    let report = std::fs::read_to_string(world.path("r.json")).expect("written");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["name"], "gpu/1");
}

#[test]
fn a_waiter_gets_the_first_name_that_is_released_and_waits_for_no_other() {
    let world = World::new();
    let mut held = [world.hold(&["gpu/0"]), world.hold(&["gpu/1"])];
    let output = world.run(&["run", "--try", "--any-of", "gpu/0,gpu/1", "--", "true"]);
    assert_eq!(output.code, 75, "{output:?}");
    let mut waiting =
        world.start(&["run", "--any-of", "gpu/0", "--any-of", "gpu/1", "--", "sh", "-c", JOB]);
    assert_eq!(waiting.said(), "holdline: waiting for the first of gpu/0, gpu/1");
    world.queued("gpu/0", 1);
    world.queued("gpu/1", 1);
    held[1].let_go();
    assert_eq!((waiting.line(), waiting.code()), ("gpu/1".to_owned(), 0));
    world.queued("gpu/0", 0);
    assert_eq!(held[1].code(), 3);
}

#[test]
fn a_killed_waiter_leaves_every_queue() {
    let world = World::new();
    let _held = [world.hold(&["gpu/0"]), world.hold(&["gpu/1"])];
    let mut waiting = world.start(&["run", "--any-of", "gpu/0,gpu/1", "--", "true"]);
    world.queued("gpu/0", 1);
    world.queued("gpu/1", 1);
    waiting.signal(rustix::process::Signal::TERM);
    assert_eq!(waiting.code(), 143);
    world.queued("gpu/0", 0);
    world.queued("gpu/1", 0);
}

#[test]
fn wrong_arguments_are_named() {
    let world = World::new();
    for (line, says) in [
        (&["--any-of", "a,b,a", "--", "true"][..], "--any-of: "),
        (&["--any-of", "a,,b", "--", "true"], "at least one character"),
        (&["--any-of", "a,b", "name", "--", "true"], "one too many beside --any-of"),
        (&["--any-of", "a,b", "--shared", "--", "true"], "cannot be used with"),
        (&["--any-of", "a,b"], "COMMAND"),
    ] {
        let failed = world.run(&[&["run"], line].concat());
        assert_eq!(failed.code, 64, "{line:?}: {failed:?}");
        assert!(failed.stderr.contains(says), "{line:?}: {failed:?}");
    }
}
