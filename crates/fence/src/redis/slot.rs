//! The slot of a key in a Redis Cluster.

/// The number of slots of a cluster.
const SLOTS: u16 = 16_384;

/// Returns the hash tag of a key: the text between the first `{` and the `}` after it, or the whole
/// key if there is none.
pub(super) fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        Some(0) | None => key,
        Some(close) => &rest[..close],
    }
}

/// Returns the slot of a key: the CRC-16 (XMODEM) of its tag, modulo 16384.
pub(super) fn slot(key: &[u8]) -> u16 {
    let step = |sum: u16, byte: &u8| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum, _| {
            if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 }
        })
    };
    tag(key).iter().fold(0, step) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_server() {
        // As `CLUSTER KEYSLOT` answers.
        for (key, expected) in [
            ("", 0),
            ("123456789", 12739),
            ("stock/17", slot(b"{stock/17}:fence")),
            ("{stock}/17", slot(b"stock")),
            ("{}stock", slot(b"{}stock:a".strip_suffix(b":a").expect("there"))),
        ] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        for (key, says) in
            [("a{b}c", "b"), ("a{b", "a{b"), ("a{}b", "a{}b"), ("a}b{c}d", "c"), ("{{a}b", "{a")]
        {
            assert_eq!(tag(key.as_bytes()), says.as_bytes(), "{key}");
        }
    }
}
