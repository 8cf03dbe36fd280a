//! Rows of an SQLite database that accept no late writer: the mark is in the same database and
//! changes in the same transaction.
//!
//! ```sql
//! CREATE TABLE IF NOT EXISTS holdline_fence(
//!     resource TEXT PRIMARY KEY NOT NULL,
//!     mark INTEGER NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991)
//! );
//! ```
//!
//! If you write the SQL yourself, put this at the start of each writing transaction. If it changes
//! no row, the token is stale: roll back.
//!
//! ```sql
//! INSERT INTO holdline_fence(resource, mark) VALUES (:resource, :token)
//! ON CONFLICT(resource) DO UPDATE SET mark = excluded.mark
//! WHERE excluded.mark >= holdline_fence.mark;
//! ```
//!
//! Invariant F9: only that statement raises the mark. It takes the database's write lock, so nobody
//! else writes between the decision and the end of the transaction.

use holdline_core::FencingToken;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, params};

use super::{Access, FenceError, Fenced, Proof, Rules, StaleToken};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS holdline_fence(
    resource TEXT PRIMARY KEY NOT NULL,
    mark INTEGER NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991)
)";

const LOOK: &str = "SELECT mark FROM main.holdline_fence WHERE resource = ?1";

const LOOKING: &str = "looking up the mark (SqliteFence::create_table makes its table)";

const RAISE: &str = "INSERT INTO main.holdline_fence(resource, mark) VALUES (?1, ?2)
    ON CONFLICT(resource) DO UPDATE SET mark = excluded.mark WHERE excluded.mark >= mark";

/// Changes no row, but takes the database's write lock. So a new transaction waits for other
/// writers before it reads, instead of failing when it writes.
const LOCK: &str = "UPDATE main.holdline_fence SET mark = mark WHERE FALSE";

/// The mark of one resource in a database of yours, by a connection of yours.
///
/// `resource` is your own name of the guarded data, such as `stock/17`. Each call takes the
/// connection:
///
/// - Inside a transaction of yours, [`seal`](SqliteFence::seal) and then write as you like: that is
///   check-and-write, decided when *you* commit. If it refuses, roll back. Make it the first
///   statement, or begin with `IMMEDIATE`: a transaction that has already read cannot write after
///   another has written, and gets `Busy`.
/// - Outside of one, each call is a transaction of its own and is decided when it returns.
///
/// # Guarantees
/// Mark and rows change together, whatever crashes. Whether they survive a loss of power depends on
/// the connection's `synchronous` setting: in WAL mode only `FULL` ensures it.
///
/// # Examples
/// ```
/// use holdline_fence::{FenceError, Proof, SqliteFence};
/// use holdline_fence::FencingToken;
/// use rusqlite::{Connection, TransactionBehavior};
///
/// let mut db = Connection::open_in_memory()?;
/// db.execute_batch("CREATE TABLE stock(id INTEGER PRIMARY KEY, apples INTEGER NOT NULL)")?;
/// SqliteFence::create_table(&db)?;
///
/// let fence = SqliteFence::new("stock/17");
/// let mine = Proof::exclusive(FencingToken::new(34)?);
///
/// let step = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
/// fence.seal(&step, &mine)?;
/// step.execute("INSERT INTO stock(id, apples) VALUES (17, 10)", [])?;
/// step.commit()?;
///
/// let late = Proof::exclusive(FencingToken::new(33)?);
/// let result = fence.check_and_write(&db, &late, |db| db.execute("DELETE FROM stock", []));
/// assert!(matches!(result, Err(FenceError::Stale(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SqliteFence {
    resource: String,
    rules: Rules,
}

impl SqliteFence {
    /// Names a resource. No statement is executed.
    pub fn new(resource: impl Into<String>) -> SqliteFence {
        SqliteFence { resource: resource.into(), rules: Rules::default() }
    }

    /// Replaces the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> SqliteFence {
        self.rules = rules;
        self
    }

    /// Creates the table of marks if the database has none.
    ///
    /// # Errors
    /// `Busy`, `Failed`: the table was not created.
    pub fn create_table(db: &Connection) -> Result<(), FenceError> {
        db.execute_batch(TABLE).map_err(|error| failed("making the table holdline_fence", error))
    }

    /// Returns the mark, or `None` if there is none yet.
    ///
    /// # Errors
    /// `Foreign`: the table contains something else than a token. `Busy`, `Failed`: the mark was
    /// not read. Nothing was changed.
    pub fn mark(&self, db: &Connection) -> Result<Option<FencingToken>, FenceError> {
        let mut look = db.prepare(LOOK).map_err(|error| failed(LOOKING, error))?;
        let mut rows = look.query([&self.resource]).map_err(|error| failed(LOOKING, error))?;
        let Some(row) = rows.next().map_err(|error| failed(LOOKING, error))? else {
            return Ok(None);
        };
        let value = row.get_ref(0).map_err(|error| failed(LOOKING, error))?;
        let token = match value {
            ValueRef::Integer(number) => u64::try_from(number).ok(),
            _ => None,
        };
        let token = token.and_then(|number| FencingToken::new(number).ok());
        let found = match value {
            ValueRef::Integer(number) => number.to_string(),
            other => format!("of type {}", other.data_type()),
        };
        token.map(Some).ok_or_else(|| FenceError::Foreign {
            found: format!("a mark in the table holdline_fence is {found}, not a fencing token"),
        })
    }

    /// Checks that nobody newer was here, and raises nothing. All that a shared holder may do.
    ///
    /// Inside a transaction of yours it reads the snapshot of that transaction.
    ///
    /// # Errors
    /// As [`Fenced::check`].
    pub fn check<A: Access>(&self, db: &Connection, proof: &Proof<A>) -> Result<(), FenceError> {
        self.rules.report(&self.resource, self.rules.check(self.mark(db)?, proof))
    }

    /// Raises the mark to the holder's token: in your transaction if there is one, otherwise in its
    /// own.
    ///
    /// # Errors
    /// As [`Fenced::seal`]. Inside your transaction nothing was changed in it; roll it back.
    pub fn seal(&self, db: &Connection, proof: &Proof) -> Result<(), FenceError> {
        self.check_and_write(db, proof, |_| Ok(()))
    }

    /// Refuses a smaller token; otherwise raises the mark and writes, both or neither: in your
    /// transaction if there is one, otherwise in its own.
    ///
    /// `write` must not end the transaction.
    ///
    /// # Errors
    /// As [`Fenced::check_and_write`]. Your transaction is then in the state before the call.
    pub fn check_and_write<R>(
        &self,
        db: &Connection,
        proof: &Proof,
        write: impl FnOnce(&Connection) -> rusqlite::Result<R>,
    ) -> Result<R, FenceError> {
        let step = Step::begin(db).map_err(|error| failed("beginning a transaction", error))?;
        let answer = self.raise(db, proof).and_then(|()| write(db).map_err(FenceError::write));
        match answer {
            Ok(answer) => step.finish().map(|()| answer),
            Err(error) => self.rules.report(&self.resource, step.undo().and(Err(error))),
        }
    }

    /// Combines the fence and a connection, for code that takes any [`Fenced`].
    pub fn on<'c>(&self, db: &'c Connection) -> SqliteResource<'c> {
        SqliteResource { fence: self.clone(), db }
    }

    fn raise(&self, db: &Connection, proof: &Proof) -> Result<(), FenceError> {
        db.execute(LOCK, []).map_err(|error| failed(LOOKING, error))?;
        let mark = self.rules.raise(self.mark(db)?, proof)?;
        let number = i64::try_from(mark.get())
            .map_err(|error| FenceError::failed("raising the mark", error))?;
        let changed = db
            .execute(RAISE, params![self.resource, number])
            .map_err(|error| failed("raising the mark", error))?;
        if changed == 1 {
            return Ok(());
        }
        // SQLite does not let a transaction write on an old snapshot. Still the statement decides,
        // and not our read.
        let seen = self.mark(db)?.unwrap_or(mark);
        Err(StaleToken { mine: proof.token(), seen }.into())
    }
}

/// An [`SqliteFence`] with its connection.
#[derive(Debug)]
pub struct SqliteResource<'c> {
    fence: SqliteFence,
    db: &'c Connection,
}

impl<'c> SqliteResource<'c> {
    /// Returns the connection, to read by.
    pub fn connection(&self) -> &'c Connection {
        self.db
    }
}

impl<'c> Fenced for SqliteResource<'c> {
    type Target = &'c Connection;
    type Failure = rusqlite::Error;

    fn mark(&self) -> Result<Option<FencingToken>, FenceError> {
        self.fence.mark(self.db)
    }

    fn check<A: Access>(&self, proof: &Proof<A>) -> Result<(), FenceError> {
        self.fence.check(self.db, proof)
    }

    fn seal(&self, proof: &Proof) -> Result<(), FenceError> {
        self.fence.seal(self.db, proof)
    }

    fn check_and_write<R>(
        &self,
        proof: &Proof,
        write: impl FnOnce(&mut &'c Connection) -> rusqlite::Result<R>,
    ) -> Result<R, FenceError> {
        let mut db = self.db;
        self.fence.check_and_write(self.db, proof, |_| write(&mut db))
    }
}

/// An atomic step: a transaction of our own, or a savepoint inside the user's.
struct Step<'c> {
    db: &'c Connection,
    nested: bool,
    open: bool,
}

impl<'c> Step<'c> {
    fn begin(db: &'c Connection) -> rusqlite::Result<Step<'c>> {
        let nested = !db.is_autocommit();
        db.execute_batch(if nested { "SAVEPOINT holdline_fence" } else { "BEGIN IMMEDIATE" })?;
        Ok(Step { db, nested, open: true })
    }

    fn finish(mut self) -> Result<(), FenceError> {
        let end = if self.nested { "RELEASE holdline_fence" } else { "COMMIT" };
        let Err(error) = self.db.execute_batch(end) else {
            self.open = false;
            return Ok(());
        };
        // Busy and a deferred constraint leave the transaction open, and it is rolled back here.
        // Any other failure may have happened after the commit.
        let left_open = matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::ConstraintViolation
            )
        );
        let undone = self.undo();
        if left_open {
            return undone.and(Err(failed("committing", error)));
        }
        Err(FenceError::unsure("committing", error))
    }

    fn undo(mut self) -> Result<(), FenceError> {
        self.open = false;
        self.roll_back().map_err(|error| FenceError::unsure("rolling back", error))
    }

    fn roll_back(&self) -> rusqlite::Result<()> {
        // Some failures make SQLite roll back by itself, the user's transaction too.
        if self.db.is_autocommit() {
            return Ok(());
        }
        self.db.execute_batch(if self.nested {
            "ROLLBACK TO holdline_fence; RELEASE holdline_fence"
        } else {
            "ROLLBACK"
        })
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if self.open {
            // A write that panicked must leave nothing. A failure here cannot be reported, and
            // nothing is committed then either.
            let _ = self.roll_back();
        }
    }
}

fn failed(doing: &str, error: rusqlite::Error) -> FenceError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            FenceError::Busy { what: format!("{doing}: {error}") }
        }
        _ => FenceError::failed(doing, error),
    }
}
