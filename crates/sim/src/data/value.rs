//! The five types of values.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasherDefault;

use indexmap::IndexMap;

use super::SortedSet;

/// A hasher without a random key, so that runs repeat. Order never depends on it.
type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// Fields in insertion order, as in the server's compact encoding.
pub(crate) type Hash = IndexMap<Vec<u8>, Vec<u8>, FixedHasher>;

/// An id of a stream's entry: the time in milliseconds, and a number.
pub(crate) type StreamId = (u64, u64);

/// Fields and values, one after the other, by id. Ids grow as long as an entry is left.
pub(crate) type Stream = BTreeMap<StreamId, Vec<Vec<u8>>>;

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    String(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Hash(Hash),
    SortedSet(SortedSet),
    Stream(Stream),
}

impl Value {
    /// Returns the name for TYPE.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::String(_) => "string",
            Value::List(_) => "list",
            Value::Hash(_) => "hash",
            Value::SortedSet(_) => "zset",
            Value::Stream(_) => "stream",
        }
    }

    /// Returns the number of elements; a string counts as one.
    pub(crate) fn elements(&self) -> usize {
        match self {
            Value::String(_) => 1,
            Value::List(list) => list.len(),
            Value::Hash(hash) => hash.len(),
            Value::SortedSet(set) => set.len(),
            Value::Stream(stream) => stream.len(),
        }
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const EACH: usize = 32;
        match self {
            Value::String(text) => text.len(),
            Value::List(list) => list.iter().map(|item| item.len() + EACH).sum(),
            Value::Hash(hash) => hash.iter().map(|(f, v)| f.len() + v.len() + EACH).sum(),
            Value::SortedSet(set) => set.iter().map(|(_, member)| member.len() + 2 * EACH).sum(),
            Value::Stream(stream) => {
                stream.values().flatten().map(|field| field.len() + EACH).sum()
            }
        }
    }
}
