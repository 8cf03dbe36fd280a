//! `acquire`, `renew`, `release`, `check`: leases that no process holds.

use crate::world::{World, eventually};

const ID: &str = "00112233445566778899aabbccddeeff";

#[test]
fn a_lease_goes_its_way_through_a_shell() {
    let world = World::new();
    let script = "
        set -e
        eval \"$(holdline acquire a --lease 1m --reason 'by hand')\"
        echo ${#lease_id} $((fencing_token > 0)) $((valid_until_ms > 1600000000000))
        holdline check a --lease-id $lease_id
        holdline run --try a -- true || echo busy $?
        export HOLDLINE_LEASE_ID=$lease_id
        holdline renew a --lease 2m | cut -d= -f1
        holdline check a
        holdline release a
        holdline check a || echo gone $?
        holdline renew a || echo gone $?
        holdline release a || echo gone $?
        holdline run --try a -- echo free";
    let output = world.shell(script);
    let expected = "32 1 1\nbusy 75\nvalid_until_ms\ngone 79\ngone 79\ngone 79\nfree\n";
    assert_eq!((output.code, output.stdout.as_str()), (0, expected), "{output:?}");
}

#[test]
fn acquire_may_be_repeated_under_ones_own_id() {
    let world = World::new();
    let acquire = ["--json", "acquire", "a", "--lease", "20s", "--lease-id", ID];
    let first = world.run(&acquire);
    let again = world.run(&acquire);
    assert_eq!((first.code, again.code), (0, 0), "{again:?}");
    let token = |text: &str| -> serde_json::Value {
        serde_json::from_str::<serde_json::Value>(text).expect("JSON")["fencing_token"].clone()
    };
    assert_eq!(token(&first.stdout), token(&again.stdout));
    assert_eq!(world.who("a")["holder_count"], 1);
    let other = world.run(&["acquire", "a", "--try"]);
    assert_eq!(other.code, 75);
    assert_eq!(other.stdout, "");
}

#[test]
fn only_the_id_that_was_granted_renews_and_releases() {
    let world = World::new();
    let other = "ffeeddccbbaa99887766554433221100";
    assert_eq!(world.run(&["acquire", "a", "--lease", "1m", "--lease-id", ID]).code, 0);
    for verb in ["check", "renew", "release"] {
        assert_eq!(world.run(&[verb, "a", "--lease-id", other]).code, 79, "{verb}");
    }
    let output = world.run(&["--json", "check", "a", "--lease-id", ID]);
    let lease: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!((&lease["held"], &lease["name"]), (&true.into(), &"a".into()));
    assert!(lease["left_ms"].as_u64().is_some_and(|left| (30_000..=60_000).contains(&left)));
}

#[test]
fn a_lease_outlives_its_maker_and_ends_by_its_duration() {
    let world = World::new();
    assert_eq!(world.run(&["acquire", "a", "--lease", "8s", "--lease-id", ID]).code, 0);
    assert_eq!(world.who("a")["holders"][0]["detached"], true);
    assert_eq!(world.who("a")["holders"][0]["pid"], serde_json::Value::Null);
    let output = world.run(&["run", "--wait", "1m", "a", "--", "echo", "mine"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "mine\n"), "{output:?}");
    assert_eq!(world.run(&["check", "a", "--lease-id", ID]).code, 79);
}

#[test]
fn a_long_lease_is_whole_from_the_start() {
    let world = World::new();
    assert_eq!(world.run(&["acquire", "a", "--lease", "2h", "--lease-id", ID]).code, 0);
    let left = world.who("a")["holders"][0]["left_ms"].as_u64().expect("a lease");
    assert!(left > 3_600_000, "{left}");
}

#[test]
fn a_lease_that_was_not_printed_is_released() {
    let world = World::new();
    let output = world.shell("holdline acquire a --lease 1m > /dev/full; echo $?");
    assert_eq!(output.stdout, "125\n", "{output:?}");
    assert_eq!(world.who("a")["held"], false);
}

#[test]
fn a_renewal_without_a_duration_gives_the_leases_own() {
    let world = World::new();
    let valid_until = |output: crate::world::CommandOutput| {
        assert_eq!(output.code, 0, "{output:?}");
        let (_, number) = output.stdout.trim().rsplit_once('=').expect("a number");
        number.parse::<u64>().expect("a number")
    };
    let first = valid_until(world.run(&["acquire", "a", "--lease", "10m", "--lease-id", ID]));
    let renew = || valid_until(world.run(&["renew", "a", "--lease-id", ID]));
    eventually("a second of the lease is over, and given back", || renew() >= first + 1_000);
}
