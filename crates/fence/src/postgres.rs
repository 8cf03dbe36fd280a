//! Rows of a PostgreSQL database that accept no late writer: the mark is in the same database and
//! changes in the same transaction.
//!
//! The statements are those of [`sql`], with a limit for jumps and in a schema of choice.
//!
//! Invariant F10: one statement raises the mark. It locks its row until the end of the transaction,
//! and compares with the last committed row. So nobody else writes between the decision and the end
//! of the transaction.
//! Invariant F11: an acknowledged write was committed. After a failed statement, PostgreSQL turns
//! `COMMIT` into a rollback and reports success, so the transaction is checked before the commit.
//! Invariant F14: an acknowledged write survives a crash, whatever the session's
//! `synchronous_commit` is: the mark's statement switches it on for its transaction. Otherwise a
//! crash could lose an acknowledged mark, and a late writer would be accepted.
//! Invariant F15: no function and no operator is looked up in the session's search path, where
//! another user may have planted one; only the table is, unless its schema is named.

use std::error::Error as StdError;

use holdline_core::FencingToken;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Transaction};

use super::{Access, FenceError, Proof, Rules, sql};

const LOOKING: &str = "looking up the mark";
const RAISING: &str = "raising the mark";

/// PostgreSQL's errors for a table that is not as [`sql::TABLE`] makes it.
const NOT_OURS: [SqlState; 6] = [
    SqlState::UNDEFINED_COLUMN,
    SqlState::DATATYPE_MISMATCH,
    SqlState::UNDEFINED_FUNCTION,
    SqlState::INVALID_COLUMN_REFERENCE,
    SqlState::WRONG_OBJECT_TYPE,
    SqlState::NOT_NULL_VIOLATION,
];

/// Its errors for conflicts with other transactions, which a retry may resolve.
const BUSY: [SqlState; 4] = [
    SqlState::T_R_SERIALIZATION_FAILURE,
    SqlState::T_R_DEADLOCK_DETECTED,
    SqlState::LOCK_NOT_AVAILABLE,
    SqlState::QUERY_CANCELED,
];

/// The mark of one resource in a database of yours, by a connection of yours.
///
/// `resource` is your own name of the guarded data, such as `stock/17`. Each call takes a
/// `tokio_postgres::Client`, a transaction of it, or a pooled client. The statements for other
/// drivers are in [`sql`].
///
/// - Inside a transaction of yours, [`seal`](PostgresFence::seal) and then write as you like: that
///   is check-and-write, decided when *you* commit. If it refuses, roll back. Make it the first
///   statement, so that concurrent transactions wait for each other at one point. If a statement
///   fails, roll back too: PostgreSQL reports the commit of a failed transaction as a success.
/// - Outside of one, it is a transaction of its own and is decided when it returns.
///
/// # Guarantees
/// Mark and rows change together, whatever crashes, and accepted writes are durable: a transaction
/// that raises the mark waits for the disk, even if `synchronous_commit` is off (it is switched on
/// for that transaction alone). A seal waits for the end of an earlier transaction that has sealed
/// the resource. Seal two resources in the same order everywhere, or PostgreSQL reports a deadlock
/// (`Busy`). A failover to an asynchronous standby can lose the newest marks together with the
/// newest rows.
///
/// # Examples
/// ```no_run
/// use holdline_fence::{FenceError, PostgresFence, Proof};
/// use holdline_fence::FencingToken;
///
/// # async fn example(db: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// PostgresFence::create_table(db).await?;
/// let fence = PostgresFence::new("stock/17");
/// let mine = Proof::exclusive(FencingToken::new(34)?);
///
/// let step = db.transaction().await?;
/// fence.seal(&step, &mine).await?; // before the first read
/// step.execute("UPDATE stock SET apples = 9 WHERE id = 17", &[]).await?;
/// step.commit().await?;
///
/// let late = Proof::exclusive(FencingToken::new(33)?);
/// let result = fence
///     .check_and_write(db, &late, async |step| {
///         step.execute("UPDATE stock SET apples = 8 WHERE id = 17", &[]).await
///     })
///     .await;
/// assert!(matches!(result, Err(FenceError::Stale(_))));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresFence {
    resource: String,
    /// As it is written in a statement.
    table: String,
    rules: Rules,
}

impl PostgresFence {
    /// Names a resource, whose mark is in the table `holdline_fence` of the connection's search
    /// path. No statement is sent.
    ///
    /// If others may create tables in a schema of that path, as in `public` before PostgreSQL 15,
    /// name a schema of your own by [`in_schema`](PostgresFence::in_schema): a trigger on a table
    /// of another user runs with your rights.
    pub fn new(resource: impl Into<String>) -> PostgresFence {
        let table = "holdline_fence".to_owned();
        PostgresFence { resource: resource.into(), table, rules: Rules::default() }
    }

    /// Names the schema of the table, instead of the search path.
    #[must_use]
    pub fn in_schema(mut self, schema: &str) -> PostgresFence {
        self.table = format!("\"{}\".holdline_fence", schema.replace('"', "\"\""));
        self
    }

    /// Replaces the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> PostgresFence {
        self.rules = rules;
        self
    }

    /// Creates the table of marks in the default schema, if there is none. Many processes may do so
    /// at once.
    ///
    /// It needs the right to create tables even if the table exists. Fencing itself needs only
    /// `SELECT`, `INSERT` and `UPDATE` on the table.
    ///
    /// # Errors
    /// `Busy`, `Failed`: see its certainty.
    pub async fn create_table(db: &(impl GenericClient + Sync)) -> Result<(), FenceError> {
        let doing = "making the table holdline_fence";
        db.batch_execute(sql::MAKE_TABLE).await.map_err(|error| failed(doing, error))
    }

    /// Returns the mark, or `None` if there is none yet.
    ///
    /// # Errors
    /// `Foreign`: the table contains something else than a token. `Busy`, `Failed`: the mark was
    /// not read. Nothing was changed.
    pub async fn mark(
        &self,
        db: &(impl GenericClient + Sync),
    ) -> Result<Option<FencingToken>, FenceError> {
        let look = format!(
            "SELECT CAST(mark AS pg_catalog.text) FROM {} WHERE resource OPERATOR(pg_catalog.=) $1",
            self.table
        );
        let row = db.query_typed_opt(&look, &[(&self.resource, Type::TEXT)]).await;
        let Some(row) = row.map_err(|error| unchanged(failed(LOOKING, error)))? else {
            return Ok(None);
        };
        let text: Option<String> =
            row.try_get(0).map_err(|error| unchanged(failed(LOOKING, error)))?;
        let text = text.unwrap_or_else(|| "NULL".to_owned());
        text.parse().map(Some).map_err(|_| FenceError::Foreign {
            found: format!(
                "the mark in the table {} is {}, not a fencing token",
                self.table,
                holdline_core::Escaped(&text)
            ),
        })
    }

    /// Checks that nobody newer was here, and raises nothing. All that a shared holder may do.
    ///
    /// Inside a transaction of yours it reads the snapshot of that transaction.
    ///
    /// # Errors
    /// As [`Fenced::check`](super::Fenced::check).
    pub async fn check<A: Access>(
        &self,
        db: &(impl GenericClient + Sync),
        proof: &Proof<A>,
    ) -> Result<(), FenceError> {
        let answer = self.rules.check(self.mark(db).await?, proof);
        self.rules.report(&self.resource, answer)
    }

    /// Raises the mark to the holder's token: in your transaction if there is one, otherwise in its
    /// own. It waits for transactions that have sealed the same resource.
    ///
    /// # Errors
    /// As [`Fenced::seal`](super::Fenced::seal). Inside your transaction: roll it back.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only: outside of a transaction the mark may be raised.
    pub async fn seal(
        &self,
        db: &(impl GenericClient + Sync),
        proof: &Proof,
    ) -> Result<(), FenceError> {
        let answer = self.raise(db, proof).await;
        self.rules.report(&self.resource, answer)
    }

    /// Refuses a smaller token; otherwise raises the mark and writes, both or neither, in a
    /// transaction of its own. If `db` is a transaction, it uses a savepoint.
    ///
    /// # Errors
    /// As [`Fenced::check_and_write`](super::Fenced::check_and_write). `Write` also if a statement
    /// of `write` failed and `write` ignored the error.
    ///
    /// # Cancel safety
    /// Dropping the future before the commit was sent changes nothing; after that it loses the
    /// answer only.
    pub async fn check_and_write<R, E>(
        &self,
        db: &mut (impl GenericClient + Sync),
        proof: &Proof,
        write: impl AsyncFnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, FenceError>
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let begun = db.transaction().await;
        let step = begun.map_err(|error| unchanged(failed("beginning a transaction", error)))?;
        if let Err(error) = self.raise(&step, proof).await {
            // Nothing was committed, even if the rollback fails.
            let _ = step.rollback().await;
            return self.rules.report(&self.resource, Err(unchanged(error)));
        }
        match write(&step).await {
            Ok(answer) => commit(step).await.map(|()| answer),
            Err(error) => {
                let _ = step.rollback().await;
                Err(FenceError::write(error))
            }
        }
    }

    async fn raise(
        &self,
        db: &(impl GenericClient + Sync),
        proof: &Proof,
    ) -> Result<(), FenceError> {
        self.rules.check(None, proof)?;
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mine = number(proof.token().get());
        let limit = self.rules.jump_limit().map_or(i64::MAX, |limit| number(limit.get()));
        // As in `sql::RAISE`, with a limit of jumps.
        let raise = format!(
            "INSERT INTO {} AS fence (resource, mark) VALUES ($1, $2) \
             ON CONFLICT (resource) DO UPDATE SET mark = excluded.mark \
             WHERE fence.mark OPERATOR(pg_catalog.>=) 1::pg_catalog.int8 \
             AND fence.mark OPERATOR(pg_catalog.>=) (excluded.mark OPERATOR(pg_catalog.-) $3) \
             AND fence.mark OPERATOR(pg_catalog.<=) excluded.mark \
             RETURNING fence.mark, CASE WHEN \
             pg_catalog.current_setting('synchronous_commit', true) \
             OPERATOR(pg_catalog.=) 'off'::pg_catalog.text \
             THEN pg_catalog.set_config('synchronous_commit', 'on', true) END",
            self.table
        );
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
            [(&self.resource, Type::TEXT), (&mine, Type::INT8), (&limit, Type::INT8)];
        let raised = db.query_typed_opt(&raise, &parameters).await;
        if raised.map_err(|error| failed(RAISING, error))?.is_some() {
            return Ok(());
        }
        // The statement decided; the mark and the rules only explain why.
        let seen = self.mark(db).await?;
        self.rules.raise(seen, proof)?;
        Err(FenceError::Busy { what: format!("{RAISING}: somebody lowered it meanwhile") })
    }
}

async fn commit(step: Transaction<'_>) -> Result<(), FenceError> {
    if let Err(error) = step.batch_execute("SELECT 1").await {
        let _ = step.rollback().await;
        let failed_before = error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION);
        let lost = || unchanged(failed("asking before the commit", error));
        return Err(if failed_before {
            FenceError::write("a statement failed, so all of the transaction was undone")
        } else {
            lost()
        });
    }
    step.commit().await.map_err(|error| failed("committing", error))
}

/// Classifies an error of a statement. Only a statement that the server refused certainly changed
/// nothing; one without an answer may have succeeded.
fn failed(doing: &str, error: tokio_postgres::Error) -> FenceError {
    let Some(words) = error.as_db_error() else {
        return FenceError::unsure(doing, error);
    };
    if ends_the_session(words) {
        return FenceError::unsure(doing, says(words));
    }
    let code = words.code();
    let says = || says(words);
    if BUSY.contains(code) {
        FenceError::Busy { what: format!("{doing}: {}", says()) }
    } else if NOT_OURS.contains(code) {
        let found = format!("the table holdline_fence is not as sql::TABLE makes it: {}", says());
        FenceError::Foreign { found }
    } else if *code == SqlState::UNDEFINED_TABLE {
        let doing = format!("{doing} (PostgresFence::create_table makes its table)");
        FenceError::failed(doing, says())
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        let doing = format!("{doing} (grant SELECT, INSERT and UPDATE on the table)");
        FenceError::failed(doing, says())
    } else {
        FenceError::failed(doing, says())
    }
}

/// Formats the server's message, code and hint.
fn says(words: &DbError) -> String {
    let code = words.code().code();
    match words.hint() {
        Some(hint) => format!("{} ({code}; {hint})", words.message()),
        None => format!("{} ({code})", words.message()),
    }
}

fn ends_the_session(words: &DbError) -> bool {
    matches!(words.parsed_severity(), Some(Severity::Fatal | Severity::Panic) | None)
}

/// Marks a failure of a step that cannot have changed anything as not applied.
fn unchanged(error: FenceError) -> FenceError {
    match error {
        FenceError::Failed { doing, source, .. } => FenceError::failed(doing, source),
        other => other,
    }
}
