//! Numbers in commands, parsed as strictly as by the server; and seeded random numbers.

/// Reads a whole number: no sign but a minus, no leading zeros, no spaces.
pub(crate) fn strict(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let well_formed = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit) && rest.len() < 19,
        _ => false,
    };
    if !well_formed {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads a floating point number as C's `strtod` does when it must use the whole text.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let infinite = ["inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word));
    if infinite {
        return Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    let first = unsigned.bytes().next()?;
    if let Some(digits) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let number = u32::from_str_radix(digits, 16).ok()?;
        return Some(if text.starts_with('-') { -f64::from(number) } else { f64::from(number) });
    }
    let number: f64 = text.parse().ok()?;
    let plain = (first.is_ascii_digit() || first == b'.') && number.is_finite();
    plain.then_some(number)
}

/// A seeded random number generator (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> SeededRng {
        SeededRng(seed)
    }

    /// Returns the next number of the sequence.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `limit`, or 0 if the limit is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next_u64() % limit }
    }

    /// Returns `digits` hexadecimal digits.
    pub(crate) fn hex(&mut self, digits: usize) -> String {
        let mut text = String::new();
        while text.len() < digits {
            text.push_str(&format!("{:016x}", self.next_u64()));
        }
        text.truncate(digits);
        text
    }
}

pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_numbers_are_read() {
        for (text, number) in [("0", 0), ("-7", -7), ("9223372036854775807", i64::MAX)] {
            assert_eq!(strict(text.as_bytes()), Some(number));
        }
        assert_eq!(strict(b"-9223372036854775808"), Some(i64::MIN));
        for text in ["", "-", "-0", "+1", "01", " 1", "1 ", "1.0", "9223372036854775808", "1e3"] {
            assert_eq!(strict(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn floats_are_whole_words() {
        for (text, number) in [("1", 1.0), ("-1.5", -1.5), (".5", 0.5), ("1e3", 1000.0)] {
            assert_eq!(float(text.as_bytes()), Some(number));
        }
        assert_eq!(float(b"-inf"), Some(f64::NEG_INFINITY));
        for text in ["", " 1", "1 ", "nan", "a", "1a", "--1"] {
            assert_eq!(float(text.as_bytes()), None, "{text}");
        }
    }
}
