//! Exit codes: the command's own, 128 + n, 126 and 127.

use super::*;

fn run(options: &[&str], command: &[impl AsRef<OsStr>]) -> (i32, String) {
    let output = wrapper(options, command).output().expect("the wrapper starts");
    (shell_code(output.status), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_commands_own_code_is_ours() {
    for options in BOTH_WAYS {
        for code in [0, 1, 3, 75, 126, 127, 255] {
            let script = format!("exit {code}");
            assert_eq!(run(options, &["sh", "-c", &script]), (code, String::new()));
        }
    }
}

#[test]
fn death_by_signal_n_is_128_plus_n() {
    for options in BOTH_WAYS {
        for (signal, code) in [("TERM", 143), ("KILL", 137), ("USR1", 138), ("INT", 130)] {
            let script = format!("kill -{signal} $$");
            assert_eq!(run(options, &["sh", "-c", &script]), (code, String::new()));
        }
    }
}

#[test]
fn what_is_not_there_is_127() {
    for options in BOTH_WAYS {
        let (code, message) = run(options, &["no-such-program-anywhere"]);
        assert_eq!(code, 127);
        let expected = "holdline: cannot run \"no-such-program-anywhere\": not found in PATH\n";
        assert_eq!(message, expected);
        assert_eq!(run(options, &["/no/such/program"]).0, 127);
        assert_eq!(run(options, &[""]).0, 127);
    }
}

#[test]
fn what_cannot_be_executed_is_126() {
    let folder = Folder::new("126");
    let plain = folder.file("plain", 0o644, b"#!/bin/sh\n");
    let orphan = folder.file("orphan", 0o755, b"#!/no/such/interpreter -x\n");
    let binary = folder.file("binary", 0o755, b"\x01\0\x02\0garbage");
    let mut foreign = b"\x7fELF\x02\x01\x01".to_vec();
    foreign.resize(64, 0);
    // A SPARC of 1995, which nothing in use runs.
    foreign[18] = 2;
    let foreign = folder.file("foreign", 0o755, &foreign);
    for options in BOTH_WAYS {
        for (program, why) in [
            (folder.0.as_path(), "it is a directory"),
            (&plain, "it is not executable for this user"),
            (&orphan, "its interpreter \"/no/such/interpreter\" is missing"),
            (&binary, "it is not a program for this machine"),
            (&foreign, "it is not a program for this machine"),
            (Path::new("/dev/null"), "it is not a regular file"),
        ] {
            let (code, message) = run(options, &[program]);
            assert_eq!(code, 126, "{program:?} {options:?}: {message}");
            assert_eq!(message, format!("holdline: cannot run \"{}\": {why}\n", program.display()));
        }
    }
}

#[test]
fn a_script_without_a_first_line_runs_in_sh_as_execvp_does() {
    let folder = Folder::new("sh");
    let script = folder.file("script", 0o755, b"echo \"$# $1\"\nexit 7\n");
    for options in BOTH_WAYS {
        let output = wrapper(options, &[script.as_os_str(), "a b".as_ref(), "c".as_ref()]).output();
        let output = output.expect("the wrapper starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "2 a b\n");
        assert_eq!(shell_code(output.status), 7);
    }
}

#[test]
fn the_name_as_typed_is_argument_zero() {
    for options in BOTH_WAYS {
        let command = ["sh", "-c", "tr '\\0' '\\n' < /proc/$$/cmdline | head -n 1"];
        let output = wrapper(options, &command).output().expect("the wrapper starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "sh\n");
    }
}
