//! The protocol: commands as they are written, replies as they are read. Versions 2 and 3.
//!
//! - Invariant R1: what a reply announces is not believed before it is there: nothing is reserved
//!   for it.
//! - Invariant R2: what makes no sense is rubbish, and ends the connection: nothing behind it is
//!   read.

use super::value::Value;
use crate::error::ServerWords;

/// How deep lists may stand in lists.
const DEEPEST: u32 = 32;
/// The longest line: a status, an error, a number.
const LONGEST_LINE: usize = 64 * 1024;
/// The longest text, and the longest list: what the server itself sets as its limits.
const LONGEST: i64 = 512 << 20;

/// A reply of the server, or its refusal.
pub(super) type Reply = Result<Value, ServerWords>;

/// What the server says.
#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    Reply(Reply),
    /// Unasked: a message; and how a subscription is confirmed.
    Push(Vec<Value>),
}

/// What no server says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rubbish;

/// Writes the beginning of a command of so many words.
pub(super) fn write_head(out: &mut Vec<u8>, words: usize) {
    write_number(out, b'*', words);
}

/// Writes the beginning of one word of so many bytes.
pub(super) fn write_length(out: &mut Vec<u8>, bytes: usize) {
    write_number(out, b'$', bytes);
}

/// Writes one word of a command.
pub(super) fn write_word(out: &mut Vec<u8>, word: &[u8]) {
    write_length(out, word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

/// Writes a command.
pub(super) fn write(out: &mut Vec<u8>, words: &[&[u8]]) {
    write_head(out, words.len());
    words.iter().for_each(|word| write_word(out, word));
}

fn write_number(out: &mut Vec<u8>, mark: u8, number: usize) {
    out.push(mark);
    out.extend_from_slice(digits(number as u64, &mut [0; 20]));
    out.extend_from_slice(b"\r\n");
}

/// Writes a number in digits, at the end of the room.
pub(crate) fn digits(mut number: u64, room: &mut [u8; 20]) -> &[u8] {
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &room[at..];
        }
    }
}

/// How far the first frame was looked over while it is not all there, so that a long one that
/// comes in many pieces is not read again from its beginning with each.
#[derive(Debug, Default)]
pub(super) struct Skim {
    at: usize,
    /// How many parts are to come, as far as is known; none when nothing was looked over.
    left: usize,
}

impl Skim {
    /// Goes on over what has come; tells whether the frame is all there.
    fn is_whole(&mut self, bytes: &[u8]) -> Result<bool, Rubbish> {
        while self.left > 0 {
            let mut reader = Reader { bytes, at: self.at };
            let inside = match reader.skip() {
                Ok(inside) => inside,
                Err(Stop::Partial) => return Ok(false),
                Err(Stop::Rubbish) => return Err(Rubbish),
            };
            self.left = (self.left - 1).checked_add(inside).ok_or(Rubbish)?;
            self.at = reader.at;
        }
        Ok(true)
    }
}

/// Reads the first frame and its length; `None` while it is not all there. `skim` is kept from
/// one look at it to the next.
pub(super) fn read(bytes: &[u8], skim: &mut Skim) -> Result<Option<(Frame, usize)>, Rubbish> {
    if bytes.is_empty() || (skim.left > 0 && !skim.is_whole(bytes)?) {
        return Ok(None);
    }
    let mut reader = Reader { bytes, at: 0 };
    match reader.frame() {
        Ok(frame) => {
            *skim = Skim::default();
            Ok(Some((frame, reader.at)))
        }
        Err(Stop::Partial) => {
            *skim = Skim { at: 0, left: 1 };
            skim.is_whole(bytes).map(|_| None)
        }
        Err(Stop::Rubbish) => Err(Rubbish),
    }
}

enum Stop {
    Partial,
    Rubbish,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn frame(&mut self) -> Result<Frame, Stop> {
        match self.bytes.get(self.at) {
            Some(b'>') => {
                self.at += 1;
                let count = self.count()?.ok_or(Stop::Rubbish)?;
                self.list(count, DEEPEST)?.map(Frame::Push).map_err(|_| Stop::Rubbish)
            }
            _ => self.reply(DEEPEST).map(Frame::Reply),
        }
    }

    fn reply(&mut self, deepest: u32) -> Result<Reply, Stop> {
        let deeper = deepest.checked_sub(1).ok_or(Stop::Rubbish)?;
        let mark = *self.bytes.get(self.at).ok_or(Stop::Partial)?;
        self.at += 1;
        Ok(Ok(match mark {
            b'$' => self.text()?.map_or(Value::Nil, |text| Value::Bytes(text.to_vec())),
            b':' => Value::Integer(self.number()?),
            b'+' => Value::Status(lossy(self.line()?)),
            b'-' => return Ok(Err(words(self.line()?))),
            b'!' => return Ok(Err(words(self.text()?.ok_or(Stop::Rubbish)?))),
            b'*' | b'~' => match self.count()? {
                Some(count) => return Ok(self.list(count, deeper)?.map(Value::Array)),
                None => Value::Nil,
            },
            b'%' => {
                let count = self.count()?.and_then(|pairs| pairs.checked_mul(2));
                return Ok(self.list(count.ok_or(Stop::Rubbish)?, deeper)?.map(Value::Array));
            }
            b'|' => {
                // What is said about a reply stands before it, and is of no interest here.
                let count = self.count()?.and_then(|pairs| pairs.checked_mul(2));
                drop(self.list(count.ok_or(Stop::Rubbish)?, deeper)?);
                return self.reply(deeper);
            }
            b'_' => match self.line()? {
                b"" => Value::Nil,
                _ => return Err(Stop::Rubbish),
            },
            b'#' => Value::Integer(i64::from(self.line()? == b"t")),
            b',' | b'(' => Value::Bytes(self.line()?.to_vec()),
            // Its first four bytes tell what kind of text it is.
            b'=' => {
                let text = self.text()?.and_then(|text| text.get(4..)).ok_or(Stop::Rubbish)?;
                Value::Bytes(text.to_vec())
            }
            _ => return Err(Stop::Rubbish),
        }))
    }

    /// Steps over one part; tells how many stand inside it.
    fn skip(&mut self) -> Result<usize, Stop> {
        let mark = *self.bytes.get(self.at).ok_or(Stop::Partial)?;
        self.at += 1;
        match mark {
            b'$' | b'!' | b'=' => self.text().map(|_| 0),
            b'*' | b'~' | b'>' => Ok(self.count()?.unwrap_or(0)),
            b'%' => Ok(2 * self.count()?.unwrap_or(0)),
            // What it speaks of stands behind it.
            b'|' => Ok(2 * self.count()?.unwrap_or(0) + 1),
            _ => self.line().map(|_| 0),
        }
    }

    /// Reads the parts of a list to its end, also behind an error among them.
    fn list(
        &mut self,
        count: usize,
        deepest: u32,
    ) -> Result<Result<Vec<Value>, ServerWords>, Stop> {
        let mut parts = Ok(Vec::new());
        for _ in 0..count {
            match (self.reply(deepest)?, &mut parts) {
                (Ok(part), Ok(parts)) => parts.push(part),
                (Err(words), Ok(_)) => parts = Err(words),
                (_, Err(_)) => {}
            }
        }
        Ok(parts)
    }

    /// Reads a text behind its length; `None` when there is none.
    fn text(&mut self) -> Result<Option<&'a [u8]>, Stop> {
        let Some(length) = self.count()? else { return Ok(None) };
        let rest = &self.bytes[self.at..];
        let Some(text) = rest.get(..length + 2) else { return Err(Stop::Partial) };
        self.at += length + 2;
        let text = text.strip_suffix(b"\r\n").ok_or(Stop::Rubbish)?;
        Ok(Some(text))
    }

    /// Reads how long what follows is; `None` when there is nothing.
    fn count(&mut self) -> Result<Option<usize>, Stop> {
        match self.number()? {
            -1 => Ok(None),
            count if count <= LONGEST => {
                usize::try_from(count).map(Some).map_err(|_| Stop::Rubbish)
            }
            _ => Err(Stop::Rubbish),
        }
    }

    fn number(&mut self) -> Result<i64, Stop> {
        let line = self.line()?;
        let (minus, digits) = match line.strip_prefix(b"-") {
            Some(digits) => (true, digits),
            None => (false, line),
        };
        let add = |sum: i64, digit: &u8| {
            let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
            sum.checked_mul(10)?.checked_sub(digit)
        };
        // Downwards, as the smallest number has no counterpart.
        let negative = digits.iter().try_fold(0_i64, add).filter(|_| !digits.is_empty());
        let number = if minus { negative } else { negative.and_then(i64::checked_neg) };
        number.ok_or(Stop::Rubbish)
    }

    /// Reads up to the end of the line.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        match rest.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') {
            Some(end) => {
                self.at += end + 1;
                rest[..end].strip_suffix(b"\r").ok_or(Stop::Rubbish)
            }
            None if rest.len() >= LONGEST_LINE => Err(Stop::Rubbish),
            None => Err(Stop::Partial),
        }
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// Takes an error apart into its first word and the rest.
fn words(line: &[u8]) -> ServerWords {
    let line = String::from_utf8_lossy(line);
    let (code, rest) = line.split_once(' ').unwrap_or((&line, ""));
    ServerWords::new(code, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Value {
        Value::Bytes(text.into())
    }

    fn list(parts: &[Value]) -> Value {
        Value::Array(parts.to_vec())
    }

    #[test]
    fn commands_are_written_word_by_word() {
        let mut out = Vec::new();
        write(&mut out, &[b"SET", b"", b"a\r\nb"]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n");
        for (number, text) in [(0, "0"), (9, "9"), (10, "10"), (u64::MAX, "18446744073709551615")] {
            assert_eq!(digits(number, &mut [0; 20]), text.as_bytes());
        }
    }

    fn read(bytes: &[u8]) -> Result<Option<(Frame, usize)>, Rubbish> {
        super::read(bytes, &mut Skim::default())
    }

    /// Each reply is read whole, and nothing is read of any beginning of it.
    #[test]
    fn replies_of_both_versions_are_read() {
        let nothing = Value::Nil;
        for (text, value) in [
            ("+OK\r\n", Value::Status("OK".to_owned())),
            (":-9223372036854775808\r\n", Value::Integer(i64::MIN)),
            (":9223372036854775807\r\n", Value::Integer(i64::MAX)),
            ("$-1\r\n", nothing.clone()),
            ("*-1\r\n", nothing.clone()),
            ("_\r\n", nothing),
            ("$0\r\n\r\n", bytes("")),
            ("$4\r\na\r\nb\r\n", bytes("a\r\nb")),
            ("=7\r\ntxt:a\nb\r\n", bytes("a\nb")),
            ("*0\r\n", list(&[])),
            ("*2\r\n:1\r\n*1\r\n$1\r\na\r\n", list(&[Value::Integer(1), list(&[bytes("a")])])),
            ("~1\r\n#t\r\n", list(&[Value::Integer(1)])),
            ("%1\r\n+k\r\n,1.5\r\n", list(&[Value::Status("k".to_owned()), bytes("1.5")])),
            ("|1\r\n+k\r\n:1\r\n#f\r\n", Value::Integer(0)),
            ("(123456789012345678901\r\n", bytes("123456789012345678901")),
        ] {
            let told = Frame::Reply(Ok(value));
            assert_eq!(read(text.as_bytes()), Ok(Some((told, text.len()))), "{text:?}");
            let mut skim = Skim::default();
            for end in 0..text.len() {
                let beginning = &text.as_bytes()[..end];
                assert_eq!(read(beginning), Ok(None), "{:?}", &text[..end]);
                assert_eq!(super::read(beginning, &mut skim), Ok(None), "{:?}", &text[..end]);
            }
            assert_eq!(super::read(text.as_bytes(), &mut skim), read(text.as_bytes()), "{text:?}");
        }
    }

    /// What was looked over once is not looked at again, however many pieces come.
    #[test]
    fn a_long_list_is_looked_over_once() {
        let mut skim = Skim::default();
        let mut text = b"*1000\r\n".to_vec();
        for part in 0..1_000 {
            assert_eq!(super::read(&text, &mut skim), Ok(None));
            assert_eq!((skim.at, skim.left), (text.len(), 1_000 - part));
            text.extend(b"*1\r\n$1\r\nx\r\n");
        }
        let (_, length) = super::read(&text, &mut skim).expect("sense").expect("whole");
        assert_eq!((length, skim.left), (text.len(), 0));
    }

    #[test]
    fn a_frame_ends_where_the_next_begins() {
        let text = b">3\r\n+message\r\n$1\r\nc\r\n$1\r\nm\r\n:1\r\n";
        let (frame, length) = read(text).expect("sense").expect("whole");
        let parts = vec![Value::Status("message".to_owned()), bytes("c"), bytes("m")];
        assert_eq!((frame, &text[length..]), (Frame::Push(parts), &b":1\r\n"[..]));
    }

    #[test]
    fn errors_are_taken_apart_and_what_stands_behind_one_is_read() {
        let told = |text: &str| match read(text.as_bytes()) {
            Ok(Some((Frame::Reply(Err(words)), length))) if length == text.len() => words,
            other => panic!("{text:?}: {other:?}"),
        };
        assert_eq!(told("-NOSCRIPT no such\r\n"), ServerWords::new("NOSCRIPT", "no such"));
        assert_eq!(told("-ODD\r\n"), ServerWords::new("ODD", ""));
        assert_eq!(told("!8\r\nERR a\r\nb\r\n"), ServerWords::new("ERR", "a\r\nb"));
        assert_eq!(told("*3\r\n-ERR a\r\n-ERR b\r\n:1\r\n"), ServerWords::new("ERR", "a"));
    }

    #[test]
    fn rubbish_is_told_from_what_is_not_there_yet() {
        let deep = "*1\r\n".repeat(40);
        let long = format!("+{}", "x".repeat(LONGEST_LINE));
        for text in [
            "H",
            "!!!x\r\n",
            ":\r\n",
            ":-\r\n",
            ":1x\r\n",
            "$-2\r\n",
            "$1\r\nab\r\n",
            "+a\n",
            ":9223372036854775808\r\n",
            "$536870913\r\n",
            "_x\r\n",
            "=3\r\ntxt\r\n",
            "%-1\r\n",
            &deep,
            &long,
        ] {
            assert_eq!(read(text.as_bytes()), Err(Rubbish), "{text:?}");
        }
        assert_eq!(read(b"$536870912\r\na few bytes"), Ok(None));
        assert_eq!(read(b"*536870912\r\n:1\r\n"), Ok(None));
    }
}
