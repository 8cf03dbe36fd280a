//! The key of an advisory lock: the numbers by which the server knows it.
//!
//! Both hashes never change: a client that computes another number is not excluded.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use holdline_core::LockName;
use sha2::{Digest, Sha256};
use tokio_postgres::types::Type;

use crate::link::Parameter;

/// The prefix of the hash for our numbers.
const OURS: &[u8] = b"holdline advisory lock\0";
/// The prefix of the hash for sqlx's numbers.
const OF_SQLX: &[u8] = b"SQLx (Rust) Postgres advisory lock";

/// The number, or the pair of numbers, of an advisory lock. The two kinds never meet.
///
/// Numbers are counted per database, and shared by all programs that use it. Two names with one
/// number only wait for each other more than they must; with 64 bits that is a matter of billions
/// of names.
///
/// ```
/// use holdline_postgres::AdvisoryKey;
///
/// // As `sqlx::postgres::PgAdvisoryLock::new("my first Postgres advisory lock!")`.
/// let shared = AdvisoryKey::of_sqlx("my first Postgres advisory lock!");
/// assert_eq!(shared, AdvisoryKey::from(-5560419505042474287));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdvisoryKey(Numbers);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Numbers {
    One(i64),
    Two(i32, i32),
}

impl AdvisoryKey {
    /// The number of a lock name: the first 8 bytes, big end first, of the SHA-256 of
    /// `holdline advisory lock`, a zero byte, and the name.
    pub fn of_name(name: &LockName) -> AdvisoryKey {
        let mut hash = Sha256::new();
        hash.update(OURS);
        hash.update(name.as_str());
        AdvisoryKey(Numbers::One(i64::from_be_bytes(first_eight(&hash.finalize()))))
    }

    /// The number that sqlx gives a text in `PgAdvisoryLock::new`.
    pub fn of_sqlx(text: &str) -> AdvisoryKey {
        // HKDF-SHA256 (RFC 5869) without a salt, and the first 8 bytes of what it gives.
        let drawn = keyed_hash(&[0; 32], &[text.as_bytes()]);
        let spread = keyed_hash(&drawn, &[OF_SQLX, &[1]]);
        AdvisoryKey(Numbers::One(i64::from_le_bytes(first_eight(&spread))))
    }

    /// A call of `function` with this key, and its parameters.
    pub(super) fn call(&self, function: &str) -> (String, Vec<Parameter<'_>>) {
        match &self.0 {
            Numbers::One(key) => (format!("pg_catalog.{function}($1)"), vec![(key, Type::INT8)]),
            Numbers::Two(first, second) => {
                let parameters: Vec<Parameter<'_>> =
                    vec![(first, Type::INT4), (second, Type::INT4)];
                (format!("pg_catalog.{function}($1, $2)"), parameters)
            }
        }
    }
}

impl From<i64> for AdvisoryKey {
    fn from(key: i64) -> AdvisoryKey {
        AdvisoryKey(Numbers::One(key))
    }
}

impl From<(i32, i32)> for AdvisoryKey {
    fn from((first, second): (i32, i32)) -> AdvisoryKey {
        AdvisoryKey(Numbers::Two(first, second))
    }
}

impl From<&LockName> for AdvisoryKey {
    fn from(name: &LockName) -> AdvisoryKey {
        AdvisoryKey::of_name(name)
    }
}

impl fmt::Display for AdvisoryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Numbers::One(key) => write!(f, "advisory lock {key}"),
            Numbers::Two(first, second) => write!(f, "advisory lock ({first}, {second})"),
        }
    }
}

fn keyed_hash(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut hash = Hmac::<Sha256>::new(&block.into());
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into_bytes().into()
}

fn first_eight(bytes: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first is from sqlx's documentation; the others were computed with Python's `hmac`.
    #[test]
    fn a_text_has_the_number_that_sqlx_gives_it() {
        for (text, number) in [
            ("my first Postgres advisory lock!", -5_560_419_505_042_474_287),
            ("", 8_559_922_135_585_776_354),
            ("migrations", -8_053_286_093_904_313_510),
            ("schlüssel/7", -495_414_839_237_975_224),
        ] {
            assert_eq!(AdvisoryKey::of_sqlx(text), AdvisoryKey::from(number), "{text}");
        }
    }

    #[test]
    fn a_name_keeps_its_number_for_ever() {
        for (text, number) in
            [("nightly", -270_540_416_679_399_369), ("migrate/v7", 4_312_256_906_546_792_565)]
        {
            let name = LockName::new(text).expect("a good name");
            assert_eq!(AdvisoryKey::from(&name), AdvisoryKey::from(number), "{text}");
        }
    }
}
