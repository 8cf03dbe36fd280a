//! Locks on rows that the user guards in the same database. They need no lease and no fencing
//! token, because the locks and the writes are one transaction.
//!
//! - Invariant R1: the body runs only while the rows are locked, in the transaction that locked
//!   them.
//! - Invariant R2: the result is `Ok` only if the server has reported that it committed the body's
//!   work.
//! - Invariant R3: in all other cases the transaction is rolled back; only a commit whose reply is
//!   lost is unknown.
//! - Invariant R4: the statements that are added to the caller's query do not depend on a search
//!   path.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use holdline_core::{Certainty, Clock, LockError};
use holdline_net::sql::row_lock::{RowWait, busy, no_answer, roll_back};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, IsolationLevel, Row, SimpleQueryMessage, Transaction};

use crate::error::{ENGINE, of_command, plain, protocol, refused, says};

/// How long to wait for a lock on the whole table, such as that of an `ALTER TABLE`, if rows are
/// not waited for.
const TABLE_WAIT: Duration = Duration::from_secs(1);
/// The server's largest timeout.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 24 * 60 * 60);
const ANSWER: Duration = Duration::from_secs(5);

/// Which rows to lock: a `SELECT`, and its parameters.
#[derive(Clone, Copy)]
pub struct RowLock<'a> {
    query: &'a str,
    parameters: &'a [&'a (dyn ToSql + Sync)],
    wait: RowWait,
    answer: Duration,
}

impl<'a> RowLock<'a> {
    /// Describes the rows by a `SELECT` without a locking clause and without a `;`, such as
    /// `select state from jobs where id = $1`. Unless set otherwise, locked rows fail at once.
    pub fn new(query: &'a str, parameters: &'a [&'a (dyn ToSql + Sync)]) -> RowLock<'a> {
        RowLock { query, parameters, wait: RowWait::Never, answer: ANSWER }
    }

    /// Sets what to do if another session has locked a row.
    #[must_use]
    pub fn with_wait(mut self, wait: RowWait) -> RowLock<'a> {
        self.wait = wait;
        self
    }

    /// Sets how long the server may take to reply, in addition to any wait for rows; 5 s unless
    /// set. The body has no time limit.
    #[must_use]
    pub fn with_answer_limit(mut self, limit: Duration) -> RowLock<'a> {
        self.answer = limit;
        self
    }

    fn statement(&self) -> String {
        let wait = match self.wait {
            RowWait::Never => " nowait",
            RowWait::SkipLocked => " skip locked",
            RowWait::AtMost(_) => "",
        };
        // On a line of its own: the query may end in a comment.
        format!("{}\nfor update{wait}", self.query)
    }

    /// How long the server may wait for a lock.
    fn lock_timeout(&self) -> Duration {
        match self.wait {
            RowWait::Never | RowWait::SkipLocked => TABLE_WAIT,
            RowWait::AtMost(wait) => wait.max(Duration::from_millis(1)),
        }
    }

    /// Returns how long the server may wait for all rows together. The server's limit passes before
    /// ours, so that its error proves that another session held the rows.
    fn statement_timeout(&self) -> Option<Duration> {
        let waits = matches!(self.wait, RowWait::AtMost(_));
        waits.then(|| self.lock_timeout().saturating_add(self.answer / 2))
    }

    /// Converts an error of the `SELECT`, by how late it came.
    fn of_wait(&self, error: &tokio_postgres::Error, waited: Duration) -> LockError {
        let is_over = self.statement_timeout().is_some_and(|limit| waited >= limit);
        match error.code() {
            Some(code) if is_over && *code == SqlState::QUERY_CANCELED => busy(ENGINE),
            _ => of_select(error),
        }
    }
}

impl fmt::Debug for RowLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowLock")
            .field("query", &self.query)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

/// Why the body's work was not committed, or may not have been.
#[derive(Debug)]
#[non_exhaustive]
pub enum RowLockError<E> {
    /// There is no such row. The body did not run.
    Missing,
    /// The rows could not be locked, or the commit was refused. Nothing was done. The kinds: `Busy`
    /// and `TimedOut` if another session has locked them, `Unavailable` if the server does not
    /// reply, `Refused` if it refuses, `Invalid` if the query is wrong.
    Failed(LockError),
    /// The body failed. What it did was rolled back.
    Body(E),
    /// The commit was sent and no reply came: the work may have been committed.
    Unknown {
        /// What happened.
        error: LockError,
        /// The transaction: `SELECT pg_xact_status('…'::xid8)` returns its outcome, once the
        /// server is back.
        transaction_id: String,
    },
}

impl<E> RowLockError<E> {
    /// Returns whether the body's work was committed.
    pub fn certainty(&self) -> Certainty {
        match self {
            RowLockError::Unknown { .. } => Certainty::Unknown,
            _ => Certainty::NotApplied,
        }
    }
}

impl<E> From<LockError> for RowLockError<E> {
    fn from(error: LockError) -> RowLockError<E> {
        RowLockError::Failed(error.with_certainty(Certainty::NotApplied))
    }
}

/// Returns the server's message of a client crate's error that the body passed on, boxed or not;
/// the error's own text is only "db error".
impl<E: fmt::Display + 'static> fmt::Display for RowLockError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowLockError::Missing => f.write_str("there is no such row"),
            RowLockError::Failed(error) => error.fmt(f),
            RowLockError::Body(error) => match of_client(error) {
                Some(of_client) => write!(f, "{} (rolled back)", plain(of_client)),
                None => write!(f, "{error} (rolled back)"),
            },
            RowLockError::Unknown { error, transaction_id } => {
                write!(f, "{error}: ask for pg_xact_status('{transaction_id}'::xid8)")
            }
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for RowLockError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RowLockError::Missing => None,
            RowLockError::Failed(error) | RowLockError::Unknown { error, .. } => Some(error),
            RowLockError::Body(error) => Some(error),
        }
    }
}

/// The client crate's error, if this is one.
fn of_client<E: 'static>(error: &E) -> Option<&tokio_postgres::Error> {
    type Boxed = Box<dyn std::error::Error>;
    type Sendable = Box<dyn std::error::Error + Send + Sync>;
    let error: &dyn Any = error;
    let bare = error.downcast_ref();
    let boxed = || error.downcast_ref::<Boxed>()?.downcast_ref();
    bare.or_else(boxed).or_else(|| error.downcast_ref::<Sendable>()?.downcast_ref())
}

/// Locks rows, runs `body` in the same transaction, and commits.
///
/// Use it for rows of this database. If all writers write them only under their lock, they need no
/// fencing token: a holder whose connection has ended can no longer commit. Keep the body short: an
/// open transaction delays vacuum, and `idle_in_transaction_session_timeout` may end it.
///
/// The transaction is `READ COMMITTED`, whatever the session's default: after a wait the server
/// checks again that the row matches the query, and if not, the result is
/// [`RowLockError::Missing`]. `clock` measures limits.
///
/// # Errors
/// [`RowLockError`]; only its `Unknown` may have been applied.
///
/// # Cancel safety
/// Dropping the future rolls back, unless the commit was already sent. A wait for rows continues in
/// the server until its limit; the next statement on the connection waits for that.
pub async fn row_lock<T, E, F>(
    client: &mut Client,
    rows: &RowLock<'_>,
    clock: &dyn Clock,
    body: F,
) -> Result<T, RowLockError<E>>
where
    F: AsyncFnOnce(&mut Transaction<'_>, Vec<Row>) -> Result<T, E>,
{
    rows.wait.check(ENGINE, LONGEST_WAIT)?;
    let began = clock.now();
    let limit = rows.lock_timeout().saturating_add(rows.answer);
    let locked = tokio::select! {
        biased;
        locked = lock(client, rows, clock) => locked,
        () = clock.sleep_until(began.after(limit)) => Err(no_answer(ENGINE, limit)),
    };
    let (mut transaction, found) = match locked {
        Ok(Some(locked)) => locked,
        Ok(None) => return Err(RowLockError::Missing),
        Err(error) => {
            let waited = began.until(clock.now());
            return Err(rows.wait.outcome(error, waited).into());
        }
    };
    let done = match body(&mut transaction, found).await {
        Ok(done) => done,
        Err(error) => {
            roll_back(transaction.rollback(), rows.answer, clock).await;
            return Err(RowLockError::Body(error));
        }
    };
    let transaction_id = tokio::select! {
        biased;
        id = identify(&transaction) => id?,
        () = clock.sleep_until(clock.now().after(rows.answer)) => {
            return Err(no_answer(ENGINE, rows.answer).into());
        }
    };
    let error = tokio::select! {
        biased;
        committed = transaction.commit() => match committed {
            Ok(()) => return Ok(done),
            Err(error) => of_commit(error),
        },
        () = clock.sleep_until(clock.now().after(rows.answer)) => no_answer(ENGINE, rows.answer),
    };
    Err(match error.certainty() {
        Certainty::Unknown => RowLockError::Unknown { error, transaction_id },
        _ => RowLockError::Failed(error),
    })
}

/// Begins, and locks the rows; `None` when there are none.
async fn lock<'c>(
    client: &'c mut Client,
    rows: &RowLock<'_>,
    clock: &dyn Clock,
) -> Result<Option<(Transaction<'c>, Vec<Row>)>, LockError> {
    let begun = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
    let transaction = begun.start().await.map_err(|error| of_select(&error))?;
    let restore = limit_waits(&transaction, rows).await?;
    let asked = clock.now();
    let found = transaction.query(&rows.statement(), rows.parameters).await;
    let found = found.map_err(|error| rows.of_wait(&error, asked.until(clock.now())))?;
    if found.is_empty() {
        return match rows.wait {
            RowWait::SkipLocked => is_skipped(&transaction, rows).await,
            RowWait::Never | RowWait::AtMost(_) => Ok(None),
        };
    }
    // The body has the session's own timeouts.
    transaction.batch_execute(&restore).await.map_err(|error| of_select(&error))?;
    Ok(Some((transaction, found)))
}

/// Sets how long the server waits for rows, and returns the statement that undoes it. A shorter
/// timeout of the session stays.
async fn limit_waits(
    transaction: &Transaction<'_>,
    rows: &RowLock<'_>,
) -> Result<String, LockError> {
    let millis = |limit: Duration| limit.as_millis().min(i32::MAX as u128);
    let mut limit = format!(
        "select pg_catalog.current_setting('lock_timeout'), \
         pg_catalog.current_setting('statement_timeout'); \
         set local lock_timeout = {}",
        millis(rows.lock_timeout())
    );
    if let Some(all) = rows.statement_timeout() {
        limit.push_str(&format!(
            "; select pg_catalog.set_config('statement_timeout', least(case when \
             s.setting operator(pg_catalog.<>) '0'::pg_catalog.text \
             then s.setting::pg_catalog.int8 end, {}::pg_catalog.int8)::pg_catalog.text, true) \
             from pg_catalog.pg_settings s \
             where s.name operator(pg_catalog.=) 'statement_timeout'::pg_catalog.text",
            millis(all)
        ));
    }
    let reply = transaction.simple_query(&limit).await.map_err(|error| of_select(&error))?;
    let before = reply.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some((row.get(0)?, row.get(1)?)),
        _ => None,
    });
    let (lock, statement) =
        before.ok_or_else(|| protocol("the server does not report its time limits"))?;
    let quoted = |text: &str| text.replace('\'', "''");
    Ok(format!(
        "set local lock_timeout = '{}'; set local statement_timeout = '{}'",
        quoted(lock),
        quoted(statement)
    ))
}

/// Returns whether the rows are locked by others, or not there.
async fn is_skipped<T>(
    transaction: &Transaction<'_>,
    rows: &RowLock<'_>,
) -> Result<Option<T>, LockError> {
    let there = transaction.query(rows.query, rows.parameters).await;
    if there.map_err(|error| of_select(&error))?.is_empty() { Ok(None) } else { Err(busy(ENGINE)) }
}

/// Asks for the transaction's number. It fails where a statement of the body has failed and the
/// body took no notice: the server would answer a commit by rolling back.
async fn identify(transaction: &Transaction<'_>) -> Result<String, LockError> {
    let reply = transaction.simple_query("select pg_catalog.pg_current_xact_id()").await;
    let reply = reply.map_err(|error| match error.code() {
        Some(code) if *code == SqlState::IN_FAILED_SQL_TRANSACTION => refused(
            "a statement of the body failed, so the server takes no more: what the body did is \
             rolled back. Let the body fail too, or put what may fail behind a savepoint",
        ),
        _ => of_command(&error),
    })?;
    let id = reply.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    id.map(str::to_owned).ok_or_else(|| protocol("the transaction has no number"))
}

/// Converts an error before the body ran.
fn of_select(error: &tokio_postgres::Error) -> LockError {
    let Some(words) = error.as_db_error() else { return of_command(error) };
    let code = words.code();
    if *code == SqlState::LOCK_NOT_AVAILABLE {
        busy(ENGINE)
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        let says = says(words);
        refused(format!("the role may not lock these rows: grant it UPDATE on them ({says})"))
    } else if code.code().starts_with("42") || code.code().starts_with("22") {
        LockError::invalid(ENGINE, "query", says(words))
    } else {
        of_command(error)
    }
}

/// Converts an error of a commit that was sent.
fn of_commit(error: tokio_postgres::Error) -> LockError {
    let failure = of_command(&error);
    match (failure.certainty(), error.as_db_error()) {
        (Certainty::NotApplied, Some(words)) => {
            refused(format!("the server refused to commit ({})", says(words))).with_source(error)
        }
        _ => failure,
    }
}
