//! One database: entries by key, in hash order.
//!
//! Invariant K1: a scan returns every key that exists throughout at least once. A cursor is the
//! hash at which to continue, and a key never changes its hash. Invariant K2: the order of keys
//! depends only on the seed.

use std::collections::BTreeMap;

use super::Value;
use crate::number::mix;

/// The used bits of the hash: a cursor must be a number that every client can represent.
const BITS: u64 = (1 << 48) - 1;

/// What the database keeps under a key: a value with its expiry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyEntry {
    pub(crate) value: Value,
    /// In milliseconds of the server's wall clock: the last one in which the key exists.
    pub(crate) expires_at: Option<i64>,
    /// The number of the last command that used it.
    pub(crate) used: u64,
}

impl KeyEntry {
    pub(crate) fn new(value: Value) -> KeyEntry {
        KeyEntry { value, expires_at: None, used: 0 }
    }

    /// Returns whether the key has expired. It exists through its last millisecond.
    pub(crate) fn is_expired(&self, now: i64) -> bool {
        self.expires_at.is_some_and(|end| now > end)
    }
}

/// The keys of one database.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keyspace {
    seed: u64,
    /// Keys by hash, which is rarely shared.
    buckets: BTreeMap<u64, Vec<(Vec<u8>, KeyEntry)>>,
    length: usize,
}

impl Keyspace {
    pub(crate) fn new(seed: u64) -> Keyspace {
        Keyspace { seed, ..Keyspace::default() }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hash = self.seed ^ mix(key.len() as u64);
        for chunk in key.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = mix(hash ^ u64::from_le_bytes(word));
        }
        // 0 is the cursor at the start and at the end of a scan.
        (hash & BITS).max(1)
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&KeyEntry> {
        let bucket = self.buckets.get(&self.hash(key))?;
        bucket.iter().find(|(name, _)| name == key).map(|(_, entry)| entry)
    }

    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut KeyEntry> {
        let hash = self.hash(key);
        let bucket = self.buckets.get_mut(&hash)?;
        bucket.iter_mut().find(|(name, _)| name == key).map(|(_, entry)| entry)
    }

    /// Inserts or replaces an entry.
    pub(crate) fn insert(&mut self, key: &[u8], entry: KeyEntry) {
        let hash = self.hash(key);
        let bucket = self.buckets.entry(hash).or_default();
        match bucket.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = entry,
            None => {
                bucket.push((key.to_vec(), entry));
                self.length += 1;
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<KeyEntry> {
        let hash = self.hash(key);
        let bucket = self.buckets.get_mut(&hash)?;
        let at = bucket.iter().position(|(name, _)| name == key)?;
        let (_, entry) = bucket.swap_remove(at);
        if bucket.is_empty() {
            self.buckets.remove(&hash);
        }
        self.length -= 1;
        Some(entry)
    }

    pub(crate) fn clear(&mut self) {
        self.buckets.clear();
        self.length = 0;
    }

    /// Returns all keys, in the order of a scan.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Vec<u8>, &KeyEntry)> {
        self.buckets.values().flatten().map(|(key, entry)| (key, entry))
    }

    /// Returns about `count` keys from `cursor` on, and the next cursor.
    pub(crate) fn scan(&self, cursor: u64, count: usize) -> (u64, Vec<Vec<u8>>) {
        let mut keys = Vec::new();
        for (hash, bucket) in self.buckets.range(cursor..) {
            if keys.len() >= count {
                return (*hash, keys);
            }
            keys.extend(bucket.iter().map(|(key, _)| key.clone()));
        }
        (0, keys)
    }

    /// Removes the expired keys.
    pub(crate) fn expire(&mut self, now: i64) -> Vec<Vec<u8>> {
        let expired_key = self.iter().filter(|(_, entry)| entry.is_expired(now));
        let expired_key: Vec<Vec<u8>> = expired_key.map(|(key, _)| key.clone()).collect();
        for key in &expired_key {
            self.remove(key);
        }
        expired_key
    }

    /// Returns the approximate size of the keys in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const EACH: usize = 64;
        self.iter().map(|(key, entry)| key.len() + entry.value.bytes() + EACH).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Vec<u8> {
        format!("key:{number}").into_bytes()
    }

    #[test]
    fn a_scan_returns_every_key_that_stays() {
        let mut space = Keyspace::new(7);
        (0..200).for_each(|n| space.insert(&key(n), KeyEntry::new(Value::String(Vec::new()))));
        let mut cursor = 0;
        let mut met = Vec::new();
        let mut round = 0;
        loop {
            let (next, keys) = space.scan(cursor, 7);
            met.extend(keys);
            // Other keys come and go between two calls.
            space.remove(&key(100 + round));
            space.insert(&key(1000 + round), KeyEntry::new(Value::String(Vec::new())));
            round += 1;
            if next == 0 {
                break;
            }
            cursor = next;
        }
        assert!(round > 10);
        assert!((0..100).all(|n| met.contains(&key(n))));
    }

    #[test]
    fn an_entry_exists_through_its_last_millisecond() {
        let mut entry = KeyEntry::new(Value::String(Vec::new()));
        entry.expires_at = Some(5);
        assert!(!entry.is_expired(5) && entry.is_expired(6));
    }
}
