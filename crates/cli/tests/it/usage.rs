//! Wrong command lines, and what is said about them.

use crate::world::World;

/// Runs and expects a code and a part of what is said.
fn refused(world: &World, arguments: &[&str], code: i32, says: &str) {
    let output = world.run(arguments);
    assert_eq!(output.code, code, "{arguments:?}: {output:?}");
    assert!(output.stderr.contains(says), "{arguments:?}: {}", output.stderr);
    assert!(!output.stderr.contains('\u{1b}'), "{arguments:?}: {:?}", output.stderr);
    assert_eq!(output.stdout, "", "{arguments:?}");
}

#[test]
fn wrong_flags_name_the_flag_and_the_fix() {
    let world = World::new();
    let long = "x".repeat(513);
    let huge = format!("x={}", "y".repeat(1_100));
    for (arguments, says) in [
        (&["frobnicate"][..], "unrecognized subcommand 'frobnicate'"),
        (&["__child-test", "--", "true"], "unrecognized subcommand '__child-test'"),
        (&["run"], "NAME"),
        (&["run", "a"], "COMMAND"),
        (&["run", "--tri", "a", "true"], "--try"),
        (&["run", "", "true"], "at least one character"),
        (&["run", &long, "true"], "at most 512 bytes, this one has 513"),
        (&["run", "a\nb", "true"], "control characters"),
        (&["run", "\u{1b}[31m", "true"], "control characters"),
        (&["run", "--lease", "0s", "a", "true"], "--lease <DUR>': must be above zero"),
        (&["run", "--lease", "-5s", "a", "true"], "must not be negative"),
        (&["run", "--wait", "0s", "a", "true"], "--try does not wait"),
        (&["run", "--report", "-", "a", "true"], "--report -: names no file"),
        (&["run", "--wait", "30", "a", "true"], "did you mean 30s?"),
        (&["run", "--wait", "99999999999999999999h", "a", "true"], "too long"),
        (&["run", "--lease", "25h", "a", "true"], "--lease"),
        (&["run", "--lease", "10ms", "a", "true"], "--lease"),
        (&["run", "--lease", "5s", "a", "true"], "use --lease 18s or more, or --grace"),
        (&["run", "--try", "--wait", "5s", "a", "true"], "cannot be used with"),
        (&["run", "--skip", "-E", "3", "a", "true"], "cannot be used with"),
        (&["run", "-E", "256", "a", "true"], "256 is not in 0..=255"),
        (&["run", "--permits", "4/3", "a", "true"], "cannot take 4 of 3"),
        (&["run", "--permits", "1/3", "--shared", "a", "true"], "cannot be used with"),
        (&["run", "--label", "x", "a", "true"], "KEY=VALUE"),
        (&["run", "--label", &huge, "a", "true"], "shorten the reason or the labels"),
        (&["run", "--report", "/no/such/folder/x", "a", "true"], "--report /no/such/folder/x"),
        (&["run", "--report", ".", "a", "true"], "--report ."),
        (&["release", "a"], "--lease-id: is missing"),
        (&["release", "a", "--lease-id", "abc"], "32 lower-case hex digits"),
        (&["revoke", "a", "--reason", "x"], "--if-fencing-token"),
        (&["revoke", "a", "--reason", "x"], "`holdline who NAME` shows the token"),
        (&["man", "fence", "chek"], "did you mean check?"),
        (&["revoke", "a", "--reason", "x", "--if-fencing-token", "0"], "from 1 to"),
        (&["freeze", "a", "--reason", "x", "--for", "0s"], "above zero"),
        (&["fence", "bump", "--to", "9007199254740992"], "from 1 to 9007199254740991"),
        (&["man", "rnu"], "did you mean run?"),
        (&["completions", "tcsh"], "bash"),
    ] {
        refused(&world, arguments, 64, says);
    }
}

#[test]
fn urls_that_mean_nothing_are_a_matter_of_configuration() {
    let world = World::new();
    for (url, says) in [
        ("nonsense", "scheme"),
        ("locl:", "did you mean 'local:'"),
        ("local:?sise=3", "sise"),
        ("redis://h?sise=3", "sise"),
        ("\u{1b}[2J:", "begins with the invisible character U+001B"),
    ] {
        refused(&world, &["--url", url, "ls"], 78, says);
    }
    refused(&world, &["--url", "", "ls"], 78, "--url: the URL is empty");
    refused(&world, &["--url", "redis://u:pw@h", "ls"], 64, "HOLDLINE_URL");
}

#[test]
fn the_nearest_configuration_counts() {
    let world = World::new();
    let file = world.path("holdline.toml");
    std::fs::write(&file, format!("url = '{}'\n", world.url())).expect("written");
    let explain = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.args(["--json", "explain"]).env_remove("HOLDLINE_URL");
        let output = command.output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(explain(&[]).contains("\"source\":\"from holdline.toml\""));
    assert!(explain(&["--url", "memory:"]).contains("from the command line"));
    std::fs::write(&file, "ulr = 'local:'\n").expect("written");
    let mut command = world.command(&["ls"]);
    let output = command.env_remove("HOLDLINE_URL").output().expect("it starts");
    assert_eq!(output.status.code(), Some(78));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("holdline.toml: unknown setting ulr; did you mean url?"), "{said}");
    refused(&world, &["--config", "/no/such/file", "ls"], 78, "/no/such/file");
}

#[test]
fn help_and_manual_are_there() {
    let world = World::new();
    let help = world.run(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    for verb in [
        "run",
        "acquire",
        "renew",
        "release",
        "check",
        "who",
        "ls",
        "wait",
        "revoke",
        "freeze",
        "unfreeze",
        "explain",
        "fence",
        "completions",
        "man",
    ] {
        assert!(help.stdout.contains(&format!("\n  {verb} ")), "{verb}: {}", help.stdout);
        assert_eq!(world.run(&[verb, "--help"]).code, 0, "{verb}");
        assert!(world.run(&["man", verb]).stdout.contains(".TH holdline-"), "{verb}");
    }
    assert!(world.run(&["man"]).stdout.contains(".TH holdline"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(world.run(&["completions", shell]).stdout.contains("unfreeze"), "{shell}");
    }
    assert!(world.run(&["--version"]).stdout.starts_with("holdline 0."));
}

#[test]
fn all_pages_are_written_at_once() {
    let world = World::new();
    assert_eq!(world.run(&["man", "--all", "share"]).code, 0);
    let page = world.path("share/man/man1/holdline-fence-check.1");
    assert!(std::fs::read_to_string(page).expect("written").contains(".TH holdline-fence-check"));
    let script = world.path("share/zsh/site-functions/_holdline");
    assert_eq!(
        std::fs::read_to_string(script).expect("written"),
        world.run(&["completions", "zsh"]).stdout
    );
    std::fs::write(world.path("file"), "").expect("writable");
    refused(&world, &["man", "--all", "file"], 78, "--all file");
    refused(&world, &["man", "--all", "share", "run"], 64, "cannot be used with");
}

/// What fish itself offers behind a line.
fn offered(world: &World, line: &str) -> Vec<String> {
    let script = format!(
        "holdline completions fish > holdline.fish
         HOME=$PWD fish --no-config -c 'source holdline.fish; complete -C \"{line}\"'"
    );
    let output = world.shell(&script);
    assert_eq!(output.code, 0, "{output:?}");
    output.stdout.lines().map(|line| line.split('\t').next().unwrap_or(line).to_owned()).collect()
}

#[test]
fn fish_offers_names_where_a_name_is_wanted() {
    let world = World::new();
    for name in ["deploy/a", "deploy/b", "other"] {
        assert_eq!(world.run(&["acquire", name]).code, 0);
    }
    std::fs::write(world.path("deploy.sh"), "").expect("a writable directory");
    for line in [
        "holdline who dep",
        "holdline revoke dep",
        "holdline run dep",
        "holdline run --lease 10s --try -E 3 dep",
    ] {
        assert_eq!(offered(&world, line), ["deploy/a", "deploy/b"], "{line}");
    }
    // Behind the name stands a command.
    for line in ["holdline run other ./dep", "holdline run --url local: other -- ./dep"] {
        assert_eq!(offered(&world, line), ["./deploy.sh"], "{line}");
    }
}

#[test]
fn help_is_a_verb_too() {
    let world = World::new();
    for verbs in [&[][..], &["run"], &["fence", "check"]] {
        let (asked, flag) = ([&["help"], verbs].concat(), [verbs, &["--help"]].concat());
        let (asked, flag) = (world.run(&asked), world.run(&flag));
        assert_eq!((asked.code, asked.stderr.as_str()), (0, ""), "{verbs:?}");
        assert_eq!(asked.stdout, flag.stdout, "{verbs:?}");
    }
    assert!(world.run(&["man", "fence", "check"]).stdout.contains(".TH holdline-fence-check"));
}

#[test]
fn the_help_of_run_says_how_it_is_called() {
    let output = World::new().run(&["run", "--help"]);
    let head: Vec<&str> = output.stdout.lines().take(8).collect();
    let expected = [
        "Hold NAME, run COMMAND, release",
        "",
        "Usage: holdline run [OPTIONS] NAME [--] COMMAND...",
        "       holdline run [OPTIONS] --any-of NAME,... -- COMMAND...",
        "",
        "Arguments:",
        "  <NAME>        The lock name",
        "  [COMMAND]...  The program to run and its arguments",
    ];
    assert_eq!(head, expected);
}

#[test]
fn colours_come_only_when_they_are_wanted() {
    let world = World::new();
    let wrong = ["--color", "always", "--url", "nonsense", "ls"];
    assert!(world.run(&wrong).stderr.starts_with("holdline: \u{1b}[1;31merror:\u{1b}[0m "));
    for line in [
        "script -qec 'holdline --url nonsense ls' /dev/null",
        "NO_COLOR=1 script -qec 'holdline --url nonsense ls' /dev/null",
        "script -qec 'holdline --color never --url nonsense ls' /dev/null",
    ] {
        let output = world.shell(line);
        assert_eq!(
            output.stdout.contains('\u{1b}'),
            line.starts_with("script -qec 'holdline --url")
        );
    }
}

#[test]
fn json_talk_is_json_too() {
    let world = World::new();
    for (arguments, kind, exit) in [
        (&["--json", "run"][..], "usage", 64),
        (&["--json", "release", "a", "--lease-id", "x"], "usage", 64),
        (&["--json", "--url", "nonsense", "ls"], "invalid", 78),
        (&["--json", "run", "a", "no-such-program"], "not_found", 127),
        (&["--json", "unfreeze", "a"], "nothing_there", 1),
        (&["--json", "check", "a", "--lease-id", &"0".repeat(32)], "lost", 79),
    ] {
        let output = world.run(arguments);
        let mut lines =
            output.stderr.lines().filter(|line| !line.contains("there is no store yet"));
        let talk: serde_json::Value =
            serde_json::from_str(lines.next().expect("a line")).expect("JSON");
        assert_eq!(lines.next(), None, "{output:?}");
        assert_eq!((&talk["kind"], &talk["exit"]), (&kind.into(), &exit.into()), "{talk}");
        assert_eq!(output.code, exit);
        assert_eq!(talk["level"], "error");
    }
}
