//! The protocol of Redis, as much as a test needs to speak and to count it.
//!
//! R1: a frame is one whole value; [`frame`] finds its end without looking into it, so that what
//! passes through a proxy is never changed.
//! R2: a received length is bounded before it is used.

use std::io;

/// The largest length and count that is accepted.
const LARGEST: usize = 512 * 1024 * 1024;

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A short status such as `OK`.
    Simple(String),
    /// An error, with its first word: `NOSCRIPT No matching script. …`.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes; also RESP3's doubles, big numbers and verbatim texts, as they were written.
    Bulk(Vec<u8>),
    /// Nothing: RESP2's null bulk and null array, RESP3's null.
    Nil,
    /// RESP3's true or false.
    Boolean(bool),
    /// A list, or RESP3's set.
    Array(Vec<Reply>),
    /// RESP3's map.
    Map(Vec<(Reply, Reply)>),
    /// A push message, in RESP3.
    Push(Vec<Reply>),
}

impl Reply {
    /// The bytes of a bulk or a simple reply as text; none for anything else.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Simple(text) => Some(text.clone()),
            Self::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// The number; none for anything else.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The items of a list; none for anything else.
    #[must_use]
    pub fn items(&self) -> Option<&[Reply]> {
        match self {
            Self::Array(items) | Self::Push(items) => Some(items),
            _ => None,
        }
    }

    /// The error's text; none for anything else.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(text) => Some(text),
            _ => None,
        }
    }
}

/// A command as a client sends it.
#[must_use]
pub fn command(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, words);
    bytes
}

/// Writes a command as a client sends it.
pub fn write(bytes: &mut Vec<u8>, words: &[impl AsRef<[u8]>]) {
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
}

/// How many bytes the first whole value takes; none if more must come.
///
/// A line that begins with none of the protocol's marks is a request of one line, as a person
/// types it.
///
/// # Errors
/// The bytes are not the protocol of Redis.
pub fn frame(bytes: &[u8]) -> io::Result<Option<usize>> {
    let mut at = 0;
    let mut open = 1usize;
    while open > 0 {
        let Some((line, next)) = line(bytes, at) else { return Ok(None) };
        at = next;
        open -= 1;
        let inside = match line.first() {
            Some(b'$' | b'=' | b'!') => {
                if let Some(length) = length(line)? {
                    at += length + 2;
                }
                0
            }
            Some(b'*' | b'~' | b'>') => length(line)?.unwrap_or(0),
            Some(b'%') => 2 * length(line)?.unwrap_or(0),
            // An attribute stands before the value that it describes.
            Some(b'|') => 2 * length(line)?.unwrap_or(0) + 1,
            _ => 0,
        };
        open += inside;
        if at > bytes.len() {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

/// The line that begins at `at`, without its end, and where the next one begins.
fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&rest[..end], at + end + 2))
}

/// The length or count of a line such as `$5`; none for `$-1`.
fn length(line: &[u8]) -> io::Result<Option<usize>> {
    let text = std::str::from_utf8(&line[1..]).unwrap_or_default();
    if text == "-1" {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|n| *n <= LARGEST);
    number.map(Some).ok_or_else(|| foreign(line))
}

fn foreign(line: &[u8]) -> io::Error {
    let says = format!("not the protocol of Redis: {:?}", String::from_utf8_lossy(line));
    io::Error::new(io::ErrorKind::InvalidData, says)
}

/// The first whole value and how many bytes it takes; none if more must come.
///
/// # Errors
/// The bytes are not the protocol of Redis.
pub fn reply(bytes: &[u8]) -> io::Result<Option<(Reply, usize)>> {
    let Some(length) = frame(bytes)? else { return Ok(None) };
    let mut at = 0;
    let value = value(&bytes[..length], &mut at)?;
    Ok(Some((value, length)))
}

/// Reads the value at `at` of a whole frame.
fn value(bytes: &[u8], at: &mut usize) -> io::Result<Reply> {
    let (line, next) = line(bytes, *at).ok_or_else(|| foreign(b""))?;
    *at = next;
    let rest = || String::from_utf8_lossy(&line[1..]).into_owned();
    Ok(match line.first() {
        Some(b'+') => Reply::Simple(rest()),
        Some(b'-') => Reply::Error(rest()),
        Some(b':') => Reply::Integer(rest().parse().map_err(|_| foreign(line))?),
        Some(b',' | b'(') => Reply::Bulk(line[1..].to_vec()),
        Some(b'_') => Reply::Nil,
        Some(b'#') => Reply::Boolean(line == b"#t"),
        Some(b'$' | b'=' | b'!') => {
            let Some(length) = length(line)? else { return Ok(Reply::Nil) };
            let start = *at;
            *at += length + 2;
            let body = bytes.get(start..start + length).ok_or_else(|| foreign(line))?;
            if line[0] == b'!' {
                return Ok(Reply::Error(String::from_utf8_lossy(body).into_owned()));
            }
            Reply::Bulk(body.to_vec())
        }
        Some(b'*' | b'~' | b'>') => {
            let Some(count) = length(line)? else { return Ok(Reply::Nil) };
            let items = values(bytes, at, count)?;
            if line[0] == b'>' { Reply::Push(items) } else { Reply::Array(items) }
        }
        Some(b'%') => {
            let count = length(line)?.unwrap_or(0);
            let mut items = values(bytes, at, 2 * count)?.into_iter();
            let pairs = std::iter::from_fn(|| Some((items.next()?, items.next()?)));
            Reply::Map(pairs.collect())
        }
        Some(b'|') => {
            let count = length(line)?.unwrap_or(0);
            values(bytes, at, 2 * count)?;
            value(bytes, at)?
        }
        _ => return Err(foreign(line)),
    })
}

fn values(bytes: &[u8], at: &mut usize, count: usize) -> io::Result<Vec<Reply>> {
    (0..count).map(|_| value(bytes, at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: [&[u8]; 12] = [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-5\r\n",
        b"$-1\r\n",
        b"$4\r\na\r\nb\r\n",
        b"*-1\r\n",
        b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
        b"%1\r\n+a\r\n:1\r\n",
        b">2\r\n+message\r\n$1\r\nx\r\n",
        b"|1\r\n+a\r\n:1\r\n#t\r\n",
        b"_\r\n",
        b",1.5\r\n",
    ];

    #[test]
    fn a_frame_ends_where_its_value_ends() {
        for whole in WHOLE {
            for cut in 0..whole.len() {
                assert_eq!(frame(&whole[..cut]).unwrap(), None, "{cut} of {whole:?}");
                assert_eq!(reply(&whole[..cut]).unwrap(), None, "{cut} of {whole:?}");
            }
            let two = [whole, b"+NEXT\r\n"].concat();
            assert_eq!(frame(&two).unwrap(), Some(whole.len()), "{whole:?}");
            assert_eq!(reply(&two).unwrap().unwrap().1, whole.len(), "{whole:?}");
        }
    }

    #[test]
    fn values_are_distinguished() {
        let read = |bytes: &[u8]| reply(bytes).unwrap().unwrap().0;
        assert_eq!(read(WHOLE[1]).error(), Some("ERR no"));
        assert_eq!(read(WHOLE[2]).integer(), Some(-5));
        assert_eq!(read(WHOLE[3]), Reply::Nil);
        assert_eq!(read(WHOLE[4]).text().as_deref(), Some("a\r\nb"));
        let inner = Reply::Array(vec![Reply::Integer(1)]);
        assert_eq!(read(WHOLE[6]).items(), Some(&[Reply::Bulk(b"a".to_vec()), inner][..]));
        let pair = (Reply::Simple("a".to_owned()), Reply::Integer(1));
        assert_eq!(read(WHOLE[7]), Reply::Map(vec![pair]));
        assert!(matches!(read(WHOLE[8]), Reply::Push(_)));
        assert_eq!(read(WHOLE[9]), Reply::Boolean(true));
    }

    #[test]
    fn a_length_beyond_reason_is_refused() {
        for bad in [&b"$99999999999999\r\n"[..], b"*-2\r\n", b"$x\r\n"] {
            assert_eq!(frame(bad).unwrap_err().kind(), io::ErrorKind::InvalidData, "{bad:?}");
        }
    }

    #[test]
    fn a_command_is_one_frame() {
        let bytes = command(&["SET", "a", "b\r\n"]);
        assert_eq!(frame(&bytes).unwrap(), Some(bytes.len()));
    }
}
