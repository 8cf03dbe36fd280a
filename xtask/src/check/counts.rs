//! How many tests ran, read from what the test harness prints.
//!
//! Invariant N1: a test that was announced and never reported has failed: its binary ended before.

use std::ops::AddAssign;

/// Tests by how they ended. Skipped means that a test was there and did not run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// Those of the passed ones that failed at first.
    pub(crate) unsteady: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.unsteady += other.unsteady;
    }
}

/// Reads the closing line of one test binary:
/// `test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
pub(crate) fn closing_line(line: &str) -> Option<Counts> {
    let (_, fields) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |word: &str| -> Option<usize> {
        let field = fields.split(';').map(str::trim).find(|f| f.ends_with(word))?;
        field.strip_suffix(word)?.trim().parse().ok()
    };
    let skipped = number("ignored")? + number("filtered out")?;
    let passed = number("passed")?;
    let failed = number("failed")?;
    Some(Counts { passed, failed, skipped, unsteady: 0 })
}

/// Counts the tests of one run, line by line.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    total: Counts,
    /// The tests that a binary has announced, and those that it has reported.
    open: Option<(usize, Counts)>,
    /// The tests that failed or were skipped, by name.
    pub(crate) not_passed: Vec<String>,
}

impl Tally {
    /// Takes one line of the run.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(announced) = opening_line(line) {
            self.close();
            self.open = Some((announced, Counts::default()));
        } else if let Some(binary) = closing_line(line) {
            self.open = None;
            self.total += binary;
        } else if let Some((name, result)) = message_of(line) {
            let mut one = Counts::default();
            match result {
                TestOutcome::Passed => one.passed = 1,
                TestOutcome::Failed => one.failed = 1,
                TestOutcome::Skipped => one.skipped = 1,
            }
            if let Some((_, so_far)) = &mut self.open {
                *so_far += one;
            }
            if result != TestOutcome::Passed {
                self.not_passed.push(name.to_owned());
            }
        }
    }

    /// Returns the counts at the end of the run.
    pub(crate) fn end(&mut self) -> Counts {
        self.close();
        self.total
    }

    /// A binary that did not come to its closing line has crashed.
    fn close(&mut self) {
        let Some((announced, so_far)) = self.open.take() else { return };
        let Counts { passed, failed, skipped, .. } = so_far;
        let lost = announced.saturating_sub(passed + failed + skipped);
        self.total += Counts { failed: failed + lost, ..so_far };
        self.not_passed.push(format!("{lost} of the {announced} tests of a binary that crashed"));
    }
}

/// Reads `running 5 tests`.
fn opening_line(line: &str) -> Option<usize> {
    let (number, word) = line.strip_prefix("running ")?.split_once(' ')?;
    matches!(word, "test" | "tests").then(|| number.parse().ok())?
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestOutcome {
    Passed,
    Failed,
    Skipped,
}

/// Reads `test NAME ... ok`, `test NAME ... FAILED` and `test NAME ... ignored, REASON`.
fn message_of(line: &str) -> Option<(&str, TestOutcome)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let known = [
        ("ok", TestOutcome::Passed),
        ("FAILED", TestOutcome::Failed),
        ("ignored", TestOutcome::Skipped),
    ];
    let (_, result) = known.into_iter().find(|(word, _)| result.starts_with(word))?;
    Some((name, result))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> (Counts, Vec<String>) {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.line(line));
        (tally.end(), tally.not_passed)
    }

    #[test]
    fn failed_and_ignored_tests_are_named() {
        let (counts, named) = tally(&[
            "running 4 tests",
            "test a::b ... FAILED",
            "test a::c ... ignored, slow",
            "test src/lib.rs - f (line 3) ... ok",
            "testing ... FAILED",
            "test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; \
             finished in 0.01s",
        ]);
        assert_eq!(counts, Counts { passed: 2, failed: 1, skipped: 1, unsteady: 0 });
        assert_eq!(named, ["a::b", "a::c"]);
    }

    /// Its tests were not counted at all, neither those that passed nor those that it took along.
    #[test]
    fn the_tests_of_a_binary_that_crashed_are_counted() {
        let closing = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; \
            0 filtered out; finished in 0.01s";
        let crashed = ["running 3 tests", "test a ... ok", "test b ... ok"];
        let next = ["running 1 test", "test d ... ok", closing];
        for lines in [[crashed, next].concat(), [next, crashed].concat()] {
            let (counts, named) = tally(&lines);
            assert_eq!(counts, Counts { passed: 3, failed: 1, ..Counts::default() });
            assert_eq!(named, ["1 of the 3 tests of a binary that crashed"]);
        }
        let (counts, _) = tally(&crashed[..2]);
        assert_eq!(counts, Counts { passed: 1, failed: 2, ..Counts::default() });
    }

    #[test]
    fn the_closing_line_is_read() {
        let line = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; \
            3 filtered out; finished in 0.01s";
        assert_eq!(
            closing_line(line),
            Some(Counts { passed: 5, failed: 2, skipped: 4, unsteady: 0 })
        );
    }

    #[test]
    fn other_lines_are_not() {
        for line in ["", "test a ... ok", "test result: ok", "test result: ok. many passed;"] {
            assert_eq!(closing_line(line), None, "{line}");
        }
    }
}
