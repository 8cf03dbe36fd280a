//! The result table: ran, unsupported (asserted), impossible, failed, not run.
//!
//! A row that is *not run* makes the report bad, so that a suite which silently does nothing never
//! succeeds.

use std::fmt;

use crate::case::{Feature, Promise};

/// The status of one row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It ran and passed. The text says how much was done, if that varies.
    Ran(String),
    /// The engine lacks these, and asking for each of them gave `Unsupported`.
    Unsupported(Vec<Feature>),
    /// The row does not apply to the store, for this reason.
    Impossible(&'static str),
    /// It did not run, for this reason.
    NotRun(String),
    /// Something was not as it must be.
    Failed(String),
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The promise, if the row belongs to one.
    pub promise: Option<Promise>,
    /// What must be so.
    pub name: String,
    /// How it went.
    pub status: Status,
}

/// All that was judged about one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What store it was.
    pub store: String,
    /// The one command that runs it again.
    pub command: String,
    /// The rows, in the order of the promises.
    pub rows: Vec<Row>,
}

impl Report {
    /// Returns whether every row ran, or concerns a feature that the engine lacks.
    pub fn is_good(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.status.is_good())
    }

    /// Prints the table.
    ///
    /// # Panics
    /// When a row failed or did not run. The message names each of them.
    pub fn conclude(&self) {
        println!("{self}");
        let bad: Vec<String> = self
            .rows
            .iter()
            .filter(|row| !row.status.is_good())
            .map(|row| format!("{}: {}", row.name, row.status))
            .collect();
        assert!(self.is_good(), "{}:\n{}\nagain: {}", self.store, bad.join("\n"), self.command);
    }

    fn count(&self, wanted: impl Fn(&Status) -> bool) -> usize {
        self.rows.iter().filter(|row| wanted(&row.status)).count()
    }
}

impl Status {
    fn is_good(&self) -> bool {
        !matches!(self, Status::NotRun(_) | Status::Failed(_))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Ran(more) if more.is_empty() => f.write_str("ran"),
            Status::Ran(more) => write!(f, "ran: {more}"),
            Status::Unsupported(features) => write!(f, "unsupported (asserted: {features:?})"),
            Status::Impossible(why) => write!(f, "impossible here: {why}"),
            Status::NotRun(why) => write!(f, "NOT RUN: {why}"),
            Status::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nconformance of {}", self.store)?;
        for row in &self.rows {
            let promise = row.promise.map(|promise| promise.to_string()).unwrap_or_default();
            writeln!(f, "  {promise:<16} {:<76} {}", row.name, row.status)?;
        }
        write!(
            f,
            "  ran {}, unsupported {}, impossible {}, not run {}, failed {}",
            self.count(|status| matches!(status, Status::Ran(_))),
            self.count(|status| matches!(status, Status::Unsupported(_))),
            self.count(|status| matches!(status, Status::Impossible(_))),
            self.count(|status| matches!(status, Status::NotRun(_))),
            self.count(|status| matches!(status, Status::Failed(_))),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(statuses: &[Status]) -> Report {
        let row = |status: &Status| Row {
            promise: Some(Promise::P1),
            name: "one".into(),
            status: status.clone(),
        };
        let rows = statuses.iter().map(row).collect();
        Report { store: "a store".into(), command: "again".into(), rows }
    }

    #[test]
    fn a_case_that_was_not_run_is_a_failure() {
        let ran = Status::Ran(String::new());
        let lacks = Status::Unsupported(vec![Feature::Live]);
        assert!(report(&[ran.clone(), lacks.clone(), Status::Impossible("no disk")]).is_good());
        assert!(!report(&[]).is_good());
        assert!(!report(&[ran.clone(), Status::NotRun("it hung".into())]).is_good());
        assert!(!report(&[lacks, Status::Failed("two holders".into())]).is_good());
        let text = report(&[ran, Status::NotRun("it hung".into())]).to_string();
        assert!(text.contains("ran 1, unsupported 0, impossible 0, not run 1"), "{text}");
    }

    #[test]
    #[should_panic(expected = "two holders")]
    fn a_failure_names_itself() {
        report(&[Status::Failed("two holders".into())]).conclude();
    }
}
