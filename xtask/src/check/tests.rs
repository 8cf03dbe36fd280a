//! The step that runs every test.

use super::counts::{Counts, Tally};
use super::{COMPILE, Outcome};
use crate::cargo::cargo;
use crate::process;
use std::time::Duration;

/// How long all tests together may take. Past it something hangs.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Compiles and runs the tests of all crates; a failing binary does not hide the next.
pub(crate) fn run() -> Outcome {
    let build = ["test", "--workspace", "--all-features", "--no-run"];
    if let Err(says) = process::watch(&mut cargo(&build), COMPILE, |_| ()) {
        return (Counts::default(), Err(says));
    }
    let mut tally = Tally::default();
    let test = ["test", "--workspace", "--all-features", "--no-fail-fast"];
    let ran = process::watch(&mut cargo(&test), LIMIT, |line| tally.line(line));
    let counts = tally.end();
    (counts, judged(ran, counts, &tally.not_passed))
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
