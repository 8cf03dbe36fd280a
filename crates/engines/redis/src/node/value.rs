//! What a server answers.

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
}
