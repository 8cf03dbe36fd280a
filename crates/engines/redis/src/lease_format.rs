//! The formats of a lease id as the value of a key.
//!
//! Other libraries compare values and never parse them, so every format works with every library.
//! The format matters if one program passes a value to another.

use holdline_core::LeaseId;

/// The format of a lease id as the value of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseFormat {
    /// 32 lower-case hex digits, as redis-py and npm's `redlock` write theirs.
    #[default]
    Hex,
    /// Hex digits in five groups, as pottery and npm's `redis-semaphore` write theirs.
    Uuid,
    /// Base64, as python-redis-lock writes its own.
    Base64,
}

/// The lengths of the groups of a UUID, in digits.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

impl LeaseFormat {
    pub(crate) fn write(self, id: LeaseId) -> String {
        match self {
            LeaseFormat::Hex => id.to_hex(),
            LeaseFormat::Uuid => grouped(&id.to_hex()),
            LeaseFormat::Base64 => base64(id.as_bytes()),
        }
    }

    /// Parses a lease id; `None` for text that this format would not produce.
    pub(crate) fn read(self, value: &[u8]) -> Option<LeaseId> {
        let text = std::str::from_utf8(value).ok()?;
        let id = match self {
            LeaseFormat::Hex => text.parse().ok()?,
            LeaseFormat::Uuid => text.replace('-', "").parse().ok()?,
            LeaseFormat::Base64 => LeaseId::from_bytes(unbase64(text)?),
        };
        (self.write(id) == text).then_some(id)
    }
}

fn grouped(hex: &str) -> String {
    let mut rest = hex;
    let groups = GROUPS.map(|length| {
        let (group, behind) = rest.split_at(length.min(rest.len()));
        rest = behind;
        group
    });
    groups.join("-")
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let number = part.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        let number = number << (8 * (3 - part.len()));
        for place in 0..4 {
            let digit = (number >> (18 - 6 * place)) as usize & 63;
            text.push(if place <= part.len() { char::from(ALPHABET[digit]) } else { '=' });
        }
    }
    text
}

fn unbase64(text: &str) -> Option<[u8; 16]> {
    let digits = text.strip_suffix("==").filter(|digits| digits.len() == 22)?;
    let mut number = 0u32;
    let mut bytes = Vec::with_capacity(16);
    for (place, digit) in digits.bytes().enumerate() {
        let value = ALPHABET.iter().position(|known| *known == digit)?;
        number = (number << 6 | value as u32) & 0xff_ffff;
        if place % 4 > 0 {
            bytes.push((number >> (6 - 2 * (place % 4))) as u8);
        }
    }
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_written_as_the_libraries_do_and_parsed_back() {
        let id = LeaseId::from_bytes(*b"0123456789abcdef");
        for (format, text) in [
            (LeaseFormat::Hex, "30313233343536373839616263646566"),
            (LeaseFormat::Uuid, "30313233-3435-3637-3839-616263646566"),
            (LeaseFormat::Base64, "MDEyMzQ1Njc4OWFiY2RlZg=="),
        ] {
            assert_eq!(format.write(id), text);
            assert_eq!(format.read(text.as_bytes()), Some(id), "{text}");
        }
    }

    #[test]
    fn base64_goes_both_ways_for_all_bytes() {
        for first in 0..=255u8 {
            let bytes: [u8; 16] = std::array::from_fn(|at| first.wrapping_mul(at as u8 + 1));
            assert_eq!(unbase64(&base64(&bytes)), Some(bytes));
        }
    }

    #[test]
    fn text_that_the_format_would_not_produce_is_no_lease() {
        for (format, text) in [
            (LeaseFormat::Hex, "3031323334353637383961626364656"),
            (LeaseFormat::Hex, "30313233-3435-3637-3839-616263646566"),
            (LeaseFormat::Uuid, "30313233343536373839616263646566"),
            (LeaseFormat::Uuid, "3031323-33435-3637-3839-616263646566"),
            (LeaseFormat::Uuid, "30313233-3435-3637-3839-61626364656F"),
            (LeaseFormat::Base64, "MDEyMzQ1Njc4OWFiY2RlZh=="),
            (LeaseFormat::Base64, "MDEyMzQ1Njc4OWFiY2RlZg"),
            (LeaseFormat::Base64, "MDEyMzQ1Njc4OWFiY2Rl!g=="),
        ] {
            assert_eq!(format.read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(LeaseFormat::Hex.read(&[0xff; 32]), None);
    }
}
