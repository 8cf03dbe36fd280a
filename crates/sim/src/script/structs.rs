//! The library `struct`: numbers and texts as the bytes of C structures.

use mlua::{IntoLua, Lua, MultiValue, Table, Value};

use super::bit::{number, type_name};
use super::sandbox::raise;

/// Most bytes of an integer.
const WIDEST: usize = 32;
/// What alignment is at most unless `!` says otherwise.
const NATURAL: usize = 8;

/// Makes the table of functions.
pub(super) fn make(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", lua.create_function(pack)?)?;
    table.raw_set("unpack", lua.create_function(|lua, args: MultiValue| unpack(lua, &args))?)?;
    table.raw_set("size", lua.create_function(|lua, args: MultiValue| size(lua, &args))?)?;
    Ok(table)
}

/// One thing that a format asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Signed(usize),
    Unsigned(usize),
    Float,
    Double,
    /// So many bytes; 0 means as many as the number before says.
    Bytes(usize),
    /// Up to a zero byte.
    Text,
    Padding,
}

impl Item {
    fn size(self) -> usize {
        match self {
            Item::Signed(size) | Item::Unsigned(size) | Item::Bytes(size) => size,
            Item::Float => 4,
            Item::Double => 8,
            Item::Padding => 1,
            Item::Text => 0,
        }
    }
}

/// Reads a format from the left.
struct Format<'a> {
    text: &'a [u8],
    big: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8]) -> Format<'a> {
        Format { text, big: false, alignment: 1 }
    }

    fn count(&mut self) -> Option<usize> {
        let digits = self.text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.text.split_at(digits);
        self.text = rest;
        std::str::from_utf8(number).ok()?.parse().ok()
    }

    fn width(&mut self, lua: &Lua, otherwise: usize) -> mlua::Result<usize> {
        let width = self.count().unwrap_or(otherwise);
        if width > WIDEST {
            let says = format!("integral size {width} is larger than limit of {WIDEST}");
            return Err(raise(lua, &says));
        }
        Ok(width)
    }

    fn next(&mut self, lua: &Lua, function: &str) -> mlua::Result<Option<Item>> {
        while let Some((option, rest)) = self.text.split_first() {
            self.text = rest;
            return Ok(Some(match option {
                b'b' => Item::Signed(1),
                b'B' => Item::Unsigned(1),
                b'h' => Item::Signed(2),
                b'H' => Item::Unsigned(2),
                b'l' => Item::Signed(8),
                b'L' | b'T' => Item::Unsigned(8),
                b'i' => Item::Signed(self.width(lua, 4)?),
                b'I' => Item::Unsigned(self.width(lua, 4)?),
                b'f' => Item::Float,
                b'd' => Item::Double,
                b'x' => Item::Padding,
                b's' => Item::Text,
                b'c' => Item::Bytes(self.count().unwrap_or(1)),
                b' ' => continue,
                b'>' => {
                    self.big = true;
                    continue;
                }
                b'<' => {
                    self.big = false;
                    continue;
                }
                b'!' => {
                    let alignment = self.count().unwrap_or(NATURAL);
                    if !alignment.is_power_of_two() {
                        return Err(raise(lua, "alignment is not a power of 2"));
                    }
                    self.alignment = alignment;
                    continue;
                }
                other => {
                    let option = char::from(*other);
                    let says = format!(
                        "bad argument #1 to '{function}' (invalid format option '{option}')"
                    );
                    return Err(raise(lua, &says));
                }
            }));
        }
        Ok(None)
    }

    /// How many bytes to skip so that the item stands where it may.
    fn gap(&self, item: Item, at: usize) -> usize {
        let aligned = !matches!(item, Item::Bytes(_) | Item::Text | Item::Padding);
        let unit = item.size().min(self.alignment);
        if !aligned || unit <= 1 { 0 } else { (unit - at % unit) % unit }
    }
}

fn text_argument(lua: &Lua, args: &MultiValue, at: usize, function: &str) -> mlua::Result<Vec<u8>> {
    match args.get(at) {
        Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
        Some(value @ (Value::Integer(_) | Value::Number(_))) => Ok(value.to_string()?.into_bytes()),
        other => {
            let got = other.map_or("no value", type_name);
            let place = at + 1;
            let says =
                format!("bad argument #{place} to '{function}' (string expected, got {got})");
            Err(raise(lua, &says))
        }
    }
}

/// The bytes of a whole number, least first.
fn whole_bytes(number: f64) -> [u8; 8] {
    // As C casts: towards zero; negative numbers wrap.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bits = if number < 0.0 { (number as i64).cast_unsigned() } else { number as u64 };
    bits.to_le_bytes()
}

fn pack(lua: &Lua, mut args: MultiValue) -> mlua::Result<mlua::LuaString> {
    let format = text_argument(lua, &args, 0, "pack")?;
    // The server's library pushes a nil of its own behind the arguments.
    args.push_back(Value::Nil);
    let mut format = Format::new(&format);
    let (mut out, mut at) = (Vec::new(), 1);
    while let Some(item) = format.next(lua, "pack")? {
        out.resize(out.len() + format.gap(item, out.len()), 0);
        let mut bytes = match item {
            Item::Padding => {
                out.push(0);
                continue;
            }
            Item::Signed(size) | Item::Unsigned(size) => {
                let mut bytes = whole_bytes(number(lua, &args, at, "pack")?).to_vec();
                let sign =
                    if item == Item::Signed(size) && bytes[7] & 0x80 != 0 { 0xff } else { 0 };
                bytes.resize(size, sign);
                bytes
            }
            Item::Double => number(lua, &args, at, "pack")?.to_le_bytes().to_vec(),
            // Fewer digits is what was asked for.
            #[allow(clippy::cast_possible_truncation)]
            Item::Float => (number(lua, &args, at, "pack")? as f32).to_le_bytes().to_vec(),
            Item::Text | Item::Bytes(_) => {
                let mut text = text_argument(lua, &args, at, "pack")?;
                let size = if item.size() == 0 { text.len() } else { item.size() };
                if text.len() < size {
                    let place = at + 1;
                    let says = format!("bad argument #{place} to 'pack' (string too short)");
                    return Err(raise(lua, &says));
                }
                text.truncate(size);
                if item == Item::Text {
                    text.push(0);
                }
                text
            }
        };
        if format.big && !matches!(item, Item::Text | Item::Bytes(_)) {
            bytes.reverse();
        }
        out.append(&mut bytes);
        at += 1;
    }
    lua.create_string(out)
}

fn size(lua: &Lua, args: &MultiValue) -> mlua::Result<usize> {
    let format = text_argument(lua, args, 0, "size")?;
    let mut format = Format::new(&format);
    let mut total = 0;
    while let Some(item) = format.next(lua, "size")? {
        let says = match item {
            Item::Text => Some("variable-size format in `size'"),
            Item::Bytes(0) => Some("variable-length format in `size'"),
            _ => None,
        };
        if let Some(says) = says {
            return Err(raise(lua, &format!("bad argument #1 to 'size' ({says})")));
        }
        total += format.gap(item, total) + item.size();
    }
    Ok(total)
}

/// A whole number of some bytes, least first.
#[allow(clippy::cast_precision_loss)]
fn whole_number(bytes: &[u8], signed: bool) -> f64 {
    let mut wide = [0; 8];
    let size = bytes.len().min(8);
    wide[..size].copy_from_slice(&bytes[..size]);
    let bits = u64::from_le_bytes(wide);
    if !signed {
        return bits as f64;
    }
    let shift = 64 - 8 * u32::try_from(size).unwrap_or(8);
    (bits.cast_signed() << shift >> shift) as f64
}

fn unpack(lua: &Lua, args: &MultiValue) -> mlua::Result<MultiValue> {
    let format = text_argument(lua, args, 0, "unpack")?;
    let data = text_argument(lua, args, 1, "unpack")?;
    let begin = if args.len() > 2 { number(lua, args, 2, "unpack")? } else { 1.0 };
    if begin.is_nan() || begin < 1.0 {
        return Err(raise(lua, "bad argument #3 to 'unpack' (offset must be 1 or greater)"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let mut at = (begin as usize - 1).min(data.len() + 1);
    let short = || raise(lua, "bad argument #2 to 'unpack' (data string too short)");
    let mut format = Format::new(&format);
    let mut values: Vec<Value> = Vec::new();
    while let Some(item) = format.next(lua, "unpack")? {
        at += format.gap(item, at);
        let rest = data.get(at..).ok_or_else(short)?;
        let size = match (item, values.last()) {
            (Item::Bytes(0), Some(Value::Number(_) | Value::Integer(_))) => {
                let length = values.pop().and_then(|value| value.as_f64()).unwrap_or(0.0);
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let length = length as usize;
                length
            }
            (Item::Bytes(0), _) => {
                return Err(raise(lua, "format `c0' needs a previous size"));
            }
            (Item::Text, _) => {
                let end = rest.iter().position(|byte| *byte == 0);
                end.ok_or_else(|| raise(lua, "unfinished string in data"))?
            }
            (item, _) => item.size(),
        };
        let bytes = rest.get(..size).ok_or_else(short)?;
        at += size + usize::from(item == Item::Text);
        let mut ordered = bytes.to_vec();
        if format.big {
            ordered.reverse();
        }
        let double = |bytes: &[u8]| bytes.try_into().map_or(0.0, f64::from_le_bytes);
        let float = |bytes: &[u8]| bytes.try_into().map_or(0.0, f32::from_le_bytes);
        values.push(match item {
            Item::Padding => continue,
            Item::Signed(_) => Value::Number(whole_number(&ordered, true)),
            Item::Unsigned(_) => Value::Number(whole_number(&ordered, false)),
            Item::Double => Value::Number(double(&ordered)),
            Item::Float => Value::Number(f64::from(float(&ordered))),
            Item::Bytes(_) | Item::Text => lua.create_string(bytes)?.into_lua(lua)?,
        });
    }
    values.push(Value::Integer(i64::try_from(at + 1).unwrap_or(i64::MAX)));
    Ok(values.into_iter().collect())
}
