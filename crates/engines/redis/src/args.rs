//! The arguments of a command, encoded as RESP has them.

/// Some arguments of a command, encoded in one buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Args {
    bytes: Vec<u8>,
    count: usize,
}

impl Args {
    /// Allocates room for this many encoded bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Args {
        Args { bytes: Vec::with_capacity(bytes), count: 0 }
    }

    pub(crate) fn push(&mut self, arg: impl AsRef<[u8]>) {
        write_arg(&mut self.bytes, arg.as_ref());
        self.count += 1;
    }

    /// Adds one argument that is the concatenation of the parts.
    pub(crate) fn push_concat(&mut self, parts: &[&[u8]]) {
        write_length(&mut self.bytes, parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.extend_from_slice(b"\r\n");
        self.count += 1;
    }

    pub(crate) fn push_number(&mut self, number: u64) {
        self.push(digits(number, &mut [0; 20]));
    }

    /// Returns the number of arguments.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn as_encoded(&self) -> &[u8] {
        &self.bytes
    }
}

impl<W: AsRef<[u8]>> FromIterator<W> for Args {
    fn from_iter<I: IntoIterator<Item = W>>(args: I) -> Args {
        let mut all = Args::default();
        args.into_iter().for_each(|arg| all.push(arg));
        all
    }
}

impl<W: AsRef<[u8]>> From<Vec<W>> for Args {
    fn from(args: Vec<W>) -> Args {
        args.into_iter().collect()
    }
}

impl<W: AsRef<[u8]>, const N: usize> From<[W; N]> for Args {
    fn from(args: [W; N]) -> Args {
        args.into_iter().collect()
    }
}

/// Writes the header of a command with this many arguments.
pub(crate) fn write_header(out: &mut Vec<u8>, count: usize) {
    write_number(out, b'*', count);
}

/// Writes the header of one argument of this many bytes.
pub(crate) fn write_length(out: &mut Vec<u8>, bytes: usize) {
    write_number(out, b'$', bytes);
}

/// Writes one argument of a command.
pub(crate) fn write_arg(out: &mut Vec<u8>, word: &[u8]) {
    write_length(out, word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_encoded_as_bulk_strings() {
        let mut args = Args::from(["SET", ""]);
        args.push_concat(&[b"a", b"", b"\r\n"]);
        args.push_number(70);
        assert_eq!(args.count(), 4);
        assert_eq!(args.as_encoded(), b"$3\r\nSET\r\n$0\r\n\r\n$3\r\na\r\n\r\n$2\r\n70\r\n");
    }
}
