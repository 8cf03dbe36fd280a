//! The format of a fenced file.
//!
//! One line of text, then the data unchanged:
//!
//! ```text
//! holdline-fence 1 mark=34 bytes=12
//! twelve bytes
//! ```
//!
//! `1` is the version of the format, `mark` the largest fencing token accepted (1 to 2^53 − 1),
//! `bytes` the length of the data. Exactly one spelling is accepted, so that a damaged line is
//! rarely mistaken for another mark; the length shows whether the end is missing.

use holdline_core::{Escaped, FencingToken};

const MAGIC: &str = "holdline-fence ";
const VERSION: &str = "1";

/// The longest first line that the format can have, its end included.
pub(super) const LONGEST: usize = 80;

/// The first line of a fenced file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) mark: FencingToken,
    pub(super) bytes: u64,
}

impl Header {
    /// The line, its end included.
    pub(super) fn line(self) -> String {
        format!("{MAGIC}{VERSION} mark={} bytes={}\n", self.mark, self.bytes)
    }

    /// Parses the header in the first [`LONGEST`] bytes of a file; also returns its length. The
    /// error says what was found instead.
    pub(super) fn parse(start: &[u8]) -> Result<(Header, usize), String> {
        if start.is_empty() {
            return Err("the file is empty".to_owned());
        }
        let line = start.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
        let text = String::from_utf8_lossy(line);
        let Some(rest) = text.strip_prefix(MAGIC) else {
            return Err("the file does not begin with `holdline-fence`".to_owned());
        };
        let version = rest.split([' ', '\n']).next().unwrap_or_default();
        if version != VERSION && !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit())
        {
            return Err(format!("the file has format {version}, this program knows {VERSION}"));
        }
        let damaged = || format!("the first line is damaged: {}", Escaped(&text));
        let header = Header::fields(rest).ok_or_else(damaged)?;
        // One spelling only: no leading zeros, no other blanks, nothing after it.
        if header.line().as_bytes() != line {
            return Err(damaged());
        }
        Ok((header, line.len()))
    }

    fn fields(rest: &str) -> Option<Header> {
        let mut words = rest.split_ascii_whitespace().skip(1);
        let mark = words.next()?.strip_prefix("mark=")?.parse().ok()?;
        let bytes = words.next()?.strip_prefix("bytes=")?.parse().ok()?;
        Some(Header { mark, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for (mark, bytes) in [(1, 0), (34, 12), (FencingToken::MAX.get(), u64::MAX)] {
            let header = Header { mark: FencingToken::new(mark).expect("in range"), bytes };
            let line = header.line();
            assert!(line.len() <= LONGEST, "{line}");
            assert_eq!(Header::parse(line.as_bytes()), Ok((header, line.len())));
            let with_data = format!("{line}data\nmore");
            assert_eq!(Header::parse(with_data.as_bytes()), Ok((header, line.len())));
        }
    }

    #[test]
    fn any_other_text_is_an_error_with_the_reason() {
        for (start, says) in [
            ("", "the file is empty"),
            ("hello\n", "does not begin with"),
            ("Holdline-fence 1 mark=34 bytes=0\n", "does not begin with"),
            ("\u{feff}holdline-fence 1 mark=34 bytes=0\n", "does not begin with"),
            ("holdline-fence 2 mark=34 bytes=0\n", "format 2"),
            ("holdline-fence 10 else\n", "format 10"),
            ("holdline-fence ", "damaged"),
            ("holdline-fence 1", "damaged"),
            ("holdline-fence 1\n", "damaged"),
            ("holdline-fence 1 mark=34\n", "damaged"),
            ("holdline-fence 1 mark=34 bytes=0", "damaged"),
            ("holdline-fence 1 mark=34 bytes=0 \n", "damaged"),
            ("holdline-fence 1 mark=34 bytes=0 more=1\n", "damaged"),
            ("holdline-fence 1  mark=34 bytes=0\n", "damaged"),
            ("holdline-fence 1 mark=034 bytes=0\n", "damaged"),
            ("holdline-fence 1 mark=+34 bytes=0\n", "damaged"),
            ("holdline-fence 1 mark=34 bytes=00\n", "damaged"),
            ("holdline-fence 1 mark=34 bytes=-1\n", "damaged"),
            ("holdline-fence 1 mark=34 bytes=18446744073709551616\n", "damaged"),
            ("holdline-fence 1 mark=0 bytes=0\n", "damaged"),
            ("holdline-fence 1 mark=9007199254740992 bytes=0\n", "damaged"),
            ("holdline-fence 1 mark=34 bytes=0\r\n", "damaged"),
            ("holdline-fence 1 bytes=0 mark=34\n", "damaged"),
        ] {
            let reported = Header::parse(start.as_bytes()).expect_err(start);
            assert!(reported.contains(says), "{start:?}: {reported}");
        }
        let reported = Header::parse(b"holdline-fence 1 mark=\x1b[2J\xff\n").expect_err("damaged");
        assert!(!reported.contains('\x1b'), "{reported}");
    }
}
