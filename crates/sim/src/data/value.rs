//! The four types of values.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

use indexmap::IndexMap;

use super::SortedSet;

/// A hasher without a random key. Order never depends on it; it only has to be the same.
type Fixed = BuildHasherDefault<DefaultHasher>;

/// Fields in the order in which they came, as in the server's compact form.
pub(crate) type Hash = IndexMap<Vec<u8>, Vec<u8>, Fixed>;

/// What stands under a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    String(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Hash(Hash),
    SortedSet(SortedSet),
}

impl Value {
    /// The name that TYPE answers.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::String(_) => "string",
            Value::List(_) => "list",
            Value::Hash(_) => "hash",
            Value::SortedSet(_) => "zset",
        }
    }

    /// How many elements there are; a string is never empty in this sense.
    pub(crate) fn elements(&self) -> usize {
        match self {
            Value::String(_) => 1,
            Value::List(list) => list.len(),
            Value::Hash(hash) => hash.len(),
            Value::SortedSet(set) => set.len(),
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        const EACH: usize = 32;
        match self {
            Value::String(text) => text.len(),
            Value::List(list) => list.iter().map(|item| item.len() + EACH).sum(),
            Value::Hash(hash) => hash.iter().map(|(f, v)| f.len() + v.len() + EACH).sum(),
            Value::SortedSet(set) => set.iter().map(|(_, member)| member.len() + 2 * EACH).sum(),
        }
    }
}
