//! One running command, and the data that it may access.
//!
//! Invariant C1: an expired key does not exist, for every command.
//! Invariant C2: an empty collection does not exist.
//! Invariant C3: a command that changes a key calls `changed`, which removes an
//! empty collection.

use std::collections::VecDeque;

use crate::data::{Hash, KeyEntry, Keyspace, SortedSet, Stream, Value};
use crate::errors::{ErrorReply, NOT_INTEGER, WRONG_TYPE};
use crate::number;
use crate::resp::Reply;
use crate::session::{Connection, ConnectionId};
use crate::state::ServerData;

/// The context of a command.
pub(crate) struct Call<'a> {
    pub(crate) state: &'a mut ServerData,
    pub(crate) connection: ConnectionId,
    /// The database that the connection, or the script, has selected.
    pub(crate) db: usize,
    /// The name of the command, as in error messages.
    pub(crate) name: &'static str,
    /// The command's name and its arguments.
    pub(crate) args: &'a [&'a [u8]],
    /// Whether a script called the command.
    pub(crate) in_script: bool,
    /// Replies to send before the result.
    pub(crate) before: Vec<Reply>,
}

/// A type of value that a command requires.
pub(crate) trait ValueType: Sized {
    fn of(value: &mut Value) -> Option<&mut Self>;
    fn fresh() -> Value;
}

macro_rules! kind {
    ($type:ty, $variant:ident) => {
        impl ValueType for $type {
            fn of(value: &mut Value) -> Option<&mut Self> {
                if let Value::$variant(inner) = value { Some(inner) } else { None }
            }
            fn fresh() -> Value {
                Value::$variant(<$type>::default())
            }
        }
    };
}

kind!(Vec<u8>, String);
kind!(VecDeque<Vec<u8>>, List);
kind!(Hash, Hash);
kind!(SortedSet, SortedSet);
kind!(Stream, Stream);

impl<'a> Call<'a> {
    pub(crate) fn space(&mut self) -> &mut Keyspace {
        &mut self.state.databases[self.db]
    }

    /// Returns the time of this command, in milliseconds of the server's clock.
    pub(crate) fn now_ms(&self) -> i64 {
        self.state.now_us.div_euclid(1000)
    }

    /// Returns the entry under a key, if it exists and has not expired.
    pub(crate) fn entry(&mut self, key: &[u8]) -> Option<&mut KeyEntry> {
        let now = self.now_ms();
        let used = self.state.commands_run;
        let expired_key = self.space().get(key)?.is_expired(now);
        if expired_key {
            self.state.expired(self.db, key);
            return None;
        }
        let entry = self.space().get_mut(key)?;
        entry.used = used;
        Some(entry)
    }

    /// Returns the value under a key, if it exists and has this type.
    pub(crate) fn find<K: ValueType>(&mut self, key: &[u8]) -> Result<Option<&mut K>, ErrorReply> {
        match self.entry(key) {
            None => Ok(None),
            Some(entry) => K::of(&mut entry.value).map(Some).ok_or(WRONG_TYPE.into()),
        }
    }

    /// Returns the value under a key, and creates it if necessary.
    pub(crate) fn make<K: ValueType>(&mut self, key: &[u8]) -> Result<&mut K, ErrorReply> {
        if self.entry(key).is_none() {
            self.space().insert(key, KeyEntry::new(K::fresh()));
        }
        let entry = self.space().get_mut(key);
        entry.and_then(|entry| K::of(&mut entry.value)).ok_or(WRONG_TYPE.into())
    }

    /// Replaces the value under a key, and its expiry.
    pub(crate) fn put(&mut self, key: &[u8], entry: KeyEntry) {
        self.space().insert(key, entry);
        self.changed(key);
    }

    /// Removes a key; returns whether it existed.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        if self.entry(key).is_none() {
            return false;
        }
        self.space().remove(key);
        self.changed(key);
        true
    }

    /// Records a change of a key, and removes a collection that became empty.
    pub(crate) fn changed(&mut self, key: &[u8]) {
        let space = self.space();
        if space.get(key).is_some_and(|entry| entry.value.elements() == 0) {
            space.remove(key);
        }
        self.state.changes += 1;
    }

    pub(crate) fn session(&mut self) -> Option<&mut Connection> {
        self.state.connections.get_mut(&self.connection)
    }

    /// Reads an argument as a whole number.
    pub(crate) fn integer(&self, at: usize) -> Result<i64, ErrorReply> {
        integer(self.args[at])
    }
}

/// Reads a whole number.
pub(crate) fn integer(text: &[u8]) -> Result<i64, ErrorReply> {
    number::strict(text).ok_or(NOT_INTEGER.into())
}

/// Returns whether an argument is this word, in any case.
pub(crate) fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
