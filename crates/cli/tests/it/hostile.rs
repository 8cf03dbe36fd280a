//! What a hostile user tried: closed streams, typing mistakes, misleading environments.

use serde_json::Value;

use crate::world::{Running, World};

#[test]
fn a_shared_or_permit_holder_raises_no_mark() {
    let world = World::new();
    for (mode, verb, code) in [
        ("--shared", "seal mark", 64),
        ("--shared", "check mark -- echo ran", 64),
        ("--shared", "check mark", 0),
        ("--permits 1/2", "seal mark", 64),
        ("--permits 1/2", "check mark -- echo ran", 64),
        ("--permits 1/2", "check mark", 64),
    ] {
        let output = world.shell(&format!("holdline run {mode} s -- holdline fence {verb}"));
        assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{mode} {verb}: {output:?}");
        let reason = if mode == "--shared" { "held with --shared" } else { "held by permits" };
        assert_eq!(output.stderr.contains(reason), code == 64, "{output:?}");
        assert!(!world.path("mark").exists(), "{mode} {verb}");
    }
    let inner = "holdline run --shared s -- holdline run x -- holdline fence seal mark";
    assert_eq!(world.shell(inner).code, 0, "the innermost is exclusive");
    let inner = "holdline run x -- holdline run --shared s -- holdline fence seal mark";
    assert_eq!(world.shell(inner).code, 64, "the innermost is shared");
}

#[test]
fn a_shared_holder_is_refused_by_a_newer_mark() {
    let world = World::new();
    assert_eq!(world.run(&["fence", "seal", "mark", "--token", "9007199254740000"]).code, 0);
    let output = world.shell("holdline run --shared s -- holdline fence check mark");
    assert_eq!(output.code, 77, "{output:?}");
}

#[test]
fn a_local_path_is_no_password() {
    let world = World::new();
    let url = format!("local://{}", world.path("a:hunter2@b").display());
    let binary = env!("CARGO_BIN_EXE_holdline");
    let script = format!("echo $HOLDLINE_URL; {binary} who a > /dev/null; echo $?");
    let mut command = world.command(&["run", "a", "--", "sh", "-c", &script]);
    let output = command.env("HOLDLINE_URL", &url).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{url}\n0\n"));
    assert_eq!(world.run(&["--url", &url, "who", "a"]).code, 1);
    assert!(world.run(&["--url", &url, "explain"]).stdout.starts_with(&format!("{url} (")));
}

/// `run $name -- job` in a shell where `name` is not set.
#[test]
fn a_missing_name_takes_no_word_of_the_command() {
    let world = World::new();
    for (script, stdout, code) in [
        ("holdline run $unset -- nice echo ran", "", 64),
        ("holdline run --try -- echo ran", "", 64),
        ("holdline run -- name -- echo ran", "ran\n", 0),
        ("holdline run -- -name -- echo ran", "ran\n", 0),
        ("holdline run -- -name echo ran", "ran\n", 0),
        ("holdline run -- name --", "", 64),
        ("holdline run name echo -- ran", "-- ran\n", 0),
    ] {
        let output = world.shell(script);
        assert_eq!((output.stdout.as_str(), output.code), (stdout, code), "{script}: {output:?}");
    }
    let output = world.shell("holdline run $unset -- nice echo ran");
    assert!(output.stderr.contains("NAME: is missing before `--`"), "{output:?}");
}

#[test]
fn a_report_into_a_redirected_stdout_keeps_earlier_output() {
    let world = World::new();
    let job = "holdline run --report /dev/stdout a -- echo job";
    for redirection in [">", ">>"] {
        let output =
            world.shell(&format!("{{ echo before; {job}; echo after; }} {redirection} log"));
        assert_eq!(output.code, 0, "{output:?}");
        let log = std::fs::read_to_string(world.path("log")).expect("text");
        let lines: Vec<&str> = log.lines().collect();
        let [.., "before", "job", report, "after"] = lines[..] else { panic!("{log}") };
        assert!(report.contains("\"finished\""), "{log}");
    }
}

#[test]
fn a_job_that_goes_elsewhere_finds_the_engine_that_a_file_here_named() {
    let world = World::new();
    let file = format!("url = '{}'\n", world.url());
    std::fs::write(world.path("holdline.toml"), file).expect("written");
    let output = world.shell(
        "unset HOLDLINE_URL; holdline run a -- sh -c 'cd / && holdline check a && echo found'",
    );
    assert_eq!((output.code, output.stdout.as_str()), (0, "found\n"), "{output:?}");
}

#[test]
fn an_empty_url_is_no_default() {
    let world = World::new();
    let mut command = world.command(&["who", "a"]);
    let output = command.env("HOLDLINE_URL", "").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("HOLDLINE_URL: the URL is empty"), "{said}");
}

#[test]
fn reading_verbs_create_no_store() {
    let world = World::new();
    let store = world.path("store");
    for (arguments, code, stdout) in
        [(&["who", "a"][..], 1, "a: free\n"), (&["ls"], 0, ""), (&["wait", "a"], 0, "")]
    {
        let output = world.run(arguments);
        assert_eq!((output.code, output.stdout.as_str()), (code, stdout), "{output:?}");
        assert!(output.stderr.contains("there is no store yet in /"), "{output:?}");
        assert!(!store.exists(), "{arguments:?}");
    }
    assert_eq!(world.who("a")["held"], false);
    let output = world.run(&["explain"]);
    assert!(output.stdout.contains("there is no store yet in /"), "{output:?}");
    assert!(output.stdout.contains("in the order"), "{output:?}");
    let explained: Value =
        serde_json::from_str(&world.run(&["--json", "explain"]).stdout).expect("JSON");
    assert_eq!(explained["store"], Value::Null);
    assert_eq!(explained["capabilities"]["live"], true);
    assert!(!store.exists());
    assert_eq!(world.run(&["run", "a", "true"]).code, 0);
    let output = world.run(&["explain"]);
    assert!(store.exists() && !output.stdout.contains("no store yet"), "{output:?}");
}

#[test]
fn a_lease_that_could_not_be_printed_is_refused() {
    let world = World::new();
    for json in ["", "--json"] {
        let output = world.shell(&format!("holdline {json} acquire a --lease 1m >&-"));
        assert_eq!(output.code, 125, "{output:?}");
        assert!(output.stderr.contains("stdout is closed"), "{output:?}");
        assert_eq!(world.who("a")["held"], false);
    }
    assert_eq!(world.shell("holdline acquire a --lease 1m > /dev/null").code, 0);
    let id = "00112233445566778899aabbccddeeff";
    let output = world.shell(&format!("holdline acquire b --lease 1m --lease-id {id} >&-"));
    assert_eq!(output.code, 0, "who knows the id needs no answer: {output:?}");
}

#[test]
fn json_is_as_it_is_described() {
    let world = World::new();
    assert_eq!(world.run(&["freeze", "f", "--for", "1h", "--reason", "x"]).code, 0);
    assert!(world.run(&["who", "f"]).stdout.contains(" more: x\n"));
    let output = world.run(&["--json", "unfreeze", "f"]);
    assert_eq!(output.stdout, "{\"active\":false,\"frozen\":false,\"name\":\"f\"}\n");
    for url in [&*world.url(), "memory:"] {
        let stdout = world.run(&["--json", "explain", url]).stdout;
        let explained: Value = serde_json::from_str(&stdout).expect("JSON");
        let can = &explained["capabilities"];
        assert_eq!(can["lag_ms"], 0, "{can}");
        assert_eq!(can["lease"]["max_ms"], 86_400_000, "{can}");
        assert!(can["lease"]["min_ms"].is_u64() && can["lease"]["step_ms"].is_u64(), "{can}");
        assert!(!explained.to_string().contains("nanos"), "{explained}");
    }
    assert!(world.run(&["explain"]).stdout.contains("from 50ms to 24h."));
}

#[test]
fn a_report_names_the_holder_that_was_in_the_way() {
    let world = World::new();
    let _holder = world.hold(&["--reason", "first", "a"]);
    let who = world.who("a");
    for wait in [&["--try"][..], &["--wait", "1s"]] {
        let output = world.run(&[&["run", "--report", "r"], wait, &["a", "true"]].concat());
        assert_eq!(output.code, 75, "{output:?}");
        let report = std::fs::read_to_string(world.path("r")).expect("a report");
        let report: Value = serde_json::from_str(&report).expect("JSON");
        let seen = report["in_the_way"].as_object().expect("a holder");
        for (field, value) in seen.iter().filter(|(field, _)| *field != "held_for_ms") {
            assert_eq!(*value, who["holders"][0][field], "{field} in {report}");
        }
        for field in ["lease_id", "fencing_token", "mode", "permits", "left_ms", "reason"] {
            assert!(seen.contains_key(field), "{field} in {report}");
        }
    }
}

#[test]
fn a_lease_out_of_range_names_the_flag_once() {
    let world = World::new();
    let id = "00112233445566778899aabbccddeeff";
    for verb in [&["acquire", "a"][..], &["run", "a"], &["renew", "a", "--lease-id", id]] {
        for lease in ["48h", "10000h", "1ms"] {
            let option = format!("--lease={lease}");
            let output = world.run(&[&verb[..1], &[&*option], &verb[1..], &["--"]].concat());
            assert_eq!(output.code, 64, "{output:?}");
            assert!(output.stderr.contains("must be from 50ms to 24h"), "{output:?}");
            assert!(output.stderr.contains("--lease") && !output.stderr.contains("lease_duration"));
        }
    }
}

#[test]
fn a_minimum_above_the_maximum_is_refused() {
    let world = World::new();
    let output =
        world.run(&["run", "--min-hold", "2s", "--max-hold", "1s", "a", "--", "echo", "ran"]);
    assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{output:?}");
    assert!(output.stderr.contains("--min-hold 2s: is longer than --max-hold 1s"), "{output:?}");
    assert_eq!(world.run(&["run", "--min-hold", "1ms", "--max-hold", "9s", "a", "true"]).code, 0);
}

#[test]
fn a_missing_program_has_the_same_message_everywhere() {
    let world = World::new();
    let run = world.run(&["run", "a", "--", "no-such-program"]);
    let check = world.run(&["fence", "check", "mark", "--token", "1", "--", "no-such-program"]);
    assert_eq!((run.code, check.code), (127, 127));
    assert_eq!(run.stderr, check.stderr);
}

#[test]
fn labels_are_shown_when_more_is_wanted() {
    let world = World::new();
    let _holder = world.hold(&["--label", "team=billing", "a"]);
    assert!(world.run(&["-v", "who", "a"]).stdout.contains(" team=billing\n"));
    assert!(!world.run(&["who", "a"]).stdout.contains("team"));
}

#[test]
fn a_dead_wrapper_is_not_shown_as_the_holder() {
    let world = World::new();
    let job = ["run", "a", "--", "sh", "-c", "echo up $$; read line; exit 3"];
    let mut holder = Running::start(&mut world.command(&job));
    assert!(holder.line().starts_with("up "));
    holder.signal(rustix::process::Signal::KILL);
    assert_eq!(holder.code(), 137);
    let shown = world.run(&["who", "a"]).stdout;
    assert!(shown.contains(&format!(" {} ", holder.job.get())), "{shown}");
    assert!(!shown.contains(&format!(" {} ", holder.pid())), "{shown}");
}

#[test]
fn the_named_holder_is_a_living_process() {
    let world = World::new();
    let holder = world.hold(&["--reason", "first", "a"]);
    let asked = format!("held by sh (pid {} on ", holder.pid());
    let busy = ["run", "--try", "--report", "r", "a", "true"];
    assert!(world.run(&busy).stderr.contains(&asked));
    holder.signal(rustix::process::Signal::KILL);
    crate::world::eventually("gone", || !crate::world::is_alive(holder.pid()));
    let kept = format!("held by sh (kept by pid {} on ", holder.job.get());
    let lines = [
        world.run(&busy).stderr,
        world.run(&["acquire", "--try", "a"]).stderr,
        world.run(&["run", "--wait", "100ms", "a", "true"]).stderr,
        world.run(&["wait", "--wait", "100ms", "a"]).stderr,
    ];
    for line in lines.iter().flat_map(|text| text.lines()) {
        assert!(line.contains(&kept), "{line}");
    }
    let report = std::fs::read_to_string(world.path("r")).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert!(report["error"]["message"].as_str().is_some_and(|message| message.contains(&kept)));
    for shown in [&report["in_the_way"], &world.who("a")["holders"][0]] {
        assert_eq!((&shown["pid"], &shown["pids"][0]), (&Value::Null, &holder.job.get().into()));
    }
}

#[test]
fn another_use_of_a_name_is_a_matter_of_configuration() {
    let world = World::new();
    let _holder = world.hold(&["--permits", "1/2", "s"]);
    for other in [&["--permits", "1/3"][..], &["--shared"], &[], &["--skip"], &["--wait", "5s"]] {
        let output = world.run(&[&["run"], other, &["s", "--", "echo", "ran"]].concat());
        assert_eq!((output.code, output.stdout.as_str()), (78, ""), "{output:?}");
        assert!(output.stderr.contains("in use as a semaphore of 2"), "{output:?}");
        assert!(output.stderr.contains("--permits"), "the fix is named: {output:?}");
    }
    assert_eq!(world.run(&["acquire", "s"]).code, 78);
    assert_eq!(world.run(&["run", "--permits", "1/2", "s", "true"]).code, 0);
}

#[test]
fn a_path_that_is_no_directory_is_an_error_of_configuration() {
    let world = World::new();
    std::fs::write(world.path("file"), "kept").expect("written");
    std::os::unix::fs::symlink("/no/such/place", world.path("dangling")).expect("a link");
    for place in ["file", "file/below", "dangling"] {
        let url = format!("local://{}", world.path(place).display());
        for verb in [&["run", "a", "--", "echo", "ran"][..], &["freeze", "a", "--for", "1s"]] {
            let more: &[&str] = if verb[0] == "freeze" { &["--reason", "x"] } else { &[] };
            let output = world.run(&[&["--url", &url], verb, more].concat());
            assert_eq!((output.code, output.stdout.as_str()), (78, ""), "{output:?}");
            assert!(output.stderr.contains("name a directory of this machine"), "{output:?}");
        }
    }
    assert_eq!(std::fs::read_to_string(world.path("file")).ok().as_deref(), Some("kept"));
}

#[test]
fn a_dangling_link_in_place_of_the_database_is_an_error_for_every_verb() {
    let world = World::new();
    let link = |at: &str| {
        let path = world.path(at);
        std::os::unix::fs::symlink("/no/such/place", &path).expect("a link");
        path
    };
    std::fs::create_dir(world.path("store")).expect("a directory");
    link("store/locks.db");
    link("place");
    for directory in ["store", "place", "place/below"] {
        let url = format!("local://{}", world.path(directory).display());
        for verb in [
            &["run", "a", "--", "echo", "ran"][..],
            &["who", "a"],
            &["ls"],
            &["wait", "a", "--wait", "1s"],
            &["explain"],
            &["acquire", "a"],
            &["freeze", "a", "--for", "1s", "--reason", "x"],
        ] {
            let output = world.run(&[&["--url", &url], verb].concat());
            assert_eq!((output.code, output.stdout.as_str()), (78, ""), "{verb:?} {output:?}");
            assert!(output.stderr.contains("a link that leads nowhere"), "{output:?}");
        }
        let doctor = world.run(&["doctor", &url]);
        assert_eq!(doctor.code, 2, "{doctor:?}");
        assert!(doctor.stdout.contains("a link that leads nowhere"), "{doctor:?}");
    }
}

#[test]
fn too_few_descriptors_are_an_error_with_the_limit() {
    let world = World::new();
    for limit in [6, 8, 10, 14, 20, 30] {
        let output = world.shell(&format!("ulimit -n {limit}; exec holdline run a -- echo ran"));
        assert_eq!((output.code, output.stdout.as_str()), (125, ""), "{limit}: {output:?}");
        let says = format!("too many open files: this process may have {limit} (ulimit -n)");
        assert!(output.stderr.contains(&says), "{output:?}");
        assert!(output.stderr.contains("ulimit -n 256"), "{output:?}");
    }
    assert_eq!(world.shell("ulimit -n 64; exec holdline run a -- echo ran").stdout, "ran\n");
}

#[test]
fn a_report_into_a_pipe_never_blocks() {
    let world = World::new();
    let script = "mkfifo pipe; holdline run --report pipe a -- echo ran; echo $?";
    let output = world.shell(script);
    assert_eq!(output.stdout, "64\n", "{output:?}");
    assert!(output.stderr.contains("--report pipe: cannot be written: nobody reads"), "{output:?}");
    // A reader that reads, and one that goes away before the end.
    let output = world.shell("holdline run --report /dev/fd/3 a -- true 3>&1 >/dev/null | cat");
    assert!(output.stdout.contains("\"outcome\":\"finished\""), "{output:?}");
    let script = "exec 4<>pipe; exec 3>pipe; dd if=/dev/zero bs=65536 count=1 >&3 2>/dev/null
        holdline run --report pipe a -- sh -c 'exit 3'; echo $?";
    let output = world.shell(script);
    assert_eq!(output.stdout, "3\n", "the job's own code: {output:?}");
    assert!(output.stderr.contains("--report: not written: its reader is too slow"));
}

#[test]
fn a_label_has_one_value() {
    let world = World::new();
    for verb in [&["run", "a", "true"][..], &["acquire", "a"]] {
        let output = world.run(
            &[verb[0], "--label", "k=1", "--label", "k=2"]
                .iter()
                .chain(&verb[1..])
                .copied()
                .collect::<Vec<_>>(),
        );
        assert_eq!(output.code, 64, "{output:?}");
        assert!(output.stderr.contains("--label k: is given twice"), "{output:?}");
    }
    assert_eq!(world.run(&["run", "--label", "k=1", "--label", "l=1", "a", "true"]).code, 0);
}

#[test]
fn where_there_is_no_store_nothing_is_found_and_none_is_made() {
    let world = World::new();
    let id = "00112233445566778899aabbccddeeff";
    for (arguments, code, says) in [
        (&["check", "a", "--lease-id", id][..], 79, "a: not held by this lease"),
        (&["renew", "a", "--lease-id", id], 79, "a: not held by this lease"),
        (&["release", "a", "--lease-id", id], 79, "a: not held by this lease"),
        (&["check", "a"], 64, "--lease-id: is missing"),
        (
            &["revoke", "a", "--if-fencing-token", "7", "--reason", "x"],
            1,
            "a: nobody holds it with token 7",
        ),
        (&["unfreeze", "a"], 1, "a: is not frozen"),
    ] {
        let output = world.run(arguments);
        assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{output:?}");
        assert!(output.stderr.contains(says), "{output:?}");
        assert_eq!(output.stderr.contains("there is no store yet in /"), code != 64, "{output:?}");
        assert!(!world.path("store").exists(), "{arguments:?}");
    }
}

#[test]
fn commands_in_the_job_find_the_engine_of_its_lock() {
    let world = World::new();
    std::fs::write(world.path("other.toml"), format!("url = '{}2'\n", world.url()))
        .expect("written");
    let other = format!("{}2", world.url());
    for flag in [format!("--url {other}"), "--config other.toml".to_owned()] {
        let inner = "cd /; holdline check $HOLDLINE_NAME && holdline run -q a -- true; echo $?";
        let output = world.shell(&format!("holdline {flag} run a -- sh -c '{inner}'"));
        assert_eq!(output.stdout, "78\n", "{flag}: {output:?}");
    }
}

#[test]
fn help_that_cannot_be_printed_is_an_error() {
    let world = World::new();
    for shown in ["--help", "--version", "run --help"] {
        assert_eq!(world.shell(&format!("holdline {shown} > /dev/full")).code, 125, "{shown}");
        assert_eq!(world.shell(&format!("holdline {shown} | true; exit 0")).stderr, "", "{shown}");
    }
}

#[test]
fn a_much_too_long_argument_is_shown_in_part() {
    let world = World::new();
    let long = "x".repeat(100_000);
    for arguments in [&["who", &*long][..], &[&long], &["run", "--lease", &long, "a", "true"]] {
        let output = world.run(arguments);
        assert_eq!(output.code, 64);
        assert!(output.stderr.len() < 2_000, "{}", output.stderr.len());
        assert!(output.stderr.contains('…'), "{}", output.stderr);
    }
}

#[test]
fn a_pipe_as_the_configuration_file_does_not_block() {
    let world = World::new();
    let script = "unset HOLDLINE_URL; mkfifo holdline.toml; holdline ls; echo $?
        holdline --config holdline.toml ls; echo $?";
    let output = world.shell(script);
    assert_eq!(output.stdout, "78\n78\n", "{output:?}");
    assert_eq!(output.stderr.matches("holdline.toml: is not a file").count(), 2, "{output:?}");
}

#[test]
fn a_directory_without_permission_is_an_error_with_the_fix() {
    // Nobody makes a directory there, root included.
    let output = World::new().run(&["--url", "local:///sys/holdline", "run", "a", "true"]);
    assert_eq!(output.code, 77, "{output:?}");
    assert!(output.stderr.contains("make /sys/holdline usable for this user, or name another"));
}

#[test]
fn without_proc_the_message_says_so_before_anything_is_asked() {
    let world = World::new();
    for arguments in [
        &["--url", "redis://127.0.0.1:1", "run", "a", "--", "true"][..],
        &["--url", &world.url(), "run", "a", "--", "true"],
        &["--url", &world.url(), "elect", "a", "--once", "--", "true"],
        &["--url", &world.url(), "acquire", "a"],
    ] {
        let mut command = std::process::Command::new("unshare");
        command.arg(if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" });
        command.args(["sh", "-ec", "umount -l /proc; exec \"$0\" \"$@\""]);
        command.arg(env!("CARGO_BIN_EXE_holdline")).args(arguments);
        let output = crate::world::output(&mut command);
        let code = if arguments.contains(&"acquire") { 69 } else { 78 };
        assert_eq!(output.code, code, "{output:?}");
        assert!(output.stderr.contains("mount /proc"), "{output:?}");
    }
}

/// The kernel discards a signal that the first process of a container sends to itself.
#[test]
fn an_interrupted_wait_of_the_first_process_of_a_container_ends_with_its_code() {
    let user = if rustix::process::geteuid().is_root() { "" } else { "-Ur" };
    let script = format!(
        "holdline acquire demo --lease 10m > grant
        unshare {user} -pf --mount-proc sh -c '
            (while kill -INT 1; do sleep 0.1; done) & exec holdline run demo -- true'
        echo $?"
    );
    let output = World::new().shell(&script);
    assert_eq!(output.stdout, "130\n", "{output:?}");
}

#[test]
fn a_store_without_room_asks_for_room() {
    let world = World::new();
    let disk = world.path("disk");
    std::fs::create_dir(&disk).expect("a directory");
    let mut command = std::process::Command::new("unshare");
    command.arg(if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" });
    let script = "mount -t tmpfs -o size=16k tmpfs \"$0\"; exec \"$@\"";
    command.args(["sh", "-ec", script]).arg(&disk).arg(env!("CARGO_BIN_EXE_holdline"));
    let url = format!("local://{}/store", disk.display());
    command.args(["--url", &url, "run", "a", "--", "true"]);
    let output = crate::world::output(&mut command);
    assert_eq!(output.code, 77, "{output:?}");
    assert!(output.stderr.contains("make room on the disk of"), "{output:?}");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_kills_no_wrapper() {
    let world = World::new();
    // Of 512 bytes, for all that is made there.
    let output = world.shell("ulimit -f 1; exec holdline run demo -- true");
    assert_eq!(output.code, 77, "{output:?}");
    assert!(
        output.stderr.contains("limited to 512 bytes: raise it with `ulimit -f`"),
        "{output:?}"
    );
    let output = world.shell("ulimit -f 0; exec holdline fence seal mark --token 34");
    assert!((64..126).contains(&output.code), "{output:?}");
    assert!(output.stderr.contains("File too large"), "{output:?}");

    // A job is killed by its own limit, as it would be without us, and the wrapper releases.
    let job = "head -c 1000000 /dev/zero > large";
    let output = world.shell(&format!("ulimit -f 500; exec holdline run demo -- sh -c '{job}'"));
    assert_eq!(output.code, 128 + 25, "{output:?}");
    world.free("demo");
    // If the signal was ignored before, it stays ignored.
    let output = world
        .shell(&format!("trap '' XFSZ; ulimit -f 500; exec holdline run demo -- sh -c '{job}'"));
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("File too large"), "{output:?}");
}
