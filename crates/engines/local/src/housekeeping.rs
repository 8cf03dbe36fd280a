//! Background maintenance: moves the log into the database (a checkpoint), and sweeps dead files.
//!
//! Commits only append to the log. When the log has grown, a separate thread with its own
//! connection moves it into the database: first concurrently with commands, then the rest inside
//! the short lock. There it also restarts the log, because the commit that does so must flush the
//! log's head. So commands do not flush, and the log stays within a few megabytes. Only if the
//! thread gets no time, commands move the log themselves. If a process ends in the middle, nothing
//! is lost: the next one that opens the database continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rusqlite::Connection;

use crate::database;
use crate::error::Fault;
use crate::keys;
use crate::rows::Rows;
use crate::step::StoreState;
use crate::token::Counter;
use crate::transaction_lock::TransactionLock;

/// How many commits of this process are between two checks of the log.
const CHECK_EVERY: u32 = 64;
/// The log size, in pages, from which it is moved concurrently with commands: 4 MiB.
const CHECKPOINT_PAGES: i64 = 1_024;
/// The log size, in pages, from which a command itself moves it: 16 MiB.
pub(crate) const MAX_PAGES: i64 = 4 * CHECKPOINT_PAGES;
/// The log size, in pages, from which it is moved at the opening of an engine. The first process
/// that opens the database reads the whole log.
const PAGES_AT_OPENING: i64 = 64;
/// How many files are swept at once inside the short lock.
const SWEEP_BATCH: usize = 64;

/// When maintenance is due, and whether a thread does it.
#[derive(Debug, Default)]
pub(crate) struct Housekeeping {
    commits: AtomicU32,
    busy: Arc<AtomicBool>,
}

/// The size of the log, and how much of it is in the database already, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) pages: i64,
    pub(crate) moved: i64,
}

impl Log {
    /// Returns the state of the log and changes nothing.
    pub(crate) fn look(connection: &Connection) -> Result<Log, Fault> {
        Log::after("PRAGMA wal_checkpoint(NOOP)", connection)
    }

    /// Moves as much as possible concurrently with others.
    fn move_some(connection: &Connection) -> Result<Log, Fault> {
        Log::after("PRAGMA wal_checkpoint(PASSIVE)", connection)
    }

    fn after(sql: &str, connection: &Connection) -> Result<Log, Fault> {
        let log = connection
            .query_row(sql, [], |row| Ok(Log { pages: row.get(1)?, moved: row.get(2)? }))?;
        Ok(log)
    }

    fn waiting(self) -> i64 {
        self.pages - self.moved
    }
}

impl Housekeeping {
    /// Counts a commit; returns whether a check is due.
    pub(crate) fn is_due(&self) -> bool {
        self.commits.fetch_add(1, Ordering::Relaxed) % CHECK_EVERY == CHECK_EVERY - 1
    }

    /// Checks after a commit, still inside, whether the log has grown; then a thread moves it.
    pub(crate) fn look(&self, inside: &StoreState, transaction_lock: &Arc<TransactionLock>) {
        match Log::look(&inside.database.connection) {
            // The thread was not started, or does not get in: a long log is worse than a flush.
            Ok(log) if log.waiting() >= MAX_PAGES => {
                if let Err(fault) = Log::move_some(&inside.database.connection) {
                    log_failure(&fault.into_error());
                }
            }
            Ok(log) if log.waiting() >= CHECKPOINT_PAGES => self.start(inside, transaction_lock),
            Ok(_) => {}
            Err(fault) => log_failure(&fault.into_error()),
        }
    }

    /// Checks the log when the engine is opened. Short-lived processes would never move it by a
    /// thread, so a long log is moved at once.
    pub(crate) fn check_at_opening(&self, transaction_lock: &Arc<TransactionLock>) {
        // If another process is inside, that process does the maintenance.
        let Ok(Some(inside)) = transaction_lock.enter_now() else { return };
        let connection = &inside.database.connection;
        match Log::look(connection) {
            Ok(log) if log.waiting() >= CHECKPOINT_PAGES => {
                // A full disk must not prevent a process from reading.
                if let Err(fault) = Log::move_some(connection) {
                    log_failure(&fault.into_error());
                }
            }
            Ok(log) if log.waiting() >= PAGES_AT_OPENING => self.start(&inside, transaction_lock),
            Ok(_) => {}
            Err(fault) => log_failure(&fault.into_error()),
        }
    }

    fn start(&self, inside: &StoreState, transaction_lock: &Arc<TransactionLock>) {
        if self.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let transaction_lock = Arc::downgrade(transaction_lock);
        let busy = self.busy.clone();
        let liveness = inside.clients.liveness.clone();
        let identity = inside.database.identity;
        let thread = std::thread::Builder::new().name("holdline-house".into());
        let spawned = thread.spawn(move || {
            let work = || -> Result<(), Fault> {
                let connection = database::connect(&liveness.files.database)?;
                if database::identity_of(&liveness.files.database)? != Some(identity) {
                    return Ok(());
                }
                Log::move_some(&connection)?;
                let Some(transaction_lock) = transaction_lock.upgrade() else { return Ok(()) };
                move_rest(&connection, &transaction_lock)?;
                for files in liveness.all().chunks(SWEEP_BATCH) {
                    let _inside = transaction_lock.enter()?;
                    liveness.sweep(files);
                }
                Ok(())
            };
            if let Err(fault) = work() {
                log_failure(&fault.into_error());
            }
            busy.store(false, Ordering::Release);
        });
        if spawned.is_err() {
            self.busy.store(false, Ordering::Release);
        }
    }
}

/// Moves what has been added meanwhile, and restarts the log if nothing is left.
fn move_rest(connection: &Connection, transaction_lock: &TransactionLock) -> Result<(), Fault> {
    let _inside = transaction_lock.enter()?;
    if Log::move_some(connection)?.waiting() > 0 {
        return Ok(());
    }
    let rows = Rows::of(connection);
    let mut counter = Counter::decode(rows.get(keys::COUNTER)?.as_deref())?;
    counter.restarts = counter.restarts.wrapping_add(1);
    rows.update(keys::COUNTER, &counter.encode())
}

/// Logs a failure. It has no effect now, but a log that is never moved grows.
fn log_failure(error: &holdline_core::LockError) {
    tracing::warn!(%error, "the database's log could not be moved");
}
