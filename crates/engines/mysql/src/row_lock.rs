//! Locks on rows that the user guards in the same database: no lease, and no fencing token needed,
//! since what is written and what is locked are one transaction.
//!
//! - Invariant R1: the body runs only while the rows are locked, in the transaction that locked
//!   them.
//! - Invariant R2: `Ok` is told only when the server has said that it committed what the body did.
//! - Invariant R3: whatever else ends it rolls back; only a commit whose answer is lost is unknown.
//!   The server ends a whole transaction to break a ring of waits, and a body that takes no notice
//!   would go on outside of any: a savepoint that is gone tells that.

use std::fmt;
use std::time::Duration;

use holdline_core::{Certainty, Clock, ErrorKind, LockError};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, IsolationLevel, Params, Row, Transaction, TxOpts};

use crate::error::{
    Complaint, ENGINE, LOCK_WAIT, NO_RIGHT, STOPPED, kind_of, refused, unavailable,
};

/// As much as the server can count.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
const ANSWER: Duration = Duration::from_secs(5);
const SAVEPOINT: &str = "holdline_rows";
/// There is no such savepoint.
const NO_SAVEPOINT: u16 = 1305;
/// What a query may be told that is wrong in itself: syntax, names, values.
const BAD_QUERY: [u16; 6] = [1054, 1064, 1146, 1109, 1210, 1292];

/// What to do about rows that somebody else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowWait {
    /// Fail at once with `Busy` (`NOWAIT`).
    Never,
    /// Leave them out (`SKIP LOCKED`), and fail with `Busy` if no other is left.
    SkipLocked,
    /// Wait for each of them so long, in whole seconds and at least one, then fail with `TimedOut`.
    AtMost(Duration),
}

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

    /// Sets what to do about rows that somebody else has locked.
    #[must_use]
    pub fn with_wait(mut self, wait: RowWait) -> RowLock<'a> {
        self.wait = wait;
        self
    }

    /// Sets how long the server may take to answer, beyond any wait for rows; 5 s unless set. The
    /// body has no limit of ours.
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

    /// How long the server may wait for a row: it counts seconds.
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

/// Why the body's work was not done, or may not have been.
#[derive(Debug)]
#[non_exhaustive]
pub enum RowLockError<E> {
    /// There is no such row. The body did not run.
    Missing,
    /// The rows could not be locked, or the commit was refused. Nothing was done. The kinds: `Busy`
    /// and `TimedOut` when somebody else has locked them, `Unavailable` when the server does not
    /// answer or has broken a ring of waits, `Refused` when it refuses, `Invalid` when it is the
    /// query.
    Failed(LockError),
    /// The body failed. What it did was rolled back.
    Body(E),
    /// It may have been done: the commit was sent and no answer came; or the server had ended the
    /// transaction, the body took no notice, and what it did after that stands.
    Unknown(LockError),
}

impl<E> RowLockError<E> {
    /// Tells whether what the body did was committed.
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

/// Locks rows, runs `body` in the same transaction, and commits what it did.
///
/// For rows that live in this database: whoever writes them only under their lock needs no fencing
/// token, since a holder whose connection ended can no longer commit. Let the body fail when one of
/// its statements does. Keep it short: an open transaction holds back the server's cleaning up.
///
/// The transaction is `READ COMMITTED`, whatever the session's default: after a wait the server
/// looks again whether the row still fits the query, and if not it is [`RowLockError::Missing`].
/// `clock` measures limits.
///
/// # Errors
/// As [`RowLockError`] tells; only its `Unknown` may have been done.
///
/// # Cancel safety
/// Dropping the future rolls back, unless the commit was sent already, as soon as the connection is
/// used again or dropped itself: until then the rows may stay locked. Drop it too.
pub async fn row_lock<T, E, F>(
    connection: &mut Conn,
    rows: &RowLock<'_>,
    clock: &dyn Clock,
    body: F,
) -> Result<T, RowLockError<E>>
where
    F: AsyncFnOnce(&mut Transaction<'_>, Vec<Row>) -> Result<T, E>,
{
    if matches!(rows.wait, RowWait::AtMost(wait) if wait > LONGEST_WAIT) {
        let message = format!("must be at most {LONGEST_WAIT:?}");
        return Err(LockError::invalid(ENGINE, "wait", message).into());
    }
    let began = clock.now();
    let limit = rows.lock_timeout().saturating_add(rows.answer);
    let locked = tokio::select! {
        biased;
        locked = lock(connection, rows) => locked,
        () = clock.sleep_until(began.after(limit)) => Err(no_answer(limit)),
    };
    let (mut transaction, found) = match locked {
        Ok(Some(locked)) => locked,
        Ok(None) => return Err(RowLockError::Missing),
        Err(error) => return Err(in_time(error, rows.wait, began.until(clock.now())).into()),
    };
    let done = match body(&mut transaction, found).await {
        Ok(done) => done,
        Err(error) => {
            roll_back(transaction, rows.answer, clock).await;
            return Err(RowLockError::Body(error));
        }
    };
    let error = tokio::select! {
        biased;
        committed = commit(transaction) => match committed {
            Ok(()) => return Ok(done),
            Err(error) => error,
        },
        () = clock.sleep_until(clock.now().after(rows.answer)) => no_answer(rows.answer),
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
                Ok(_) => Err(busy()),
                Err(error) => Err(of_select(&error)),
            }
        }
        Ok(_) => Ok(None),
        Err(error) => Err(of_select(&error)),
    };
    // An error here says that the connection is gone, and the transaction with it.
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
        // It may have been stopped while it waited for the disk or a replica, after the commit.
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

async fn roll_back(transaction: Transaction<'_>, limit: Duration, clock: &dyn Clock) {
    // An error here says that the connection is gone, and the transaction with it.
    tokio::select! {
        biased;
        _ = transaction.rollback() => {}
        () = clock.sleep_until(clock.now().after(limit)) => {}
    }
}

fn busy() -> LockError {
    LockError::new(ENGINE, ErrorKind::Busy { holder: None }, Certainty::NotApplied)
}

fn no_answer(limit: Duration) -> LockError {
    unavailable(format!("no answer within {limit:?}"), Certainty::Unknown)
}

/// Whoever waited and met its limit is told so.
fn in_time(error: LockError, wait: RowWait, waited: Duration) -> LockError {
    match (error.kind(), wait) {
        (ErrorKind::Busy { .. }, RowWait::AtMost(_)) => {
            let kind = ErrorKind::TimedOut { waited, holder: None };
            LockError::new(ENGINE, kind, Certainty::NotApplied)
        }
        _ => error,
    }
}

/// What an error of the client crate means for a statement that was sent.
fn of_client(error: &Error) -> LockError {
    match error {
        Error::Server(words) => {
            let words = Complaint { code: words.code, says: words.message.clone() };
            LockError::new(ENGINE, kind_of(&words), Certainty::NotApplied)
        }
        other => unavailable(format!("the connection broke: {other}"), Certainty::Unknown),
    }
}

/// What an error means before the body ran.
fn of_select(error: &Error) -> LockError {
    let Error::Server(words) = error else { return of_client(error) };
    let says = format!("{}, {}", words.message, words.code);
    match words.code {
        LOCK_WAIT => busy(),
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
