//! The step that runs every test.

use super::counts::{Counts, closing_line};
use super::{COMPILE, Outcome};
use crate::cargo::cargo;
use crate::process;
use std::time::Duration;

/// How long all tests together may take. Past it something hangs.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Compiles and runs the tests of all crates; a failing binary does not hide the next.
pub(crate) fn run() -> Outcome {
    let build = ["test", "--workspace", "--no-run"];
    if let Err(says) = process::watch(&mut cargo(&build), COMPILE, |_| ()) {
        return (Counts::default(), Err(says));
    }
    let mut counts = Counts::default();
    let mut not_passed = Vec::new();
    let test = ["test", "--workspace", "--no-fail-fast"];
    let ran = process::watch(&mut cargo(&test), LIMIT, |line| {
        if let Some(binary) = closing_line(line) {
            counts += binary;
        }
        not_passed.extend(name_if_not_passed(line).map(str::to_owned));
    });
    (counts, judged(ran, counts, &not_passed))
}

/// All is well only if something ran, and everything that was there.
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

/// The test in `test NAME ... FAILED` or `test NAME ... ignored, REASON`.
fn name_if_not_passed(line: &str) -> Option<&str> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    (result.starts_with("FAILED") || result.starts_with("ignored")).then_some(name)
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

    #[test]
    fn failed_and_ignored_tests_are_named() {
        assert_eq!(name_if_not_passed("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(name_if_not_passed("test a::b ... ignored, slow"), Some("a::b"));
        assert_eq!(name_if_not_passed("test src/lib.rs - f (line 3) ... ok"), None);
        assert_eq!(name_if_not_passed("testing ... FAILED"), None);
    }
}
