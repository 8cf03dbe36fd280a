//! The first statements on a new connection, before any command.
//!
//! - A pooler is recognised by the process id: the server reports another one than at the start of
//!   the connection. Behind a pooler nothing is set and the client does not listen, because the
//!   next statement may go to another process. Each command is one statement, which works there
//!   too.
//! - The session resolves names only in the server's own catalog (`search_path`). That is not a
//!   startup parameter, because poolers refuse unknown ones. So every name is qualified in
//!   statements that come before it, or that may go through a pooler.
//! - A new connection listens before it is used, if there are watches.

use std::time::Duration;

use holdline_core::{Clock, LockError};
use tokio::io::AsyncReadExt;
use tokio_postgres::Client;

use super::binding::{BoundStream, Negotiated};
use super::locked_rows::ROW_WAIT;
use crate::error::{of_handshake, protocol, refused, takes_no_writes};
use crate::options::PostgresOptions;

/// The oldest supported server.
const OLDEST: i32 = 140_000;

/// How functions are planned: once, with index scans. A plan that was made for an empty table would
/// scan the whole table later, with all its dead rows.
const PLANS: &str =
    "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off;";

/// What is known about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// As the server counts: 150004 is 15.4.
    pub(crate) version: i32,
    /// Whether a pooler is between us and the server.
    pub(crate) pooled: bool,
    /// Whether transactions may write, unless a setting of the role or the server changes.
    pub(crate) takes_writes: bool,
    /// The round trip of the first statement.
    pub(crate) round_trip: Duration,
}

/// Checks the server and sets the session up. `took_writes` is whether this client has reached a
/// server that took writes.
pub(crate) async fn handshake(
    client: &Client,
    options: &PostgresOptions,
    clock: &dyn Clock,
    took_writes: bool,
) -> Result<Facts, LockError> {
    let before = clock.now();
    let ask = "select pg_catalog.pg_backend_pid(), \
        pg_catalog.current_setting('server_version_num')::pg_catalog.int4, \
        pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('synchronous_commit'), \
        pg_catalog.current_setting('transaction_read_only')";
    let reply = client.query_typed(ask, &[]).await.map_err(|error| of_handshake(&error))?;
    let round_trip = before.until(clock.now());
    let odd = |_| protocol("the server does not report its version");
    let Some(row) = reply.first() else { return Err(protocol("the server returns no row")) };
    let process: i32 = row.try_get(0).map_err(odd)?;
    let version: i32 = row.try_get(1).map_err(odd)?;
    let follows: bool = row.try_get(2).map_err(odd)?;
    let commit: &str = row.try_get(3).map_err(odd)?;
    let read_only: &str = row.try_get(4).map_err(odd)?;
    if version < OLDEST {
        let found = version / 10_000;
        return Err(refused(format!("the server is PostgreSQL {found}: we need 14 or newer")));
    }
    if follows {
        return Err(takes_no_writes(took_writes, "the server is a standby and takes no writes"));
    }
    let pooled = our_process(client).await? != process;
    if pooled {
        if commit == "off" {
            let says = "synchronous_commit is off and we are behind a pooler, where we cannot set \
                it: a crash would take grants back. Set it for the role";
            return Err(refused(says));
        }
        tracing::debug!("a pooler is between us and the server: waiters rely on their heartbeat");
    } else {
        set(client, options, commit).await?;
    }
    Ok(Facts { version, pooled, takes_writes: read_only == "off", round_trip })
}

/// Sets the session variables that commands rely on.
async fn set(client: &Client, options: &PostgresOptions, commit: &str) -> Result<(), LockError> {
    let limit = options.command_timeout().as_millis();
    // The server's timeout is shorter than ours: after its error the outcome is certain. A command
    // that was refused for a lock is sent again (`locked_rows`).
    let statement = limit * 8 / 10;
    let lock = ROW_WAIT.as_millis().min(limit * 6 / 10);
    let mut text = format!(
        "set search_path = pg_catalog, pg_temp; \
         set default_transaction_isolation = 'read committed'; \
         set statement_timeout = {statement}; \
         set lock_timeout = {lock}; set idle_in_transaction_session_timeout = {limit}; \
         set client_min_messages = error; \
         {PLANS}"
    );
    // If it is off, a crash undoes the last grants, and their tokens are issued again. Otherwise
    // the current value is fixed, so that a reload of the server's settings cannot change it.
    let commit = match commit {
        "local" | "remote_write" | "remote_apply" => commit,
        _ => "on",
    };
    text.push_str(" set synchronous_commit = ");
    text.push_str(commit);
    client.batch_execute(&text).await.map_err(|error| of_handshake(&error))
}

/// Returns the process id from the start of the connection. The client crate shows it only in a
/// cancel request, so one is written to a pipe of our own.
async fn our_process(client: &Client) -> Result<i32, LockError> {
    let (ours, mut theirs) = tokio::io::duplex(64);
    let pipe = BoundStream::unbound(ours);
    let wrote = client.cancel_token().cancel_query_raw(pipe, Negotiated).await;
    let mut request = [0; 12];
    let read = theirs.read_exact(&mut request).await;
    if wrote.is_err() || read.is_err() {
        return Err(protocol("the server's process has no number"));
    }
    let [_, _, _, _, _, _, _, _, number @ ..] = request;
    Ok(i32::from_be_bytes(number))
}
