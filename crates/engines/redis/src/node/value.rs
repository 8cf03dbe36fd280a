//! What a server answers, in our own words: no type of the client crate leaves this module.

use redis::Value as Wire;

use crate::error::ServerWords;

/// A reply. Errors are not among them: they become a `LockError` before anybody sees them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Nothing.
    Nil,
    /// A whole number.
    Integer(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list; maps come as key, value, key, value.
    Array(Vec<Value>),
    /// A status such as `OK`.
    Status(String),
    /// Anything else, by its debug text: nothing of ours answers so.
    Other(String),
}

impl Value {
    /// Returns the bytes of a string, a status, or a number written out.
    pub(crate) fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            Value::Status(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    /// Returns the text of a string or a status.
    pub(crate) fn as_text(&self) -> Option<&str> {
        self.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// Returns a number, also one that came as text.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        match self {
            Value::Integer(number) => Some(*number),
            other => other.as_text()?.parse().ok(),
        }
    }

    /// Returns the parts of a list.
    pub(crate) fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(parts) => Some(parts),
            _ => None,
        }
    }

    /// Turns a reply into a value; an error inside it comes back as its words.
    pub(super) fn from_wire(wire: Wire) -> Result<Value, ServerWords> {
        Ok(match wire {
            Wire::Nil => Value::Nil,
            Wire::Int(number) => Value::Integer(number),
            Wire::BulkString(bytes) => Value::Bytes(bytes),
            Wire::SimpleString(text) => Value::Status(text),
            Wire::Okay => Value::Status("OK".to_owned()),
            Wire::Boolean(yes) => Value::Integer(i64::from(yes)),
            Wire::VerbatimString { text, .. } => Value::Bytes(text.into_bytes()),
            Wire::Double(number) => Value::Bytes(number.to_string().into_bytes()),
            Wire::Array(parts) | Wire::Set(parts) => Value::Array(list(parts)?),
            Wire::Map(pairs) => {
                Value::Array(list(pairs.into_iter().flat_map(|(key, value)| [key, value]))?)
            }
            Wire::Attribute { data, .. } => Value::from_wire(*data)?,
            Wire::ServerError(error) => return Err(words_of(&error)),
            other => Value::Other(format!("{other:?}")),
        })
    }
}

fn list(parts: impl IntoIterator<Item = Wire>) -> Result<Vec<Value>, ServerWords> {
    parts.into_iter().map(Value::from_wire).collect()
}

/// The words of a server's error.
fn words_of(error: &redis::ServerError) -> ServerWords {
    ServerWords::new(error.code(), error.details().unwrap_or_default())
}

/// The server's words inside an error of the client crate; `None` when it is not the server's.
pub(super) fn words_in(error: &redis::RedisError) -> Option<ServerWords> {
    let code = error.code()?;
    Some(ServerWords::new(code, error.detail().unwrap_or_default()))
}
