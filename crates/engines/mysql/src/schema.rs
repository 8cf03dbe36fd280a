//! What we keep in the database: found, made, or brought up to date.
//!
//! - Tables and procedures carry our mark in their comments. What is called as they are and has no
//!   such mark is somebody else's, and is left as it is. The mark is no proof: who may make
//!   procedures here can run statements with the rights of whoever locks (docs/mysql.md).
//! - Any number of clients may find nothing, or something older, at once: one makes it, the others
//!   wait for that. Each statement makes one thing whole, if it is not there; who was stopped on
//!   the way leaves what the next one completes. The table `about` is made last.
//! - A version adds procedures of its own revision and leaves all others as they are: so two
//!   versions work on the same tables. Within a `FORMAT` the tables keep their columns and what
//!   these mean.

use std::collections::BTreeSet;
use std::time::Duration;

use holdline_core::{Certainty, ErrorKind, LockError};
use sha2::{Digest, Sha256};

use crate::error::{
    ENGINE, Failed, LOCK_WAIT, NO_RIGHT, foreign, of_greeting, protocol, refused, unavailable,
};
use crate::keys::{FORMAT, Names, PROCEDURES, TABLE_NAMES, literal};
use crate::link::{Answer, Asker, SQL_MODE, only};
use crate::replies::Row;

/// What stands before all that we tell in a comment.
const MARK: &str = "Holdline: ";
/// There is such a procedure already: another client was first.
const THERE: u16 = 1304;

/// How our tables stand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Not all are there.
    Missing,
    /// All are, but not all procedures of this version.
    Older,
    Ours,
}

/// Looks how our tables stand.
///
/// # Errors
/// `Foreign`, `Protocol`, `Refused`: what is there is not ours, too new, or not for us.
pub(crate) async fn find(asker: &Asker, names: &Names) -> Result<Found, LockError> {
    let told = asker.ask(look(names)).await.map_err(|failed| of_greeting(&failed))?;
    let found = found(&told)?;
    if found != Found::Missing && !has_format(asker, names).await? {
        return Ok(Found::Missing);
    }
    Ok(found)
}

/// Asks what is there under our names: one row each, with its comment.
pub(crate) fn look(names: &Names) -> String {
    let list =
        |all: Vec<String>| all.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(",");
    let tables = list(TABLE_NAMES.iter().map(|name| names.table(name)).collect());
    let procedures = list(PROCEDURES.iter().map(|name| names.procedure(name)).collect());
    format!(
        "select 'table' as sort, t.table_name as name, t.table_comment as comment, \
            t.engine as engine, null as maker from information_schema.tables t \
         where t.table_schema = database() and t.table_name in ({tables}) \
         union all select 'procedure', r.routine_name, r.routine_comment, 'InnoDB', r.definer \
         from information_schema.routines r \
         where r.routine_schema = database() and r.routine_name in ({procedures})"
    )
}

/// The accounts that made the procedures, from the answer to [`look`].
pub(crate) fn makers(told: &Answer) -> String {
    let rows = told.iter().flat_map(|set| set.rows.iter().map(move |row| Row::of(set, row)));
    let makers: BTreeSet<String> = rows.filter_map(|row| row.maybe("maker").ok()?).collect();
    makers.into_iter().collect::<Vec<_>>().join(", ")
}

/// Reads the answer to [`look`].
///
/// # Errors
/// `Foreign`: something is not ours.
pub(crate) fn found(told: &Answer) -> Result<Found, LockError> {
    let [set] = told.as_slice() else { return Err(protocol("the tables' state")) };
    let (mut tables, mut procedures) = (0, 0);
    for row in &set.rows {
        let row = Row::of(set, row);
        let (sort, name): (String, String) = (row.sure("sort")?, row.sure("name")?);
        let comment: Option<String> = row.maybe("comment")?;
        let engine: Option<String> = row.maybe("engine")?;
        if !comment.is_some_and(|comment| comment.starts_with(MARK)) {
            return Err(foreign(format!(
                "the {sort} `{name}` is not ours: name others by `prefix`, or another database"
            )));
        }
        if engine.as_deref() != Some("InnoDB") {
            return Err(foreign(format!(
                "the table `{name}` is kept by {}, which has no transactions: let it be InnoDB",
                engine.unwrap_or_default()
            )));
        }
        match sort.as_str() {
            "table" => tables += 1,
            _ => procedures += 1,
        }
    }
    Ok(match (tables == TABLE_NAMES.len(), procedures == PROCEDURES.len()) {
        (false, _) => Found::Missing,
        (true, false) => Found::Older,
        (true, true) => Found::Ours,
    })
}

/// Makes what is missing. After an error, or when it is dropped, the connection must be ended.
pub(crate) async fn make(asker: &Asker, names: &Names, limit: Duration) -> Result<(), LockError> {
    // Who comes second waits here, and then finds all of it. It is not needed for what is made to
    // be whole: only so that a hundred clients do not all make the same.
    let turn = turn(names);
    let wait = limit.as_secs().max(1);
    let ask = format!("select get_lock(concat({turn}, left(md5(database()), 16)), {wait}) as got");
    let told = asker.ask(ask).await.map_err(|failed| of_greeting(&failed))?;
    if only(&told)?.maybe::<i64>("got")? != Some(1) {
        let message = format!("another client has been making the tables for {wait} s");
        return Err(unavailable(message, Certainty::NotApplied));
    }
    let made = complete(asker, names).await;
    let ask = format!("do release_lock(concat({turn}, left(md5(database()), 16)))");
    asker.ask(ask).await.map_err(|failed| of_greeting(&failed))?;
    made
}

async fn complete(asker: &Asker, names: &Names) -> Result<(), LockError> {
    // Behind a pooler the session has not been set up.
    run(asker, &format!("set session sql_mode = '{SQL_MODE}'")).await?;
    match find(asker, names).await? {
        Found::Ours => return Ok(()),
        Found::Older => {}
        Found::Missing => {
            for text in names.tables() {
                run(asker, &text).await?;
            }
        }
    }
    for text in names.procedures() {
        run(asker, &text).await?;
    }
    match find(asker, names).await? {
        Found::Ours => {}
        _ => return Err(no_right("the account may not call the procedures that are there")),
    }
    tracing::info!(prefix = names.table(""), "the tables for locks were made, or completed");
    Ok(())
}

async fn run(asker: &Asker, text: &str) -> Result<(), LockError> {
    match asker.ask(text).await {
        Err(Failed::Server(words)) if words.code == THERE => Ok(()),
        Err(Failed::Server(words)) if NO_RIGHT.contains(&words.code) => {
            Err(no_right(&words.to_string()))
        }
        Err(Failed::Server(words)) if words.code == LOCK_WAIT => {
            let message = format!("somebody keeps the tables from being made ({words})");
            Err(unavailable(message, Certainty::NotApplied))
        }
        made => made.map(drop).map_err(|failed| of_greeting(&failed)),
    }
}

fn no_right(says: &str) -> LockError {
    refused(format!(
        "the tables of the locks are not set up, and this account may not do it: connect once as \
         one that may, and grant this one SELECT, INSERT, UPDATE, DELETE and EXECUTE on the \
         database ({says})"
    ))
}

/// What the lock of whoever makes the tables is called, before what tells the database: such names
/// have at most 64 characters.
fn turn(names: &Names) -> String {
    let digest = Sha256::digest(names.table(""));
    format!("'holdline_make_{}'", literal(&digest[..8]).trim_matches(['x', '\'']))
}

/// Tells whether the format is there, and is ours: who was stopped while it made the tables may
/// have left none.
async fn has_format(asker: &Asker, names: &Names) -> Result<bool, LockError> {
    let table = names.table("about");
    let ask = format!("select format from {table} where only_row = 1");
    let told = match asker.ask(ask).await {
        Err(Failed::Server(words)) if NO_RIGHT.contains(&words.code) => {
            return Err(no_right(&words.to_string()));
        }
        told => told.map_err(|failed| of_greeting(&failed))?,
    };
    if told.first().is_some_and(|set| set.rows.is_empty()) {
        return Ok(false);
    }
    match only(&told).and_then(|row| row.sure::<i64>("format")) {
        Ok(FORMAT) => Ok(true),
        Ok(format) => {
            let message = format!("the table `{table}` has format {format}, we know {FORMAT}");
            let kind = ErrorKind::Protocol { message };
            Err(LockError::new(ENGINE, kind, Certainty::NotApplied))
        }
        Err(_) => Err(foreign(format!("the table `{table}` is not as we made it"))),
    }
}
