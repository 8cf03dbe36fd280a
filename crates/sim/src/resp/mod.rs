//! What travels between a client and a Redis server: requests in, replies out, in RESP2 and RESP3.
//!
//! Replies are kept as values that know both protocols: a command answers a map, and only the
//! encoder knows that RESP2 has none.
//!
//! Read next: `request` (bytes to commands), `encode` (replies to bytes), `decode` (back again).

mod decode;
mod encode;
mod request;

use std::borrow::Cow;

pub use decode::{DecodeError, ReplyDecoder};
pub(crate) use encode::{encode, float_text};
pub(crate) use request::RequestParser;

/// Which of the two protocols a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// The protocol that every connection begins with.
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
    /// A refusal; its first word is the code.
    Error(Cow<'static, [u8]>),
    /// A whole number.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// Nothing, where a string might have been.
    Null,
    /// Nothing, where an array might have been.
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
    /// A message that nobody asked for.
    Push(Vec<Reply>),
}

impl Reply {
    pub(crate) const OK: Reply = Reply::Status(Cow::Borrowed(b"OK"));
    pub(crate) const QUEUED: Reply = Reply::Status(Cow::Borrowed(b"QUEUED"));

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

    /// Tells whether the server refused.
    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// Encodes the reply as a server would send it.
    pub fn to_bytes(&self, protocol: Protocol) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(self, protocol, &mut bytes);
        bytes
    }
}
