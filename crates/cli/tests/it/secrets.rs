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

/// What no output for people may have: control characters, and those that hide or reorder others.
fn hides(text: &str) -> bool {
    let is_hidden = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}');
    text.chars().any(|c| c != '\n' && (c.is_control() || is_hidden(c)))
}

#[test]
fn hostile_texts_reach_no_terminal_and_break_no_line() {
    let world = World::new();
    for (number, hostile) in [
        "a\u{202e}b \u{200b}c 鎖",
        "\u{1b}]0;owned\u{7}\u{1b}[2J\nholdline: all is well",
        "<script>alert(1)</script>\"'\\",
        "\r\t\u{7f}\u{85}\u{9b}31m",
        &"x".repeat(400),
    ]
    .into_iter()
    .enumerate()
    {
        // A name has no control characters; what else it has is for the holder to say.
        let name: String = hostile.chars().filter(|c| !c.is_control()).collect();
        let name = format!("{number} {name}");
        let label = format!("team={}", hostile.replace('=', ""));
        let mut holder = world.hold(&["--reason", hostile, "--label", &label, &name]);
        let freeze = ["freeze", &name, "--for", "1h", "--reason", hostile];
        for arguments in [
            &["who", &name][..],
            &["-v", "who", &name],
            &["ls"],
            &["run", "--try", &name, "true"],
            &["wait", &name, "--wait", "10ms"],
            &freeze,
            &["run", "--try", &name, "true"],
            &["audit"],
            &["revoke", &name, "--if-fencing-token", "999999", "--reason", hostile],
            &["check", &name, "--lease-id", hostile],
            &["who", hostile],
        ] {
            let output = world.run(arguments);
            let seen = format!("{}{}", output.stdout, output.stderr);
            assert!(!hides(&seen), "{arguments:?}: {seen:?}");
            assert!(!seen.lines().any(|line| line == "holdline: all is well"), "{seen}");
        }
        let shown = world.run(&["who", &name]).stdout;
        let escaped = name.replace('\\', "\\\\");
        let escaped = escaped.replace('\u{202e}', "\\u{202e}").replace('\u{200b}', "\\u{200b}");
        assert!(shown.contains(&escaped), "{shown}");
        let seen = world.who(&name);
        assert_eq!(seen["holders"][0]["reason"], hostile, "JSON is exact");
        holder.let_go();
        assert_eq!(holder.code(), 3);
    }
}
