//! What the run prints: a line for each library, a column for each case.

use std::fmt::Write as _;
use std::io::Write as _;

/// How a case went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// The library has nothing like it.
    Lacks,
    Failed(String),
}

/// A library with its cases.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) title: String,
    pub(crate) outcomes: Vec<(&'static str, Outcome)>,
}

/// Prints the table, past what the test harness keeps to itself.
///
/// # Panics
/// A case failed, or a library has not run all of them.
pub(crate) fn conclude(title: &str, lines: &[Line]) {
    let (text, failures) = written(title, lines);
    // Nobody may read any more: the outcome counts all the same.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let cases = lines.first().map_or(0, |line| line.outcomes.len());
    assert!(cases > 0 && lines.iter().all(|line| line.outcomes.len() == cases), "{text}");
}

fn written(title: &str, lines: &[Line]) -> (String, Vec<String>) {
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
fn a_failure_is_shown_and_told() {
    let outcomes = vec![("a", Outcome::Passed), ("b", Outcome::Failed("why".into()))];
    let (text, failures) = written("interop", &[Line { title: "it".into(), outcomes }]);
    assert!(text.contains("passed") && text.contains("FAILED"), "{text}");
    assert_eq!(failures, ["it, b: why"]);
}
