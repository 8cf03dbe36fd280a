//! What is said on a new connection before any command.
//!
//! - A pooler between us and the server is told by the number of the server's process: it gives us
//!   one of its own. Behind it nothing is set and nothing is heard, since our next statement may
//!   go to another process; each command is one statement, and good there too.
//! - Our session looks nothing up but in the server's own catalog (`search_path`). That is no
//!   startup parameter, since poolers refuse those that they do not know; so what comes before it,
//!   and all that may go through a pooler, is qualified besides.
//! - A new connection listens before it is used, if anybody wants to be told.

use std::sync::atomic::Ordering;
use std::time::Duration;

use holdline_core::{Clock, LockError};
use tokio::io::AsyncReadExt;
use tokio_postgres::{Client, NoTls};

use super::{Live, Shared};
use crate::error::{of_greeting, protocol, refused};
use crate::options::PostgresOptions;

/// The oldest server that our statements were written for.
const OLDEST: i32 = 140_000;

/// How our functions are planned: once for each, by the indexes. A table that was found empty when
/// a plan was made would be read from end to end later, with all that is dead in it.
const PLANS: &str =
    "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off;";

/// What is known of the server behind the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// As the server counts: 150004 is 15.4.
    pub(crate) version: i32,
    /// Something between us and the server gives connections to others too.
    pub(crate) pooled: bool,
    /// How long the first question took, there and back.
    pub(crate) round_trip: Duration,
}

/// Says the first words.
pub(crate) async fn greet(
    client: &Client,
    options: &PostgresOptions,
    clock: &dyn Clock,
) -> Result<Facts, LockError> {
    let before = clock.now();
    let ask = "select pg_catalog.pg_backend_pid(), \
        pg_catalog.current_setting('server_version_num')::pg_catalog.int4, \
        pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('synchronous_commit')";
    let told = client.query_typed(ask, &[]).await.map_err(|error| of_greeting(&error))?;
    let round_trip = before.until(clock.now());
    let odd = |_| protocol("the server does not tell what it is");
    let Some(row) = told.first() else { return Err(protocol("the server tells nothing")) };
    let (process, version): (i32, i32) =
        (row.try_get(0).map_err(odd)?, row.try_get(1).map_err(odd)?);
    let (follows, commit): (bool, &str) =
        (row.try_get(2).map_err(odd)?, row.try_get(3).map_err(odd)?);
    if version < OLDEST {
        let found = version / 10_000;
        return Err(refused(format!("the server is PostgreSQL {found}: we need 14 or newer")));
    }
    if follows {
        return Err(refused("the server is a standby and takes no writes: name the primary"));
    }
    let pooled = our_process(client).await? != process;
    if pooled {
        if commit == "off" {
            let says = "synchronous_commit is off and we are behind a pooler, where we cannot set \
                it: a crash would take grants back. Set it for the role";
            return Err(refused(says));
        }
        tracing::debug!(
            "a pooler is between us and the server: waiters are left to their heartbeat"
        );
    } else {
        set(client, options, commit).await?;
    }
    Ok(Facts { version, pooled, round_trip })
}

/// The settings of our session that a command relies on.
async fn set(client: &Client, options: &PostgresOptions, commit: &str) -> Result<(), LockError> {
    let limit = options.command_timeout().as_millis();
    // The server gives up before we do: its error is certain, our own impatience is not.
    let (statement, lock) = (limit * 8 / 10, limit * 6 / 10);
    let mut text = format!(
        "set search_path = pg_catalog, pg_temp; \
         set default_transaction_isolation = 'read committed'; \
         set statement_timeout = {statement}; \
         set lock_timeout = {lock}; set idle_in_transaction_session_timeout = {limit}; \
         set client_min_messages = error; \
         {PLANS}"
    );
    // Where it is off, a crash takes the last grants back, and their tokens are given again. Where
    // it is not, it stays so, whatever a reload of the server's settings says later.
    let commit = match commit {
        "local" | "remote_write" | "remote_apply" => commit,
        _ => "on",
    };
    text.push_str(" set synchronous_commit = ");
    text.push_str(commit);
    client.batch_execute(&text).await.map_err(|error| of_greeting(&error))
}

/// The number of the process that serves us, as whoever let us in has told it. The client crate
/// tells it only in what it writes to cancel a statement: so that is written to ourselves.
async fn our_process(client: &Client) -> Result<i32, LockError> {
    let (ours, mut theirs) = tokio::io::duplex(64);
    let wrote = client.cancel_token().cancel_query_raw(ours, NoTls).await;
    let mut request = [0; 12];
    let read = theirs.read_exact(&mut request).await;
    if wrote.is_err() || read.is_err() {
        return Err(protocol("the server's process has no number"));
    }
    let [_, _, _, _, _, _, _, _, number @ ..] = request;
    Ok(i32::from_be_bytes(number))
}

/// Listens on a connection, if nothing is in between.
pub(super) async fn listen(live: &Live, shared: &Shared) {
    if live.facts.pooled || live.listens.load(Ordering::SeqCst) {
        return;
    }
    if let Err(error) = live.listen_on(shared.inbox).await {
        tracing::warn!(%error, "nothing is heard: waiters are left to their heartbeat");
    }
}
