//! Exit codes: the command's own, 128 + n, 126 and 127.

use super::*;

/// The code and the last line of what was said.
fn run(world: &World, options: &[&str], command: &[impl AsRef<OsStr>]) -> (i32, String) {
    let mut running = start(world, options, command);
    let said = running.rest();
    (running.code(), said.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn the_commands_own_code_is_ours() {
    let world = World::new();
    for options in BOTH_WAYS {
        for code in [0, 1, 3, 75, 126, 127, 255] {
            let script = format!("exit {code}");
            assert_eq!(run(&world, options, &["sh", "-c", &script]), (code, String::new()));
        }
    }
}

#[test]
fn death_by_signal_n_is_128_plus_n() {
    let world = World::new();
    for options in BOTH_WAYS {
        for (signal, code) in [("TERM", 143), ("KILL", 137), ("USR1", 138), ("INT", 130)] {
            let script = format!("kill -{signal} $$");
            assert_eq!(run(&world, options, &["sh", "-c", &script]), (code, String::new()));
        }
    }
}

#[test]
fn what_is_not_there_is_127() {
    let world = World::new();
    for options in BOTH_WAYS {
        let (code, said) = run(&world, options, &["no-such-program-anywhere"]);
        assert_eq!(code, 127);
        assert!(
            said.ends_with("cannot run \"no-such-program-anywhere\": not found in PATH"),
            "{said}"
        );
        assert_eq!(run(&world, options, &["/no/such/program"]).0, 127);
        assert_eq!(run(&world, options, &[""]).0, 127);
    }
}

#[test]
fn what_cannot_be_executed_is_126() {
    let world = World::new();
    let folder = world.path("folder");
    std::fs::create_dir(&folder).expect("a folder");
    let plain = file(&world, "plain", 0o644, b"#!/bin/sh\n");
    let orphan = file(&world, "orphan", 0o755, b"#!/no/such/interpreter -x\n");
    let binary = file(&world, "binary", 0o755, b"\x01\0\x02\0garbage");
    let mut foreign = b"\x7fELF\x02\x01\x01".to_vec();
    foreign.resize(64, 0);
    // A SPARC of 1995, which nothing in use runs.
    foreign[18] = 2;
    let foreign = file(&world, "foreign", 0o755, &foreign);
    for options in BOTH_WAYS {
        for (program, why) in [
            (folder.as_path(), "it is a directory"),
            (&plain, "it is not executable for this user"),
            (&orphan, "its interpreter \"/no/such/interpreter\" is missing"),
            (&binary, "it is not a program for this machine"),
            (&foreign, "it is not a program for this machine"),
            (Path::new("/dev/null"), "it is not a regular file"),
        ] {
            let (code, said) = run(&world, options, &[program]);
            assert_eq!(code, 126, "{program:?} {options:?}: {said}");
            let expected = format!("cannot run \"{}\": {why}", program.display());
            assert!(said.ends_with(&expected), "{said}");
        }
    }
}

#[test]
fn a_program_that_the_kernel_refuses_is_our_failure_and_not_the_jobs() {
    let world = World::new();
    let orphan = file(&world, "orphan", 0o755, b"#!/no/such/interpreter\n");
    let report = world.path("report");
    for options in BOTH_WAYS {
        let mut wrapper = world.command(&["--json", "run", "--report"]);
        wrapper.arg(&report).args(options).arg(NAME).arg("--").arg(&orphan);
        let output = wrapper.stdin(Stdio::null()).output().expect("it starts");
        let said = String::from_utf8(output.stderr).expect("text");
        let error: serde_json::Value = serde_json::from_str(said.trim()).expect("one error");
        assert_eq!((output.status.code(), &error["kind"]), (Some(126), &"cannot_run".into()));
        let report = std::fs::read_to_string(&report).expect("a report");
        let report: serde_json::Value = serde_json::from_str(&report).expect("one object");
        assert_eq!((&report["outcome"], &report["exit"]), (&"failed".into(), &126.into()));
    }
}

#[test]
fn a_script_without_a_first_line_runs_in_sh_as_execvp_does() {
    let world = World::new();
    let script = file(&world, "script", 0o755, b"echo \"$# $1\"\nexit 7\n");
    for options in BOTH_WAYS {
        let command = [script.as_os_str(), "a b".as_ref(), "c".as_ref()];
        let mut running = start(&world, options, &command);
        assert_eq!(running.line(), "2 a b");
        assert_eq!(running.code(), 7);
    }
}

#[test]
fn the_name_as_typed_is_argument_zero() {
    let world = World::new();
    for options in BOTH_WAYS {
        let command = ["sh", "-c", "tr '\\0' '\\n' < /proc/$$/cmdline | head -n 1"];
        assert_eq!(start(&world, options, &command).line(), "sh");
    }
}
