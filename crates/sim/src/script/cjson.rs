//! The library `cjson`: encoding, and the table of both directions.
//!
//! Read next: `json_text` for decoding.

use mlua::{Lua, MultiValue, Table, Value};

use super::bit::type_name;
use super::json_text;
use super::sandbox::raise;
use crate::resp::general;

/// How deep tables may be nested.
const DEPTH: usize = 1000;
/// From this index on an array must not have more holes than elements.
const SAFE: f64 = 10.0;
const RATIO: f64 = 2.0;
/// How many digits numbers have.
const DIGITS: usize = 14;

/// Makes the table of functions.
pub(super) fn make(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("encode", lua.create_function(|lua, args: MultiValue| encode(lua, &args))?)?;
    table.raw_set("decode", lua.create_function(|lua, args: MultiValue| decode(lua, &args))?)?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    for setting in [
        "decode_invalid_numbers",
        "decode_max_depth",
        "encode_invalid_numbers",
        "encode_keep_buffer",
        "encode_max_depth",
        "encode_number_precision",
        "encode_sparse_array",
        "new",
    ] {
        // Settings would outlive the script that makes them.
        let refuse = move |lua: &Lua, _: MultiValue| -> mlua::Result<()> {
            Err(raise(lua, &format!("cjson.{setting} is not simulated")))
        };
        table.raw_set(setting, lua.create_function(refuse)?)?;
    }
    Ok(table)
}

fn encode(lua: &Lua, args: &MultiValue) -> mlua::Result<mlua::LuaString> {
    if args.len() != 1 {
        return Err(raise(lua, "bad argument #1 to 'encode' (expected 1 argument)"));
    }
    let mut out = Vec::new();
    append(&args[0], 0, &mut out).map_err(|text| raise(lua, &text))?;
    lua.create_string(out)
}

fn decode(lua: &Lua, args: &MultiValue) -> mlua::Result<Value> {
    let text = match args.front() {
        _ if args.len() != 1 => {
            return Err(raise(lua, "bad argument #1 to 'decode' (expected 1 argument)"));
        }
        Some(Value::String(text)) => text.as_bytes().to_vec(),
        Some(value @ (Value::Integer(_) | Value::Number(_))) => value.to_string()?.into_bytes(),
        other => {
            let got = other.map_or("no value", type_name);
            let says = format!("bad argument #1 to 'decode' (string expected, got {got})");
            return Err(raise(lua, &says));
        }
    };
    json_text::decode(lua, &text)
}

fn append(value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<(), String> {
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(pointer) if pointer.0.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(yes) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
        #[allow(clippy::cast_precision_loss)]
        Value::Integer(number) => append_number(*number as f64, out)?,
        Value::Number(number) => append_number(*number, out)?,
        Value::String(text) => append_text(&text.as_bytes(), out),
        Value::Table(table) => append_table(table, depth + 1, out)?,
        other => {
            let kind = type_name(other);
            return Err(format!("Cannot serialise {kind}: type not supported"));
        }
    }
    Ok(())
}

fn append_number(number: f64, out: &mut Vec<u8>) -> Result<(), String> {
    if !number.is_finite() {
        return Err("Cannot serialise number: must not be NaN or Inf".to_owned());
    }
    out.extend_from_slice(general(number, DIGITS).as_bytes());
    Ok(())
}

fn append_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            8 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..32 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            other => out.push(*other),
        }
    }
    out.push(b'"');
}

/// The largest index if all keys are indices; 0 for an empty table.
fn array_length(table: &Table) -> Result<Option<f64>, String> {
    let (mut largest, mut count) = (0.0_f64, 0.0_f64);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair.map_err(|error| error.to_string())?;
        #[allow(clippy::cast_precision_loss)]
        let Value::Integer(index) = key else { return Ok(None) };
        if index < 1 {
            return Ok(None);
        }
        #[allow(clippy::cast_precision_loss)]
        let index = index as f64;
        largest = largest.max(index);
        count += 1.0;
    }
    if largest > count * RATIO && largest > SAFE {
        return Err("Cannot serialise table: excessively sparse array".to_owned());
    }
    Ok(Some(largest))
}

fn append_table(table: &Table, depth: usize, out: &mut Vec<u8>) -> Result<(), String> {
    if depth > DEPTH {
        return Err(format!("Cannot serialise, excessive depth ({depth})"));
    }
    let failed = |error: mlua::Error| error.to_string();
    if let Some(length) = array_length(table)?.filter(|length| *length > 0.0) {
        out.push(b'[');
        let mut at = 1.0;
        while at <= length {
            if at > 1.0 {
                out.push(b',');
            }
            let value: Value = table.raw_get(at).map_err(failed)?;
            append(&value, depth, out)?;
            at += 1.0;
        }
        out.push(b']');
        return Ok(());
    }
    out.push(b'{');
    for (number, pair) in table.pairs::<Value, Value>().enumerate() {
        let (key, value) = pair.map_err(failed)?;
        if number > 0 {
            out.push(b',');
        }
        match &key {
            Value::String(text) => append_text(&text.as_bytes(), out),
            Value::Integer(_) | Value::Number(_) => {
                out.push(b'"');
                append(&key, depth, out)?;
                out.push(b'"');
            }
            other => {
                let kind = type_name(other);
                let says = "table key must be a number or string";
                return Err(format!("Cannot serialise {kind}: {says}"));
            }
        }
        out.push(b':');
        append(&value, depth, out)?;
    }
    out.push(b'}');
    Ok(())
}
