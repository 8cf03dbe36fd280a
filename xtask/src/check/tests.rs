//! The step that runs every test.
//!
//! The programs with tests run in two groups at once: those that compute, and behind which none
//! waits for a clock, at a lower priority beside all the others.

use super::Outcome;
use super::binaries::{self, Binary};
use super::counts::{Counts, Tally};
use crate::cargo::cargo;
use crate::process;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How long a program may print nothing: many times what its slowest test takes.
const LIMIT: Option<Duration> = Some(Duration::from_secs(20 * 60));
/// How many tests of a program that mostly waits run at once, for each processor.
const WAITING: usize = 2;
/// How many failed tests of a whole run are repeated, each once and alone (decision 0038).
const REPEATED: usize = 3;

/// The results of a group.
#[derive(Default)]
struct Seen {
    counts: Counts,
    not_passed: Vec<String>,
    /// The tests that passed when they ran again.
    unsteady: Vec<String>,
    says: Vec<String>,
}

/// Compiles and runs the tests of all crates; a failing program does not hide the next.
pub(crate) fn run() -> Outcome {
    let found = match binaries::build() {
        Ok(found) => found,
        Err(says) => return (Counts::default(), Err(says)),
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (computing, waiting): (Vec<Binary>, Vec<Binary>) =
        found.into_iter().partition(Binary::computes);
    let seen = thread::scope(|scope| {
        let computing = scope.spawn(|| {
            let mut seen = Seen::default();
            for binary in &computing {
                seen.afterwards(&binary.title(), &mut binary.command(cores));
            }
            seen
        });
        let mut seen = Seen::default();
        for binary in &waiting {
            let names = seen.live(&binary.title(), &mut binary.command(cores * WAITING));
            seen.repeat(binary, &names, process::show);
        }
        let doctests = ["test", "--workspace", "--all-features", "--no-fail-fast", "--doc"];
        seen.live("doctests", &mut cargo(&doctests));
        match computing.join() {
            Ok(other) => seen.add(other),
            Err(_) => seen.says.push("the group of computing programs broke".to_owned()),
        }
        seen
    });
    for title in &seen.unsteady {
        println!("unsteady: {title}");
    }
    let ran = if seen.says.is_empty() { Ok(()) } else { Err(seen.says.join("\n")) };
    (seen.counts, judged(ran, seen.counts, &seen.not_passed))
}

impl Seen {
    /// Runs one program, and shows what it says as it says it. Returns the tests that failed.
    fn live(&mut self, title: &str, command: &mut Command) -> Vec<String> {
        process::show(format!("\n-- {title}\n").as_bytes());
        self.program(title, command, process::show)
    }

    /// Repeats the failed tests of the program that ran last, if they are few and all others have
    /// passed. Those that pass now are unsteady.
    fn repeat(&mut self, binary: &Binary, names: &[String], show: fn(&[u8])) {
        let allowed = REPEATED.saturating_sub(self.counts.unsteady);
        if names.is_empty() || names.len() > allowed || self.counts.failed != names.len() {
            return;
        }
        for name in names.iter().filter(|name| passes_alone(binary, name, show)) {
            self.counts += Counts { passed: 1, unsteady: 1, ..Counts::default() };
            self.counts.failed -= 1;
            let title = format!("{}: {name}", binary.title());
            self.not_passed.retain(|other| *other != title);
            self.unsteady.push(title);
        }
        if self.counts.failed == 0 {
            // How the program ended was due to these tests.
            self.says.pop();
        }
    }

    /// Runs one program, and shows what it said when it has ended: another one speaks meanwhile.
    fn afterwards(&mut self, title: &str, command: &mut Command) {
        let mut said = format!("\n-- {title} (beside the others)\n").into_bytes();
        self.program(title, command, |line| said.extend_from_slice(line));
        process::show(&said);
    }

    fn program(
        &mut self,
        title: &str,
        command: &mut Command,
        mut show: impl FnMut(&[u8]),
    ) -> Vec<String> {
        let mut tally = Tally::default();
        let ran = process::listen(command, LIMIT, |line| {
            show(line);
            tally.line(String::from_utf8_lossy(line).trim_end());
        });
        self.counts += tally.end();
        let named = tally.not_passed.iter().map(|name| format!("{title}: {name}"));
        self.not_passed.extend(named);
        self.says.extend(ran.err());
        tally.not_passed
    }

    fn add(&mut self, other: Seen) {
        self.counts += other.counts;
        self.not_passed.extend(other.not_passed);
        self.unsteady.extend(other.unsteady);
        self.says.extend(other.says);
    }
}

/// Runs one test of a program again. What a crash leaves is the name of no test, and does not pass.
fn passes_alone(binary: &Binary, name: &str, show: fn(&[u8])) -> bool {
    let title = binary.title();
    show(format!("\n-- {title}: {name} failed, and runs again alone\n").as_bytes());
    let mut tally = Tally::default();
    let ran = process::listen(binary.command(1).args(["--exact", name]), LIMIT, |line| {
        show(line);
        tally.line(String::from_utf8_lossy(line).trim_end());
    });
    let Counts { passed, failed, .. } = tally.end();
    ran.is_ok() && (passed, failed) == (1, 0)
}

/// It is a success only if something ran, and all tests ran.
fn judged(ran: Result<(), String>, counts: Counts, named: &[String]) -> Result<(), String> {
    let named: String = named.iter().map(|name| format!("\n  {name}")).collect();
    match (ran, counts) {
        (Err(says), _) => Err(format!("{says}{named}")),
        (_, Counts { failed: 1.., .. }) => Err(format!("tests failed{named}")),
        (_, Counts { skipped: 1.., .. }) => Err(format!("tests were skipped{named}")),
        (_, Counts { passed: 0, .. }) => Err("no test ran".to_owned()),
        (Ok(()), _) => Ok(()),
    }
}

#[cfg(test)]
mod own_tests {
    use super::*;

    #[test]
    fn a_run_without_tests_or_with_skipped_ones_is_no_success() {
        let counts =
            |passed, failed, skipped| Counts { passed, failed, skipped, ..Counts::default() };
        let names = ["a::b".to_owned()];
        assert_eq!(judged(Ok(()), counts(5, 0, 0), &[]), Ok(()));
        assert_eq!(judged(Ok(()), counts(0, 0, 0), &[]), Err("no test ran".to_owned()));
        let skipped = judged(Ok(()), counts(5, 0, 1), &names);
        assert_eq!(skipped, Err("tests were skipped\n  a::b".to_owned()));
        let failed = judged(Err("cargo failed".to_owned()), counts(5, 1, 0), &names);
        assert_eq!(failed, Err("cargo failed\n  a::b".to_owned()));
    }

    /// A program of the shell in place of a test binary: it passes only if it runs one test.
    fn program(title: &str, alone: &str) -> Binary {
        use std::os::unix::fs::PermissionsExt;
        let target = crate::metadata::Metadata::read().expect("cargo").target_directory;
        std::fs::create_dir_all(target.join("tmp")).expect("a directory");
        let path = target.join("tmp").join(format!("fails-{title}.sh"));
        let closing = "0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        let says = |name: &str, word: &str, passed: u32, failed: u32| {
            let line = format!("test result: {word}. {passed} passed; {failed} failed; {closing}");
            format!("printf 'running 1 test\\ntest {name} ... {word}\\n{line}\\n'")
        };
        let (good, bad) = (says("a::b", "ok", 1, 0), says("a::b", "FAILED", 0, 1));
        let script = format!("#!/bin/sh\nif [ \"$1\" = --exact ]; then {alone}; fi\n{bad}\nexit 1");
        std::fs::write(&path, script.replace("GOOD", &good)).expect("written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("a program");
        Binary::new("holdline-cli", "it", path)
    }

    #[test]
    fn a_failed_test_that_passes_alone_is_unsteady_and_one_that_does_not_has_failed() {
        for (alone, failed) in [("GOOD; exit 0", 0), ("exit 0", 1), ("GOOD; exit 3", 1)] {
            let binary = program("once", alone);
            let mut seen = Seen::default();
            let names = seen.program(&binary.title(), &mut binary.command(1), |_| ());
            assert_eq!((names.len(), seen.counts.failed, seen.says.len()), (1, 1, 1));
            seen.repeat(&binary, &names, |_| ());
            let unsteady = 1 - failed;
            assert_eq!((seen.counts.failed, seen.counts.passed), (failed, unsteady), "{alone}");
            assert_eq!((seen.counts.unsteady, seen.says.len()), (unsteady, failed), "{alone}");
            assert_eq!((seen.not_passed.len(), seen.unsteady.len()), (failed, unsteady));
        }
    }

    #[test]
    fn many_failed_tests_are_not_repeated() {
        let binary = program("many", "GOOD; exit 0");
        let names: Vec<String> = (0..=REPEATED).map(|number| format!("a::{number}")).collect();
        let failed = names.len();
        let counts = Counts { failed, ..Counts::default() };
        let mut seen = Seen { counts, not_passed: names.clone(), ..Seen::default() };
        seen.repeat(&binary, &names, |_| ());
        assert_eq!((seen.counts, seen.unsteady.len()), (counts, 0));
    }
}
