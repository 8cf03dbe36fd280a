//! One request in transit: the bytes that the client wrote, and the positions of its words.

use std::io::Write;
use std::ops::{Index, Range};

/// One request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    bytes: Vec<u8>,
    words: Vec<Range<usize>>,
}

impl Index<usize> for Frame {
    type Output = [u8];

    fn index(&self, at: usize) -> &[u8] {
        &self.bytes[self.words[at].clone()]
    }
}

impl Frame {
    /// Reads the first request of a client's bytes: an array of bulk strings.
    pub(crate) fn read(bytes: &[u8]) -> Option<Frame> {
        let mut at = 0;
        let count = header(bytes, &mut at, b'*')?;
        let mut words = Vec::with_capacity(count);
        for _ in 0..count {
            let length = header(bytes, &mut at, b'$')?;
            words.push(at..at + length);
            at += length + 2;
        }
        Some(Frame { bytes: bytes.get(..at)?.to_vec(), words })
    }

    /// Makes a request from words.
    pub(crate) fn of(words: &[&[u8]]) -> Frame {
        let bytes = format!("*{}\r\n", words.len()).into_bytes();
        let mut frame = Frame { bytes, words: Vec::with_capacity(words.len()) };
        for word in words {
            // Writing to a vector cannot fail.
            let _ = write!(frame.bytes, "${}\r\n", word.len());
            let begin = frame.bytes.len();
            frame.bytes.extend_from_slice(word);
            frame.words.push(begin..frame.bytes.len());
            frame.bytes.extend_from_slice(b"\r\n");
        }
        frame
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of words.
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.words.iter().map(|word| &self.bytes[word.clone()])
    }

    /// Returns whether it runs a script.
    pub(crate) fn is_script(&self) -> bool {
        self[0].starts_with(b"EVAL")
    }
}

/// Reads a header with a count or a length.
fn header(bytes: &[u8], at: &mut usize, mark: u8) -> Option<usize> {
    let line = bytes.get(*at..)?;
    assert!(line.first().is_none_or(|first| *first == mark), "arrays of bulk strings are written");
    let end = line.iter().position(|byte| *byte == b'\n')?;
    let digits = std::str::from_utf8(line.get(1..end - 1)?).ok()?;
    *at += end + 1;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_when_it_is_whole() {
        let words: [&[u8]; 3] = [b"EVAL", b"return 1\r\n", b""];
        let frame = Frame::of(&words);
        for cut in 0..frame.bytes().len() {
            assert!(Frame::read(&frame.bytes()[..cut]).is_none(), "{cut}");
        }
        let more = [frame.bytes(), b"*1\r\n$4\r\n"].concat();
        let read = Frame::read(&more).expect("it is whole");
        assert_eq!(read.bytes(), frame.bytes());
        assert_eq!(read.words().collect::<Vec<_>>(), words);
        assert!(read.is_script() && read.len() == 3 && &read[1] == words[1]);
    }
}
