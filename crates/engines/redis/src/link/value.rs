//! The value of a reply.

/// The value of a reply. Error replies are not values: they become a `LockError`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Null.
    Nil,
    /// An integer.
    Integer(i64),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An array; a map is an array of key, value, key, value.
    Array(Vec<Value>),
    /// A status such as `OK`.
    Status(String),
}

impl Value {
    /// Returns the bytes of a string or a status.
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

    /// Returns the elements of an array.
    pub(crate) fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(parts) => Some(parts),
            _ => None,
        }
    }
}
