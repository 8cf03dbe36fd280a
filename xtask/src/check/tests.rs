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
    let told = if not_passed.is_empty() {
        String::new()
    } else {
        format!("\n  {}", not_passed.join("\n  "))
    };
    let outcome = match (ran, counts) {
        (Err(says), _) => Err(format!("{says}{told}")),
        (_, Counts { passed: 0, .. }) => Err("no test ran".to_owned()),
        (_, Counts { skipped: 1.., .. }) => Err(format!("tests were skipped{told}")),
        (Ok(()), _) => Ok(()),
    };
    (counts, outcome)
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
    fn failed_and_ignored_tests_are_named() {
        assert_eq!(name_if_not_passed("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(name_if_not_passed("test a::b ... ignored, slow"), Some("a::b"));
        assert_eq!(name_if_not_passed("test src/lib.rs - f (line 3) ... ok"), None);
        assert_eq!(name_if_not_passed("testing ... FAILED"), None);
    }
}
