//! Locks inside each other: nobody waits for himself.

use crate::world::World;

#[test]
fn a_name_that_is_held_above_is_refused() {
    let world = World::new();
    for (script, code) in [
        ("holdline run a -- holdline run a -- echo ran", 78),
        ("holdline run a -- holdline run b -- holdline run a -- echo ran", 78),
        ("holdline run a -- sh -c 'sh -c \"holdline run a -- echo ran\"'", 78),
        ("holdline run --shared a -- holdline run a -- echo ran", 78),
        ("holdline run a -- holdline run --shared a -- echo ran", 78),
        ("holdline run --permits 1/3 a -- holdline run --permits 1/3 a -- echo ran", 78),
        ("holdline run a -- holdline acquire a", 78),
        ("holdline run a -- holdline wait a", 78),
        ("holdline run --try a -- holdline run --skip a -- echo ran", 78),
    ] {
        let output = world.shell(script);
        assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{script}: {output:?}");
        assert!(output.stderr.contains("a command above this one holds it already"), "{output:?}");
    }
}

#[test]
fn what_cannot_deadlock_is_allowed() {
    let world = World::new();
    let elsewhere = format!("local://{}", world.path("other").display());
    for script in [
        "holdline run a -- holdline run b -- echo ran",
        "holdline run --shared a -- holdline run --shared a -- echo ran",
        "holdline run a -- holdline run b -- holdline run c -- echo ran",
        &format!("holdline run a -- holdline --url {elsewhere} run a -- echo ran"),
    ] {
        let output = world.shell(script);
        assert_eq!((output.code, output.stdout.as_str()), (0, "ran\n"), "{script}: {output:?}");
    }
}

#[test]
fn a_list_that_is_not_ours_is_refused() {
    let world = World::new();
    let mut command = world.command(&["run", "a", "true"]);
    let output = command.env("HOLDLINE_HELD", "{\"a\":1}").output().expect("it starts");
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("unset HOLDLINE_HELD"), "{said}");
}

#[test]
fn the_jobs_own_lease_is_not_that_of_its_inner_locks() {
    let world = World::new();
    let script = "
        holdline run --lease 30s a -- sh -c '
            holdline check a && echo valid
            inner=$(holdline acquire b) && eval \"$inner\"
            [ \"$lease_id\" != \"$HOLDLINE_LEASE_ID\" ] && echo differs
            holdline release a || echo refused $?
            holdline renew a || echo refused $?
            holdline release b --lease-id $lease_id && echo released
        '";
    let output = world.shell(script);
    let expected = "valid\ndiffers\nrefused 64\nrefused 64\nreleased\n";
    assert_eq!((output.code, output.stdout.as_str()), (0, expected), "{output:?}");
}

#[test]
fn what_a_job_leaves_running_may_lock_when_the_job_is_done() {
    let world = World::new();
    let later = "read x < go; holdline run a -- echo later; echo $?";
    let script = format!(
        "mkfifo go; holdline run a -- sh -c 'sh -c \"{later}\" & exit 0'
        echo first $?; echo > go"
    );
    let output = world.shell(&script.replace("$?\"", "\\$?\""));
    assert_eq!(output.stdout, "first 0\nlater\n0\n", "{output:?}");
}
