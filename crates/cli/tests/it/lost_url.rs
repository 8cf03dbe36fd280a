//! What happens if the URL is lost on the way to the program.

use crate::world::{CommandOutput, World, output};

/// Runs a verb without any URL, in a home of its own.
fn without_url(world: &World, variables: &[(&str, &str)], arguments: &[&str]) -> CommandOutput {
    let mut command = world.command(arguments);
    command.env_remove("HOLDLINE_URL").envs(variables.iter().copied());
    output(&mut command)
}

#[test]
fn a_required_server_makes_a_missing_url_an_error() {
    let world = World::new();
    let by_variable = [("HOLDLINE_REQUIRE_SERVER", "1")];
    for verb in [
        &["run", "a", "--", "echo", "ran"][..],
        &["run", "--once-per", "* * * * *", "a", "--", "echo", "ran"],
        &["elect", "a", "--once", "--", "echo", "ran"],
        &["who", "a"],
        &["ls"],
        &["doctor"],
        &["explain"],
        &["acquire", "a"],
        &["wait", "a"],
        &["watch"],
    ] {
        let by_flag = [&["--require-server"], verb].concat();
        let flag = without_url(&world, &[], &by_flag);
        let variable = without_url(&world, &by_variable, verb);
        for (seen, who) in [(flag, "--require-server"), (variable, "HOLDLINE_REQUIRE_SERVER")] {
            assert_eq!((seen.code, seen.stdout.as_str()), (78, ""), "{verb:?}: {seen:?}");
            let says = format!("{who} requires a server, but no URL is set");
            assert!(seen.stderr.contains(&says), "{verb:?}: {seen:?}");
        }
    }
    // `local:` and `memory:` have no server, wherever they are named.
    for url in ["local:", "LOCAL:///tmp", "memory:a"] {
        let seen = without_url(&world, &[by_variable[0], ("HOLDLINE_URL", url)], &["ls"]);
        assert!(seen.code == 78 && seen.stderr.contains("from HOLDLINE_URL"), "{seen:?}");
        assert_eq!(world.run(&["--require-server", "--url", url, "ls"]).code, 78);
    }
    std::fs::write(world.path("holdline.toml"), "require_server = true").expect("written");
    let seen = without_url(&world, &[], &["ls"]);
    assert!(seen.code == 78 && seen.stderr.contains("require_server in holdline.toml"), "{seen:?}");
    // A server is what was required, and an engine that is only asked about needs none.
    let server = [by_variable[0], ("HOLDLINE_URL", "redis://127.0.0.1:1")];
    assert_eq!(without_url(&world, &server, &["ls"]).code, 69);
    assert_eq!(without_url(&world, &by_variable, &["explain", "memory:"]).code, 0);
    let wrong = without_url(&world, &[("HOLDLINE_REQUIRE_SERVER", "maybe")], &["ls"]);
    assert!(wrong.code == 78 && wrong.stderr.contains("must be 1 or 0"), "{wrong:?}");
}

#[test]
fn elections_and_slots_on_the_default_store_warn() {
    let world = World::new();
    let says = "no URL is set, so other machines and users do not count";
    // Neither makes the tester's own store: the report has no place, and who observes makes none.
    let once_per = ["--once-per", "* * * * *", "--report", "/no/such/directory/report"];
    let once_per = [&["run"], &once_per[..], &["lost-url", "--", "true"]].concat();
    assert!(without_url(&world, &[], &once_per).stderr.contains(says));
    let mut elect = world.command(&["elect", "lost-url", "--observe"]);
    let elect = world.start_command(elect.env_remove("HOLDLINE_URL"));
    assert!(elect.said().contains(says));
    let plain = ["run", "--report", "/no/such/directory/report", "lost-url", "--", "true"];
    assert!(!without_url(&world, &[], &plain).stderr.contains(says));
    let url = world.url();
    let meant = [&["--url", &url], &once_per[..]].concat();
    assert!(!without_url(&world, &[], &meant).stderr.contains(says));
}
