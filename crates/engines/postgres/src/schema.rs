//! What we keep in the database: found, made, or brought up to date.
//!
//! - It stands in a schema of its own. One that holds other people's things is left as it is, and
//!   so is one that somebody made whom this role has no reason to trust: what is called there
//!   could do anything, with the rights of whoever calls it.
//! - Until the schema is trusted, and behind a pooler always, nothing that we send depends on the
//!   search path: a function or an operator that somebody planted in another schema, as in
//!   `public`, would run with the rights of the role that connects.
//! - Any number of clients may find nothing, or something older, at once: one makes it, the others
//!   wait for that.
//! - The functions have a revision, which stands in a comment on the last of them, and a digest of
//!   their text, in a comment on the first. A version puts its own in the place of older ones, and
//!   of others of its own revision, and leaves newer ones as they are. So within a `FORMAT` a
//!   function `…_1` keeps its arguments, its answer and what both mean; what is to mean something
//!   else is a function `…_2` beside it.

use std::fmt::Write;

use holdline_core::{Certainty, ErrorKind, LockError};
use sha2::{Digest, Sha256};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::error::{ENGINE, foreign, of_greeting, plain, protocol, refused};
use crate::keys::quoted;

/// What this version reads and writes, as `about` tells it.
const FORMAT: i32 = 1;
/// Of the functions in [`RULES`], [`VERBS`] and [`DRAW`]: counted up with each change of theirs.
const REVISION: i32 = 3;
const TABLES: &str = include_str!("../sql/tables.sql");
const UPGRADE: &str = include_str!("../sql/upgrade.sql");
const RULES: &str = include_str!("../sql/rules.sql");
const VERBS: &str = include_str!("../sql/verbs.sql");
const DRAW: &str = include_str!("../sql/draw.sql");

/// How the schema stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Missing,
    /// Whom it belongs to, if this role may act for them.
    Empty {
        owner: Option<String>,
    },
    Ours(Functions),
}

/// How the functions of a schema of ours stand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Functions {
    /// All that this version calls are there, as it knows them or newer.
    Current,
    /// Some are missing or older. Whom they belong to; this role may act for them.
    Older { owner: String },
}

/// Looks how the schema stands.
///
/// # Errors
/// `Foreign`, `Protocol`, `Refused`: what is there is not ours, too new, or not for us.
pub(crate) async fn find(client: &Client, schema: &str) -> Result<Found, LockError> {
    let found = look(client, schema).await?;
    if matches!(found, Found::Ours(_)) {
        check_format(client, schema).await?;
    }
    Ok(found)
}

/// Makes what is missing, and brings up to date what is older. After an error, or when it is
/// dropped, the connection must be ended.
pub(crate) async fn make(client: &Client, schema: &str) -> Result<(), LockError> {
    // Who comes second waits here, and then finds all of it.
    // Behind a pooler the session's search path is whatever it is.
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
        // What belongs to one role can be changed by one role.
        Found::Empty { owner: Some(owner) } | Found::Ours(Functions::Older { owner }) => {
            todo.push(format!("set local role {}", quoted(owner)));
        }
        Found::Empty { owner: None } | Found::Ours(Functions::Current) => {}
    }
    if matches!(found, Found::Missing | Found::Empty { .. }) {
        todo.push(filled(TABLES, schema));
    }
    if matches!(found, Found::Ours(Functions::Older { .. })) {
        todo.push(filled(UPGRADE, schema));
    }
    if found != Found::Ours(Functions::Current) {
        todo.extend([RULES, VERBS, DRAW].map(|part| filled(part, schema)));
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
        .replace("@revision@", &REVISION.to_string())
        .replace("@text@", &digest())
}

/// Returns the first half of the SHA-256 of the functions' text, as the schema keeps it.
fn digest() -> String {
    let digest = Sha256::digest([RULES, VERBS, DRAW].concat());
    digest.iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

async fn run(client: &Client, text: &str) -> Result<(), LockError> {
    client.batch_execute(text).await.map_err(|error| of_greeting(&error))
}

fn no_right(error: &tokio_postgres::Error, schema: &str) -> LockError {
    if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return of_greeting(error);
    }
    refused(format!(
        "the locks of schema `{schema}` are not set up, and this role may not do it: connect once \
         as a role that may ({})",
        plain(error)
    ))
}

/// What is asked about a schema.
pub(crate) const LOOK: &str = include_str!("../sql/look.sql");

async fn look(client: &Client, schema: &str) -> Result<Found, LockError> {
    let rows = client.query_typed(LOOK, &[(&schema, Type::TEXT)]).await;
    found(&rows.map_err(|error| of_greeting(&error))?, schema)
}

/// Reads the answer to [`LOOK`].
///
/// # Errors
/// `Foreign`: it is not ours. `Refused`: this role may not use it, or what it lacks only another
/// can put there.
pub(crate) fn found(rows: &[Row], schema: &str) -> Result<Found, LockError> {
    let row = rows.first().ok_or_else(|| protocol("the server does not tell of the schema"))?;
    let odd = |_| protocol("the schema's state");
    let is = |at| Ok(row.try_get::<_, Option<bool>>(at).map_err(odd)?.unwrap_or(false));
    let [there, usable, occupied, ours, complete, may_mend] =
        [is(0)?, is(1)?, is(2)?, is(3)?, is(4)?, is(5)?];
    let text = |at| row.try_get::<_, Option<&str>>(at).map_err(odd);
    let (owner, strangers) = (text(6)?.unwrap_or_default(), text(8)?);
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
            "in the schema `{schema}` these have a say, whom this role has no reason to trust: \
             {strangers}. If they keep its locks, make it a member of them (GRANT … TO it), or \
             else name another by `schema`"
        )));
    }
    if !ours {
        return Ok(Found::Empty { owner: may_mend.then(|| owner.to_owned()) });
    }
    if !usable {
        return Err(refused(format!(
            "this role may not use the schema `{schema}`: GRANT USAGE ON SCHEMA {} TO it",
            quoted(schema)
        )));
    }
    let stands = Stands { complete, revision: revision.unwrap_or(0), is_same_text };
    functions(stands, owner, may_mend)
        .map_err(|says| refused(format!("the functions of the schema `{schema}` {says}")))
        .map(Found::Ours)
}

/// What a schema tells of its functions: whether all are there, and what they are.
#[derive(Clone, Copy)]
struct Stands {
    complete: bool,
    revision: i32,
    is_same_text: bool,
}

/// Tells what to do about functions. Those of our revision with another text are replaced by who
/// may: one of the two was corrected without a new revision. Who may not uses them, since their
/// arguments and answers are the same.
fn functions(stands: Stands, owner: &str, may_mend: bool) -> Result<Functions, String> {
    let Stands { complete, revision, is_same_text } = stands;
    match () {
        () if complete && revision > REVISION => Ok(Functions::Current),
        () if complete && revision == REVISION && (is_same_text || !may_mend) => {
            Ok(Functions::Current)
        }
        () if revision > REVISION => Err(format!(
            "are of revision {revision}, we know {REVISION}, and some are missing: take a lock \
             once by the newer version"
        )),
        () if may_mend => Ok(Functions::Older { owner: owner.to_owned() }),
        () => Err(format!(
            "are of revision {revision}, and this version needs {REVISION}: take a lock once by \
             this version as the role `{owner}`"
        )),
    }
}

async fn check_format(client: &Client, schema: &str) -> Result<(), LockError> {
    let ask = format!("select format from {}.about", quoted(schema));
    let rows = client.query_typed(&ask, &[]).await.map_err(|error| of_greeting(&error))?;
    match rows.first().map(|row| row.try_get::<_, i32>(0)) {
        Some(Ok(FORMAT)) => Ok(()),
        Some(Ok(format)) => {
            let message = format!("the schema `{schema}` has format {format}, we know {FORMAT}");
            let kind = ErrorKind::Protocol { message };
            Err(LockError::new(ENGINE, kind, Certainty::NotApplied))
        }
        _ => Err(foreign(format!("the table `about` of schema `{schema}` is not as we made it"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a new revision a correction reaches no schema that was made before.
    #[test]
    fn functions_that_change_have_a_new_revision() {
        let known = (3, "99cc6671c6e5c8a4");
        let told = "count REVISION up, and put the new pair here";
        assert_eq!((REVISION, digest().as_str()), known, "{told}");
    }

    #[test]
    fn older_functions_are_replaced_and_newer_ones_are_left() {
        let older = || Ok(Functions::Older { owner: "ann".to_owned() });
        let current = || Ok(Functions::Current);
        for (complete, revision, is_same_text, may_mend, expected) in [
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
            let stands = Stands { complete, revision, is_same_text };
            let told = functions(stands, "ann", may_mend);
            match (told, expected) {
                (Err(told), Err(says)) => assert!(told.ends_with(says), "{told}"),
                (told, expected) => assert_eq!(told.ok(), expected.ok(), "{complete} {revision}"),
            }
        }
    }
}
