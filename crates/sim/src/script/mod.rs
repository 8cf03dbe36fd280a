//! Scripts: real Lua, in a sandbox like the server's.
//!
//! Invariant L1: a script runs atomically, at one time of the clock. Invariant L2: a script leaves
//! nothing in the sandbox. Globals can be neither created nor changed. Invariant L3: a script ends,
//! at the latest by the limit on its instructions. Read next: `sandbox` (its environment), `caller`
//! (`redis.call`), `convert` (values).

mod caller;
mod convert;
mod located_error;
mod random;
mod redis_table;
mod sandbox;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use mlua::{Function, Lua, MultiValue, Value};
use parking_lot::Mutex;

use self::caller::{RunningScript, ScriptState};
use self::sandbox::Sandbox;
use crate::commands::ScriptVerb;
use crate::errors::{CommandResult, ErrorReply, NO_SCRIPT as NOT_KNOWN, NOT_INTEGER, SYNTAX};
use crate::number;
use crate::resp::{Protocol, Reply};
use crate::session::ConnectionId;
use crate::state::ServerData;

/// The declarations in the first line of a script.
#[derive(Debug, Clone, Copy, Default)]
struct Shebang {
    /// There is such a line.
    any: bool,
    no_writes: bool,
    allow_oom: bool,
}

#[derive(Clone)]
struct StoredScript {
    function: Function,
    declared: Shebang,
}

/// The scripts of one server process, and their sandbox.
pub(crate) struct Scripts {
    sandbox: Sandbox,
    slot: Arc<Mutex<ScriptState>>,
    known: HashMap<String, StoredScript>,
}

impl Scripts {
    pub(crate) fn new(limit: u64) -> Scripts {
        let slot = Arc::new(Mutex::new(ScriptState::default()));
        let sandbox = Sandbox::new(&slot, limit).expect("the sandbox is made of constants");
        Scripts { sandbox, slot, known: HashMap::new() }
    }

    fn lua(&self) -> &Lua {
        self.sandbox.lua()
    }

    /// Runs EVAL, EVALSHA and SCRIPT.
    pub(crate) fn run(
        &mut self,
        state: &mut Option<Box<ServerData>>,
        verb: ScriptVerb,
        connection: ConnectionId,
        db: usize,
        args: &[&[u8]],
    ) -> Reply {
        let answer = match verb {
            ScriptVerb::Eval { by_hash, read_only } => {
                self.eval(state, by_hash, read_only, connection, db, args)
            }
            ScriptVerb::Load => self.compile(args[2]).map(|sha| Reply::Bulk(sha.into_bytes())),
            ScriptVerb::Exists => Ok(self.exist(&args[2..])),
            ScriptVerb::Flush => self.flush(&args[2..]),
            ScriptVerb::Kill => Err("NOTBUSY No scripts in execution right now.".into()),
        };
        answer.unwrap_or_else(Reply::from)
    }

    fn exist(&self, hashes: &[&[u8]]) -> Reply {
        let known =
            |hash: &&[u8]| std::str::from_utf8(hash).is_ok_and(|h| self.known.contains_key(h));
        Reply::Array(hashes.iter().map(|hash| Reply::flag(known(hash))).collect())
    }

    fn flush(&mut self, words: &[&[u8]]) -> CommandResult {
        match words {
            [] => {}
            [word] if ["sync", "async"].iter().any(|w| word.eq_ignore_ascii_case(w.as_bytes())) => {
            }
            [_] => return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into()),
            _ => return Err(SYNTAX.into()),
        }
        self.known.clear();
        Ok(Reply::OK)
    }

    /// Compiles a script once, and returns its digest.
    fn compile(&mut self, body: &[u8]) -> Result<String, ErrorReply> {
        let sha = sha1_hex(body);
        if self.known.contains_key(&sha) {
            return Ok(sha);
        }
        let (declared, code) = read_shebang(body)?;
        // The first line keeps its number, though it is not Lua.
        let chunk =
            self.lua().load(code).set_name("@user_script").set_mode(mlua::chunk::ChunkMode::Text);
        let function = chunk.into_function().map_err(|error| {
            let text = match &error {
                mlua::Error::SyntaxError { message, .. } => message.clone(),
                other => other.to_string(),
            };
            ErrorReply::from(format!("ERR Error compiling script (new function): {text}"))
        })?;
        self.known.insert(sha.clone(), StoredScript { function, declared });
        Ok(sha)
    }

    fn eval(
        &mut self,
        state: &mut Option<Box<ServerData>>,
        by_hash: bool,
        read_only: bool,
        connection: ConnectionId,
        db: usize,
        args: &[&[u8]],
    ) -> CommandResult {
        if by_hash && args[1].len() != 40 {
            return Err(NOT_KNOWN.into());
        }
        let keys = number::strict(args[2]).ok_or(NOT_INTEGER)?;
        let keys = usize::try_from(keys)
            .map_err(|_| ErrorReply::from("ERR Number of keys can't be negative"))?;
        if keys > args.len() - 3 {
            return Err("ERR Number of keys can't be greater than number of args".into());
        }
        let sha = if by_hash {
            String::from_utf8_lossy(args[1]).to_ascii_lowercase()
        } else {
            self.compile(args[1])?
        };
        let Some(stored) = self.known.get(&sha).cloned() else { return Err(NOT_KNOWN.into()) };
        let inner = state.as_mut().ok_or("ERR a script runs already")?;
        let protocol = inner.connections.get(&connection).map_or(Protocol::Resp2, |c| c.protocol);
        let declared = stored.declared;
        if read_only && declared.any && !declared.no_writes {
            return Err("ERR Can not execute a script with write flag using *_ro command.".into());
        }
        if declared.any && !declared.allow_oom && !declared.no_writes && inner.out_of_memory {
            let says = "OOM allow-oom flag is not set on the script, can not run it when used \
                 memory > 'maxmemory'";
            return Err(says.into());
        }
        let running = RunningScript {
            connection,
            db,
            read_only: read_only || declared.no_writes,
            allow_oom: declared.allow_oom,
            wrote: false,
            protocol: Protocol::Resp2,
        };
        {
            let mut slot = self.slot.lock();
            slot.state = state.take();
            slot.running = running;
        }
        let (keys, argv) = args[3..].split_at(keys);
        let result = self.call(&stored.function, keys, argv, protocol, &sha);
        *state = self.slot.lock().state.take();
        result
    }

    fn call(
        &self,
        function: &Function,
        keys: &[&[u8]],
        argv: &[&[u8]],
        client: Protocol,
        sha: &str,
    ) -> CommandResult {
        let result: mlua::Result<MultiValue> = self.sandbox.run(function, keys, argv);
        let mut values = match result {
            Ok(values) => values.into_iter(),
            // Only errors that the script cannot catch, such as exhausted memory.
            Err(error) => return Err(format!("ERR Error running script {sha}, {error}").into()),
        };
        let succeeded = matches!(values.next(), Some(Value::Boolean(true)));
        let value = values.next().unwrap_or(Value::Nil);
        if succeeded {
            let script = self.slot.lock().running.protocol;
            return Ok(convert::to_reply(&value, script, client));
        }
        Err(failure_text(&value, sha))
    }
}

/// Makes the error reply from the handler's table.
fn failure_text(value: &Value, sha: &str) -> ErrorReply {
    let Value::Table(table) = value else {
        return format!("ERR Error running script {sha}, execution failure").into();
    };
    let text = |name: &str| match table.raw_get::<Value>(name) {
        Ok(Value::String(text)) => Some(text.as_bytes().to_vec()),
        _ => None,
    };
    let mut message = text("err").unwrap_or_else(|| b"ERR unknown error".to_vec());
    let line: Option<i64> = table.raw_get("line").ok().flatten();
    if let (Some(source), Some(line)) = (text("source"), line) {
        message.extend_from_slice(format!(" script: {sha}, on ").as_bytes());
        message.extend_from_slice(&source);
        message.extend_from_slice(format!(":{line}.").as_bytes());
    }
    ErrorReply(message.into())
}

/// Reads a first line that begins with `#!`, and returns the rest.
fn read_shebang(body: &[u8]) -> Result<(Shebang, &[u8]), ErrorReply> {
    if !body.starts_with(b"#!") {
        return Ok((Shebang::default(), body));
    }
    let end = body.iter().position(|byte| *byte == b'\n').ok_or("ERR Invalid script shebang")?;
    let line = String::from_utf8_lossy(&body[..end]).into_owned();
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(format!("ERR Unexpected engine in script shebang: {engine}").into());
    }
    let mut declared = Shebang { any: true, ..Shebang::default() };
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {word}").into());
        };
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "no-writes" => declared.no_writes = true,
                "allow-oom" => declared.allow_oom = true,
                "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                other => {
                    let says = format!("ERR Unexpected flag in script shebang: {other}");
                    return Err(says.into());
                }
            }
        }
    }
    Ok((declared, &body[end..]))
}

/// Returns the digest by which scripts are known, in hexadecimal.
fn sha1_hex(data: &[u8]) -> String {
    sha1_smol::Sha1::from(data).digest().to_string()
}
