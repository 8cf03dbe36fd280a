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

/// The results of a group.
#[derive(Default)]
struct Seen {
    counts: Counts,
    not_passed: Vec<String>,
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
            seen.live(&binary.title(), &mut binary.command(cores * WAITING));
        }
        let doctests = ["test", "--workspace", "--all-features", "--no-fail-fast", "--doc"];
        seen.live("doctests", &mut cargo(&doctests));
        match computing.join() {
            Ok(other) => seen.add(other),
            Err(_) => seen.says.push("the group of computing programs broke".to_owned()),
        }
        seen
    });
    let ran = if seen.says.is_empty() { Ok(()) } else { Err(seen.says.join("\n")) };
    (seen.counts, judged(ran, seen.counts, &seen.not_passed))
}

impl Seen {
    /// Runs one program, and shows what it says as it says it.
    fn live(&mut self, title: &str, command: &mut Command) {
        process::show(format!("\n-- {title}\n").as_bytes());
        self.program(title, command, process::show);
    }

    /// Runs one program, and shows what it said when it has ended: another one speaks meanwhile.
    fn afterwards(&mut self, title: &str, command: &mut Command) {
        let mut said = format!("\n-- {title} (beside the others)\n").into_bytes();
        self.program(title, command, |line| said.extend_from_slice(line));
        process::show(&said);
    }

    fn program(&mut self, title: &str, command: &mut Command, mut show: impl FnMut(&[u8])) {
        let mut tally = Tally::default();
        let ran = process::listen(command, LIMIT, |line| {
            show(line);
            tally.line(String::from_utf8_lossy(line).trim_end());
        });
        self.counts += tally.end();
        let named = tally.not_passed.into_iter().map(|name| format!("{title}: {name}"));
        self.not_passed.extend(named);
        self.says.extend(ran.err());
    }

    fn add(&mut self, other: Seen) {
        self.counts += other.counts;
        self.not_passed.extend(other.not_passed);
        self.says.extend(other.says);
    }
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
        let counts = |passed, failed, skipped| Counts { passed, failed, skipped };
        let names = ["a::b".to_owned()];
        assert_eq!(judged(Ok(()), counts(5, 0, 0), &[]), Ok(()));
        assert_eq!(judged(Ok(()), counts(0, 0, 0), &[]), Err("no test ran".to_owned()));
        let skipped = judged(Ok(()), counts(5, 0, 1), &names);
        assert_eq!(skipped, Err("tests were skipped\n  a::b".to_owned()));
        let failed = judged(Err("cargo failed".to_owned()), counts(5, 1, 0), &names);
        assert_eq!(failed, Err("cargo failed\n  a::b".to_owned()));
    }
}
