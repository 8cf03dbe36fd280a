//! The raw floor of the local engine: bare SQLite transactions on the same settings.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use crate::rounds::Failure;

/// A database with one table and one row to update.
pub(crate) struct Floor {
    connection: Connection,
}

impl Floor {
    /// Opens or makes the database on the settings that the local engine uses.
    pub(crate) fn open(path: &Path) -> Result<Floor, Failure> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS t(name TEXT PRIMARY KEY, head BLOB) WITHOUT ROWID;
             INSERT OR IGNORE INTO t VALUES ('a', zeroblob(120));",
        )?;
        connection.set_prepared_statement_cache_capacity(8);
        Ok(Floor { connection })
    }

    /// Runs one `BEGIN IMMEDIATE`, one-row update, `COMMIT`.
    pub(crate) fn transaction(&self, number: u64) -> Result<(), Failure> {
        let mut blob = [0_u8; 120];
        blob[..8].copy_from_slice(&number.to_le_bytes());
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        self.connection
            .prepare_cached("UPDATE t SET head = ?1 WHERE name = 'a'")?
            .execute([&blob[..]])?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}
