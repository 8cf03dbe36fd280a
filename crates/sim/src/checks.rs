//! The checks before a command runs, in the server's order.

use crate::commands::{
    ALLOW_BUSY, Command, DENY_OOM, LOADING as WHILE_LOADING, MAY_REPLICATE, NO_AUTH, STALE, WRITE,
};
use crate::errors::{
    BUSY, ErrorReply, LOADING, MASTER_DOWN, MISCONF, NO_AUTH as NOT_LOGGED_IN, NO_REPLICAS,
    OUT_OF_MEMORY, READ_ONLY,
};
use crate::session::ConnectionId;
use crate::state::{Pause, ServerCondition, ServerData};

/// Commands that a RESP2 connection may send while it is subscribed.
const WHILE_SUBSCRIBED: &[&str] =
    &["ping", "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe"];

/// The effects of a command.
pub(crate) struct Effects {
    pub(crate) writes: bool,
    pub(crate) needs_memory: bool,
    pub(crate) replicates: bool,
}

impl Effects {
    pub(crate) fn of(command: &Command) -> Effects {
        let flags = command.flags;
        Effects {
            writes: flags & WRITE != 0,
            needs_memory: flags & DENY_OOM != 0,
            replicates: flags & (WRITE | MAY_REPLICATE) != 0,
        }
    }
}

/// Rejects a command that may not run now.
pub(crate) fn check(
    state: &mut ServerData,
    id: ConnectionId,
    command: &Command,
    effects: &Effects,
) -> Result<(), ErrorReply> {
    let Some(session) = state.connections.get(&id) else { return Ok(()) };
    if !session.authenticated && !command.has(NO_AUTH) {
        return Err(NOT_LOGGED_IN.into());
    }
    let subscribed = session.is_subscriber_only();
    state.out_of_memory = !state.has_room();
    if state.out_of_memory && effects.needs_memory {
        return Err(OUT_OF_MEMORY.into());
    }
    check_writes(state, effects)?;
    if subscribed && !WHILE_SUBSCRIBED.contains(&command.name) {
        let name = command.name;
        return Err(format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context"
        )
        .into());
    }
    if state.is_in(ServerCondition::MasterDown) && !command.has(STALE) {
        return Err(MASTER_DOWN.into());
    }
    if state.is_in(ServerCondition::Loading) && !command.has(WHILE_LOADING) {
        return Err(LOADING.into());
    }
    if state.is_in(ServerCondition::Busy) && !command.has(ALLOW_BUSY) {
        return Err(BUSY.into());
    }
    Ok(())
}

/// Rejects writes in conditions that forbid them.
pub(crate) fn check_writes(state: &ServerData, effects: &Effects) -> Result<(), ErrorReply> {
    if !effects.writes {
        return Ok(());
    }
    if state.is_in(ServerCondition::CannotPersist) {
        return Err(MISCONF.into());
    }
    if state.is_in(ServerCondition::TooFewReplicas) {
        return Err(NO_REPLICAS.into());
    }
    if state.is_in(ServerCondition::Replica) {
        return Err(READ_ONLY.into());
    }
    Ok(())
}

/// Returns whether a pause of clients delays the command.
pub(crate) fn is_paused(state: &mut ServerData, effects: &Effects) -> bool {
    let Some((whom, until)) = state.pause else { return false };
    if state.clock.common().now() >= until {
        state.pause = None;
        return false;
    }
    whom == Pause::All || effects.replicates
}
