//! Rows of a MariaDB or MySQL database that accept no late writer: the mark is in the same database
//! and changes in the same transaction.
//!
//! The statements are those of [`sql::mysql`], with a limit for jumps, and with a check of the
//! table.
//!
//! Invariant F15: one statement raises the mark. It locks its row until the end of the transaction,
//! and compares with the last committed row. The `SELECT` that follows only reads the decision:
//! marks never decrease, so a mark larger than ours always means a refusal.
//! Invariant F16: names are compared as bytes. They are sent in hexadecimal digits, which no
//! character set of a session changes, and a table with a text column is refused.
//! Invariant F17: an acknowledged write was committed with its mark. The server may roll back a
//! whole transaction to resolve a deadlock, so a savepoint is checked before the commit.

use std::error::Error as StdError;

use holdline_core::{Certainty, FencingToken};
use mysql_async::consts::{ColumnFlags, ColumnType};
use mysql_async::prelude::Queryable;
use mysql_async::{Column, Conn, Error, Row, ServerError, Statement, Transaction, TxOpts, Value};

use super::{Access, FenceError, Proof, Rules, sql};

const LOOKING: &str = "looking up the mark";
const RAISING: &str = "raising the mark";

const LOOK: &str = "SELECT resource, mark FROM holdline_fence WHERE resource = UNHEX(?)";

/// As `sql::mysql::LOOK`, and the storage engine of the table if it is not InnoDB. Sent after the
/// mark is locked: on MySQL it may fix the snapshot of the transaction.
const LOCKED_LOOK: &str = "SELECT resource, mark, ( \
        SELECT MAX(COALESCE(engine, 'no engine')) FROM information_schema.tables \
        WHERE table_schema = DATABASE() AND table_name = 'holdline_fence' \
        AND COALESCE(engine, '') <> 'InnoDB') \
    FROM holdline_fence WHERE resource = UNHEX(?) FOR UPDATE";

const ENGINE: &str = "SELECT MAX(COALESCE(engine, 'no engine')) FROM information_schema.tables \
    WHERE table_schema = DATABASE() AND table_name = 'holdline_fence' \
    AND COALESCE(engine, '') <> 'InnoDB'";

/// As `sql::mysql::RAISE`, and with a limit of jumps.
const RAISE: &str = "INSERT INTO holdline_fence (resource, mark) VALUES (UNHEX(?), ?) \
    ON DUPLICATE KEY UPDATE mark = IF( \
        mark BETWEEN GREATEST(1, VALUES(mark) - ?) AND VALUES(mark), VALUES(mark), mark)";

const SAVEPOINT: &str = "holdline_fence";

/// The character set of binary strings.
const BYTES: u16 = 63;
const NO_TABLE: u16 = 1146;
const NO_DATABASE: u16 = 1046;
const NO_SAVEPOINT: u16 = 1305;
/// The server's errors for a table that is not as [`sql::mysql::TABLE`] makes it: an unknown
/// column, a further column without a default, a view, a value or a check that does not match.
const NOT_OURS: [u16; 10] = [1048, 1054, 1264, 1288, 1347, 1356, 1364, 1471, 1690, 3819];
/// A failed check constraint, in MariaDB's number.
const CHECK: u16 = 4025;
/// Conflicts with other transactions, which a retry may resolve: an outdated snapshot, a lock wait
/// timeout, a deadlock.
const BUSY: [u16; 3] = [1020, 1205, 1213];
/// Statements that were interrupted, or whose session ended: they may have been committed.
const STOPPED: [u16; 6] = [1053, 1077, 1317, 1927, 1969, 3024];
const READ_ONLY: [u16; 3] = [1290, 1792, 1836];
const NO_RIGHT: [u16; 4] = [1044, 1142, 1143, 1227];

/// The mark of one resource in a database of yours, by a connection of yours.
///
/// `resource` is your own name of the guarded data, such as `stock/17`. Names are compared as
/// bytes: a difference in case or in a trailing space makes another name. Each call takes a
/// `mysql_async::Conn` or a transaction of it. The table is in the connection's database. The
/// statements for other drivers are in [`sql::mysql`].
///
/// - Inside a transaction of yours, [`seal`](MysqlFence::seal) and then write as you like: that is
///   check-and-write, decided when *you* commit. If it refuses or fails, roll back. Make it the
///   first statement: in `REPEATABLE READ`, the server's default, an earlier read fixes the
///   snapshot. If a statement fails, roll back too: to resolve a deadlock the server rolls back the
///   whole transaction, and later statements would be committed separately.
/// - Outside of a transaction, it is decided when it returns. A session with `autocommit = 0` is
///   always inside one: commit there.
///
/// # Guarantees
/// Mark and rows change together, whatever crashes, if the rows are in InnoDB tables too. A seal
/// waits for the end of an earlier transaction that has sealed the resource. Seal two resources in
/// the same order everywhere, or the server reports a deadlock (`Busy`). Durability depends on the
/// server: with `innodb_flush_log_at_trx_commit` other than 1, a crash can lose the newest marks
/// together with the newest rows, and so can a failover to a replica that lacks them.
///
/// # Examples
/// ```no_run
/// use holdline_fence::{FenceError, MysqlFence, Proof};
/// use holdline_fence::FencingToken;
/// use mysql_async::TxOpts;
/// use mysql_async::prelude::Queryable;
///
/// # async fn example(db: &mut mysql_async::Conn) -> Result<(), Box<dyn std::error::Error>> {
/// MysqlFence::create_table(db).await?;
/// let fence = MysqlFence::new("stock/17");
/// let mine = Proof::exclusive(FencingToken::new(34)?);
///
/// let mut step = db.start_transaction(TxOpts::default()).await?;
/// fence.seal(&mut step, &mine).await?; // before the first read
/// step.query_drop("UPDATE stock SET apples = 9 WHERE id = 17").await?;
/// step.commit().await?;
///
/// let late = Proof::exclusive(FencingToken::new(33)?);
/// let result = fence
///     .check_and_write(db, &late, async |step| {
///         step.query_drop("UPDATE stock SET apples = 8 WHERE id = 17").await
///     })
///     .await;
/// assert!(matches!(result, Err(FenceError::Stale(_))));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MysqlFence {
    resource: String,
    rules: Rules,
}

impl MysqlFence {
    /// Names a resource, whose mark is in the table `holdline_fence` of the connection's database.
    /// No statement is sent.
    pub fn new(resource: impl Into<String>) -> MysqlFence {
        MysqlFence { resource: resource.into(), rules: Rules::default() }
    }

    /// Replaces the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> MysqlFence {
        self.rules = rules;
        self
    }

    /// Creates the table of marks if there is none, and checks it. Many processes may do so at
    /// once.
    ///
    /// **It commits an open transaction**, as every statement that creates a table does. It needs
    /// the right to create tables even if the table exists. Fencing itself needs only `SELECT`,
    /// `INSERT` and `UPDATE` on the table.
    ///
    /// # Errors
    /// `Foreign`: there is an unsuitable table of that name; the message says how to repair it.
    /// `Busy`, `Failed`: see its certainty.
    pub async fn create_table(db: &mut impl Queryable) -> Result<(), FenceError> {
        let made = db.query_drop(sql::mysql::TABLE).await;
        made.map_err(|error| failed("making the table holdline_fence", error))?;
        prepare(db, LOOK, 0).await?;
        let engine: Option<Row> =
            db.query_first(ENGINE).await.map_err(|error| unchanged(failed(LOOKING, error)))?;
        match engine.as_ref().and_then(|row| row.as_ref(0)) {
            None | Some(Value::NULL) => Ok(()),
            Some(engine) => Err(no_transactions(engine)),
        }
    }

    /// Returns the mark, or `None` if there is none yet.
    ///
    /// # Errors
    /// `Foreign`: the table is unsuitable, or contains something else than a token. `Busy`,
    /// `Failed`: the mark was not read. Nothing was changed.
    pub async fn mark(&self, db: &mut impl Queryable) -> Result<Option<FencingToken>, FenceError> {
        let look = prepare(db, LOOK, self.resource.len()).await?;
        match self.row(db, &look).await.map_err(unchanged)? {
            Some(row) => token_of(&row).map(Some),
            None => Ok(None),
        }
    }

    /// Checks that nobody newer was here, and raises nothing. All that a shared holder may do.
    ///
    /// Inside a transaction of yours it reads the snapshot of that transaction.
    ///
    /// # Errors
    /// As [`Fenced::check`](super::Fenced::check).
    pub async fn check<A: Access>(
        &self,
        db: &mut impl Queryable,
        proof: &Proof<A>,
    ) -> Result<(), FenceError> {
        let answer = self.rules.check(self.mark(db).await?, proof);
        self.rules.report(&self.resource, answer)
    }

    /// Raises the mark to the holder's token: in your transaction if there is one, otherwise in its
    /// own. It waits for transactions that have sealed the same resource.
    ///
    /// # Errors
    /// As [`Fenced::seal`](super::Fenced::seal). Inside your transaction: roll it back. A table of
    /// another storage engine is reported (`Foreign`) after its mark was raised.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only: outside of a transaction the mark may be raised.
    pub async fn seal(&self, db: &mut impl Queryable, proof: &Proof) -> Result<(), FenceError> {
        let answer = self.raise(db, proof).await;
        self.rules.report(&self.resource, answer)
    }

    /// Refuses a smaller token; otherwise raises the mark and writes, both or neither, in a
    /// transaction of its own. The connection must not be inside one.
    ///
    /// Return an error from `write` if one of its statements fails, and do not end the transaction
    /// in it.
    ///
    /// # Errors
    /// As [`Fenced::check_and_write`](super::Fenced::check_and_write). `Failed` with certainty
    /// `Unknown` also if the transaction ended before `write` did: the server rolled it back and
    /// `write` ignored the error, or `write` itself committed. Its later statements were committed.
    ///
    /// # Cancel safety
    /// Dropping the future before the commit was sent changes nothing; after that it loses the
    /// answer only. The rollback is sent when the connection is used again or dropped. Until then
    /// the mark stays locked, so drop the connection too.
    pub async fn check_and_write<R, E>(
        &self,
        db: &mut Conn,
        proof: &Proof,
        write: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, FenceError>
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let begun = db.start_transaction(TxOpts::default()).await;
        let beginning = "beginning a transaction";
        let mut step = begun.map_err(|error| unchanged(failed(beginning, error)))?;
        let mut raised = self.raise(&mut step, proof).await;
        if raised.is_ok() {
            let savepoint = step.query_drop(format!("SAVEPOINT {SAVEPOINT}")).await;
            raised = savepoint.map_err(|error| failed(beginning, error));
        }
        if let Err(error) = raised {
            // Nothing was committed, even if the rollback fails.
            let _ = step.rollback().await;
            return self.rules.report(&self.resource, Err(unchanged(error)));
        }
        match write(&mut step).await {
            Ok(answer) => commit(step).await.map(|()| answer),
            Err(error) => {
                let _ = step.rollback().await;
                Err(FenceError::write(error))
            }
        }
    }

    async fn raise(&self, db: &mut impl Queryable, proof: &Proof) -> Result<(), FenceError> {
        self.rules.check(None, proof)?;
        let look = prepare(db, LOCKED_LOOK, self.resource.len()).await?;
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mine = number(proof.token().get());
        let limit = self.rules.jump_limit().map_or(i64::MAX, |limit| number(limit.get()));
        let raised = db.exec_drop(RAISE, (self.digits(), mine, limit)).await;
        raised.map_err(|error| failed(RAISING, error))?;
        // Outside of a transaction the mark may be raised already, even if the read fails.
        let row = self.row(db, &look).await.map_err(in_doubt)?;
        let lowered = || FenceError::Busy {
            what: format!("{RAISING}: somebody lowered or removed it meanwhile"),
        };
        let row = row.ok_or_else(lowered)?;
        if let Some(engine) = row.as_ref(2).filter(|engine| **engine != Value::NULL) {
            return Err(no_transactions(engine));
        }
        let seen = token_of(&row)?;
        if seen == proof.token() {
            return Ok(());
        }
        // The statement decided; the mark and the rules only explain why.
        self.rules.raise(Some(seen), proof)?;
        Err(lowered())
    }

    async fn row(
        &self,
        db: &mut impl Queryable,
        look: &Statement,
    ) -> Result<Option<Row>, FenceError> {
        let row: Result<Option<Row>, Error> = db.exec_first(look, (self.digits(),)).await;
        let Some(row) = row.map_err(|error| failed(LOOKING, error))? else {
            return Ok(None);
        };
        // The table may have been replaced since the statement was prepared.
        if let Err(error) = fit(row.columns_ref(), self.resource.len()) {
            forget(db, look.clone()).await;
            return Err(error);
        }
        Ok(Some(row))
    }

    /// The name, as `UNHEX` reads it.
    fn digits(&self) -> String {
        let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
        self.resource.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }
}

/// Prepares a read, once for each connection, and checks the columns of the table and whether a
/// name of `bytes` bytes fits.
async fn prepare(
    db: &mut impl Queryable,
    look: &str,
    bytes: usize,
) -> Result<Statement, FenceError> {
    let look = db.prep(look).await.map_err(|error| unchanged(failed(LOOKING, error)))?;
    match fit(&look.columns(), bytes) {
        Ok(()) => Ok(look),
        Err(error) => {
            forget(db, look).await;
            Err(error)
        }
    }
}

/// Drops a prepared read, which would describe the old table after a repair.
async fn forget(db: &mut impl Queryable, look: Statement) {
    // An error here means that the connection, and with it the statement, is gone.
    let _ = db.close(look).await;
}

/// Checks the columns of a read, the name and the mark.
///
/// # Errors
/// `Foreign`: the columns are unsuitable for a fence. `Failed`: the name is too long.
fn fit(columns: &[Column], bytes: usize) -> Result<(), FenceError> {
    let [resource, mark, ..] = columns else {
        return Err(not_ours("a read of it returns too few columns"));
    };
    let binary = resource.column_type() == ColumnType::MYSQL_TYPE_VAR_STRING
        && resource.character_set() == BYTES;
    let number = mark.column_type() == ColumnType::MYSQL_TYPE_LONGLONG
        && !mark.flags().contains(ColumnFlags::UNSIGNED_FLAG);
    let unique = ColumnFlags::PRI_KEY_FLAG | ColumnFlags::UNIQUE_KEY_FLAG;
    if !binary {
        Err(not_ours(
            "its column resource does not distinguish all names \
             (ALTER TABLE holdline_fence MODIFY resource VARBINARY(255) NOT NULL)",
        ))
    } else if !number {
        Err(not_ours(
            "its column mark holds no tokens \
             (ALTER TABLE holdline_fence MODIFY mark BIGINT NOT NULL)",
        ))
    } else if mark.flags().intersects(unique) {
        Err(not_ours("its column mark is in a key, so that names stand in each other's way"))
    } else if !resource.flags().contains(ColumnFlags::PRI_KEY_FLAG) {
        Err(not_ours(
            "its column resource is no key (ALTER TABLE holdline_fence ADD PRIMARY KEY (resource))",
        ))
    } else if usize::try_from(resource.column_length()).is_ok_and(|room| room < bytes) {
        let says = format!(
            "the resource's name has {bytes} bytes, the table has room for {}: shorten it, or \
             ALTER TABLE holdline_fence MODIFY resource VARBINARY({bytes}) NOT NULL",
            resource.column_length()
        );
        Err(FenceError::failed(LOOKING, says))
    } else {
        Ok(())
    }
}

fn not_ours(found: &str) -> FenceError {
    let found = format!("the table holdline_fence is not as sql::mysql::TABLE makes it: {found}");
    FenceError::Foreign { found }
}

fn no_transactions(engine: &Value) -> FenceError {
    let engine = match engine {
        Value::Bytes(name) => String::from_utf8_lossy(name).into_owned(),
        other => format!("{other:?}"),
    };
    not_ours(&format!(
        "it is kept by {engine}, not InnoDB (ALTER TABLE holdline_fence ENGINE = InnoDB)"
    ))
}

fn token_of(row: &Row) -> Result<FencingToken, FenceError> {
    let found = match row.as_ref(1) {
        Some(Value::Int(number)) => {
            let token = u64::try_from(*number).ok().map(FencingToken::new);
            match token {
                Some(Ok(token)) => return Ok(token),
                _ => number.to_string(),
            }
        }
        Some(Value::NULL) => "NULL".to_owned(),
        _ => "of another type".to_owned(),
    };
    let found = format!("the mark in the table holdline_fence is {found}, not a fencing token");
    Err(FenceError::Foreign { found })
}

async fn commit(mut step: Transaction<'_>) -> Result<(), FenceError> {
    if let Err(error) = step.query_drop(format!("RELEASE SAVEPOINT {SAVEPOINT}")).await {
        let _ = step.rollback().await;
        let ended = matches!(&error, Error::Server(words) if words.code == NO_SAVEPOINT);
        return Err(if ended {
            let says = "the transaction was ended before, by the server to let others go on or by \
                the write itself: let the write fail when a statement does";
            FenceError::unsure("asking before the commit", says)
        } else {
            unchanged(failed("asking before the commit", error))
        });
    }
    step.commit().await.map_err(|error| failed("committing", error))
}

/// Classifies an error of a statement. Only a statement that the server refused certainly changed
/// nothing; one without an answer may have succeeded.
fn failed(doing: &str, error: Error) -> FenceError {
    let Error::Server(words) = &error else {
        return FenceError::unsure(doing, error);
    };
    let says = says(words);
    let advice = match words.code {
        code if STOPPED.contains(&code) => return FenceError::unsure(doing, says),
        code if BUSY.contains(&code) => {
            return FenceError::Busy { what: format!("{doing}: {says}") };
        }
        code if NOT_OURS.contains(&code) || code == CHECK => {
            let advice = "rename it, or let the fence have a database of its own";
            return not_ours(&format!("{says} ({advice})"));
        }
        NO_TABLE => "MysqlFence::create_table makes its table",
        NO_DATABASE => "let the connection name its database",
        code if NO_RIGHT.contains(&code) => "grant SELECT, INSERT and UPDATE on the table",
        code if READ_ONLY.contains(&code) => "it takes no writes here: name the primary",
        _ => return FenceError::failed(doing, says),
    };
    FenceError::failed(format!("{doing} ({advice})"), says)
}

/// Formats the server's message and code.
fn says(words: &ServerError) -> String {
    format!("{} ({})", words.message, words.code)
}

/// Marks a failure of a step that cannot have changed anything as not applied.
fn unchanged(error: FenceError) -> FenceError {
    match error {
        FenceError::Failed { doing, source, .. } => FenceError::failed(doing, source),
        other => other,
    }
}

/// Marks a failure after a step that may have been applied as unknown.
fn in_doubt(error: FenceError) -> FenceError {
    match error {
        FenceError::Failed { doing, source, .. } => {
            FenceError::Failed { doing, certainty: Certainty::Unknown, source }
        }
        FenceError::Busy { what } => FenceError::unsure(LOOKING, what),
        other => other,
    }
}
