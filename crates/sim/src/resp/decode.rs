//! Decoding of replies, for tests that check a server's bytes.

use super::Reply;

/// The largest accepted length of a string or collection.
const LIMIT: i64 = 512 * 1024 * 1024;
/// The deepest accepted nesting.
const DEPTH: usize = 64;

/// The bytes are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// The error.
    pub what: &'static str,
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.what)
    }
}

impl std::error::Error for DecodeError {}

/// Splits a stream of bytes into replies.
#[derive(Debug, Default)]
pub struct ReplyDecoder {
    buffer: Vec<u8>,
    at: usize,
}

type Parsed<'a> = Result<Option<(Reply, &'a [u8])>, DecodeError>;

impl ReplyDecoder {
    /// Adds bytes that arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next reply, if it is complete.
    ///
    /// # Errors
    /// The bytes are no reply; the stream cannot be used any more.
    pub fn next_reply(&mut self) -> Result<Option<Reply>, DecodeError> {
        let rest = &self.buffer[self.at..];
        let Some((reply, left)) = parse(rest, 0)? else { return Ok(None) };
        self.at = self.buffer.len() - left.len();
        Ok(Some(reply))
    }
}

fn error<T>(what: &'static str) -> Result<T, DecodeError> {
    Err(DecodeError { what })
}

fn parse(bytes: &[u8], depth: usize) -> Parsed<'_> {
    if depth > DEPTH {
        return error("nested too deeply");
    }
    let Some(kind) = bytes.first() else { return Ok(None) };
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let line = &bytes[1..end];
    let rest = &bytes[end + 2..];
    let done = |reply| Ok(Some((reply, rest)));
    match kind {
        b'+' => done(Reply::Status(line.to_vec().into())),
        b'-' => done(Reply::Error(line.to_vec().into())),
        b':' => done(Reply::Integer(length(line)?)),
        b'_' => done(Reply::Null),
        b'#' => done(Reply::Boolean(line == b"t")),
        b'(' => done(Reply::BigNumber(line.to_vec())),
        b',' => match std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()) {
            Some(number) => done(Reply::Double(number)),
            None => error("no double"),
        },
        b'$' | b'=' => text(*kind, length(line)?, rest),
        b'*' | b'~' | b'>' | b'%' => collection(*kind, length(line)?, rest, depth),
        _ => error("no kind of reply"),
    }
}

fn length(line: &[u8]) -> Result<i64, DecodeError> {
    crate::number::strict(line).map_or_else(|| error("no whole number"), Ok)
}

fn text(kind: u8, length: i64, rest: &[u8]) -> Parsed<'_> {
    if length == -1 {
        return Ok(Some((Reply::Null, rest)));
    }
    let Some(length) = usize::try_from(length).ok().filter(|_| length <= LIMIT) else {
        return error("a string of no possible length");
    };
    if rest.len() < length + 2 {
        return Ok(None);
    }
    let body = &rest[..length];
    let tail = &rest[length + 2..];
    if kind == b'$' {
        return Ok(Some((Reply::bulk(body), tail)));
    }
    match body {
        [a, b, c, b':', text @ ..] => {
            Ok(Some((Reply::Verbatim([*a, *b, *c], text.to_vec()), tail)))
        }
        _ => error("a verbatim string without format"),
    }
}

fn collection(kind: u8, length: i64, rest: &[u8], depth: usize) -> Parsed<'_> {
    if length == -1 {
        return Ok(Some((Reply::NullArray, rest)));
    }
    if !(0..=LIMIT).contains(&length) {
        return error("a collection of no possible length");
    }
    let count = if kind == b'%' { length * 2 } else { length };
    let mut items = Vec::new();
    let mut rest = rest;
    for _ in 0..count {
        let Some((item, tail)) = parse(rest, depth + 1)? else { return Ok(None) };
        items.push(item);
        rest = tail;
    }
    let reply = match kind {
        b'~' => Reply::Set(items),
        b'>' => Reply::Push(items),
        b'%' => {
            let mut pairs = Vec::new();
            let mut items = items.into_iter();
            while let (Some(key), Some(value)) = (items.next(), items.next()) {
                pairs.push((key, value));
            }
            Reply::Map(pairs)
        }
        _ => Reply::Array(items),
    };
    Ok(Some((reply, rest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Protocol;

    #[test]
    fn what_was_encoded_is_read_back_however_it_is_split() {
        let replies = vec![
            Reply::OK,
            Reply::Error(b"ERR no".to_vec().into()),
            Reply::Array(vec![Reply::Integer(-3), Reply::Null, Reply::bulk(b"a\r\nb")]),
            Reply::Map(vec![(Reply::bulk(b"k"), Reply::Double(2.5))]),
            Reply::Push(vec![Reply::Boolean(true), Reply::Set(vec![Reply::bulk(b"")])]),
            Reply::Verbatim(*b"txt", b"hi".to_vec()),
        ];
        let bytes: Vec<u8> = replies.iter().flat_map(|r| r.to_bytes(Protocol::Resp3)).collect();
        for cut in 0..bytes.len() {
            let mut decoder = ReplyDecoder::default();
            let mut got = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                decoder.feed(part);
                while let Some(reply) = decoder.next_reply().expect("well formed") {
                    got.push(reply);
                }
            }
            assert_eq!(got, replies, "cut at {cut}");
        }
    }

    #[test]
    fn garbage_is_refused() {
        for bytes in [&b"?\r\n"[..], b":x\r\n", b"$-2\r\n", b",x\r\n", b"=2\r\nab\r\n"] {
            let mut decoder = ReplyDecoder::default();
            decoder.feed(bytes);
            assert!(decoder.next_reply().is_err(), "{bytes:?}");
        }
        let mut decoder = ReplyDecoder::default();
        decoder.feed("*1\r\n".repeat(100).as_bytes());
        assert_eq!(decoder.next_reply(), Err(DecodeError { what: "nested too deeply" }));
    }
}
