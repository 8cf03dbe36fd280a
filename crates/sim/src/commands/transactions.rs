//! MULTI and its commands. The server itself executes EXEC.

use super::{ALLOW_BUSY, Command, FAST, LOADING, NO_SCRIPT, Run, STALE, keyless, many};
use crate::call::Call;
use crate::errors::CommandResult;
use crate::resp::Reply;
use crate::session::Transaction;

const CONTROL: u32 = NO_SCRIPT | LOADING | STALE | FAST | ALLOW_BUSY;

pub(crate) const TABLE: &[Command] = &[
    keyless("multi", 1, CONTROL, multi),
    keyless("discard", 1, CONTROL, discard),
    Command {
        name: "exec",
        arity: 1,
        flags: NO_SCRIPT | LOADING | STALE,
        keys: (0, 0, 0),
        run: Run::Exec,
    },
    many("watch", -2, CONTROL, watch),
    keyless("unwatch", 1, CONTROL, |call| {
        call.state.unwatch(call.connection);
        Ok(Reply::OK)
    }),
];

fn multi(call: &mut Call<'_>) -> CommandResult {
    let Some(session) = call.session() else { return Ok(Reply::OK) };
    if session.transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    session.transaction = Some(Transaction::default());
    Ok(Reply::OK)
}

fn discard(call: &mut Call<'_>) -> CommandResult {
    let had = call.session().and_then(|session| session.transaction.take());
    had.ok_or("ERR DISCARD without MULTI")?;
    call.state.unwatch(call.connection);
    Ok(Reply::OK)
}

fn watch(call: &mut Call<'_>) -> CommandResult {
    if call.session().is_some_and(|session| session.transaction.is_some()) {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    for key in &call.args[1..] {
        // A key that has already expired does not change again while it is watched.
        call.entry(key);
        call.state.watch(call.connection, call.db, key);
    }
    Ok(Reply::OK)
}
