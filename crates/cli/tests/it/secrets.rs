//! What must never be seen: passwords, whole lease ids, and what a terminal would interpret.

use crate::world::World;

#[test]
fn a_password_is_in_no_message_and_in_no_job() {
    let world = World::new();
    let url = "redis://user:CANARY@127.0.0.1/0?password=CANARY";
    for arguments in
        [&["who", "a"][..], &["-v", "ls"], &["--json", "-v", "explain"], &["run", "a", "true"]]
    {
        let mut command = world.command(arguments);
        let output = command.env("HOLDLINE_URL", url).output().expect("it starts");
        assert_eq!(output.status.code(), Some(78), "{arguments:?}");
        let seen = format!("{output:?}");
        assert!(!seen.contains("CANARY"), "{seen}");
    }
    let job = "env; tr '\\0' '\\n' < /proc/$PPID/cmdline";
    std::fs::write(world.path("toml"), format!("url = '{}'", world.url())).expect("written");
    let by_url = format!("HOLDLINE_URL={}\n", world.url());
    let by_file = format!("HOLDLINE_CONFIG={}\n", world.path("toml").display());
    for (inherited, flag, value, left) in [
        ("redis://user:CANARY@h/0", "--url", &*world.url(), by_url),
        ("redis://user:CANARY@h/0", "--config", "toml", by_file),
    ] {
        let mut command = world.command(&[flag, value, "run", "a", "--", "sh", "-c", job]);
        let output = command.env("HOLDLINE_URL", inherited).output().expect("it starts");
        let seen = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0));
        assert!(seen.contains("HOLDLINE_NAME=a\n") && seen.contains(&left), "{seen}");
        assert!(!seen.contains("CANARY"), "{seen}");
    }
}

#[test]
fn a_lease_id_is_shown_to_its_holder_only() {
    let world = World::new();
    let id = "00112233445566778899aabbccddeeff";
    let output = world.run(&["acquire", "a", "--lease", "1m", "--lease-id", id]);
    assert!(output.stdout.contains(id));
    for arguments in [
        &["who", "a"][..],
        &["--json", "who", "a"],
        &["--json", "ls"],
        &["run", "--try", "a", "true"],
        &["-v", "check", "a", "--lease-id", id],
    ] {
        let output = world.run(arguments);
        assert!(!format!("{output:?}").contains(id), "{output:?}");
    }
    assert!(world.run(&["who", "a"]).stdout.contains("00112233"));
}

#[test]
fn names_and_reasons_cannot_reach_the_terminal() {
    let world = World::new();
    let name = "a\u{202e}b \u{200b}c 鎖";
    let shown = "a\\u{202e}b \\u{200b}c 鎖";
    let reason = "\u{1b}]0;owned\u{7}\u{1b}[2J\nholdline: all is well";
    let mut holder = world.hold(&["--reason", reason, name]);
    let wide = "x".repeat(512);
    let _other = world.hold(&[&wide]);
    for output in [
        world.run(&["who", name]),
        world.run(&["ls"]),
        world.run(&["run", "--try", name, "true"]),
        world.run(&["wait", name, "--wait", "10ms"]),
    ] {
        let seen = format!("{}{}", output.stdout, output.stderr);
        assert!(seen.contains(shown), "{seen}");
        assert!(!seen.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{200b}']), "{seen:?}");
        assert!(!seen.lines().any(|line| line == "holdline: all is well"), "{seen}");
    }
    assert_eq!(world.who(name)["holders"][0]["reason"], reason, "JSON is exact");
    holder.let_go();
    assert_eq!(holder.code(), 3);
}
