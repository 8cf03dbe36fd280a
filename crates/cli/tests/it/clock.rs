//! The wall clock is stepped by an hour while a lease is held, by a library that is loaded before
//! the C library. Such a library does not reach clocks that are read without it, so the test also
//! shows that the stepped clock was seen: by the job, and by `holdline` where it reads one.

use std::path::PathBuf;
use std::process::Command;

use crate::world::World;

/// Builds the library of this name that is loaded before the C library.
pub(crate) fn build_shim(world: &World, name: &str) -> PathBuf {
    let shim = world.path(&format!("{name}.so"));
    let source = format!("{}/tests/it/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-fPIC", "-shared", "-o"]).arg(&shim).arg(source);
    assert!(compiler.status().expect("a C compiler").success());
    shim
}

pub(crate) fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or_else(|_| panic!("not a number: {text:?}"))
}

#[test]
fn a_wall_clock_that_is_stepped_changes_nothing() {
    let world = World::new();
    steps_change_nothing(&world, &world.url(), 20);
}

/// There the client counts time too, for its pings.
#[cfg(feature = "zookeeper")]
#[test]
fn a_wall_clock_that_is_stepped_changes_nothing_on_zookeeper() {
    use holdline_services::{ZooKeeper, ZooKeeperConfig};
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let url = format!("{}?command_timeout_ms=10000", server.url());
    steps_change_nothing(&World::new(), &url, 10);
}

fn steps_change_nothing(world: &World, url: &str, seconds: u64) {
    let (shim, step) = (build_shim(world, "stepped_clock"), world.path("step"));
    let unstepped = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("HOLDLINE_URL", url);
        command
    };
    let stepped = |arguments: &[&str]| {
        let mut command = unstepped(arguments);
        command.env("LD_PRELOAD", &shim).env("STEP_FILE", &step);
        command
    };
    let lease = format!("{seconds}s");
    // Longer than the lease, so that it lasts by renewals that come under the stepped clock.
    let job = format!("date +%s; read line; date +%s; sleep {}; echo $HOLDLINE_NAME", seconds + 1,);
    let lease = ["run", "--lease", &lease, "--grace", "1s", "night", "--", "sh", "-c", &job];
    let mut holder = world.start_command(&mut stepped(&lease));
    let before = number(&holder.line());
    std::fs::write(&step, "").expect("a file");
    holder.let_go();
    let after = number(&holder.line());
    assert!(after >= before + 3_600, "the job sees the stepped clock");

    // Nobody else gets in, whichever clock they see.
    let attempt = ["run", "--try", "night", "--", "true"];
    assert_eq!(world.start_command(&mut unstepped(&attempt)).code(), 75);
    assert_eq!(world.start_command(&mut stepped(&attempt)).code(), 75);

    assert_eq!(holder.line(), "night");
    assert_eq!(holder.code(), 0, "the lease was kept to the end: {}", holder.rest());

    // The one thing that we read a wall clock for shows the stepped time.
    let shown = ["run", "--lease", "20s", "day", "--", "sh", "-c", "echo $HOLDLINE_VALID_UNTIL_MS"];
    let other = world.start_command(&mut stepped(&shown));
    assert!(number(&other.line()) >= (before + 3_600) * 1_000, "we see the stepped clock");
}
