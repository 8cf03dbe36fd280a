//! The library `cmsgpack`.

use mlua::{IntoLua, Lua, MultiValue, Table, Value};

use super::bit::{number, type_name};
use super::sandbox::raise;

/// How deep tables may be nested; what is deeper becomes nil.
const DEPTH: usize = 16;
/// How deep what is read may be nested.
const DEEPEST: usize = 500;
const MISSING: &str = "Missing bytes in input.";
const BAD: &str = "Bad data format in input.";

/// Makes the table of functions.
pub(super) fn make(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", lua.create_function(|lua, args: MultiValue| pack(lua, &args))?)?;
    table.raw_set("unpack", lua.create_function(|l, a: MultiValue| unpack(l, &a, "unpack"))?)?;
    let one = |l: &Lua, a: MultiValue| unpack(l, &a, "unpack_one");
    table.raw_set("unpack_one", lua.create_function(one)?)?;
    let limited = |l: &Lua, a: MultiValue| unpack(l, &a, "unpack_limit");
    table.raw_set("unpack_limit", lua.create_function(limited)?)?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_COPYRIGHT", "Copyright (C) 2012, Redis Ltd.")?;
    table.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(table)
}

fn pack(lua: &Lua, args: &MultiValue) -> mlua::Result<mlua::LuaString> {
    if args.is_empty() {
        return Err(raise(lua, "bad argument #0 to 'pack' (MessagePack pack needs input.)"));
    }
    let mut out = Vec::new();
    for value in args {
        append(value, 0, &mut out)?;
    }
    lua.create_string(out)
}

fn append(value: &Value, depth: usize, out: &mut Vec<u8>) -> mlua::Result<()> {
    match value {
        Value::String(text) => {
            let bytes = text.as_bytes();
            header(bytes.len(), (0xa0, 32), [Some(0xd9), Some(0xda), Some(0xdb)], out);
            out.extend_from_slice(&bytes);
        }
        Value::Boolean(yes) => out.push(if *yes { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => append_integer(*number, out),
        Value::Number(number) => append_float(*number, out),
        Value::Table(_) if depth == DEPTH => out.push(0xc0),
        Value::Table(table) => append_table(table, depth, out)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

/// The first bytes of something with a length: small within one byte, else by width.
fn header(length: usize, small: (u8, usize), wide: [Option<u8>; 3], out: &mut Vec<u8>) {
    let bytes = length.to_be_bytes();
    let widths = [(0xff, 1), (0xffff, 2), (usize::MAX, 4)];
    if length < small.1 {
        out.push(small.0 | bytes[7]);
        return;
    }
    for (mark, (limit, width)) in wide.into_iter().zip(widths) {
        if let Some(mark) = mark.filter(|_| length <= limit) {
            out.push(mark);
            out.extend_from_slice(&bytes[8 - width..]);
            return;
        }
    }
}

fn append_integer(number: i64, out: &mut Vec<u8>) {
    let bytes = number.to_be_bytes();
    let (mark, width) = match number {
        -32..=127 => {
            out.push(bytes[7]);
            return;
        }
        128..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -128..=-33 => (0xd0, 1),
        -0x8000..=-129 => (0xd1, 2),
        -0x8000_0000..=-0x8001 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(mark);
    out.extend_from_slice(&bytes[8 - width..]);
}

fn append_float(number: f64, out: &mut Vec<u8>) {
    // If nothing is lost, the short form is taken.
    #[allow(clippy::cast_possible_truncation)]
    let short = number as f32;
    if f64::from(short).to_bits() == number.to_bits() {
        out.push(0xca);
        out.extend_from_slice(&short.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// The length, if the keys are 1 to n and nothing else.
fn array_length(table: &Table) -> mlua::Result<Option<usize>> {
    let (mut count, mut largest) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        let (Value::Integer(index), _) = pair? else { return Ok(None) };
        let Ok(index) = usize::try_from(index) else { return Ok(None) };
        if index == 0 {
            return Ok(None);
        }
        count += 1;
        largest = largest.max(index);
    }
    Ok((largest == count).then_some(count))
}

fn append_table(table: &Table, depth: usize, out: &mut Vec<u8>) -> mlua::Result<()> {
    if let Some(length) = array_length(table)? {
        header(length, (0x90, 16), [None, Some(0xdc), Some(0xdd)], out);
        for at in 1..=length {
            append(&table.raw_get(at)?, depth + 1, out)?;
        }
        return Ok(());
    }
    let pairs: Vec<(Value, Value)> = table.pairs().collect::<mlua::Result<_>>()?;
    header(pairs.len(), (0x80, 16), [None, Some(0xde), Some(0xdf)], out);
    for (key, value) in &pairs {
        append(key, depth + 1, out)?;
        append(value, depth + 1, out)?;
    }
    Ok(())
}

/// Reads bytes from the left.
struct Cursor<'a> {
    lua: &'a Lua,
    bytes: &'a [u8],
    depth: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> mlua::Result<&'a [u8]> {
        if self.bytes.len() < count {
            return Err(raise(self.lua, MISSING));
        }
        let (taken, rest) = self.bytes.split_at(count);
        self.bytes = rest;
        Ok(taken)
    }

    fn unsigned(&mut self, width: usize) -> mlua::Result<u64> {
        Ok(self.take(width)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn length(&mut self, width: usize) -> mlua::Result<usize> {
        Ok(usize::try_from(self.unsigned(width)?).unwrap_or(usize::MAX))
    }

    /// Lua 5.1 has doubles only.
    #[allow(clippy::cast_precision_loss)]
    fn signed(&mut self, width: usize) -> mlua::Result<Value> {
        let shift = 64 - 8 * u32::try_from(width).unwrap_or(8);
        let number = self.unsigned(width)?.cast_signed() << shift >> shift;
        Ok(Value::Number(number as f64))
    }

    #[allow(clippy::cast_precision_loss)]
    fn value(&mut self) -> mlua::Result<Value> {
        let first = self.take(1)?[0];
        let low = |mask: u8| usize::from(first & mask);
        Ok(match first {
            0..=0x7f => Value::Integer(i64::from(first)),
            0xe0..=0xff => Value::Integer(i64::from(first.cast_signed())),
            0xcc..=0xcf => Value::Number(self.unsigned(1 << (first - 0xcc))? as f64),
            0xd0..=0xd3 => self.signed(1 << (first - 0xd0))?,
            0xc0 => Value::Nil,
            0xc2 => Value::Boolean(false),
            0xc3 => Value::Boolean(true),
            0xca => {
                let bits = u32::try_from(self.unsigned(4)?).unwrap_or(0);
                Value::Number(f64::from(f32::from_bits(bits)))
            }
            0xcb => Value::Number(f64::from_bits(self.unsigned(8)?)),
            0xa0..=0xbf => self.text(low(0x1f))?,
            0xd9..=0xdb => {
                let length = self.length(1 << (first - 0xd9))?;
                self.text(length)?
            }
            0xc4..=0xc6 => {
                let length = self.length(1 << (first - 0xc4))?;
                self.text(length)?
            }
            0x90..=0x9f => self.array(low(0x0f))?,
            0xdc | 0xdd => {
                let length = self.length(2 << (first - 0xdc))?;
                self.array(length)?
            }
            0x80..=0x8f => self.map(low(0x0f))?,
            0xde | 0xdf => {
                let length = self.length(2 << (first - 0xde))?;
                self.map(length)?
            }
            _ => return Err(raise(self.lua, BAD)),
        })
    }

    fn text(&mut self, length: usize) -> mlua::Result<Value> {
        let bytes = self.take(length)?;
        self.lua.create_string(bytes)?.into_lua(self.lua)
    }

    /// Goes one level down, if that is not too deep for the stack.
    fn descend(&mut self) -> mlua::Result<Table> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(raise(self.lua, "stack overflow (too many nested tables)"));
        }
        self.lua.create_table()
    }

    fn array(&mut self, length: usize) -> mlua::Result<Value> {
        let table = self.descend()?;
        for at in 1..=length {
            table.raw_set(at, self.value()?)?;
        }
        self.depth -= 1;
        table.into_lua(self.lua)
    }

    fn map(&mut self, length: usize) -> mlua::Result<Value> {
        let table = self.descend()?;
        for _ in 0..length {
            let key = self.value()?;
            table.raw_set(key, self.value()?)?;
        }
        self.depth -= 1;
        table.into_lua(self.lua)
    }
}

fn unpack(lua: &Lua, args: &MultiValue, name: &str) -> mlua::Result<MultiValue> {
    let bytes = match args.front() {
        Some(Value::String(text)) => text.as_bytes().to_vec(),
        other => {
            let got = other.map_or("no value", type_name);
            let says = format!("bad argument #1 to '{name}' (string expected, got {got})");
            return Err(raise(lua, &says));
        }
    };
    // Whole numbers in all that follows: a fraction is cut.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let optional = |at: usize, otherwise: usize| -> mlua::Result<usize> {
        match args.get(at) {
            None => Ok(otherwise),
            Some(_) => Ok(number(lua, args, at, name)?.max(0.0) as usize),
        }
    };
    let (limit, offset) = match name {
        "unpack_one" => (1, optional(1, 0)?),
        "unpack_limit" => {
            number(lua, args, 1, name)?;
            (optional(1, 0)?, optional(2, 0)?)
        }
        _ => (0, 0),
    };
    if offset > bytes.len() {
        let length = bytes.len();
        let says = format!("Start offset {offset} greater than input length {length}.");
        return Err(raise(lua, &says));
    }
    let mut cursor = Cursor { lua, bytes: &bytes[offset..], depth: 0 };
    let mut values = Vec::new();
    while !cursor.bytes.is_empty() && (limit == 0 || values.len() < limit) {
        values.push(cursor.value()?);
    }
    if name != "unpack" {
        // Where to go on; -1 at the end.
        let next = if cursor.bytes.is_empty() {
            -1
        } else {
            i64::try_from(bytes.len() - cursor.bytes.len()).unwrap_or(i64::MAX)
        };
        values.insert(0, Value::Integer(next));
    }
    Ok(values.into_iter().collect())
}
