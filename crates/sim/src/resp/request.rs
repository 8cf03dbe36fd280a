//! Bytes to commands: arrays of bulk strings, and lines typed by hand.
//!
//! A request may arrive split anywhere. Invalid input is answered with the server's message, and
//! ends the connection.

/// The largest length of a line: a typed command, or a length.
const LINE: usize = 64 * 1024;
/// The largest number of arguments of a command.
const ARGUMENTS: i64 = 1024 * 1024;
/// The largest length of an argument.
const ARGUMENT: i64 = 512 * 1024 * 1024;

/// Splits a stream of bytes into commands.
#[derive(Debug, Default)]
pub(crate) struct RequestParser {
    buffer: Vec<u8>,
    /// The position of the first unparsed byte.
    at: usize,
    /// The number of arguments still to come, after the header.
    missing: Option<usize>,
    /// The length of the argument at `at`, after its header.
    length: Option<usize>,
    arguments: Vec<Vec<u8>>,
}

impl RequestParser {
    /// Adds bytes that arrived.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.at > 0 && self.at == self.buffer.len() {
            self.buffer.clear();
            self.at = 0;
        } else if self.at > LINE {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next command, if it is complete; the error is the server's message.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, String> {
        loop {
            if self.missing.is_none() {
                match self.buffer.get(self.at) {
                    None => return Ok(None),
                    Some(b'*') => {
                        if !self.header()? {
                            return Ok(None);
                        }
                    }
                    Some(_) => match self.inline()? {
                        Some(words) if words.is_empty() => continue,
                        other => return Ok(other),
                    },
                }
            }
            while self.missing.is_some_and(|missing| missing > 0) {
                if !self.argument()? {
                    return Ok(None);
                }
            }
            self.missing = None;
            let arguments = std::mem::take(&mut self.arguments);
            if !arguments.is_empty() {
                return Ok(Some(arguments));
            }
        }
    }

    /// Reads `*<count>`.
    fn header(&mut self) -> Result<bool, String> {
        let Some(line) = self.line("too big mbulk count string")? else { return Ok(false) };
        let count = whole(&line[1..]).filter(|count| *count <= ARGUMENTS);
        let count = count.ok_or_else(|| protocol("invalid multibulk length"))?;
        self.missing = Some(usize::try_from(count).unwrap_or(0));
        Ok(true)
    }

    /// Reads `$<length>` and what follows.
    fn argument(&mut self) -> Result<bool, String> {
        let length = match self.length {
            Some(length) => length,
            None => {
                let Some(line) = self.line("too big bulk count string")? else { return Ok(false) };
                let first = line.first().copied().unwrap_or(0);
                if first != b'$' {
                    let shown = char::from(first);
                    return Err(protocol(&format!("expected '$', got '{shown}'")));
                }
                let length = whole(&line[1..]).filter(|l| (0..=ARGUMENT).contains(l));
                let length = length.ok_or_else(|| protocol("invalid bulk length"))?;
                let length = usize::try_from(length).unwrap_or(0);
                self.length = Some(length);
                length
            }
        };
        if self.buffer.len() < self.at + length + 2 {
            return Ok(false);
        }
        self.arguments.push(self.buffer[self.at..self.at + length].to_vec());
        self.at += length + 2;
        self.length = None;
        self.missing = self.missing.map(|missing| missing - 1);
        Ok(true)
    }

    /// Takes one line without its end, if it is complete.
    fn line(&mut self, too_long: &str) -> Result<Option<Vec<u8>>, String> {
        let rest = &self.buffer[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\r') else {
            return if rest.len() > LINE { Err(protocol(too_long)) } else { Ok(None) };
        };
        if rest.len() < end + 2 {
            return Ok(None);
        }
        let line = rest[..end].to_vec();
        self.at += end + 2;
        Ok(Some(line))
    }

    /// Reads a command that was typed as a line.
    fn inline(&mut self) -> Result<Option<Vec<Vec<u8>>>, String> {
        let rest = &self.buffer[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            let long = rest.len() > LINE;
            return if long { Err(protocol("too big inline request")) } else { Ok(None) };
        };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
        let words = split_words(line).ok_or_else(|| protocol("unbalanced quotes in request"))?;
        self.at += end + 1;
        Ok(Some(words))
    }
}

fn protocol(what: &str) -> String {
    format!("ERR Protocol error: {what}")
}

/// Reads a whole number as the server reads lengths.
fn whole(digits: &[u8]) -> Option<i64> {
    crate::number::strict(digits)
}

/// Splits a line into words, with quotes and escapes as in a shell.
fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let Some((first, tail)) = rest.split_first() {
            if !first.is_ascii_whitespace() {
                break;
            }
            rest = tail;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let (word, tail) = take_word(rest)?;
        words.push(word);
        rest = tail;
    }
}

/// Takes one word; `None` if a quote stays open.
fn take_word(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    let mut at = 0;
    while let Some(byte) = line.get(at) {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' | 0 => break,
            b'"' | b'\'' => {
                at = take_quoted(line, at + 1, *byte, &mut word)?;
                let next = line.get(at).copied().unwrap_or(b' ');
                return next.is_ascii_whitespace().then(|| (word, &line[at..]));
            }
            other => word.push(*other),
        }
        at += 1;
    }
    Some((word, &line[at..]))
}

/// Takes a quoted word and returns its end.
fn take_quoted(line: &[u8], mut at: usize, quote: u8, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match *line.get(at)? {
            byte if byte == quote => return Some(at + 1),
            b'\\' if quote == b'\'' && line.get(at + 1) == Some(&b'\'') => {
                word.push(b'\'');
                at += 1;
            }
            b'\\' if quote == b'"' => {
                let hex = line.get(at + 2..at + 4).and_then(|h| std::str::from_utf8(h).ok());
                let code = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
                match (line.get(at + 1)?, code) {
                    (b'x', Some(code)) => {
                        word.push(code);
                        at += 3;
                    }
                    (escaped, _) => {
                        word.push(unescape(*escaped));
                        at += 1;
                    }
                }
            }
            byte => word.push(byte),
        }
        at += 1;
    }
}

fn unescape(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(parser: &mut RequestParser) -> Vec<Vec<Vec<u8>>> {
        std::iter::from_fn(|| parser.next().expect("well formed")).collect()
    }

    #[test]
    fn a_request_may_be_split_anywhere() {
        let bytes =
            b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*0\r\nPING \"a b\\x41\"\r\n*1\r\n$0\r\n\r\n";
        let mut whole = RequestParser::default();
        whole.feed(bytes);
        let expected = commands(&mut whole);
        assert_eq!(expected.len(), 3);
        assert_eq!(expected[1], [b"PING".to_vec(), b"a bA".to_vec()]);
        for cut in 0..bytes.len() {
            let mut parser = RequestParser::default();
            parser.feed(&bytes[..cut]);
            let mut got = commands(&mut parser);
            parser.feed(&bytes[cut..]);
            got.extend(commands(&mut parser));
            assert_eq!(got, expected, "cut at {cut}");
        }
    }

    #[test]
    fn garbage_is_refused_in_the_words_of_the_server() {
        let table: &[(&[u8], &str)] = &[
            (b"*x\r\n", "invalid multibulk length"),
            (b"*1048577\r\n", "invalid multibulk length"),
            (b"*1\r\n+3\r\n", "expected '$', got '+'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$536870913\r\n", "invalid bulk length"),
            (b"get 'a\r\n", "unbalanced quotes in request"),
        ];
        for (bytes, says) in table {
            let mut parser = RequestParser::default();
            parser.feed(bytes);
            assert_eq!(parser.next(), Err(format!("ERR Protocol error: {says}")));
        }
        let mut parser = RequestParser::default();
        parser.feed(&vec![b'a'; LINE + 1]);
        assert_eq!(parser.next(), Err("ERR Protocol error: too big inline request".to_owned()));
    }
}
