//! Result sets, and the values of their rows: a row of another shape is a `Protocol` error.

use std::ops::Deref;

use holdline_core::LockError;
use holdline_net::sql::rows;

use crate::error::{ENGINE, protocol};

/// One result set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Option<Vec<u8>>>>,
}

/// The reply to one statement: its result sets, and what its last packet says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) sets: Vec<Set>,
    /// How many rows were changed.
    pub(crate) changed: u64,
    /// The value of `last_insert_id`; the number of a statement that was prepared.
    pub(crate) number: u64,
    /// Whether a transaction is open: what the statement did is not committed.
    pub(crate) in_transaction: bool,
}

impl Deref for Answer {
    type Target = [Set];

    fn deref(&self) -> &[Set] {
        &self.sets
    }
}

/// Returns the only row of a reply with one result set.
pub(crate) fn only(answer: &[Set]) -> Result<Row<'_>, LockError> {
    match answer {
        [set] if set.rows.len() == 1 => Ok(Row::of(set, &set.rows[0])),
        _ => Err(protocol("an answer has another shape than one row")),
    }
}

/// Returns the rows of all result sets of a reply.
pub(crate) fn all(answer: &[Set]) -> impl Iterator<Item = Row<'_>> {
    answer.iter().flat_map(|set| set.rows.iter().map(move |row| Row::of(set, row)))
}

/// A row, read by the names of its columns. A missing column is null.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    columns: &'a [String],
    values: &'a [Option<Vec<u8>>],
}

/// What a value can be read as.
pub(crate) trait Value<'a>: Sized {
    fn read(bytes: &'a [u8]) -> Option<Self>;
}

impl<'a> Value<'a> for &'a [u8] {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        Some(bytes)
    }
}

impl<'a> Value<'a> for &'a str {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok()
    }
}

impl<'a> Value<'a> for String {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

impl<'a> Value<'a> for i64 {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok()?.parse().ok()
    }
}

impl<'a> Row<'a> {
    pub(crate) fn of(set: &'a Set, values: &'a [Option<Vec<u8>>]) -> Row<'a> {
        Row { columns: &set.columns, values }
    }

    pub(crate) fn maybe<T: Value<'a>>(&self, column: &str) -> Result<Option<T>, LockError> {
        let at = self.columns.iter().position(|name| name == column);
        let Some(bytes) = at.and_then(|at| self.values.get(at)?.as_deref()) else {
            return Ok(None);
        };
        let odd = || protocol(format!("an answer has no good column `{column}`"));
        T::read(bytes).map(Some).ok_or_else(odd)
    }

    pub(crate) fn sure<T: Value<'a>>(&self, column: &str) -> Result<T, LockError> {
        let read = self.maybe(column)?;
        read.ok_or_else(|| protocol(format!("an answer has nothing in column `{column}`")))
    }
}

impl rows::Row for Row<'_> {
    const ENGINE: &'static str = ENGINE;

    fn number(&self, column: &str) -> Result<Option<i64>, LockError> {
        self.maybe(column)
    }

    fn word(&self, column: &str) -> Result<Option<&str>, LockError> {
        self.maybe(column)
    }

    fn bytes(&self, column: &str) -> Result<Option<&[u8]>, LockError> {
        self.maybe(column)
    }
}
