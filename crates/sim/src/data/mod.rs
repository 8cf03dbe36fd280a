//! What a server remembers: keys, their values and when they end.
//!
//! Read next: `keyspace` for how a cursor keeps its promise.

mod keyspace;
mod sorted_set;
mod value;

pub(crate) use keyspace::{Entry, Keyspace};
pub(crate) use sorted_set::SortedSet;
pub(crate) use value::{Hash, Value};
