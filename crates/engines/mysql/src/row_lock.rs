//! Locks on rows that the user guards in the same database. They need no lease and no fencing
//! token, because the locks and the writes are one transaction.
//!
//! - Invariant R1: the body runs only while the rows are locked, in the transaction that locked
//!   them.
//! - Invariant R2: the result is `Ok` only if the server has reported that it committed the body's
//!   work.
//! - Invariant R3: in all other cases the transaction is rolled back; only a commit whose reply is
//!   lost is unknown. To break a deadlock the server rolls a whole transaction back, and a body
//!   that ignores the error would continue outside of any transaction: a missing savepoint reveals
//!   that.

use std::fmt;
use std::time::Duration;

use holdline_core::{Certainty, Clock, LockError};
use holdline_net::sql::row_lock::{RowWait, busy, no_answer, roll_back};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, IsolationLevel, Params, Row, Transaction, TxOpts};

use crate::error::{
    Complaint, ENGINE, LOCK_WAIT, NO_RIGHT, STOPPED, kind_of, refused, unavailable,
};

/// The server's largest timeout.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
const ANSWER: Duration = Duration::from_secs(5);
const SAVEPOINT: &str = "holdline_rows";
/// There is no such savepoint.
const NO_SAVEPOINT: u16 = 1305;
/// Errors that mean that the query itself is wrong: syntax, names, values.
const BAD_QUERY: [u16; 6] = [1054, 1064, 1146, 1109, 1210, 1292];

/// Which rows to lock: a `SELECT`, and its parameters.
#[derive(Clone, Debug)]
pub struct RowLock<'a> {
    query: &'a str,
    parameters: Params,
    wait: RowWait,
    answer: Duration,
}

impl<'a> RowLock<'a> {
    /// Describes the rows by a `SELECT` without a locking clause and without a `;`, such as
    /// `select state from jobs where id = ?`. Unless set otherwise, locked rows fail at once.
    pub fn new(query: &'a str, parameters: impl Into<Params>) -> RowLock<'a> {
        RowLock { query, parameters: parameters.into(), wait: RowWait::Never, answer: ANSWER }
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
            RowWait::Never => "nowait".to_owned(),
            RowWait::SkipLocked => "skip locked".to_owned(),
            RowWait::AtMost(_) => format!("wait {}", self.lock_timeout().as_secs()),
        };
        // On a line of its own: the query may end in a comment.
        format!("{}\nfor update {wait}", self.query)
    }

    /// Returns how long the server may wait for a row, in whole seconds.
    fn lock_timeout(&self) -> Duration {
        match self.wait {
            RowWait::Never | RowWait::SkipLocked => Duration::ZERO,
            RowWait::AtMost(wait) => {
                let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                Duration::from_secs(whole.max(1))
            }
        }
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
    /// reply or has broken a deadlock, `Refused` if it refuses, `Invalid` if the query is wrong.
    Failed(LockError),
    /// The body failed. What it did was rolled back.
    Body(E),
    /// The work may have been committed: the commit was sent and no reply came. Or the server
    /// rolled the transaction back, the body ignored that, and its later statements were committed.
    Unknown(LockError),
}

impl<E> RowLockError<E> {
    /// Returns whether the body's work was committed.
    pub fn certainty(&self) -> Certainty {
        match self {
            RowLockError::Unknown(_) => Certainty::Unknown,
            _ => Certainty::NotApplied,
        }
    }
}

impl<E> From<LockError> for RowLockError<E> {
    fn from(error: LockError) -> RowLockError<E> {
        RowLockError::Failed(error.with_certainty(Certainty::NotApplied))
    }
}

impl<E: fmt::Display> fmt::Display for RowLockError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowLockError::Missing => f.write_str("there is no such row"),
            RowLockError::Failed(error) | RowLockError::Unknown(error) => error.fmt(f),
            RowLockError::Body(error) => write!(f, "{error} (rolled back)"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for RowLockError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RowLockError::Missing => None,
            RowLockError::Failed(error) | RowLockError::Unknown(error) => Some(error),
            RowLockError::Body(error) => Some(error),
        }
    }
}

/// Locks rows, runs `body` in the same transaction, and commits.
///
/// Use it for rows of this database. If all writers write them only under their lock, they need no
/// fencing token: a holder whose connection has ended can no longer commit. The body should fail if
/// one of its statements fails. Keep it short: an open transaction delays the server's purge.
///
/// The transaction is `READ COMMITTED`, whatever the session's default: after a wait the server
/// checks again that the row matches the query, and if not, the result is
/// [`RowLockError::Missing`]. `clock` measures limits.
///
/// # Errors
/// [`RowLockError`]; only its `Unknown` may have been applied.
///
/// # Cancel safety
/// Unless the commit was already sent, dropping the future rolls back as soon as the connection is
/// used again or dropped. Until then the rows may stay locked, so drop the connection too.
pub async fn row_lock<T, E, F>(
    connection: &mut Conn,
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
        locked = lock(connection, rows) => locked,
        () = clock.sleep_until(began.after(limit)) => Err(no_answer(ENGINE, limit)),
    };
    let (mut transaction, found) = match locked {
        Ok(Some(locked)) => locked,
        Ok(None) => return Err(RowLockError::Missing),
        Err(error) => return Err(rows.wait.outcome(error, began.until(clock.now())).into()),
    };
    let done = match body(&mut transaction, found).await {
        Ok(done) => done,
        Err(error) => {
            roll_back(transaction.rollback(), rows.answer, clock).await;
            return Err(RowLockError::Body(error));
        }
    };
    let error = tokio::select! {
        biased;
        committed = commit(transaction) => match committed {
            Ok(()) => return Ok(done),
            Err(error) => error,
        },
        () = clock.sleep_until(clock.now().after(rows.answer)) => no_answer(ENGINE, rows.answer),
    };
    Err(match error.certainty() {
        Certainty::Unknown => RowLockError::Unknown(error),
        _ => RowLockError::Failed(error),
    })
}

async fn lock<'c>(
    connection: &'c mut Conn,
    rows: &RowLock<'_>,
) -> Result<Option<(Transaction<'c>, Vec<Row>)>, LockError> {
    let mut options = TxOpts::new();
    options.with_isolation_level(IsolationLevel::ReadCommitted);
    let begun = connection.start_transaction(options).await;
    let mut transaction = begun.map_err(|error| of_client(&error))?;
    let savepoint = transaction.query_drop(format!("savepoint {SAVEPOINT}")).await;
    savepoint.map_err(|error| of_client(&error))?;
    let locked: Result<Vec<Row>, Error> =
        transaction.exec(rows.statement(), rows.parameters.clone()).await;
    let outcome = match locked {
        Ok(found) if !found.is_empty() => return Ok(Some((transaction, found))),
        Ok(_) if rows.wait == RowWait::SkipLocked => {
            // Locked by others, or not there.
            let there: Result<Vec<Row>, Error> =
                transaction.exec(rows.query, rows.parameters.clone()).await;
            match there {
                Ok(there) if there.is_empty() => Ok(None),
                Ok(_) => Err(busy(ENGINE)),
                Err(error) => Err(of_select(&error)),
            }
        }
        Ok(_) => Ok(None),
        Err(error) => Err(of_select(&error)),
    };
    // An error here means that the connection is gone, and the transaction with it.
    let _ = transaction.rollback().await;
    outcome
}

async fn commit(mut transaction: Transaction<'_>) -> Result<(), LockError> {
    let release = format!("release savepoint {SAVEPOINT}");
    if let Err(error) = transaction.query_drop(release).await {
        let ended = matches!(&error, Error::Server(words) if words.code == NO_SAVEPOINT);
        let _ = transaction.rollback().await;
        if ended {
            let says = "the server ended the transaction to let others go on, and the body took \
                no notice: what it did before that is undone, and what it did after may stand. \
                Let the body fail when a statement does";
            return Err(refused(says).with_certainty(Certainty::Unknown));
        }
        return Err(of_client(&error).with_certainty(Certainty::NotApplied));
    }
    match transaction.commit().await {
        Ok(()) => Ok(()),
        // It may have been killed after the commit, while it waited for the disk or a replica.
        Err(Error::Server(words)) if STOPPED.contains(&words.code) => {
            let says = format!("the server stopped the commit ({}, {})", words.message, words.code);
            Err(unavailable(says, Certainty::Unknown))
        }
        Err(Error::Server(words)) => Err(refused(format!(
            "the server refused to commit ({}, {})",
            words.message, words.code
        ))),
        Err(error) => Err(of_client(&error)),
    }
}

/// Converts an error of the client crate for a statement that was sent.
fn of_client(error: &Error) -> LockError {
    match error {
        Error::Server(words) => {
            let words = Complaint { code: words.code, says: words.message.clone() };
            LockError::new(ENGINE, kind_of(&words), Certainty::NotApplied)
        }
        other => unavailable(format!("the connection broke: {other}"), Certainty::Unknown),
    }
}

/// Converts an error before the body ran.
fn of_select(error: &Error) -> LockError {
    let Error::Server(words) = error else { return of_client(error) };
    let says = format!("{}, {}", words.message, words.code);
    match words.code {
        LOCK_WAIT => busy(ENGINE),
        code if NO_RIGHT.contains(&code) => refused(format!(
            "the account may not lock these rows: grant it UPDATE on them ({says})"
        )),
        code if BAD_QUERY.contains(&code) => LockError::invalid(ENGINE, "query", says),
        _ => of_client(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_in_whole_seconds() {
        let of = |millis| {
            let wait = RowWait::AtMost(Duration::from_millis(millis));
            RowLock::new("select 1 -- all", ()).with_wait(wait).statement()
        };
        assert_eq!(of(0), "select 1 -- all\nfor update wait 1");
        assert_eq!(of(1_001), "select 1 -- all\nfor update wait 2");
        assert!(RowLock::new("select 1", ()).statement().ends_with("\nfor update nowait"));
    }
}
