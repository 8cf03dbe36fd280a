//! The protocols of a Redis server, RESP2 and RESP3: requests in, replies out.
//!
//! Replies are values for both protocols: a command returns a map, and only the encoder knows that
//! RESP2 has none.
//!
//! Read next: `request` (bytes to commands), `encode` (replies to bytes). The tests read replies
//! with the decoder of the test ground.

mod encode;
mod request;

use std::borrow::Cow;

pub(crate) use encode::{encode, float_text};
pub(crate) use request::RequestParser;

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// The initial protocol of every connection.
    #[default]
    Resp2,
    /// The protocol with maps, sets, doubles, booleans and pushes.
    Resp3,
}

/// One reply of a server, or one message that it pushed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// A short line of success such as `OK`.
    Status(Cow<'static, [u8]>),
    /// An error; its first word is the code.
    Error(Cow<'static, [u8]>),
    /// A whole number.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// A null in place of a string.
    Null,
    /// A null in place of an array.
    NullArray,
    /// Several replies in order.
    Array(Vec<Reply>),
    /// Pairs of key and value.
    Map(Vec<(Reply, Reply)>),
    /// Pairs that RESP3 shows as arrays of two and RESP2 flat.
    Pairs(Vec<(Reply, Reply)>),
    /// Members of a set.
    Set(Vec<Reply>),
    /// A floating point number.
    Double(f64),
    /// True or false.
    Boolean(bool),
    /// A number of any length, in digits.
    BigNumber(Vec<u8>),
    /// A text with its format of three letters.
    Verbatim([u8; 3], Vec<u8>),
    /// A pushed message, which answers no request.
    Push(Vec<Reply>),
}

impl Reply {
    pub(crate) const OK: Reply = Reply::Status(Cow::Borrowed(b"OK"));

    pub(crate) fn status(text: &'static str) -> Reply {
        Reply::Status(Cow::Borrowed(text.as_bytes()))
    }

    pub(crate) fn bulk(bytes: &[u8]) -> Reply {
        Reply::Bulk(bytes.to_vec())
    }

    pub(crate) fn count(number: usize) -> Reply {
        Reply::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }

    pub(crate) fn flag(yes: bool) -> Reply {
        Reply::Integer(i64::from(yes))
    }

    pub(crate) fn bulk_or_null(bytes: Option<Vec<u8>>) -> Reply {
        bytes.map_or(Reply::Null, Reply::Bulk)
    }

    pub(crate) fn bulks<I: IntoIterator<Item = Vec<u8>>>(items: I) -> Reply {
        Reply::Array(items.into_iter().map(Reply::Bulk).collect())
    }

    /// Encodes the reply as a server would send it.
    pub fn to_bytes(&self, protocol: Protocol) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(self, protocol, &mut bytes);
        bytes
    }
}
