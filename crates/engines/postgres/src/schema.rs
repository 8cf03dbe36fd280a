//! The schema in the database: found, created, or brought up to date.
//!
//! - The locks are in a schema of their own. A schema with other objects is left as it is. So is
//!   one whose owner this role has no reason to trust: its functions run with the rights of every
//!   client.
//! - Until the schema is trusted, and always behind a pooler, no statement depends on the search
//!   path. A function or an operator that a stranger planted in another schema, such as `public`,
//!   would run with the rights of the role that connects.
//! - Any number of clients may find nothing, or something older, at once: one creates it, the
//!   others wait.
//! - The functions have a revision, in a comment on the last of them, and a digest of their text,
//!   in a comment on the first. A version replaces older functions, and those of its own revision
//!   with another text; it leaves newer ones as they are. So within a `FORMAT` a function `…_1`
//!   keeps its arguments, its result and the meaning of both; a function with another meaning is a
//!   `…_2` beside it.

use std::fmt::Write;

use holdline_core::audit::{MAX_RECORD_BYTES, MAX_RECORDS};
use holdline_core::operation::{LARGEST_FENCE, MAX_FREEZE};
use holdline_core::{Certainty, ContractTimes, ErrorKind, LockError};
use sha2::{Digest, Sha256};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::error::{ENGINE, foreign, of_handshake, plain, protocol, refused};
use crate::keys::quoted;

/// The format that this version reads and writes, stored in `about`.
const FORMAT: i32 = 2;
/// The revision of the tables and functions in [`NAMES`], [`RULES`], [`VERBS`], [`AUDIT`] and
/// [`FINISH`]; each change of them increments it.
const REVISION: i32 = 14;
const TABLES: &str = include_str!("../sql/tables.sql");
const NAMES: &str = include_str!("../sql/names.sql");
const RULES: &str = include_str!("../sql/rules.sql");
const VERBS: &str = include_str!("../sql/verbs.sql");
const AUDIT: &str = include_str!("../sql/audit.sql");
const FINISH: &str = include_str!("../sql/finish.sql");
const GRANTS: &str = include_str!("../sql/grants.sql");

/// The state of the schema.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Missing,
    /// The owner, if this role may act for it.
    Empty {
        owner: Option<String>,
    },
    Ours(Functions),
}

/// The state of the functions of a schema of ours.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Functions {
    /// All functions that this version calls exist, in its revision or a newer one.
    Current,
    /// Some are missing or older. This role may act for their owner.
    Older { owner: String },
}

/// Reads the state of the schema.
///
/// # Errors
/// `Foreign`: the objects are not ours. `Protocol`: the format is too new. `Refused`: a privilege
/// is missing.
pub(crate) async fn find(client: &Client, schema: &str) -> Result<Found, LockError> {
    let found = look(client, schema).await?;
    if matches!(found, Found::Ours(_)) {
        check_format(client, schema).await?;
    }
    Ok(found)
}

/// Creates what is missing, and replaces what is older. After an error, or if the future is
/// dropped, the connection must be closed.
pub(crate) async fn make(client: &Client, schema: &str) -> Result<(), LockError> {
    // A second client waits here, and then finds everything.
    // Behind a pooler the session's search path is unknown.
    let begin = "begin isolation level read committed; \
        set local search_path = pg_catalog, pg_temp; set local lock_timeout = 0; \
        set local statement_timeout = 0; \
        select pg_catalog.pg_advisory_xact_lock(7236833041968951156)";
    run(client, begin).await?;
    // Another version may have come first.
    let found = find(client, schema).await?;
    let mut todo = Vec::new();
    match &found {
        Found::Missing => todo.push(format!("create schema {}", quoted(schema))),
        // The owner of an object must make its changes.
        Found::Empty { owner: Some(owner) } | Found::Ours(Functions::Older { owner }) => {
            todo.push(format!("set local role {}", quoted(owner)));
        }
        Found::Empty { owner: None } | Found::Ours(Functions::Current) => {}
    }
    let is_new = matches!(found, Found::Missing | Found::Empty { .. });
    if is_new {
        todo.push(filled(TABLES, schema));
    }
    if found != Found::Ours(Functions::Current) {
        todo.push(filled(&functions_text(&ContractTimes::DEFAULT), schema));
        if is_new {
            todo.push(filled(GRANTS, schema));
        }
        for text in todo {
            let made = client.batch_execute(&text).await;
            made.map_err(|error| no_right(&error, schema))?;
        }
        tracing::info!(schema, REVISION, "the schema for locks was made, or brought up to date");
    }
    run(client, "commit").await
}

fn filled(part: &str, schema: &str) -> String {
    part.replace("@schema@", &quoted(schema))
        .replace("@format@", &FORMAT.to_string())
        .replace("@revision@", &REVISION.to_string())
        .replace("@text@", &digest())
}

/// Returns the text of all functions with these times, before the schema's name is inserted.
fn functions_text(times: &ContractTimes) -> String {
    times
        .fill_micros(&[NAMES, RULES, VERBS, AUDIT, FINISH].concat())
        .replace("@largest_fence@", &LARGEST_FENCE.to_string())
        .replace("@max_freeze@", &MAX_FREEZE.as_micros().to_string())
        .replace("@records@", &MAX_RECORDS.to_string())
        .replace("@record_bytes@", &MAX_RECORD_BYTES.to_string())
}

/// Returns the first half of the SHA-256 of the functions' text, as the schema keeps it.
fn digest() -> String {
    let digest = Sha256::digest(functions_text(&ContractTimes::DEFAULT));
    digest.iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

async fn run(client: &Client, text: &str) -> Result<(), LockError> {
    client.batch_execute(text).await.map_err(|error| of_handshake(&error))
}

fn no_right(error: &tokio_postgres::Error, schema: &str) -> LockError {
    if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return of_handshake(error);
    }
    refused(format!(
        "the locks of schema `{schema}` are not set up, and this role may not do it: connect once \
         as a role that may ({})",
        plain(error)
    ))
}

/// The query for the state of a schema.
pub(crate) const LOOK: &str = include_str!("../sql/look.sql");

async fn look(client: &Client, schema: &str) -> Result<Found, LockError> {
    let rows = client.query_typed(LOOK, &[(&schema, Type::TEXT)]).await;
    found(&rows.map_err(|error| of_handshake(&error))?, schema)
}

/// Reads the reply to [`LOOK`].
///
/// # Errors
/// `Foreign`: it is not ours. `Refused`: this role may not use it, or only another role can add
/// what is missing.
pub(crate) fn found(rows: &[Row], schema: &str) -> Result<Found, LockError> {
    let row = rows.first().ok_or_else(|| protocol("the server does not report the schema"))?;
    let odd = |_| protocol("the schema's state");
    let is = |at| Ok(row.try_get::<_, Option<bool>>(at).map_err(odd)?.unwrap_or(false));
    let [there, usable, occupied, ours, complete, may_replace] =
        [is(0)?, is(1)?, is(2)?, is(3)?, is(4)?, is(5)?];
    let text = |at| row.try_get::<_, Option<&str>>(at).map_err(odd);
    let owner = text(6)?.unwrap_or_default();
    let strangers = text(8)?;
    let revision: Option<i32> = row.try_get(7).map_err(odd)?;
    let is_same_text = text(9)?.is_some_and(|text| text == digest());
    if !there {
        return Ok(Found::Missing);
    }
    if occupied && !ours {
        return Err(foreign(format!(
            "the schema `{schema}` holds what is not ours: name one of our own by `schema`"
        )));
    }
    if let Some(strangers) = strangers {
        return Err(foreign(format!(
            "roles that this role does not trust own or may create objects in the schema \
             `{schema}`: {strangers}. If they keep its locks, make it a member of them \
             (GRANT … TO it), or else name another by `schema`"
        )));
    }
    if !ours {
        return Ok(Found::Empty { owner: may_replace.then(|| owner.to_owned()) });
    }
    if !usable {
        return Err(refused(format!(
            "this role may not use the schema `{schema}`: GRANT USAGE ON SCHEMA {} TO it",
            quoted(schema)
        )));
    }
    let found_functions =
        FoundFunctions { complete, revision: revision.unwrap_or(0), is_same_text };
    functions(found_functions, owner, may_replace)
        .map_err(|says| refused(format!("the functions of the schema `{schema}` {says}")))
        .map(Found::Ours)
}

/// The functions that were found in a schema.
#[derive(Clone, Copy)]
struct FoundFunctions {
    complete: bool,
    revision: i32,
    is_same_text: bool,
}

/// Decides whether functions must be replaced. Functions of our revision with another text are
/// replaced if the role may do so: one of the two texts was corrected without a new revision. Other
/// roles use them, because their arguments and results are the same.
fn functions(
    found_functions: FoundFunctions,
    owner: &str,
    may_replace: bool,
) -> Result<Functions, String> {
    let FoundFunctions { complete, revision, is_same_text } = found_functions;
    match () {
        () if complete && revision > REVISION => Ok(Functions::Current),
        () if complete && revision == REVISION && (is_same_text || !may_replace) => {
            Ok(Functions::Current)
        }
        () if revision > REVISION => Err(format!(
            "are of revision {revision}, we know {REVISION}, and some are missing: take a lock \
             once by the newer version"
        )),
        () if may_replace => Ok(Functions::Older { owner: owner.to_owned() }),
        () => Err(format!(
            "are of revision {revision}, and this version needs {REVISION}: take a lock once by \
             this version as the role `{owner}`"
        )),
    }
}

async fn check_format(client: &Client, schema: &str) -> Result<(), LockError> {
    let ask = format!("select format from {}.about", quoted(schema));
    let rows = client.query_typed(&ask, &[]).await.map_err(|error| of_handshake(&error))?;
    match rows.first().map(|row| row.try_get::<_, i32>(0)) {
        Some(Ok(FORMAT)) => Ok(()),
        Some(Ok(format)) => {
            let advice = if format < FORMAT {
                ": stop all clients and drop the schema (docs/postgres.md, New versions)"
            } else {
                ""
            };
            let says = format!("has format {format}, we know {FORMAT}{advice}");
            let message = format!("the schema `{schema}` {says}");
            let kind = ErrorKind::Protocol { message };
            Err(LockError::new(ENGINE, kind, Certainty::NotApplied))
        }
        _ => Err(foreign(format!("the table `about` of schema `{schema}` is not as we made it"))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Without a new revision, roles that may not replace functions would keep using the old ones.
    #[test]
    fn functions_that_change_have_a_new_revision() {
        let known = (14, "a415bec1997a782b");
        let reply = "increment REVISION, and put the new pair here";
        assert_eq!((REVISION, digest().as_str()), known, "{reply}");
    }

    #[test]
    fn the_functions_have_the_times_of_the_contract() {
        let seconds = Duration::from_secs;
        let usual = functions_text(&ContractTimes::DEFAULT);
        for (times, old, new) in [
            (ContractTimes { queue_silence: seconds(17), ..ContractTimes::DEFAULT }, 4, 17),
            (ContractTimes { queue_heartbeat: seconds(18), ..ContractTimes::DEFAULT }, 1, 18),
        ] {
            let text = functions_text(&times);
            let count = |text: &str, number: u32| {
                // A second as a unit of the clock stays.
                let text = text.replace("1000000::pg_catalog.numeric", "");
                text.matches(&format!("{number}000000")).count()
            };
            assert!(count(&usual, old) > 0 && count(&usual, new) == 0, "{times:?}");
            assert_eq!(
                (count(&text, old), count(&text, new)),
                (0, count(&usual, old)),
                "{times:?}"
            );
        }
        let times = ContractTimes { min_tombstone: seconds(19), ..ContractTimes::DEFAULT };
        let text = functions_text(&times);
        let tombstones = text.matches("19000000").count();
        assert!(tombstones > 0 && !text.contains("30000000"), "{text}");
        assert!(!usual.contains("@queue") && !usual.contains("_lease@"), "{usual}");
    }

    #[test]
    fn older_functions_are_replaced_and_newer_ones_are_left() {
        let older = || Ok(Functions::Older { owner: "ann".to_owned() });
        let current = || Ok(Functions::Current);
        for (complete, revision, is_same_text, may_replace, expected) in [
            (true, REVISION, true, true, current()),
            (true, REVISION, true, false, current()),
            (true, REVISION, false, false, current()),
            (true, REVISION, false, true, older()),
            (true, REVISION + 1, false, true, current()),
            (true, REVISION - 1, true, true, older()),
            (false, REVISION, true, true, older()),
            (true, REVISION - 1, true, false, Err("as the role `ann`")),
            (false, REVISION, true, false, Err("as the role `ann`")),
            (false, REVISION + 1, true, true, Err("by the newer version")),
        ] {
            let found_functions = FoundFunctions { complete, revision, is_same_text };
            let error = functions(found_functions, "ann", may_replace);
            match (error, expected) {
                (Err(error), Err(says)) => assert!(error.ends_with(says), "{error}"),
                (error, expected) => assert_eq!(error.ok(), expected.ok(), "{complete} {revision}"),
            }
        }
    }
}
