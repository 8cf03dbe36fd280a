//! The data of a server: keys with values and expiry.
//!
//! Read next: `keyspace` for the guarantee of a scan.

mod keyspace;
mod sorted_set;
mod value;

pub(crate) use keyspace::{KeyEntry, Keyspace};
pub(crate) use sorted_set::SortedSet;
pub(crate) use value::{Hash, Stream, StreamId, Value};
