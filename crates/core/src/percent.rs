//! Percent-encoding in URLs.

/// Decodes percent-encoding into bytes, which need not be text; `None` if a `%` is not followed by
/// two hex digits.
pub fn percent_decode(encoded: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digits = tail.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &tail[2..];
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_can_be_written_and_half_a_code_is_refused() {
        for (encoded, bytes) in [
            ("", Some(&b""[..])),
            ("a/b", Some(b"a/b")),
            ("%61%2F%00%fF", Some(b"a/\x00\xff")),
            ("a+b", Some(b"a+b")),
            ("%", None),
            ("%1", None),
            ("%g1", None),
            ("%+1", None),
            ("x%2", None),
        ] {
            assert_eq!(percent_decode(encoded).as_deref(), bytes, "{encoded}");
        }
    }
}
