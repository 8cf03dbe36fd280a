//! Result sets, and the values of their rows: a row of another shape is a `Protocol` error.

use std::ops::Deref;
use std::time::Duration;

use holdline_core::{FencingToken, LeaseId, LockError, Metadata, Mode, ShortLeaseId};

use crate::error::protocol;

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

    pub(crate) fn duration(&self, column: &str) -> Result<Option<Duration>, LockError> {
        let micros = self.maybe::<i64>(column)?;
        Ok(micros.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))))
    }

    pub(crate) fn sure_duration(&self, column: &str) -> Result<Duration, LockError> {
        let read = self.duration(column)?;
        read.ok_or_else(|| protocol(format!("an answer has nothing in column `{column}`")))
    }

    pub(crate) fn count(&self, column: &str) -> Result<usize, LockError> {
        Ok(usize::try_from(self.sure::<i64>(column)?).unwrap_or(0))
    }

    pub(crate) fn token(&self, column: &str) -> Result<Option<FencingToken>, LockError> {
        let number = self.maybe::<i64>(column)?;
        let token = number.map(|n| u64::try_from(n).ok().and_then(|n| FencingToken::new(n).ok()));
        match token {
            Some(None) => Err(protocol("an answer has a fencing token that is none")),
            Some(token) => Ok(token),
            None => Ok(None),
        }
    }

    pub(crate) fn text(&self, column: &str) -> Result<Option<String>, LockError> {
        let bytes = self.maybe::<&[u8]>(column)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    }

    pub(crate) fn metadata(&self, column: &str) -> Result<Metadata, LockError> {
        // Longer text was not written by us and is ignored.
        let text = self.text(column)?.unwrap_or_default();
        Ok(Metadata::from_encoded(&text).unwrap_or_default())
    }

    pub(crate) fn short(&self, column: &str) -> Result<ShortLeaseId, LockError> {
        let mut whole = [0; 16];
        match self.sure::<&[u8]>(column)? {
            first @ [_, _, _, _] => whole[..4].copy_from_slice(first),
            _ => return Err(protocol("an answer has a lease id of another length")),
        }
        Ok(LeaseId::from_bytes(whole).short())
    }

    pub(crate) fn mode(&self, letter: &str, permits: &str, total: &str) -> Result<Mode, LockError> {
        let odd = || protocol("an answer has an unknown mode");
        match self.sure::<&str>(letter)? {
            "x" => Ok(Mode::Exclusive),
            "s" => Ok(Mode::Shared),
            "p" => {
                let number = |n: i64| u32::try_from(n).map_err(|_| odd());
                let (count, of) = (number(self.sure(permits)?)?, number(self.sure(total)?)?);
                Mode::permits(count, of).map_err(|_| odd())
            }
            _ => Err(odd()),
        }
    }
}
