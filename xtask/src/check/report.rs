//! The summary: a line for each step, and the counts alone on the last.

use super::counts::Counts;
use std::time::Duration;

/// One step that ran.
pub(crate) struct StepReport {
    pub(crate) step: &'static str,
    pub(crate) took: Duration,
    pub(crate) counts: Counts,
    pub(crate) outcome: Result<(), String>,
}

pub(crate) struct Summary {
    pub(crate) text: String,
    pub(crate) well: bool,
}

pub(crate) fn summary(lines: &[StepReport]) -> Summary {
    let mut text = format!("{:<10} {:<7} {:>9} {:>7}\n", "step", "result", "time", "tests");
    let mut total = Counts::default();
    let mut took = Duration::ZERO;
    for line in lines {
        let result = if line.outcome.is_ok() { "ok" } else { "FAILED" };
        let ran = line.counts.passed + line.counts.failed;
        let tests = if ran == 0 { String::new() } else { ran.to_string() };
        text += &row(line.step, result, line.took, &tests);
        total += line.counts;
        took += line.took;
        if line.outcome.is_err() && line.counts.failed == 0 {
            total.failed += 1;
        }
    }
    let well = lines.iter().all(|line| line.outcome.is_ok()) && total.failed == 0;
    text += &row("all", if well { "ok" } else { "FAILED" }, took, "");
    let Counts { passed, failed, skipped, unsteady } = total;
    if unsteady > 0 {
        text += &format!("\n{unsteady} of the passed tests failed at first; look for `unsteady:`");
    }
    text += &format!("\n{passed} passed, {failed} failed, {skipped} skipped");
    Summary { text, well }
}

fn row(step: &str, result: &str, took: Duration, tests: &str) -> String {
    let line = format!("{step:<10} {result:<7} {:>7.1} s {tests:>7}", took.as_secs_f64());
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: &'static str, counts: Counts, outcome: Result<(), String>) -> StepReport {
        StepReport { step, took: Duration::from_millis(1500), counts, outcome }
    }

    #[test]
    fn a_good_run_ends_with_its_counts() {
        let counts = Counts { passed: 7, ..Counts::default() };
        let lines = [line("format", Counts::default(), Ok(())), line("tests", counts, Ok(()))];
        let summary = summary(&lines);
        let expected = "\
step       result       time   tests
format     ok          1.5 s
tests      ok          1.5 s       7
all        ok          3.0 s

7 passed, 0 failed, 0 skipped";
        assert_eq!(summary.text, expected);
        assert!(summary.well);
    }

    #[test]
    fn a_failed_step_without_a_failed_test_counts_as_one() {
        let bad = line("format", Counts::default(), Err("changed".to_owned()));
        let tests = Counts { passed: 5, failed: 2, skipped: 1, unsteady: 1 };
        let worse = line("tests", tests, Err("failed".to_owned()));
        let summary = summary(&[bad, worse]);
        assert!(summary.text.contains("\n1 of the passed tests failed"), "{}", summary.text);
        assert!(summary.text.ends_with("\n5 passed, 3 failed, 1 skipped"), "{}", summary.text);
        assert!(!summary.well);
    }
}
