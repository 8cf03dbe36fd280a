//! Words of a command, as they are written.

use super::resp;

/// Some words of a command: one piece of memory, whatever they are made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    count: usize,
}

impl Words {
    /// Makes room for words of so many bytes in all.
    pub(crate) fn with_room(bytes: usize) -> Words {
        Words { bytes: Vec::with_capacity(bytes), count: 0 }
    }

    pub(crate) fn push(&mut self, word: impl AsRef<[u8]>) {
        resp::write_word(&mut self.bytes, word.as_ref());
        self.count += 1;
    }

    /// Adds one word that is made of parts.
    pub(crate) fn push_parts(&mut self, parts: &[&[u8]]) {
        resp::write_length(&mut self.bytes, parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.extend_from_slice(b"\r\n");
        self.count += 1;
    }

    pub(crate) fn push_number(&mut self, number: u64) {
        self.push(resp::digits(number, &mut [0; 20]));
    }

    /// How many they are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn as_written(&self) -> &[u8] {
        &self.bytes
    }
}

impl<W: AsRef<[u8]>> FromIterator<W> for Words {
    fn from_iter<I: IntoIterator<Item = W>>(words: I) -> Words {
        let mut all = Words::default();
        words.into_iter().for_each(|word| all.push(word));
        all
    }
}

impl<W: AsRef<[u8]>> From<Vec<W>> for Words {
    fn from(words: Vec<W>) -> Words {
        words.into_iter().collect()
    }
}

impl<W: AsRef<[u8]>, const N: usize> From<[W; N]> for Words {
    fn from(words: [W; N]) -> Words {
        words.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_written_as_the_protocol_wants_them() {
        let mut words = Words::from(["SET", ""]);
        words.push_parts(&[b"a", b"", b"\r\n"]);
        words.push_number(70);
        assert_eq!(words.count(), 4);
        assert_eq!(words.as_written(), b"$3\r\nSET\r\n$0\r\n\r\n$3\r\na\r\n\r\n$2\r\n70\r\n");
    }
}
