//! The printed table: a row for each library, a column for each case.

use std::fmt::Write as _;
use std::io::Write as _;

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// The library does not have this feature.
    Lacks,
    Failed(String),
}

/// A library with its cases.
#[derive(Clone, Debug)]
pub(crate) struct TableRow {
    pub(crate) title: String,
    pub(crate) outcomes: Vec<(&'static str, Outcome)>,
}

/// Prints the table, bypassing the capture of the test harness.
///
/// # Panics
/// A case failed, or a library has not run all of them.
pub(crate) fn conclude(title: &str, lines: &[TableRow]) {
    let (text, failures) = written(title, lines);
    // The output may be closed: the outcome counts nevertheless.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let cases = lines.first().map_or(0, |line| line.outcomes.len());
    assert!(cases > 0 && lines.iter().all(|line| line.outcomes.len() == cases), "{text}");
}

fn written(title: &str, lines: &[TableRow]) -> (String, Vec<String>) {
    let mut text = format!("\n{title:<39}");
    for (case, _) in lines.first().map(|line| line.outcomes.as_slice()).unwrap_or_default() {
        let _ = write!(text, "| {case:<14} ");
    }
    text.push('\n');
    let mut failures = Vec::new();
    for line in lines {
        let _ = write!(text, "{:<39}", line.title);
        for (case, outcome) in &line.outcomes {
            let cell = match outcome {
                Outcome::Passed => "passed",
                Outcome::Lacks => "(has it not)",
                Outcome::Failed(why) => {
                    failures.push(format!("{}, {case}: {why}", line.title));
                    "FAILED"
                }
            };
            let _ = write!(text, "| {cell:<14} ");
        }
        text.push('\n');
    }
    (text, failures)
}

#[test]
fn a_failure_is_shown_and_counted() {
    let outcomes = vec![("a", Outcome::Passed), ("b", Outcome::Failed("why".into()))];
    let (text, failures) = written("interop", &[TableRow { title: "it".into(), outcomes }]);
    assert!(text.contains("passed") && text.contains("FAILED"), "{text}");
    assert_eq!(failures, ["it, b: why"]);
}
