//! The database file: created completely or not at all, and opened only if it is ours.
//!
//! - B1: the file at its path is always complete: it is created under another name and linked when
//!   it is done. So an empty file there was truncated, and is not created again.
//! - B2: a file that is not ours, is damaged, or is of a newer version is left unchanged.
//! - B3: a commit does not flush (`synchronous=NORMAL` with a write-ahead log). A power cut loses
//!   only the last commits, and the file is never torn. Only the counter's range, which must be
//!   durable, is committed with [`Flush::Yes`].
//!
//! We never open the file outside of SQLite: closing any descriptor of it would drop the locks of
//! SQLite in this process. Checks of the path use `stat`.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, AtFlags};

use crate::directory::Modes;
use crate::error::Fault;
use crate::keys::{self, APPLICATION_ID, Files, LAYOUT};
use crate::rows::Rows;
use crate::token::Counter;

/// How long a statement waits for other programs with an open transaction. Our own processes wait
/// for the short lock instead.
pub(crate) const OTHER_PROGRAMS_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether a commit is flushed to the disk before it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    Yes,
    No,
}

/// The identity of a file: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "local:{:x}:{:x}", self.device, self.inode)
    }
}

/// The open database.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) connection: Connection,
    pub(crate) identity: Identity,
}

impl Database {
    pub(crate) fn rows(&self) -> Rows<'_> {
        Rows::of(&self.connection)
    }

    /// Sets how long each statement waits for other programs. It costs no system call.
    pub(crate) fn set_other_programs_timeout(&self, limit: Duration) -> Result<(), Fault> {
        Ok(self.connection.busy_timeout(limit)?)
    }

    /// Runs `work` in one transaction. The caller is inside the short lock.
    pub(crate) fn transaction<T>(
        &self,
        flush: Flush,
        work: impl FnOnce(Rows<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let rows = self.rows();
        self.roll_back();
        if flush == Flush::Yes {
            self.connection.pragma_update(None, "synchronous", "FULL")?;
        }
        let done = self.attempt(rows, work);
        if done.is_err() {
            self.roll_back();
        }
        if flush == Flush::Yes {
            self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        }
        done
    }

    fn attempt<T>(
        &self,
        rows: Rows<'_>,
        work: impl FnOnce(Rows<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        rows.run("BEGIN IMMEDIATE", [])?;
        let done = work(rows)?;
        rows.run("COMMIT", []).map_err(Fault::commit)?;
        Ok(done)
    }

    /// Rolls back a transaction that a failure or a panic has left open.
    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.rows().run("ROLLBACK", [])
        {
            // The next transaction then fails with a clear error; nothing was applied.
            tracing::error!(%error, "a transaction could not be undone");
        }
    }
}

/// Creates the database if there is none. The caller is inside the short lock.
pub(crate) fn make(files: &Files, modes: Modes) -> Result<(), Fault> {
    let unfinished = files.unfinished();
    if identity_of(&files.database)?.is_some() {
        return Ok(());
    }
    check_no_orphan(&files.database)?;
    // Files that a crash left of an earlier attempt are ours, and nobody else is inside.
    for end in ["", "-wal", "-shm", "-journal"] {
        let mut left = unfinished.clone().into_os_string();
        left.push(end);
        match std::fs::remove_file(&left) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Fault::at("removing", Path::new(&left), error));
            }
            _ => {}
        }
    }
    fill(&unfinished)?;
    let link = || -> io::Result<()> {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(modes.file);
        std::fs::set_permissions(&unfinished, mode)?;
        // Unlike a rename, a link never replaces an existing file.
        std::fs::hard_link(&unfinished, &files.database)?;
        std::fs::remove_file(&unfinished)?;
        std::fs::File::open(&files.root)?.sync_all()
    };
    link().map_err(|error| Fault::at("making", &files.database, error))
}

/// Checks that there is no log without its database: it would be used for the new database. It
/// belongs to a database that was moved away, and may contain tokens that were granted.
fn check_no_orphan(database: &Path) -> Result<(), Fault> {
    let mut log = database.as_os_str().to_owned();
    log.push("-wal");
    match std::fs::metadata(&log) {
        Ok(status) if status.len() > 0 => Err(Fault::Foreign(format!(
            "{0} is missing and its log {1} is there: put the database back, or move the log away \
             as well",
            database.display(),
            Path::new(&log).display()
        ))),
        _ => Ok(()),
    }
}

fn fill(path: &Path) -> Result<(), Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.execute_batch(&format!(
        "PRAGMA page_size = 4096; PRAGMA synchronous = FULL; PRAGMA journal_mode = DELETE;
         BEGIN; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {LAYOUT};
         {}; COMMIT;",
        keys::SCHEMA
    ))?;
    Rows::of(&connection).insert(keys::COUNTER, &Counter::FRESH.encode())?;
    use_log(&connection)?;
    connection.close().map_err(|(_, error)| Fault::from(error))
}

/// Opens the database at the path, if it is ours.
pub(crate) fn open(path: &Path) -> Result<Database, Fault> {
    let before = check_file(path)?;
    let connection = connect(path)?;
    check_ours(&connection, path)?;
    use_log(&connection)?;
    let after = identity_of(path)?;
    if after != Some(before) {
        return Err(Fault::unavailable(format!(
            "{} was replaced while it was opened: try again",
            path.display()
        )));
    }
    Ok(Database { connection, identity: before })
}

/// Opens a connection that does not checkpoint the log when it closes.
pub(crate) fn connect(path: &Path) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(OTHER_PROGRAMS_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(32);
    connection.execute_batch(
        "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0; PRAGMA trusted_schema = 0",
    )?;
    Ok(connection)
}

fn use_log(connection: &Connection) -> Result<(), Fault> {
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode == "wal" {
        return Ok(());
    }
    Err(Fault::refused(format!("the database cannot keep a write-ahead log here, only `{mode}`")))
}

fn check_file(path: &Path) -> Result<Identity, Fault> {
    let shown = path.display();
    let status = std::fs::metadata(path).map_err(|error| Fault::at("opening", path, error))?;
    if !status.is_file() {
        return Err(Fault::Foreign(format!("{shown} is not a file")));
    }
    if status.len() == 0 {
        return Err(Fault::Foreign(format!(
            "{shown} is empty: it was truncated, or it is not ours; restore a copy, or move it away"
        )));
    }
    // SQLite would open it read-only, and fail much later.
    rustix::fs::accessat(rustix::fs::CWD, path, Access::WRITE_OK, AtFlags::EACCESS)
        .map_err(|error| Fault::at("opening for writing", path, error.into()))?;
    Ok(Identity { device: status.dev(), inode: status.ino() })
}

fn check_ours(connection: &Connection, path: &Path) -> Result<(), Fault> {
    let shown = path.display();
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let application = number("application_id")?;
    if application != APPLICATION_ID {
        return Err(Fault::Foreign(format!(
            "{shown} is a database of another application (its id is {application:#010x})"
        )));
    }
    let layout = number("user_version")?;
    if layout > LAYOUT {
        return Err(Fault::protocol(format!(
            "{shown} has layout {layout} and this program knows layout {LAYOUT}: use the newer \
             holdline that has made it"
        )));
    }
    if layout != LAYOUT {
        return Err(Fault::Foreign(format!("{shown} has layout {layout}, which never was")));
    }
    if connection.is_readonly(rusqlite::MAIN_DB)? {
        return Err(Fault::refused(format!("{shown} can be read only by this user")));
    }
    Ok(())
}

/// Returns the identity of the file at a path; `None` if there is none.
pub(crate) fn identity_of(path: &Path) -> Result<Option<Identity>, Fault> {
    match std::fs::metadata(path) {
        Ok(status) => Ok(Some(Identity { device: status.dev(), inode: status.ino() })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Fault::at("looking at", path, error)),
    }
}
