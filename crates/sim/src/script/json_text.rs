//! JSON to Lua values, with the errors of the server's library.

use mlua::{IntoLua, Lua, Value};

use super::sandbox::raise;

/// How deep collections may be nested.
const DEPTH: usize = 1000;

/// One piece of the text.
#[derive(Debug, Clone, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Colon,
    Comma,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    End,
    Broken(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::Text(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::End => "T_END",
            Token::Broken(what) => what,
        }
    }
}

struct Parser<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    /// Where the latest token began.
    begun: usize,
    depth: usize,
}

/// Decodes a whole text.
pub(super) fn decode(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    if text.starts_with(b"\0") || text.get(1) == Some(&0) {
        return Err(raise(lua, "JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut parser = Parser { lua, text, at: 0, begun: 0, depth: 0 };
    let first = parser.next();
    let value = parser.value(first)?;
    match parser.next() {
        Token::End => Ok(value),
        other => Err(parser.unexpected("the end", &other)),
    }
}

impl Parser<'_> {
    fn unexpected(&self, wanted: &str, found: &Token) -> mlua::Error {
        let (name, place) = (found.name(), self.begun + 1);
        raise(self.lua, &format!("Expected {wanted} but found {name} at character {place}"))
    }

    fn value(&mut self, token: Token) -> mlua::Result<Value> {
        match token {
            Token::Text(text) => self.lua.create_string(text)?.into_lua(self.lua),
            Token::Number(number) => Ok(Value::Number(number)),
            Token::Boolean(yes) => Ok(Value::Boolean(yes)),
            Token::Null => Ok(Value::NULL),
            Token::ObjectBegin => self.deeper(Parser::object),
            Token::ArrayBegin => self.deeper(Parser::array),
            other => Err(self.unexpected("value", &other)),
        }
    }

    fn deeper(&mut self, parse: fn(&mut Self) -> mlua::Result<Value>) -> mlua::Result<Value> {
        self.depth += 1;
        if self.depth > DEPTH {
            let place = self.at;
            let says = format!("Found too many nested data structures ({})", self.depth);
            return Err(raise(self.lua, &format!("{says} at character {place}")));
        }
        let value = parse(self);
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if token == Token::ObjectEnd {
            return table.into_lua(self.lua);
        }
        loop {
            let Token::Text(key) = token else {
                return Err(self.unexpected("object key string", &token));
            };
            match self.next() {
                Token::Colon => {}
                other => return Err(self.unexpected("colon", &other)),
            }
            let first = self.next();
            let value = self.value(first)?;
            table.raw_set(self.lua.create_string(key)?, value)?;
            match self.next() {
                Token::ObjectEnd => return table.into_lua(self.lua),
                Token::Comma => token = self.next(),
                other => return Err(self.unexpected("comma or object end", &other)),
            }
        }
    }

    fn array(&mut self) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if token == Token::ArrayEnd {
            return table.into_lua(self.lua);
        }
        for at in 1.. {
            let value = self.value(token)?;
            table.raw_set(at, value)?;
            match self.next() {
                Token::ArrayEnd => break,
                Token::Comma => token = self.next(),
                other => return Err(self.unexpected("comma or array end", &other)),
            }
        }
        table.into_lua(self.lua)
    }

    fn next(&mut self) -> Token {
        while self.text.get(self.at).is_some_and(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.begun = self.at;
        let rest = &self.text[self.at..];
        let (token, length) = match rest {
            [] => (Token::End, 0),
            [b'{', ..] => (Token::ObjectBegin, 1),
            [b'}', ..] => (Token::ObjectEnd, 1),
            [b'[', ..] => (Token::ArrayBegin, 1),
            [b']', ..] => (Token::ArrayEnd, 1),
            [b':', ..] => (Token::Colon, 1),
            [b',', ..] => (Token::Comma, 1),
            [b'"', ..] => return self.text_token(),
            [b'-' | b'0'..=b'9', ..] => number(rest),
            _ if rest.starts_with(b"true") => (Token::Boolean(true), 4),
            _ if rest.starts_with(b"false") => (Token::Boolean(false), 5),
            _ if rest.starts_with(b"null") => (Token::Null, 4),
            _ => (Token::Broken("invalid token"), 0),
        };
        self.at += length;
        token
    }

    fn text_token(&mut self) -> Token {
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let Some(byte) = self.text.get(self.at) else {
                self.begun = self.at;
                return Token::Broken("unexpected end of string");
            };
            match byte {
                b'"' => {
                    self.at += 1;
                    return Token::Text(out);
                }
                b'\\' => {
                    let Some(length) = escape(&self.text[self.at + 1..], &mut out) else {
                        self.begun = self.at;
                        let unicode = self.text.get(self.at + 1) == Some(&b'u');
                        return Token::Broken(if unicode {
                            "invalid unicode escape code"
                        } else {
                            "invalid escape code"
                        });
                    };
                    self.at += 1 + length;
                }
                other => {
                    out.push(*other);
                    self.at += 1;
                }
            }
        }
    }
}

/// Reads what follows a backslash; returns how much that was.
fn escape(rest: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let plain = match rest.first()? {
        byte @ (b'"' | b'\\' | b'/') => *byte,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'f' => 12,
        b'r' => b'\r',
        b'u' => return unicode(rest, out),
        _ => return None,
    };
    out.push(plain);
    Some(1)
}

fn hex(digits: Option<&[u8]>) -> Option<u32> {
    let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn unicode(rest: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let high = hex(rest.get(1..5))?;
    let (code, length) = if (0xd800..0xdc00).contains(&high) {
        if rest.get(5..7) != Some(b"\\u") {
            return None;
        }
        let low = hex(rest.get(7..11)).filter(|low| (0xdc00..0xe000).contains(low))?;
        (0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00), 11)
    } else {
        (high, 5)
    };
    let letter = char::from_u32(code)?;
    out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
    Some(length)
}

/// Reads the longest number that begins here, as C's `strtod` does.
fn number(rest: &[u8]) -> (Token, usize) {
    let hexadecimal = rest.starts_with(b"0x") || rest.starts_with(b"0X");
    let fits = |byte: &&u8| {
        byte.is_ascii_hexdigit() && hexadecimal
            || byte.is_ascii_digit()
            || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E' | b'x' | b'X')
    };
    let mut length = rest.iter().take_while(fits).count();
    while length > 0 {
        if let Some(number) = crate::number::float(&rest[..length]) {
            return (Token::Number(number), length);
        }
        length -= 1;
    }
    (Token::Broken("invalid number"), 0)
}
