//! What locks on rows share: how long to wait for a row, and the errors of a wait.

use std::future::Future;
use std::time::Duration;

use holdline_core::{Certainty, Clock, ErrorKind, LockError};

/// What to do if another session has locked a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowWait {
    /// Fail at once with `Busy` (`NOWAIT`).
    Never,
    /// Skip locked rows (`SKIP LOCKED`), and fail with `Busy` if no other row is left.
    SkipLocked,
    /// Wait this long for each row, then fail with `TimedOut`. MariaDB waits whole seconds, and at
    /// least one. PostgreSQL waits for all rows together half of the reply timeout longer.
    AtMost(Duration),
}

/// Makes the error of a row that another session has locked.
pub fn busy(engine: &'static str) -> LockError {
    LockError::new(engine, ErrorKind::Busy { holder: None }, Certainty::NotApplied)
}

/// Makes the error of a server that did not answer in time.
pub fn no_answer(engine: &'static str, limit: Duration) -> LockError {
    let message = format!("no answer within {limit:?}");
    LockError::new(engine, ErrorKind::Unavailable { message }, Certainty::Unknown)
}

impl RowWait {
    /// Checks the wait against the server's largest timeout.
    ///
    /// # Errors
    /// `Invalid`: it is longer.
    pub fn check(self, engine: &'static str, longest: Duration) -> Result<(), LockError> {
        match self {
            RowWait::AtMost(wait) if wait > longest => {
                let message = format!("must be at most {longest:?}");
                Err(LockError::invalid(engine, "wait", message))
            }
            _ => Ok(()),
        }
    }

    /// Converts the error of a wait that took so long: `Busy` becomes `TimedOut` after a wait.
    pub fn outcome(self, error: LockError, waited: Duration) -> LockError {
        match (error.kind(), self) {
            (ErrorKind::Busy { .. }, RowWait::AtMost(_)) => {
                let kind = ErrorKind::TimedOut { waited, holder: None };
                LockError::new(error.engine(), kind, Certainty::NotApplied)
            }
            _ => error,
        }
    }
}

/// Waits for a rollback, at most this long.
pub async fn roll_back<T>(rollback: impl Future<Output = T>, limit: Duration, clock: &dyn Clock) {
    tokio::select! {
        biased;
        // An error means that the connection is gone, and the transaction with it.
        _ = rollback => {}
        () = clock.sleep_until(clock.now().after(limit)) => {}
    }
}
