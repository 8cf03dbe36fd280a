//! `redis.call` and `redis.pcall`: commands from inside a script.

use std::sync::Arc;

use mlua::{IntoLua, Lua, MultiValue, Value};
use parking_lot::Mutex;

use super::convert;
use crate::call::Call;
use crate::checks::{Effects, check_writes};
use crate::commands::{DENY_OOM, MAY_REPLICATE, NO_SCRIPT, Run, Unknown, WRITE, find};
use crate::errors::{ErrorReply, OUT_OF_MEMORY};
use crate::resp::{Protocol, Reply, float_text};
use crate::session::ConnectionId;
use crate::state::ServerData;

/// The state that a running script accesses.
#[derive(Default)]
pub(crate) struct ScriptState {
    pub(crate) state: Option<Box<ServerData>>,
    pub(crate) running: RunningScript,
}

/// The running script.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunningScript {
    pub(crate) connection: ConnectionId,
    pub(crate) db: usize,
    pub(crate) read_only: bool,
    pub(crate) allow_oom: bool,
    /// It has written; from then on full memory rejects nothing.
    pub(crate) wrote: bool,
    /// The protocol of replies that the script has set.
    pub(crate) protocol: Protocol,
}

impl Default for RunningScript {
    fn default() -> RunningScript {
        RunningScript {
            connection: ConnectionId(0),
            db: 0,
            read_only: false,
            allow_oom: false,
            wrote: false,
            protocol: Protocol::Resp2,
        }
    }
}

/// An error that a script can catch as a table with the field `err`.
#[derive(Debug, Clone)]
pub(super) struct Failure(pub(super) Vec<u8>);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for Failure {}

impl Failure {
    pub(super) fn into_error(self) -> mlua::Error {
        mlua::Error::external(self)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Failure {
        Failure(text.as_bytes().to_vec())
    }
}

/// The outcome of one call.
enum Outcome {
    Reply(Reply, Protocol),
    Failed(Failure),
}

/// Answers `redis.call` (`raise`) or `redis.pcall`.
pub(super) fn call(
    lua: &Lua,
    slot: &Arc<Mutex<ScriptState>>,
    args: &MultiValue,
    raise: bool,
) -> mlua::Result<Value> {
    let outcome = match words(args) {
        Ok(words) => run(slot, &words),
        Err(failure) => Outcome::Failed(failure),
    };
    let failure = match outcome {
        Outcome::Reply(Reply::Error(text), _) => Failure(text.into_owned()),
        Outcome::Reply(reply, protocol) => return convert::to_lua(lua, &reply, protocol),
        Outcome::Failed(failure) => failure,
    };
    if raise {
        return Err(failure.into_error());
    }
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("err", lua.create_string(&failure.0)?)?;
    table.into_lua(lua)
}

/// Returns the arguments as text: strings unchanged, numbers with 17 digits.
fn words(args: &MultiValue) -> Result<Vec<Vec<u8>>, Failure> {
    if args.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call".into());
    }
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) if number.unsigned_abs() < 1 << 53 => {
            Ok(number.to_string().into_bytes())
        }
        Value::Integer(number) => {
            // All numbers of Lua 5.1 are doubles, so the cast loses nothing.
            #[allow(clippy::cast_precision_loss)]
            let double = *number as f64;
            Ok(float_text(double).into_bytes())
        }
        Value::Number(number) => Ok(float_text(*number).into_bytes()),
        _ => Err("ERR Lua redis lib command arguments must be strings or integers".into()),
    };
    args.iter().map(one).collect()
}

fn run(slot: &Arc<Mutex<ScriptState>>, words: &[Vec<u8>]) -> Outcome {
    let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let mut slot = slot.lock();
    let ScriptState { state, running } = &mut *slot;
    let Some(state) = state.as_mut() else {
        return Outcome::Failed("ERR redis.call() outside of a script".into());
    };
    let command = match find(&args) {
        Ok(command) => command,
        Err(Unknown::Count(_)) => {
            return Outcome::Failed(
                "ERR Wrong number of args calling Redis command from script".into(),
            );
        }
        Err(_) => return Outcome::Failed("ERR Unknown Redis command called from script".into()),
    };
    let Run::Plain(body) = command.run else {
        return Outcome::Failed("ERR This Redis command is not allowed from script".into());
    };
    if let Err(refusal) = allowed(state, running, command) {
        return Outcome::Failed(Failure(refusal.0.into_owned()));
    }
    running.wrote |= command.has(WRITE);
    state.commands_run += 1;
    let connection = running.connection;
    let db = running.db;
    let name = command.name;
    let mut call =
        Call { state, connection, db, name, args: &args, in_script: true, before: Vec::new() };
    let reply = body(&mut call).unwrap_or_else(Reply::from);
    running.db = call.db;
    Outcome::Reply(reply, running.protocol)
}

fn allowed(
    state: &ServerData,
    running: &RunningScript,
    command: &crate::commands::Command,
) -> Result<(), ErrorReply> {
    if command.has(NO_SCRIPT) {
        return Err("ERR This Redis command is not allowed from script".into());
    }
    if running.read_only && command.has(WRITE | MAY_REPLICATE) {
        return Err("ERR Write commands are not allowed from read-only scripts.".into());
    }
    let writes = command.has(WRITE);
    check_writes(state, &Effects { writes, needs_memory: false, replicates: writes })?;
    let exempt = running.allow_oom || running.wrote;
    if state.out_of_memory && command.has(DENY_OOM) && !exempt {
        return Err(OUT_OF_MEMORY.into());
    }
    Ok(())
}
