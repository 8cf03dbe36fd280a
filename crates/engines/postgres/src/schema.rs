//! What we keep in the database: found, or made.
//!
//! - It stands in a schema of its own. One that holds other people's things is left as it is.
//! - Any number of clients may find nothing at once: one makes it, the others wait for that.

use holdline_core::{Certainty, ErrorKind, LockError};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::error::{ENGINE, foreign, of_greeting, protocol, refused};
use crate::keys::quoted;

/// What this version reads and writes, as `about` tells it.
const FORMAT: i32 = 1;
const TABLES: &str = include_str!("../sql/tables.sql");
const RULES: &str = include_str!("../sql/rules.sql");
const VERBS: &str = include_str!("../sql/verbs.sql");
const DRAW: &str = include_str!("../sql/draw.sql");

/// How the schema stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Missing,
    Empty,
    /// Ours; whether it has the functions that this version calls.
    Ours {
        complete: bool,
    },
}

/// Looks how the schema stands.
///
/// # Errors
/// `Foreign`, `Protocol`, `Refused`: what is there is not ours, too new, or not for us.
pub(crate) async fn find(client: &Client, schema: &str) -> Result<Found, LockError> {
    let found = look(client, schema).await?;
    if matches!(found, Found::Ours { .. }) {
        check_format(client, schema).await?;
    }
    Ok(found)
}

/// Makes what is missing. After an error, or when it is dropped, the connection must be ended.
pub(crate) async fn make(client: &Client, schema: &str) -> Result<(), LockError> {
    // Who comes second waits here, and then finds all of it.
    let begin = "begin isolation level read committed; set local lock_timeout = 0; \
        set local statement_timeout = 0; \
        select pg_advisory_xact_lock(7236833041968951156)";
    run(client, begin).await?;
    let found = look(client, schema).await?;
    let text = |part: &str| part.replace("@schema@", &quoted(schema));
    if found == Found::Missing {
        let made = client.batch_execute(&format!("create schema {}", quoted(schema))).await;
        made.map_err(|error| no_right(&error, schema))?;
    }
    if matches!(found, Found::Missing | Found::Empty) {
        let made = client.batch_execute(&text(TABLES)).await;
        made.map_err(|error| no_right(&error, schema))?;
    }
    if found != (Found::Ours { complete: true }) {
        for part in [RULES, VERBS, DRAW] {
            let made = client.batch_execute(&text(part)).await;
            made.map_err(|error| no_right(&error, schema))?;
        }
        tracing::info!(schema, "the schema for locks was made");
    }
    run(client, "commit").await
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
         as a role that may ({error})"
    ))
}

/// What is asked about a schema.
pub(crate) const LOOK: &str = "select n.oid is not null, \
        has_schema_privilege(n.oid, 'usage'), \
        exists (select from pg_class c where c.relnamespace = n.oid) \
            or exists (select from pg_proc p where p.pronamespace = n.oid), \
        coalesce((select obj_description(c.oid, 'pg_class') like 'Holdline: %' from pg_class c \
            where c.relnamespace = n.oid and c.relname = 'about' and c.relkind = 'r'), false), \
        (select count(distinct p.proname) = 2 from pg_proc p where p.pronamespace = n.oid \
            and p.proname in ('sweep_1', 'draw_1')) \
        from (values (1)) one left join pg_namespace n on n.nspname = $1";

async fn look(client: &Client, schema: &str) -> Result<Found, LockError> {
    let rows = client.query_typed(LOOK, &[(&schema, Type::TEXT)]).await;
    found(&rows.map_err(|error| of_greeting(&error))?, schema)
}

/// Reads the answer to [`LOOK`].
pub(crate) fn found(rows: &[Row], schema: &str) -> Result<Found, LockError> {
    let row = rows.first().ok_or_else(|| protocol("the server does not tell of the schema"))?;
    let is = |at| {
        let value: Option<bool> = row.try_get(at).map_err(|_| protocol("the schema's state"))?;
        Ok::<bool, LockError>(value.unwrap_or(false))
    };
    let [there, usable, occupied, ours, complete] = [is(0)?, is(1)?, is(2)?, is(3)?, is(4)?];
    if there && ours && !usable {
        return Err(refused(format!(
            "this role may not use the schema `{schema}`: GRANT USAGE ON SCHEMA {} TO it",
            quoted(schema)
        )));
    }
    if !there {
        return Ok(Found::Missing);
    }
    if occupied && !ours {
        return Err(foreign(format!(
            "the schema `{schema}` holds what is not ours: name one of our own by `schema`"
        )));
    }
    Ok(if ours { Found::Ours { complete } } else { Found::Empty })
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
