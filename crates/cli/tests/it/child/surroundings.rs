//! What the command finds: environment, descriptors, signal masks, standard streams.

use super::*;

fn output_of(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn only_the_named_variables_differ() {
    let environment = |command: &mut Command| -> BTreeSet<String> {
        command.env("REMOVED", "1").env("KEPT", "2");
        // The shell that looks sets this one itself.
        output_of(command).split('\0').filter(|v| !v.starts_with("_=")).map(Into::into).collect()
    };
    let direct = environment(Command::new("env").arg("-0"));
    assert!(direct.contains("REMOVED=1"));
    let mut expected = direct;
    expected.remove("REMOVED=1");
    expected.insert("ADDED=a=b c".to_owned());
    for way in BOTH_WAYS {
        let mut options = way.to_vec();
        options.extend(["--unset", "REMOVED", "--set", "ADDED=a=b c"]);
        assert_eq!(environment(&mut wrapper(&options, &["env", "-0"])), expected);
    }
}

#[test]
fn the_program_is_looked_for_in_the_path_that_it_will_have() {
    let folder = Folder::new("path");
    folder.file("only-here", 0o755, b"#!/bin/sh\necho found\n");
    for way in BOTH_WAYS {
        let setting = format!("PATH={}:/bin:/usr/bin", folder.0.display());
        let mut options = way.to_vec();
        options.extend(["--set", &setting]);
        assert_eq!(output_of(&mut wrapper(&options, &["only-here"])), "found\n");
    }
}

/// Numbers and targets of all descriptors that are open in the process itself.
const DESCRIPTORS: &str = "
import os
for number in os.listdir('/proc/self/fd'):
    try:
        print(number, os.readlink('/proc/self/fd/' + number).split(':')[0])
    except FileNotFoundError:
        pass
";

#[test]
fn only_named_descriptors_are_inherited() {
    let descriptors = |command: &mut Command| -> BTreeSet<String> {
        output_of(command.stderr(Stdio::piped())).lines().map(Into::into).collect()
    };
    let direct = descriptors(Command::new("python3").args(["-c", DESCRIPTORS]));
    let folder = Folder::new("inherit");
    let (one, two) = (folder.file("one", 0o600, b""), folder.file("two", 0o600, b""));
    for way in BOTH_WAYS {
        let command = ["python3", "-c", DESCRIPTORS];
        assert_eq!(descriptors(&mut wrapper(way, &command)), direct, "nothing by itself");

        let mut options: Vec<&OsStr> = way.iter().map(OsStr::new).collect();
        for file in [&one, &two] {
            options.extend([OsStr::new("--inherit"), file.as_os_str()]);
        }
        let found = descriptors(&mut wrapper(&options, &command));
        let new: Vec<&str> =
            found.difference(&direct).filter_map(|line| line.split(' ').nth(1)).collect();
        assert!(found.is_superset(&direct));
        assert_eq!(
            BTreeSet::from_iter(new),
            [&one, &two].map(|p| p.to_str().expect("text")).into()
        );
    }
}

#[test]
fn signal_masks_are_those_of_the_caller() {
    let look = "trap '' HUP USR2; exec \"$@\"";
    let masks = |command: &mut Command| output_of(command);
    let show = ["grep", "^Sig[BIC]", "/proc/self/status"];
    let direct = masks(Command::new("sh").args(["-c", look, "sh"]).args(show));
    let ignored = direct.lines().find(|line| line.starts_with("SigIgn:")).expect("a mask");
    assert!(ignored.ends_with("801"), "SIGHUP and SIGUSR2 are ignored: {direct}");
    for way in BOTH_WAYS {
        let inner = wrapper(way, &show);
        let mut under = Command::new("sh");
        under.args(["-c", look, "sh"]).arg(inner.get_program()).args(inner.get_args());
        assert_eq!(masks(&mut under), direct);
    }
}

#[test]
fn a_blocked_sigchld_does_not_hide_the_end() {
    let block = "
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
os.execv(sys.argv[1], sys.argv[1:])
";
    let inner = wrapper::<&str>(&[], &["sh", "-c", "exit 5"]);
    let mut under = Command::new("python3");
    under.args(["-c", block]).arg(inner.get_program()).args(inner.get_args());
    assert_eq!(Running::start(&mut under).wait().code(), Some(5));
}

#[test]
fn the_standard_streams_are_the_callers() {
    for way in BOTH_WAYS {
        let mut wrapper = wrapper(way, &["sh", "-c", "cat; echo talk >&2"]);
        let mut child = wrapper
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the wrapper starts");
        std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), b"data").expect("it");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"data"[..], &b"talk\n"[..]));
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let mut wrapper = wrapper::<&str>(&[], &["yes"]);
    let mut child = wrapper.stdout(Stdio::piped()).spawn().expect("the wrapper starts");
    let mut some = [0; 4];
    child.stdout.take().expect("a pipe").read_exact(&mut some).expect("output");
    // The pipe is closed here: SIGPIPE.
    assert_eq!(child.wait().expect("it ends").code(), Some(141));
}
