//! Which of several hosts takes writes.
//!
//! - Invariant C1: the hosts are tried in their order at each new connection, each for its share of
//!   the time. The first that takes writes is used; a standby is skipped.
//! - Invariant C2: with one host nothing is asked here, and the handshake reports a standby.

use holdline_core::{Certainty, Clock, ErrorKind, LockError};

use super::dial::dial;
use super::sign_in;
use crate::error::{ENGINE, of_handshake, protocol, takes_no_writes, unavailable};
use crate::options::{Address, PostgresOptions};

/// Returns the options with the one host to connect to. `took_writes` is whether this client has
/// reached a server that took writes.
///
/// # Errors
/// No host takes writes. The error names each host with its own error; it is `Unavailable` if one
/// of them may take writes later.
pub(crate) async fn choose(
    options: &PostgresOptions,
    clock: &dyn Clock,
    took_writes: bool,
) -> Result<PostgresOptions, LockError> {
    let [_, _, ..] = options.addresses() else { return Ok(options.clone()) };
    // The chosen host needs a share too.
    let shares = u32::try_from(options.addresses().len() + 1).unwrap_or(u32::MAX);
    let share = options.connect_timeout() / shares;
    let mut errors = Vec::new();
    for address in options.addresses() {
        let one = options.only(address);
        let outcome = tokio::select! {
            biased;
            outcome = takes_writes(&one, took_writes) => outcome,
            () = clock.sleep_until(clock.now().after(share)) => {
                Err(unavailable(format!("no answer within {share:?}"), Certainty::NotApplied))
            }
        };
        match outcome {
            Ok(()) => return Ok(one),
            Err(error) => errors.push((address, error)),
        }
    }
    Err(none_of(&errors))
}

/// Returns whether a host takes writes, on a connection of its own.
async fn takes_writes(options: &PostgresOptions, took_writes: bool) -> Result<(), LockError> {
    let (client, connection) = sign_in(options, dial(options).await?).await?;
    let ask = "select pg_catalog.pg_is_in_recovery() \
        or pg_catalog.current_setting('transaction_read_only') = 'on'";
    let reply = tokio::select! {
        biased;
        reply = client.query_typed(ask, &[]) => reply.map_err(|error| of_handshake(&error))?,
        _ = connection => {
            return Err(unavailable("the server went away", Certainty::NotApplied));
        }
    };
    let odd = || protocol("the server does not report whether it takes writes");
    let follows = reply.first().and_then(|row| row.try_get::<_, bool>(0).ok()).ok_or_else(odd)?;
    if follows {
        return Err(takes_no_writes(took_writes, "a standby, which takes no writes"));
    }
    Ok(())
}

fn none_of(errors: &[(&Address, LockError)]) -> LockError {
    let may_come = errors.iter().any(|(_, error)| error.is_transient());
    let each: Vec<String> =
        errors.iter().map(|(address, error)| format!("{address}: {}", error.kind())).collect();
    let message = format!("none of the hosts takes writes: {}", each.join("; "));
    let kind =
        if may_come { ErrorKind::Unavailable { message } } else { ErrorKind::Refused { message } };
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}
