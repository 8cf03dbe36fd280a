//! What went wrong in the test ground, in words for the person who reads the test's output.

use std::fmt;

/// How much of a log is shown.
const LAST_LINES: usize = 30;

/// The ends of what several servers have written to their logs, each with its title.
pub(crate) fn log_ends(logs: impl IntoIterator<Item = (String, String)>) -> String {
    let end_of = |(title, log): (String, String)| {
        let mut lines: Vec<&str> = log.lines().rev().take(LAST_LINES).collect();
        lines.reverse();
        format!("-- {title}\n{}\n", lines.join("\n"))
    };
    logs.into_iter().map(end_of).collect()
}

/// Says why a server, a proxy or a tool of the test ground is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    pub(crate) fn new(says: impl Into<String>) -> Self {
        Self(says.into())
    }

    /// `what`, and the error that says why.
    pub(crate) fn because(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}
