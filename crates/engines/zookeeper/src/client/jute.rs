//! The encoding of ZooKeeper's messages (jute): numbers in network byte order, and a length of 32
//! bits before each text, buffer and list. A length of -1 stands for null.
//!
//! - J1: no input makes the decoder panic, or allocate more than the input is long.

use std::borrow::Cow;

/// The input is no valid message; the text says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Encodes a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn int(mut self, value: i32) -> Encoder {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, value: i64) -> Encoder {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn bool(mut self, value: bool) -> Encoder {
        self.0.push(u8::from(value));
        self
    }

    /// Appends bytes after their length.
    pub(crate) fn buffer(self, bytes: &[u8]) -> Encoder {
        // A message that is too long for its length is refused before it is sent.
        let mut this = self.int(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        this.0.extend(bytes);
        this
    }

    pub(crate) fn text(self, text: &str) -> Encoder {
        self.buffer(text.as_bytes())
    }

    pub(crate) fn append(mut self, encoded: &[u8]) -> Encoder {
        self.0.extend(encoded);
        self
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the message with its length before it.
    pub(crate) fn into_frame(self) -> Vec<u8> {
        Encoder::default().buffer(&self.0).0
    }
}

/// Decodes a message from its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Decoder<'a> {
        Decoder(message)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn int(&mut self) -> Result<i32, Malformed> {
        self.take().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<i64, Malformed> {
        self.take().map(i64::from_be_bytes)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        let [byte] = self.take()?;
        Ok(byte != 0)
    }

    /// Returns a buffer; null is an empty one.
    pub(crate) fn buffer(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        let (taken, rest) =
            self.0.split_at_checked(length).ok_or(Malformed("a length exceeds the message"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// Returns a text. Bytes that are not UTF-8, in names of other programs' nodes, are replaced.
    pub(crate) fn text(&mut self) -> Result<Cow<'a, str>, Malformed> {
        self.buffer().map(String::from_utf8_lossy)
    }

    /// Returns a list of texts; null is an empty one.
    pub(crate) fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        // Nothing is allocated by the announced length, which may be wrong.
        let mut texts = Vec::new();
        for _ in 0..self.length()? {
            texts.push(self.text()?.into_owned());
        }
        Ok(texts)
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        match self.int()? {
            -1 => Ok(0),
            length => usize::try_from(length).map_err(|_| Malformed("a length is negative")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let bytes =
            Encoder::default().int(-7).long(1 << 40).bool(true).text("é").buffer(b"").into_bytes();
        let mut decoder = Decoder::new(&bytes);
        assert_eq!((decoder.int(), decoder.long()), (Ok(-7), Ok(1 << 40)));
        assert_eq!((decoder.bool(), decoder.text()), (Ok(true), Ok("é".into())));
        assert_eq!(decoder.buffer(), Ok(&b""[..]));
        assert_eq!(decoder.int(), Err(Malformed("it ends too early")));
        assert_eq!(Encoder::default().int(1).into_frame(), [0, 0, 0, 4, 0, 0, 0, 1]);
    }

    #[test]
    fn null_is_empty_and_a_wrong_length_is_an_error() {
        let null = Encoder::default().int(-1).into_bytes();
        assert_eq!(Decoder::new(&null).texts(), Ok(Vec::new()));
        assert_eq!(Decoder::new(&null).buffer(), Ok(&b""[..]));
        for (length, why) in [(-2, "a length is negative"), (5, "a length exceeds the message")] {
            let bytes = Encoder::default().int(length).append(b"four").into_bytes();
            assert_eq!(Decoder::new(&bytes).buffer(), Err(Malformed(why)));
        }
        let endless = Encoder::default().int(i32::MAX).int(-1).int(-1).into_bytes();
        assert_eq!(Decoder::new(&endless).texts(), Err(Malformed("it ends too early")));
        let latin = Encoder::default().buffer(b"\xe9").into_bytes();
        assert_eq!(Decoder::new(&latin).text(), Ok("\u{fffd}".into()));
    }
}
