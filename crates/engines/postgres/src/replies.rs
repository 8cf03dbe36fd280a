//! Rows of PostgreSQL, and the replies that only it has.

use std::error::Error;
use std::time::Duration;

use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, LockError, OperationReply, RenewReply,
};
use holdline_net::sql::replies::unknown;
use holdline_net::sql::rows::Row;
use tokio_postgres::types::{FromSql, Type, accepts};

use crate::error::{ENGINE, protocol, unavailable};

/// A row, read by the names of its columns.
pub(crate) struct Columns<'a>(&'a tokio_postgres::Row);

/// A number of four or eight bytes.
struct Number(i64);

impl<'a> FromSql<'a> for Number {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Number, Box<dyn Error + Sync + Send>> {
        Ok(Number(match *of {
            Type::INT4 => i32::from_sql(of, raw)?.into(),
            _ => i64::from_sql(of, raw)?,
        }))
    }

    accepts!(INT4, INT8);
}

impl<'a> Columns<'a> {
    fn maybe<T: FromSql<'a>>(&self, column: &str) -> Result<Option<T>, LockError> {
        let read = self.0.try_get::<_, Option<T>>(column);
        read.map_err(|_| protocol(format!("an answer has no good column `{column}`")))
    }
}

impl Row for Columns<'_> {
    const ENGINE: &'static str = ENGINE;

    fn number(&self, column: &str) -> Result<Option<i64>, LockError> {
        Ok(self.maybe::<Number>(column)?.map(|number| number.0))
    }

    fn word(&self, column: &str) -> Result<Option<&str>, LockError> {
        self.maybe(column)
    }

    fn bytes(&self, column: &str) -> Result<Option<&[u8]>, LockError> {
        self.maybe(column)
    }
}

/// Returns the rows of a reply.
pub(crate) fn all(rows: &[tokio_postgres::Row]) -> impl Iterator<Item = Columns<'_>> {
    rows.iter().map(Columns)
}

/// Returns the only row of a reply.
pub(crate) fn only(rows: &[tokio_postgres::Row]) -> Result<Columns<'_>, LockError> {
    match rows {
        [row] => Ok(Columns(row)),
        _ => Err(protocol(format!("an answer has {} rows and not one", rows.len()))),
    }
}

/// Reads the token of a short grant; `None` if it granted nothing.
pub(crate) fn granted(
    row: &Columns<'_>,
    request: &AcquireRequest,
) -> Result<Option<AcquireReply>, LockError> {
    let left = request.hold.duration();
    let token = row.token("grant_free_1")?;
    Ok(token.map(|token| AcquireReply::Granted { token, left, anchor: None }))
}

/// Reads how long a lease was held that a short release has ended; `None` if it ended none.
pub(crate) fn held_for(row: &Columns<'_>) -> Result<Option<Duration>, LockError> {
    row.duration("release_alone_1")
}

fn renewal(row: &Columns<'_>) -> Result<RenewReply, LockError> {
    match row.sure_word("outcome")? {
        "renewed" => Ok(RenewReply::Renewed { left: Some(row.sure_duration("rest")?) }),
        "queued" => Ok(RenewReply::Queued {
            position: Some(row.count("place")?),
            next_look: row.sure_duration("look")?,
        }),
        "held" => Ok(RenewReply::Held { left: row.duration("rest")? }),
        "revoked" => Ok(RenewReply::Revoked {
            reason: row.text("note")?.unwrap_or_default(),
            left: Some(row.sure_duration("rest")?),
        }),
        "unknown" => Ok(RenewReply::Unknown),
        other => Err(unknown(row, other)),
    }
}

/// Reads the replies to a batch of this many renewals; they come in the order of the names. A
/// renewal whose row another session has locked is not answered, and was not applied.
pub(crate) fn renewed(
    rows: &[tokio_postgres::Row],
    batch: usize,
) -> Vec<Result<RenewReply, LockError>> {
    let missing = || {
        let message = "another session has locked the row of this name";
        Err(unavailable(message, Certainty::NotApplied))
    };
    let mut replies: Vec<Result<RenewReply, LockError>> = (0..batch).map(|_| missing()).collect();
    for row in all(rows) {
        let at = row.sure_number("line").ok().and_then(|n| usize::try_from(n - 1).ok());
        if let Some(reply) = at.and_then(|at| replies.get_mut(at)) {
            *reply = renewal(&row);
        }
    }
    replies
}

/// Reads whether there was a freeze to end.
pub(crate) fn unfrozen(row: &Columns<'_>) -> Result<OperationReply, LockError> {
    Ok(match row.maybe("unfreeze_1")? {
        Some(true) => OperationReply::Done,
        Some(false) => OperationReply::NothingThere,
        None => return Err(protocol("an answer has nothing in column `unfreeze_1`")),
    })
}
