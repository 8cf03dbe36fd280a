//! The Redis serialization protocol (RESP), versions 2 and 3: commands are encoded, replies
//! decoded.
//!
//! - Invariant R1: no memory is reserved for a length that a reply announces before its bytes are
//!   there.
//! - Invariant R2: an invalid frame ends the connection; nothing behind it is read.

use super::value::Value;
use crate::args::{write_arg, write_header};
use crate::error::ServerError;

/// How deeply arrays may be nested.
const MAX_DEPTH: u32 = 32;
/// The longest line: a status, an error or a number.
const MAX_LINE: usize = 64 * 1024;
/// The longest string and the longest array: the server's own limits.
const MAX_LENGTH: i64 = 512 << 20;

/// A reply of the server: a value, or an error reply.
pub(super) type Reply = Result<Value, ServerError>;

/// A unit of the server's output.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    Reply(Reply),
    /// Not a reply: a message, or the confirmation of a subscription.
    Push(Vec<Value>),
}

/// The input is not RESP.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidFrame;

/// Writes a command.
pub(super) fn write(out: &mut Vec<u8>, error_reply: &[&[u8]]) {
    write_header(out, error_reply.len());
    error_reply.iter().for_each(|word| write_arg(out, word));
}

/// How far an incomplete first frame was scanned, so that a long frame that comes in many pieces is
/// not scanned from its beginning with each.
#[derive(Debug, Default)]
pub(super) struct FrameScanner {
    at: usize,
    /// How many elements are still to come, as far as is known; 0 before the scan.
    left: usize,
}

impl FrameScanner {
    /// Continues the scan; returns whether the frame is complete.
    fn is_complete(&mut self, bytes: &[u8]) -> Result<bool, InvalidFrame> {
        while self.left > 0 {
            let mut reader = Reader { bytes, at: self.at };
            let inside = match reader.skip() {
                Ok(inside) => inside,
                Err(ReadError::Incomplete) => return Ok(false),
                Err(ReadError::InvalidFrame) => return Err(InvalidFrame),
            };
            self.left = (self.left - 1).checked_add(inside).ok_or(InvalidFrame)?;
            self.at = reader.at;
        }
        Ok(true)
    }
}

/// Reads the first frame and its length; `None` while it is incomplete. The caller keeps `scanner`
/// from one call to the next.
pub(super) fn read(
    bytes: &[u8],
    scanner: &mut FrameScanner,
) -> Result<Option<(Frame, usize)>, InvalidFrame> {
    if bytes.is_empty() || (scanner.left > 0 && !scanner.is_complete(bytes)?) {
        return Ok(None);
    }
    let mut reader = Reader { bytes, at: 0 };
    match reader.frame() {
        Ok(frame) => {
            *scanner = FrameScanner::default();
            Ok(Some((frame, reader.at)))
        }
        Err(ReadError::Incomplete) => {
            *scanner = FrameScanner { at: 0, left: 1 };
            scanner.is_complete(bytes).map(|_| None)
        }
        Err(ReadError::InvalidFrame) => Err(InvalidFrame),
    }
}

enum ReadError {
    Incomplete,
    InvalidFrame,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn frame(&mut self) -> Result<Frame, ReadError> {
        match self.bytes.get(self.at) {
            Some(b'>') => {
                self.at += 1;
                let count = self.count()?.ok_or(ReadError::InvalidFrame)?;
                self.list(count, MAX_DEPTH)?.map(Frame::Push).map_err(|_| ReadError::InvalidFrame)
            }
            _ => self.reply(MAX_DEPTH).map(Frame::Reply),
        }
    }

    fn reply(&mut self, deepest: u32) -> Result<Reply, ReadError> {
        let deeper = deepest.checked_sub(1).ok_or(ReadError::InvalidFrame)?;
        let mark = *self.bytes.get(self.at).ok_or(ReadError::Incomplete)?;
        self.at += 1;
        Ok(Ok(match mark {
            b'$' => self.text()?.map_or(Value::Nil, |text| Value::Bytes(text.to_vec())),
            b':' => Value::Integer(self.number()?),
            b'+' => Value::Status(to_text(self.line()?)),
            b'-' => return Ok(Err(error_reply(self.line()?))),
            b'!' => return Ok(Err(error_reply(self.text()?.ok_or(ReadError::InvalidFrame)?))),
            b'*' | b'~' => match self.count()? {
                Some(count) => return Ok(self.list(count, deeper)?.map(Value::Array)),
                None => Value::Nil,
            },
            b'%' => {
                let count = self.count()?.and_then(|pairs| pairs.checked_mul(2));
                return Ok(self
                    .list(count.ok_or(ReadError::InvalidFrame)?, deeper)?
                    .map(Value::Array));
            }
            b'|' => {
                // Attributes come before their reply, and are ignored.
                let count = self.count()?.and_then(|pairs| pairs.checked_mul(2));
                drop(self.list(count.ok_or(ReadError::InvalidFrame)?, deeper)?);
                return self.reply(deeper);
            }
            b'_' => match self.line()? {
                b"" => Value::Nil,
                _ => return Err(ReadError::InvalidFrame),
            },
            b'#' => Value::Integer(i64::from(self.line()? == b"t")),
            b',' | b'(' => Value::Bytes(self.line()?.to_vec()),
            // The first four bytes name the format of a verbatim string.
            b'=' => {
                let text =
                    self.text()?.and_then(|text| text.get(4..)).ok_or(ReadError::InvalidFrame)?;
                Value::Bytes(text.to_vec())
            }
            _ => return Err(ReadError::InvalidFrame),
        }))
    }

    /// Skips one element; returns how many elements it contains.
    fn skip(&mut self) -> Result<usize, ReadError> {
        let mark = *self.bytes.get(self.at).ok_or(ReadError::Incomplete)?;
        self.at += 1;
        match mark {
            b'$' | b'!' | b'=' => self.text().map(|_| 0),
            b'*' | b'~' | b'>' => Ok(self.count()?.unwrap_or(0)),
            b'%' => Ok(2 * self.count()?.unwrap_or(0)),
            // The reply that the attributes describe follows them.
            b'|' => Ok(2 * self.count()?.unwrap_or(0) + 1),
            _ => self.line().map(|_| 0),
        }
    }

    /// Reads the elements of an array to its end, also behind an error reply among them.
    fn list(
        &mut self,
        count: usize,
        deepest: u32,
    ) -> Result<Result<Vec<Value>, ServerError>, ReadError> {
        let mut parts = Ok(Vec::new());
        for _ in 0..count {
            match (self.reply(deepest)?, &mut parts) {
                (Ok(part), Ok(parts)) => parts.push(part),
                (Err(error_reply), Ok(_)) => parts = Err(error_reply),
                (_, Err(_)) => {}
            }
        }
        Ok(parts)
    }

    /// Reads a string and its length; `None` for null.
    fn text(&mut self) -> Result<Option<&'a [u8]>, ReadError> {
        let Some(length) = self.count()? else { return Ok(None) };
        let rest = &self.bytes[self.at..];
        let Some(text) = rest.get(..length + 2) else { return Err(ReadError::Incomplete) };
        self.at += length + 2;
        let text = text.strip_suffix(b"\r\n").ok_or(ReadError::InvalidFrame)?;
        Ok(Some(text))
    }

    /// Reads a length; `None` for null.
    fn count(&mut self) -> Result<Option<usize>, ReadError> {
        match self.number()? {
            -1 => Ok(None),
            count if count <= MAX_LENGTH => {
                usize::try_from(count).map(Some).map_err(|_| ReadError::InvalidFrame)
            }
            _ => Err(ReadError::InvalidFrame),
        }
    }

    fn number(&mut self) -> Result<i64, ReadError> {
        let line = self.line()?;
        let (minus, digits) = match line.strip_prefix(b"-") {
            Some(digits) => (true, digits),
            None => (false, line),
        };
        let add = |sum: i64, digit: &u8| {
            let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
            sum.checked_mul(10)?.checked_sub(digit)
        };
        // Summed as a negative number, as the smallest one has no positive counterpart.
        let negative = digits.iter().try_fold(0_i64, add).filter(|_| !digits.is_empty());
        let number = if minus { negative } else { negative.and_then(i64::checked_neg) };
        number.ok_or(ReadError::InvalidFrame)
    }

    /// Reads up to the end of the line.
    fn line(&mut self) -> Result<&'a [u8], ReadError> {
        let rest = &self.bytes[self.at..];
        match rest.iter().take(MAX_LINE).position(|byte| *byte == b'\n') {
            Some(end) => {
                self.at += end + 1;
                rest[..end].strip_suffix(b"\r").ok_or(ReadError::InvalidFrame)
            }
            None if rest.len() >= MAX_LINE => Err(ReadError::InvalidFrame),
            None => Err(ReadError::Incomplete),
        }
    }
}

fn to_text(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// Splits an error reply into its code and the rest.
fn error_reply(line: &[u8]) -> ServerError {
    let line = String::from_utf8_lossy(line);
    let (code, rest) = line.split_once(' ').unwrap_or((&line, ""));
    ServerError::new(code, rest)
}

#[cfg(test)]
mod tests;
