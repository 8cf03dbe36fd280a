//! What is done beside the commands: moving the log into the database, and sweeping dead files.
//!
//! Commits only append to the log. A thread of its own, on a connection of its own, moves it into
//! the database when it has grown: first while commands go on, then the rest inside the short
//! lock, and there it starts the log anew as well, because the commit that does so must flush the
//! log's head. So commands do not flush, and the log stays within a few megabytes; only when the
//! thread gets no time do commands move it themselves. A process that ends in the middle loses
//! nothing: the next one that opens the database goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rusqlite::Connection;

use crate::database;
use crate::error::Fault;
use crate::keys;
use crate::room::Room;
use crate::rows::Rows;
use crate::step::Inside;
use crate::token::Counter;

/// How many commits of this process lie between two looks at the log.
const LOOK_EVERY: u32 = 64;
/// From how many pages on the log is moved while commands go on: 4 MiB.
const MANY: i64 = 1_024;
/// From how many pages on a command itself moves the log: 16 MiB.
pub(crate) const TOO_MANY: i64 = 4 * MANY;
/// From how many pages on the log is moved when an engine is opened: whoever opens the database
/// alone reads the whole log first.
const MANY_AT_OPENING: i64 = 64;
/// How many files are swept at once inside the short lock.
const SWEPT_AT_ONCE: usize = 64;

/// When to keep house, and whether somebody does.
#[derive(Debug, Default)]
pub(crate) struct Housekeeping {
    commits: AtomicU32,
    busy: Arc<AtomicBool>,
}

/// How much of the log there is, and how much of that is in the database already, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) pages: i64,
    pub(crate) moved: i64,
}

impl Log {
    /// Looks at the log and does nothing to it.
    pub(crate) fn look(connection: &Connection) -> Result<Log, Fault> {
        Log::after("PRAGMA wal_checkpoint(NOOP)", connection)
    }

    /// Moves as much as can be moved while others work.
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
    /// Notes a commit. Now and then it is time to look.
    pub(crate) fn is_due(&self) -> bool {
        self.commits.fetch_add(1, Ordering::Relaxed) % LOOK_EVERY == LOOK_EVERY - 1
    }

    /// Looks after a commit, still inside, whether the log has grown; then a thread moves it.
    pub(crate) fn look(&self, inside: &Inside, room: &Arc<Room>) {
        match Log::look(&inside.database.connection) {
            // The thread did not come, or does not get in: a long log is worse than a flush.
            Ok(log) if log.waiting() >= TOO_MANY => {
                if let Err(fault) = Log::move_some(&inside.database.connection) {
                    tell(&fault.into_error());
                }
            }
            Ok(log) if log.waiting() >= MANY => self.start(inside, room),
            Ok(_) => {}
            Err(fault) => tell(&fault.into_error()),
        }
    }

    /// Looks when the engine is opened. Processes that end soon would never get the log moved
    /// by a thread, so a long one is moved here and now.
    pub(crate) fn look_at_opening(&self, room: &Arc<Room>) {
        // If somebody is inside, that process keeps house as well.
        let Ok(Some(inside)) = room.enter_now() else { return };
        let connection = &inside.database.connection;
        match Log::look(connection) {
            Ok(log) if log.waiting() >= MANY => {
                // A disk that is full now stands in nobody's way who only wants to look.
                if let Err(fault) = Log::move_some(connection) {
                    tell(&fault.into_error());
                }
            }
            Ok(log) if log.waiting() >= MANY_AT_OPENING => self.start(&inside, room),
            Ok(_) => {}
            Err(fault) => tell(&fault.into_error()),
        }
    }

    fn start(&self, inside: &Inside, room: &Arc<Room>) {
        if self.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let (room, busy) = (Arc::downgrade(room), self.busy.clone());
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
                let Some(room) = room.upgrade() else { return Ok(()) };
                move_rest(&connection, &room)?;
                for files in liveness.all().chunks(SWEPT_AT_ONCE) {
                    let _inside = room.enter()?;
                    liveness.sweep(files);
                }
                Ok(())
            };
            if let Err(fault) = work() {
                tell(&fault.into_error());
            }
            busy.store(false, Ordering::Release);
        });
        if spawned.is_err() {
            self.busy.store(false, Ordering::Release);
        }
    }
}

/// Moves what has been added meanwhile, and starts the log anew if nothing is left.
fn move_rest(connection: &Connection, room: &Room) -> Result<(), Fault> {
    let _inside = room.enter()?;
    if Log::move_some(connection)?.waiting() > 0 {
        return Ok(());
    }
    let rows = Rows::of(connection);
    let mut counter = Counter::decode(rows.get(keys::COUNTER)?.as_deref())?;
    counter.restarts = counter.restarts.wrapping_add(1);
    rows.update(keys::COUNTER, &counter.encode())
}

/// Nothing hangs on it today, but a log that is never moved grows.
fn tell(error: &holdline_core::LockError) {
    tracing::warn!(%error, "the database's log could not be moved");
}
