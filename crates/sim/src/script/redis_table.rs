//! The table `redis`.

use std::sync::Arc;

use mlua::{Lua, MultiValue, Table, Value};
use parking_lot::Mutex;

use super::caller::{self, Failure, ScriptState};
use crate::commands::find;
use crate::resp::Protocol;

const NUMBERS: &[(&str, i64)] = &[
    ("LOG_DEBUG", 0),
    ("LOG_VERBOSE", 1),
    ("LOG_NOTICE", 2),
    ("LOG_WARNING", 3),
    ("REPL_NONE", 0),
    ("REPL_AOF", 1),
    ("REPL_SLAVE", 2),
    ("REPL_REPLICA", 2),
    ("REPL_ALL", 3),
    ("REDIS_VERSION_NUM", 0x0007_000f),
];

/// Makes the table; its functions reach the state through `slot`.
pub(super) fn make(lua: &Lua, slot: &Arc<Mutex<ScriptState>>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, number) in NUMBERS {
        table.raw_set(*name, *number)?;
    }
    table.raw_set("REDIS_VERSION", "7.0.15")?;
    for (name, raise) in [("call", true), ("pcall", false)] {
        let slot = slot.clone();
        let body = move |lua: &Lua, args: MultiValue| caller::call(lua, &slot, &args, raise);
        table.raw_set(name, lua.create_function(body)?)?;
    }
    table.raw_set("status_reply", lua.create_function(|l, a: MultiValue| single(l, &a, "ok"))?)?;
    table.raw_set("error_reply", lua.create_function(|l, a: MultiValue| single(l, &a, "err"))?)?;
    table.raw_set("sha1hex", lua.create_function(|_, args: MultiValue| sha(&args))?)?;
    let own = slot.clone();
    table.raw_set(
        "setresp",
        lua.create_function(move |_, args: MultiValue| set_resp(&own, &args))?,
    )?;
    let own = slot.clone();
    table.raw_set("log", lua.create_function(move |_, args: MultiValue| log(&own, &args))?)?;
    let own = slot.clone();
    let check = move |_: &Lua, args: MultiValue| acl_check(&own, &args);
    table.raw_set("acl_check_cmd", lua.create_function(check)?)?;
    table.raw_set("set_repl", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    table.raw_set("replicate_commands", lua.create_function(|_, _: MultiValue| Ok(true))?)?;
    table.raw_set("breakpoint", lua.create_function(|_, _: MultiValue| Ok(false))?)?;
    table.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    Ok(table)
}

fn text(value: Option<&Value>) -> Option<Vec<u8>> {
    match value? {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        value @ (Value::Integer(_) | Value::Number(_)) => {
            value.to_string().ok().map(String::into_bytes)
        }
        _ => None,
    }
}

/// Makes a reply with one field. A wrong argument is returned as an error, not raised, as on the
/// server.
fn single(lua: &Lua, args: &MultiValue, field: &str) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    let given = match args.front() {
        Some(Value::String(text)) if args.len() == 1 => text.as_bytes().to_vec(),
        _ => {
            table.raw_set("err", "ERR wrong number or type of arguments")?;
            return Ok(table);
        }
    };
    let given = if field == "err" { with_code(&given) } else { given };
    table.raw_set(field, lua.create_string(given)?)?;
    Ok(table)
}

/// Adds a code to an error without one.
fn with_code(given: &[u8]) -> Vec<u8> {
    let text = given.strip_prefix(b"-").unwrap_or(given);
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |at| at + 1);
    let text = &text[..end];
    if text.contains(&b' ') {
        return text.to_vec();
    }
    [b"ERR ", text].concat()
}

fn sha(args: &MultiValue) -> mlua::Result<String> {
    match text(args.front()) {
        Some(text) if args.len() == 1 => Ok(super::sha1_hex(&text)),
        Some(_) | None if args.len() == 1 => Ok(super::sha1_hex(b"")),
        _ => Err(Failure::from("ERR wrong number of arguments").into_error()),
    }
}

fn set_resp(slot: &Arc<Mutex<ScriptState>>, args: &MultiValue) -> mlua::Result<()> {
    if args.len() != 1 {
        return Err(Failure::from("ERR redis.setresp() requires one argument.").into_error());
    }
    let protocol = match text(args.front()).as_deref() {
        Some(b"2") => Protocol::Resp2,
        Some(b"3") => Protocol::Resp3,
        _ => return Err(Failure::from("ERR RESP version must be 2 or 3.").into_error()),
    };
    slot.lock().running.protocol = protocol;
    Ok(())
}

fn acl_check(slot: &Arc<Mutex<ScriptState>>, args: &MultiValue) -> mlua::Result<bool> {
    let words: Option<Vec<Vec<u8>>> = args.iter().map(|value| text(Some(value))).collect();
    let words = words.filter(|words| !words.is_empty()).ok_or_else(|| {
        let says = "ERR Please specify at least one argument for this redis.acl_check_cmd() call";
        Failure::from(says).into_error()
    })?;
    let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let unknown = |_| Failure::from("ERR Invalid command passed to redis.acl_check_cmd()");
    find(&args).map_err(|error| unknown(error).into_error())?;
    Ok(slot.lock().state.is_some())
}

fn log(slot: &Arc<Mutex<ScriptState>>, args: &MultiValue) -> mlua::Result<()> {
    if args.len() < 2 {
        let says = "ERR redis.log() requires two arguments or more.";
        return Err(Failure::from(says).into_error());
    }
    let level = match args.front() {
        Some(Value::Integer(level)) => *level,
        _ => {
            let says = "ERR First argument must be a number (log level).";
            return Err(Failure::from(says).into_error());
        }
    };
    if !(0..=3).contains(&level) {
        return Err(Failure::from("ERR Invalid debug level.").into_error());
    }
    let words: Vec<Vec<u8>> = args.iter().skip(1).filter_map(|value| text(Some(value))).collect();
    if let Some(state) = slot.lock().state.as_mut() {
        state.log.push((level, words.join(&b' ')));
    }
    Ok(())
}
