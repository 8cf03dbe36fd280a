//! The five kinds of value.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

use indexmap::{IndexMap, IndexSet};

use super::SortedSet;

/// A hasher without a random key. Order never depends on it; it only has to be the same.
type Fixed = BuildHasherDefault<DefaultHasher>;

/// Fields in the order in which they came, as in the server's compact form.
pub(crate) type Hash = IndexMap<Vec<u8>, Vec<u8>, Fixed>;
/// Members in the order in which they came.
pub(crate) type Members = IndexSet<Vec<u8>, Fixed>;

/// What stands under a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    String(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Hash(Hash),
    Set(Members),
    SortedSet(SortedSet),
}

impl Value {
    /// The name that TYPE answers.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::String(_) => "string",
            Value::List(_) => "list",
            Value::Hash(_) => "hash",
            Value::Set(_) => "set",
            Value::SortedSet(_) => "zset",
        }
    }

    /// How many elements there are; a string is never empty in this sense.
    pub(crate) fn elements(&self) -> usize {
        match self {
            Value::String(_) => 1,
            Value::List(list) => list.len(),
            Value::Hash(hash) => hash.len(),
            Value::Set(set) => set.len(),
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
            Value::Set(set) => set.iter().map(|member| member.len() + EACH).sum(),
            Value::SortedSet(set) => set.iter().map(|(_, member)| member.len() + 2 * EACH).sum(),
        }
    }

    /// The name that OBJECT ENCODING answers, with the limits of a server as it is installed.
    pub(crate) fn encoding(&self) -> &'static str {
        let small = |text: &Vec<u8>| text.len() <= 64;
        match self {
            Value::String(text) if crate::number::strict(text).is_some() => "int",
            Value::String(text) if text.len() <= 44 => "embstr",
            Value::String(_) => "raw",
            Value::List(_) => "quicklist",
            Value::Hash(hash)
                if hash.len() <= 512 && hash.iter().all(|(f, v)| small(f) && small(v)) =>
            {
                "listpack"
            }
            Value::Set(set)
                if set.len() <= 512 && set.iter().all(|m| crate::number::strict(m).is_some()) =>
            {
                "intset"
            }
            Value::Hash(_) | Value::Set(_) => "hashtable",
            Value::SortedSet(set)
                if set.len() <= 128 && set.iter().all(|(_, member)| member.len() <= 64) =>
            {
                "listpack"
            }
            Value::SortedSet(_) => "skiplist",
        }
    }
}
