//! The tables and procedures in the database: found, created, or brought up to date.
//!
//! - Tables and procedures carry a mark in their comments. A table or procedure of the same name
//!   without the mark is foreign, and is left as it is. The mark is no proof: an account that may
//!   create procedures here can run statements with the rights of every client (docs/mysql.md).
//! - Any number of clients may find nothing, or something older, at once: one creates it, the
//!   others wait. Each statement creates one object if it is missing; after an interrupted creation
//!   the next client completes it. The table `about` is created last.
//! - A version adds procedures of its own revision and leaves all others as they are, so two
//!   versions work on the same tables. Within a `FORMAT` the tables keep their columns and the
//!   meaning of these.

use std::collections::BTreeSet;
use std::time::Duration;

use holdline_core::{Certainty, ErrorKind, LockError};
use sha2::{Digest, Sha256};

use crate::connection::{ConnectionHandle, SQL_MODE};
use crate::error::{
    ENGINE, Failed, LOCK_WAIT, NO_RIGHT, foreign, of_handshake, protocol, refused, unavailable,
};
use crate::keys::{FORMAT, Names, PROCEDURES, TABLE_NAMES, TRAIL, literal};
use crate::rows::{Answer, Row, all, only};

/// The prefix of the comments that mark our tables and procedures.
const MARK: &str = "Holdline: ";
/// The procedure already exists: another client was first.
const THERE: u16 = 1304;

/// The state of the tables.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Some tables are missing.
    Missing,
    /// All tables exist, but some procedures of this version are missing.
    Older,
    Ours,
}

/// Reads the state of the tables.
///
/// # Errors
/// `Foreign`: the objects are not ours. `Protocol`: the format is too new. `Refused`: a privilege
/// is missing.
pub(crate) async fn find(handle: &ConnectionHandle, names: &Names) -> Result<Found, LockError> {
    let reply = handle.ask(look(names)).await.map_err(|failed| of_handshake(&failed))?;
    let found = found(&reply)?;
    if found != Found::Missing && !has_format(handle, names).await? {
        return Ok(Found::Missing);
    }
    Ok(found)
}

/// Returns the query for all objects with our names: one row each, with its comment.
pub(crate) fn look(names: &Names) -> String {
    let list =
        |all: Vec<String>| all.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(",");
    let trail = names.table(TRAIL);
    let tables = list(TABLE_NAMES.iter().map(|name| names.table(name)).collect());
    let procedures = list(PROCEDURES.iter().map(|name| names.procedure(name)).collect());
    format!(
        "select 'table' as object_kind, t.table_name as name, t.table_comment as comment, \
            t.engine as engine, null as maker from information_schema.tables t \
         where t.table_schema = database() and t.table_name in ({tables}) \
         union all select 'audit table', t.table_name, t.table_comment, t.engine, null \
         from information_schema.tables t \
         where t.table_schema = database() and t.table_name = '{trail}' \
         union all select 'procedure', r.routine_name, r.routine_comment, 'InnoDB', r.definer \
         from information_schema.routines r \
         where r.routine_schema = database() and r.routine_name in ({procedures})"
    )
}

/// Returns the accounts that created the procedures, from the reply to [`look`].
pub(crate) fn makers(reply: &Answer) -> String {
    let makers: BTreeSet<String> = all(reply).filter_map(|row| row.maybe("maker").ok()?).collect();
    makers.into_iter().collect::<Vec<_>>().join(", ")
}

/// Reads the reply to [`look`].
///
/// # Errors
/// `Foreign`: an object is not ours.
pub(crate) fn found(reply: &Answer) -> Result<Found, LockError> {
    let [set] = &reply[..] else { return Err(protocol("the tables' state")) };
    let mut tables = 0;
    let mut procedures = 0;
    for row in &set.rows {
        let row = Row::of(set, row);
        let object_kind: String = row.sure("object_kind")?;
        let name: String = row.sure("name")?;
        let comment: Option<String> = row.maybe("comment")?;
        let engine: Option<String> = row.maybe("engine")?;
        if !comment.is_some_and(|comment| comment.starts_with(MARK)) {
            return Err(foreign(format!(
                "the {object_kind} `{name}` is not ours: name others by `prefix`, or another \
                 database"
            )));
        }
        if engine.as_deref() != Some("InnoDB") {
            return Err(foreign(format!(
                "the table `{name}` is kept by {}, which has no transactions: let it be InnoDB",
                engine.unwrap_or_default()
            )));
        }
        match object_kind.as_str() {
            "table" => tables += 1,
            "procedure" => procedures += 1,
            _ => {}
        }
    }
    Ok(match (tables == TABLE_NAMES.len(), procedures == PROCEDURES.len()) {
        (false, _) => Found::Missing,
        (true, false) => Found::Older,
        (true, true) => Found::Ours,
    })
}

/// Creates what is missing. After an error, or if the future is dropped, the connection must be
/// closed.
pub(crate) async fn make(
    handle: &ConnectionHandle,
    names: &Names,
    limit: Duration,
) -> Result<(), LockError> {
    // A second client waits here, and then finds everything. This only avoids duplicate work: each
    // statement is safe without it.
    let turn = turn(names);
    let wait = limit.as_secs().max(1);
    let ask = format!("select get_lock(concat({turn}, left(md5(database()), 16)), {wait}) as got");
    let reply = handle.ask(ask).await.map_err(|failed| of_handshake(&failed))?;
    if only(&reply)?.maybe::<i64>("got")? != Some(1) {
        let message = format!("another client has been making the tables for {wait} s");
        return Err(unavailable(message, Certainty::NotApplied));
    }
    let made = complete(handle, names).await;
    let ask = format!("do release_lock(concat({turn}, left(md5(database()), 16)))");
    handle.ask(ask).await.map_err(|failed| of_handshake(&failed))?;
    made
}

async fn complete(handle: &ConnectionHandle, names: &Names) -> Result<(), LockError> {
    // Behind a pooler the session has not been set up.
    run(handle, &format!("set session sql_mode = '{SQL_MODE}'")).await?;
    match find(handle, names).await? {
        Found::Ours => return Ok(()),
        Found::Older => {}
        Found::Missing => {
            for text in names.tables() {
                run(handle, &text).await?;
            }
        }
    }
    for text in names.procedures() {
        run(handle, &text).await?;
    }
    match find(handle, names).await? {
        Found::Ours => {}
        _ => return Err(no_right("the account may not call the procedures that are there")),
    }
    tracing::info!(prefix = names.table(""), "the tables for locks were made, or completed");
    Ok(())
}

async fn run(handle: &ConnectionHandle, text: &str) -> Result<(), LockError> {
    match handle.ask(text).await {
        Err(Failed::Server(words)) if words.code == THERE => Ok(()),
        Err(Failed::Server(words)) if NO_RIGHT.contains(&words.code) => {
            Err(no_right(&words.to_string()))
        }
        Err(Failed::Server(words)) if words.code == LOCK_WAIT => {
            let message = format!("another session keeps the tables from being created ({words})");
            Err(unavailable(message, Certainty::NotApplied))
        }
        made => made.map(drop).map_err(|failed| of_handshake(&failed)),
    }
}

fn no_right(says: &str) -> LockError {
    refused(format!(
        "the tables of the locks are not set up, and this account may not do it: connect once as \
         one that may, and grant this one SELECT, INSERT, UPDATE, DELETE and EXECUTE on the \
         database ({says})"
    ))
}

/// The beginning of the name of the lock for creating the tables; the database follows. Such names
/// have at most 64 characters.
fn turn(names: &Names) -> String {
    let digest = Sha256::digest(names.table(""));
    format!("'holdline_make_{}'", literal(&digest[..8]).trim_matches(['x', '\'']))
}

/// Returns whether the format exists and is ours. It is missing after an interrupted creation.
async fn has_format(handle: &ConnectionHandle, names: &Names) -> Result<bool, LockError> {
    let table = names.table("about");
    let ask = format!("select format from {table} where only_row = 1");
    let reply = match handle.ask(ask).await {
        Err(Failed::Server(words)) if NO_RIGHT.contains(&words.code) => {
            return Err(no_right(&words.to_string()));
        }
        reply => reply.map_err(|failed| of_handshake(&failed))?,
    };
    if reply.first().is_some_and(|set| set.rows.is_empty()) {
        return Ok(false);
    }
    match only(&reply).and_then(|row| row.sure::<i64>("format")) {
        Ok(FORMAT) => Ok(true),
        Ok(format) => {
            let advice = if format < FORMAT {
                ": stop all clients and drop the tables (docs/mysql.md, New versions)"
            } else {
                ""
            };
            let says = format!("has format {format}, we know {FORMAT}{advice}");
            let message = format!("the table `{table}` {says}");
            let kind = ErrorKind::Protocol { message };
            Err(LockError::new(ENGINE, kind, Certainty::NotApplied))
        }
        Err(_) => Err(foreign(format!("the table `{table}` is not as we made it"))),
    }
}
