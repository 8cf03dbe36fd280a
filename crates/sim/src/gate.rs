//! What is checked before a command runs, in the order in which the server checks it.

use crate::commands::settings::is_forbidden;
use crate::commands::{
    ALLOW_BUSY, Command, DENY_OOM, LOADING as WHILE_LOADING, MAY_REPLICATE, NO_AUTH, Run, STALE,
    WRITE, find,
};
use crate::refusal::{
    BUSY, LOADING, MASTER_DOWN, MISCONF, NO_AUTH as NOT_LOGGED_IN, NO_REPLICAS, OUT_OF_MEMORY,
    READ_ONLY, Refusal,
};
use crate::session::ConnectionId;
use crate::state::{Pause, State, Trouble};

/// Commands that a transaction does not collect.
const AT_ONCE: &[&str] = &["exec", "discard", "multi", "watch", "quit", "reset"];
/// Commands that a RESP2 connection may send while it listens.
const WHILE_LISTENING: &[&str] = &[
    "ping",
    "subscribe",
    "psubscribe",
    "ssubscribe",
    "unsubscribe",
    "punsubscribe",
    "sunsubscribe",
    "quit",
    "reset",
];

/// What a command is about to do, with what a transaction collected.
pub(crate) struct Intent {
    pub(crate) writes: bool,
    pub(crate) needs_memory: bool,
    pub(crate) replicates: bool,
}

impl Intent {
    pub(crate) fn of(state: &State, id: ConnectionId, command: &Command) -> Intent {
        let mut flags = command.flags;
        let transaction = state.connections.get(&id).and_then(|c| c.transaction.as_ref());
        if let (Run::Exec, Some(transaction)) = (command.run, transaction) {
            for queued in &transaction.commands {
                let args: Vec<&[u8]> = queued.iter().map(Vec::as_slice).collect();
                flags |= find(&args).map_or(0, |command| command.flags);
            }
        }
        Intent {
            writes: flags & WRITE != 0,
            needs_memory: flags & DENY_OOM != 0,
            replicates: flags & (WRITE | MAY_REPLICATE) != 0,
        }
    }
}

/// Whether a transaction keeps the command for later.
pub(crate) fn is_collected(command: &Command) -> bool {
    !AT_ONCE.contains(&command.name)
}

/// Refuses what may not run now.
pub(crate) fn check(
    state: &mut State,
    id: ConnectionId,
    command: &Command,
    intent: &Intent,
) -> Result<(), Refusal> {
    let Some(session) = state.connections.get(&id) else { return Ok(()) };
    if !session.authenticated && !command.has(NO_AUTH) {
        return Err(NOT_LOGGED_IN.into());
    }
    let listening = session.is_only_listening();
    if is_forbidden(state, command) {
        let name = command.name;
        return Err(
            format!("NOPERM this user has no permissions to run the '{name}' command").into()
        );
    }
    state.out_of_memory = !state.has_room();
    if state.out_of_memory && intent.needs_memory {
        return Err(OUT_OF_MEMORY.into());
    }
    check_writes(state, intent)?;
    if listening && !WHILE_LISTENING.contains(&command.name) {
        let name = command.name;
        return Err(format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context"
        )
        .into());
    }
    if state.is_in(Trouble::MasterDown) && !command.has(STALE) {
        return Err(MASTER_DOWN.into());
    }
    if state.is_in(Trouble::Loading) && !command.has(WHILE_LOADING) {
        return Err(LOADING.into());
    }
    if state.is_in(Trouble::Busy) && !command.has(ALLOW_BUSY) {
        return Err(BUSY.into());
    }
    Ok(())
}

/// Refuses writes in states that forbid them.
pub(crate) fn check_writes(state: &State, intent: &Intent) -> Result<(), Refusal> {
    if !intent.writes {
        return Ok(());
    }
    if state.is_in(Trouble::CannotPersist) {
        return Err(MISCONF.into());
    }
    if state.is_in(Trouble::TooFewReplicas) {
        return Err(NO_REPLICAS.into());
    }
    if state.is_in(Trouble::Replica) {
        return Err(READ_ONLY.into());
    }
    Ok(())
}

/// Whether a pause of clients holds the command back.
pub(crate) fn is_paused(state: &mut State, intent: &Intent) -> bool {
    let Some((whom, until)) = state.pause else { return false };
    if state.clock.common().now() >= until {
        state.pause = None;
        return false;
    }
    whom == Pause::All || intent.replicates
}
