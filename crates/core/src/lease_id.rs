//! The proof of a grant, and the client that requested it.
//!
//! A lease id is enough to renew and release its grant. It has 128 random bits. Logs and messages
//! show only its first eight characters.
//! Invariant L1: a request under a lease id is repeated only until a release under it is sent.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A source of random bytes that is passed in.
pub trait Entropy {
    /// Fills `bytes` with unguessable random bytes.
    fn fill(&mut self, bytes: &mut [u8]);
}

/// The unguessable proof of one grant: 128 random bits, written as 32 lower-case hex digits.
///
/// `Debug` and `Display` show the first eight digits only; [`LeaseId::to_hex`] gives all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId([u8; 16]);

impl LeaseId {
    /// Draws a fresh lease id.
    pub fn random(entropy: &mut dyn Entropy) -> LeaseId {
        let mut bytes = [0; 16];
        entropy.fill(&mut bytes);
        LeaseId(bytes)
    }

    /// Makes a lease id of bytes that a store has kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> LeaseId {
        LeaseId(bytes)
    }

    /// Returns the bytes, for a store to keep.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns all 32 hex digits. This is the proof itself: keep it out of logs and messages.
    pub fn to_hex(self) -> String {
        self.hex_digits().map(char::from).iter().collect()
    }

    /// Returns all 32 hex digits as bytes. The same caution applies.
    pub fn hex_digits(self) -> [u8; 32] {
        let mut hex = [0; 32];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            for (digit, half) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
                *digit = b"0123456789abcdef"[usize::from(half)];
            }
        }
        hex
    }

    /// Returns the first eight hex digits, which are no proof.
    pub fn short(self) -> ShortLeaseId {
        ShortLeaseId([self.0[0], self.0[1], self.0[2], self.0[3]])
    }
}

/// The first eight hex digits of a lease id: they distinguish grants and are no proof.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortLeaseId([u8; 4]);

impl ShortLeaseId {
    /// Returns the four bytes with which the lease id begins, for a store to compare.
    pub const fn as_bytes(&self) -> &[u8; 4] {
        &self.0
    }
}

impl fmt::Display for ShortLeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ShortLeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ShortLeaseId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text is not the beginning of a lease id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a waiter is 8 lower-case hex digits")]
pub struct ShortLeaseIdError;

impl FromStr for ShortLeaseId {
    type Err = ShortLeaseIdError;

    fn from_str(text: &str) -> Result<ShortLeaseId, ShortLeaseIdError> {
        parse_hex(text).map(ShortLeaseId).ok_or(ShortLeaseIdError)
    }
}

impl<'de> Deserialize<'de> for ShortLeaseId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ShortLeaseId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.short(), f)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({}…)", self.short())
    }
}

/// The text is not a lease id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease id is 32 lower-case hex digits")]
pub struct LeaseIdError;

impl FromStr for LeaseId {
    type Err = LeaseIdError;

    fn from_str(text: &str) -> Result<LeaseId, LeaseIdError> {
        parse_hex(text).map(LeaseId).ok_or(LeaseIdError)
    }
}

/// Parses a text of as many bytes, each as two lower-case hex digits.
fn parse_hex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * BYTES {
        return None;
    }
    let mut bytes = [0; BYTES];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Some(bytes)
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl Serialize for LeaseId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&self.to_hex())
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for LeaseId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LeaseId, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
        } else {
            <[u8; 16]>::deserialize(deserializer).map(LeaseId)
        }
    }
}

/// The bits that a server sets in the ids of its clients, and that no drawn id has.
const REMOTE: u64 = 0xffff << 48;

/// Identifies a client of the library; drawn when the client starts.
///
/// One heartbeat keeps all waiters of a client alive, and they are skipped together when it falls
/// silent. A client id is no proof of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(u64);

impl ClientId {
    /// Draws a fresh client id.
    pub fn random(entropy: &mut dyn Entropy) -> ClientId {
        let mut bytes = [0; 8];
        entropy.fill(&mut bytes);
        ClientId(u64::from_le_bytes(bytes) & !REMOTE)
    }

    /// Returns the id of the same client as a server uses it that asks for the client.
    #[must_use]
    pub const fn remote(self) -> ClientId {
        ClientId(self.0 | REMOTE)
    }

    /// Returns whether a server asks for this client. Then the process that asks is not the holder,
    /// and its death does not end what the holder was granted.
    pub const fn is_remote(self) -> bool {
        self.0 & REMOTE == REMOTE
    }

    /// Makes a client id of a number that a store has kept.
    pub const fn from_u64(number: u64) -> ClientId {
        ClientId(number)
    }

    /// Returns the number, for a store to keep.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_read_as_it_is_shown() {
        let short = LeaseId::from_bytes([0x0f; 16]).short();
        assert_eq!(short.to_string().parse(), Ok(short));
        for bad in ["", "0f0f0f0", "0f0f0f0F", "0f0f0f0f0"] {
            assert_eq!(bad.parse::<ShortLeaseId>(), Err(ShortLeaseIdError), "{bad}");
        }
    }

    #[test]
    fn hex_goes_both_ways_and_nothing_else_is_taken() {
        let id = LeaseId::from_bytes([0xab; 16]);
        assert_eq!(id.to_hex().parse(), Ok(id));
        for bad in ["", "30", &id.to_hex().to_uppercase(), &format!("{}0", id.to_hex()), "zz"] {
            assert_eq!(bad.to_string().parse::<LeaseId>(), Err(LeaseIdError), "{bad}");
        }
    }

    #[test]
    fn a_remote_client_is_recognised_by_its_id() {
        struct Ones;
        impl Entropy for Ones {
            fn fill(&mut self, bytes: &mut [u8]) {
                bytes.fill(0xff);
            }
        }
        let drawn = ClientId::random(&mut Ones);
        assert!(!drawn.is_remote() && drawn.remote().is_remote());
        assert_eq!(drawn.remote().remote(), drawn.remote());
    }

    #[test]
    fn short_lease_ids_are_no_proof() {
        let id = LeaseId::from_bytes(*b"0123456789abcdef");
        assert_eq!(format!("{id}"), "30313233");
        assert_eq!(format!("{id:?}"), "LeaseId(30313233…)");
    }
}
