//! Reads elements in DER, in which certificates are written.

/// The tag of a sequence.
pub const SEQUENCE: u8 = 0x30;

/// An element, and the bytes after it.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    /// The value, without tag and length.
    pub value: &'a [u8],
    /// What follows the element.
    pub rest: &'a [u8],
}

/// Reads an element with this tag: the tag, the length, and the value. A length of up to 127 is one
/// byte; of a longer one, the first byte says how many bytes follow. Returns `None` for anything
/// else.
pub fn element(bytes: &[u8], tag: u8) -> Option<Element<'_>> {
    let (&found, bytes) = bytes.split_first()?;
    if found != tag {
        return None;
    }
    let (&first, mut bytes) = bytes.split_first()?;
    let mut length = usize::from(first);
    if first > 0x7f {
        let size = usize::from(first & 0x7f);
        if size == 0 || size > 4 {
            return None;
        }
        let (digits, after) = bytes.split_at_checked(size)?;
        length = digits.iter().fold(0, |length, &digit| (length << 8) | usize::from(digit));
        bytes = after;
    }
    let (value, rest) = bytes.split_at_checked(length)?;
    Some(Element { value, rest })
}
