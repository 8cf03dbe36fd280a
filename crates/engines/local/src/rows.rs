//! The one table of keys and values, as the rest of the engine uses it.

use std::ops::ControlFlow;

use rusqlite::{Connection, OptionalExtension, Params, params};

use crate::error::Fault;

/// A key and its value.
pub(crate) type Row = (Vec<u8>, Vec<u8>);

/// The rows of an open database. Every call is one prepared statement.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    connection: &'a Connection,
}

impl<'a> Rows<'a> {
    pub(crate) fn of(connection: &'a Connection) -> Rows<'a> {
        Rows { connection }
    }

    pub(crate) fn run(self, sql: &str, params: impl Params) -> Result<usize, rusqlite::Error> {
        self.connection.prepare_cached(sql)?.execute(params)
    }

    pub(crate) fn get(self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let mut get = self.connection.prepare_cached("SELECT value FROM slot WHERE key = ?1")?;
        Ok(get.query_row([key], |row| row.get(0)).optional()?)
    }

    pub(crate) fn insert(self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        self.run("INSERT INTO slot (key, value) VALUES (?1, ?2)", params![key, value])?;
        Ok(())
    }

    pub(crate) fn update(self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        self.run("UPDATE slot SET value = ?2 WHERE key = ?1", params![key, value])?;
        Ok(())
    }

    pub(crate) fn delete(self, key: &[u8]) -> Result<(), Fault> {
        self.run("DELETE FROM slot WHERE key = ?1", [key])?;
        Ok(())
    }

    /// Deletes all rows from `first` to before `end`.
    pub(crate) fn delete_between(self, first: &[u8], end: &[u8]) -> Result<(), Fault> {
        self.run("DELETE FROM slot WHERE key >= ?1 AND key < ?2", params![first, end])?;
        Ok(())
    }

    /// Counts the rows from `first` to before `end`.
    pub(crate) fn count_between(self, first: &[u8], end: &[u8]) -> Result<usize, Fault> {
        let sql = "SELECT count(*) FROM slot WHERE key >= ?1 AND key < ?2";
        let mut count = self.connection.prepare_cached(sql)?;
        let count: i64 = count.query_row(params![first, end], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Visits the rows from `first` to before `end`, in the order of keys, until the visitor stops.
    pub(crate) fn visit_between(
        self,
        first: &[u8],
        end: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Fault>,
    ) -> Result<(), Fault> {
        let sql = "SELECT key, value FROM slot WHERE key >= ?1 AND key < ?2 ORDER BY key";
        self.visit(sql, first, end, visit)
    }

    /// The same from the last row to the first.
    pub(crate) fn visit_back_between(
        self,
        first: &[u8],
        end: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Fault>,
    ) -> Result<(), Fault> {
        let sql = "SELECT key, value FROM slot WHERE key >= ?1 AND key < ?2 ORDER BY key DESC";
        self.visit(sql, first, end, visit)
    }

    fn visit(
        self,
        sql: &str,
        first: &[u8],
        end: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Fault>,
    ) -> Result<(), Fault> {
        let mut select = self.connection.prepare_cached(sql)?;
        let mut rows = select.query(params![first, end])?;
        while let Some(row) = rows.next()? {
            let key = row.get_ref(0)?.as_blob();
            let value = row.get_ref(1)?.as_blob();
            let (Ok(key), Ok(value)) = (key, value) else {
                return Err(Fault::Foreign("a row that does not contain bytes".into()));
            };
            if visit(key, value)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the first row at or after `first`.
    pub(crate) fn first_from(self, first: &[u8]) -> Result<Option<Row>, Fault> {
        let sql = "SELECT key, value FROM slot WHERE key >= ?1 ORDER BY key LIMIT 1";
        let mut select = self.connection.prepare_cached(sql)?;
        Ok(select.query_row([first], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
    }
}
