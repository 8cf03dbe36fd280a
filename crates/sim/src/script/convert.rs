//! Conversion of replies to Lua values and back, by the rules of both protocols.

use mlua::{IntoLua, Lua, Table, Value};

use crate::errors::ErrorReply;
use crate::resp::{Protocol, Reply};

/// The deepest nesting of a table; deeper levels are dropped.
const DEPTH: usize = 64;

/// Converts a reply for a script with this protocol.
pub(super) fn to_lua(lua: &Lua, reply: &Reply, protocol: Protocol) -> mlua::Result<Value> {
    let new = protocol == Protocol::Resp3;
    match reply {
        Reply::Integer(number) => Ok(double(*number)),
        Reply::Bulk(bytes) => lua.create_string(bytes)?.into_lua(lua),
        Reply::Null | Reply::NullArray if new => Ok(Value::Nil),
        Reply::Null | Reply::NullArray => Ok(Value::Boolean(false)),
        Reply::Status(text) => field(lua, "ok", text),
        Reply::Error(text) => field(lua, "err", text),
        Reply::Set(items) if new => set(lua, items, protocol),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => {
            list(lua, items.iter(), protocol)
        }
        Reply::Boolean(yes) if new => Ok(Value::Boolean(*yes)),
        Reply::Boolean(yes) => Ok(double(i64::from(*yes))),
        Reply::Double(number) if new => {
            let table = lua.create_table()?;
            table.raw_set("double", *number)?;
            table.into_lua(lua)
        }
        Reply::Double(number) => lua.create_string(crate::resp::float_text(*number))?.into_lua(lua),
        Reply::Map(pairs) if new => map(lua, pairs, protocol),
        Reply::Map(pairs) => list(lua, pairs.iter().flat_map(|(k, v)| [k, v]), protocol),
        Reply::Pairs(pairs) if new => {
            let nested: Vec<Reply> =
                pairs.iter().map(|(k, v)| Reply::Array(vec![k.clone(), v.clone()])).collect();
            list(lua, nested.iter(), protocol)
        }
        Reply::Pairs(pairs) => list(lua, pairs.iter().flat_map(|(k, v)| [k, v]), protocol),
        Reply::BigNumber(digits) if new => field(lua, "big_number", digits),
        Reply::BigNumber(digits) => lua.create_string(digits)?.into_lua(lua),
        Reply::Verbatim(format, text) if new => {
            let inner = lua.create_table()?;
            inner.raw_set("format", lua.create_string(format)?)?;
            inner.raw_set("string", lua.create_string(text)?)?;
            let table = lua.create_table()?;
            table.raw_set("verbatim_string", inner)?;
            table.into_lua(lua)
        }
        Reply::Verbatim(_, text) => lua.create_string(text)?.into_lua(lua),
    }
}

/// Lua 5.1 has only doubles: large numbers lose digits, as on the server.
#[allow(clippy::cast_precision_loss)]
fn double(number: i64) -> Value {
    Value::Number(number as f64)
}

fn field(lua: &Lua, name: &str, text: &[u8]) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, lua.create_string(text)?)?;
    table.into_lua(lua)
}

fn list<'a>(
    lua: &Lua,
    items: impl Iterator<Item = &'a Reply>,
    protocol: Protocol,
) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    for (at, item) in items.enumerate() {
        table.raw_set(at + 1, to_lua(lua, item, protocol)?)?;
    }
    table.into_lua(lua)
}

fn map(lua: &Lua, pairs: &[(Reply, Reply)], protocol: Protocol) -> mlua::Result<Value> {
    let inner = lua.create_table()?;
    for (key, value) in pairs {
        inner.raw_set(to_lua(lua, key, protocol)?, to_lua(lua, value, protocol)?)?;
    }
    let table = lua.create_table()?;
    table.raw_set("map", inner)?;
    table.into_lua(lua)
}

fn set(lua: &Lua, items: &[Reply], protocol: Protocol) -> mlua::Result<Value> {
    let inner = lua.create_table()?;
    for item in items {
        inner.raw_set(to_lua(lua, item, protocol)?, true)?;
    }
    let table = lua.create_table()?;
    table.raw_set("set", inner)?;
    table.into_lua(lua)
}

/// Converts the result of a script to a reply.
pub(super) fn to_reply(value: &Value, script: Protocol, client: Protocol) -> Reply {
    reply(value, script, client, 0)
}

fn reply(value: &Value, script: Protocol, client: Protocol, depth: usize) -> Reply {
    match value {
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Boolean(yes) if script == Protocol::Resp3 => Reply::Boolean(*yes),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Integer(number) => Reply::Integer(*number),
        // The cast truncates and saturates, as the server's does.
        #[allow(clippy::cast_possible_truncation)]
        Value::Number(number) => Reply::Integer(whole(*number)),
        Value::Table(_) if depth > DEPTH => ErrorReply::from("ERR reached lua stack limit").into(),
        Value::Table(table) => table_reply(table, script, client, depth),
        _ => Reply::Null,
    }
}

/// C's conversion: truncates; a number out of range becomes the smallest integer.
fn whole(number: f64) -> i64 {
    let fits = number > -9.3e18 && number < 9.223_372_036_854_775e18;
    #[allow(clippy::cast_possible_truncation)]
    if fits { number as i64 } else { i64::MIN }
}

fn table_reply(table: &Table, script: Protocol, client: Protocol, depth: usize) -> Reply {
    let get = |name: &str| table.get::<Value>(name).unwrap_or(Value::Nil);
    let text = |name: &str| match get(name) {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        _ => None,
    };
    if let Some(err) = text("err") {
        return ErrorReply(err.into()).into();
    }
    if let Some(ok) = text("ok") {
        let calm = |byte: u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
        return Reply::Status(ok.into_iter().map(calm).collect::<Vec<_>>().into());
    }
    match get("double") {
        #[allow(clippy::cast_precision_loss)]
        Value::Integer(number) => return Reply::Double(number as f64),
        Value::Number(number) => return Reply::Double(number),
        _ => {}
    }
    let below = |value: &Value| reply(value, script, client, depth + 1);
    if let Value::Table(inner) = get("map") {
        let pairs = inner.pairs::<Value, Value>().flatten();
        return Reply::Map(pairs.map(|(key, value)| (below(&key), below(&value))).collect());
    }
    if let Value::Table(inner) = get("set") {
        let pairs = inner.pairs::<Value, Value>().flatten();
        return Reply::Set(pairs.map(|(key, _)| below(&key)).collect());
    }
    if let Some(digits) = text("big_number") {
        let calm = |byte: u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
        return Reply::BigNumber(digits.into_iter().map(calm).collect());
    }
    if let Value::Table(inner) = get("verbatim_string") {
        let format: Option<mlua::LuaString> = inner.get("format").ok();
        let string: Option<mlua::LuaString> = inner.get("string").ok();
        if let (Some(format), Some(string)) = (format, string) {
            let mut name = *b"txt";
            name.iter_mut().zip(format.as_bytes().iter()).for_each(|(to, from)| *to = *from);
            return Reply::Verbatim(name, string.as_bytes().to_vec());
        }
    }
    let mut items = Vec::new();
    for at in 1.. {
        match table.get::<Value>(at) {
            Ok(Value::Nil) | Err(_) => break,
            Ok(value) => items.push(below(&value)),
        }
    }
    Reply::Array(items)
}
