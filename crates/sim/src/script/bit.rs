//! The library `bit`: operations on 32 bits.

use mlua::{Lua, MultiValue, Table, Value};

use super::sandbox::raise;

type Fold = fn(i32, i32) -> i32;
type Single = fn(i32) -> i32;
type Shift = fn(i32, u32) -> i32;

const FOLDS: &[(&str, Fold)] =
    &[("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];

const SHIFTS: &[(&str, Shift)] = &[
    ("lshift", |a, n| a << n),
    ("rshift", |a, n| (a.cast_unsigned() >> n).cast_signed()),
    ("arshift", |a, n| a >> n),
    ("rol", i32::rotate_left),
    ("ror", i32::rotate_right),
];

const SINGLES: &[(&str, Single)] =
    &[("tobit", |a| a), ("bnot", |a| !a), ("bswap", i32::swap_bytes)];

/// Makes the table of functions.
pub(super) fn make(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, fold) in FOLDS {
        let body = move |lua: &Lua, args: MultiValue| {
            let mut result = argument(lua, &args, 0, name)?;
            for at in 1..args.len() {
                result = fold(result, argument(lua, &args, at, name)?);
            }
            Ok(result)
        };
        table.raw_set(*name, lua.create_function(body)?)?;
    }
    for (name, shift) in SHIFTS {
        let body = move |lua: &Lua, args: MultiValue| {
            let (number, by) = (argument(lua, &args, 0, name)?, argument(lua, &args, 1, name)?);
            Ok(shift(number, by.cast_unsigned() & 31))
        };
        table.raw_set(*name, lua.create_function(body)?)?;
    }
    for (name, single) in SINGLES {
        let body = move |lua: &Lua, args: MultiValue| Ok(single(argument(lua, &args, 0, name)?));
        table.raw_set(*name, lua.create_function(body)?)?;
    }
    table.raw_set("tohex", lua.create_function(|lua, args: MultiValue| to_hex(lua, &args))?)?;
    Ok(table)
}

fn to_hex(lua: &Lua, args: &MultiValue) -> mlua::Result<String> {
    let number = argument(lua, args, 0, "tohex")?;
    let digits = if args.len() > 1 { argument(lua, args, 1, "tohex")? } else { 8 };
    let count = usize::try_from(digits.unsigned_abs().min(8)).unwrap_or(8);
    let text = format!("{number:08x}");
    let text = &text[8 - count..];
    Ok(if digits < 0 { text.to_uppercase() } else { text.to_owned() })
}

fn argument(lua: &Lua, args: &MultiValue, at: usize, name: &str) -> mlua::Result<i32> {
    number(lua, args, at, name).map(wrap)
}

/// A number, or a text that is one.
pub(super) fn number(lua: &Lua, args: &MultiValue, at: usize, name: &str) -> mlua::Result<f64> {
    let value = args.get(at);
    let found = match value {
        #[allow(clippy::cast_precision_loss)]
        Some(Value::Integer(number)) => Some(*number as f64),
        Some(Value::Number(number)) => Some(*number),
        Some(Value::String(text)) => crate::number::float(&text.as_bytes()),
        _ => None,
    };
    found.ok_or_else(|| {
        let got = value.map_or("no value", type_name);
        raise(lua, &format!("bad argument #{} to '{name}' (number expected, got {got})", at + 1))
    })
}

/// The name of a type as Lua 5.1 spells it.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) => "userdata",
        other => other.type_name(),
    }
}

/// The low 32 bits of a number, rounded to the nearest.
fn wrap(number: f64) -> i32 {
    const SIZE: f64 = 4_294_967_296.0;
    let rest = number.round_ties_even().rem_euclid(SIZE);
    // The rest is below 2^32 by the line above.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bits = rest as u32;
    bits.cast_signed()
}
