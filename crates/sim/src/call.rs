//! One command while it runs: what it may touch.
//!
//! Invariant C1: a key that is over is not there, for every command alike.
//! Invariant C2: an empty collection is not there.
//! Invariant C3: whoever changes a key says so with `changed`, or a WATCH goes blind.

use std::collections::VecDeque;

use crate::data::{Entry, Hash, Keyspace, SortedSet, Value};
use crate::number;
use crate::refusal::{NOT_INTEGER, Refusal, WRONG_TYPE};
use crate::resp::Reply;
use crate::session::{Connection, ConnectionId};
use crate::state::State;

/// What a command works on.
pub(crate) struct Call<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) connection: ConnectionId,
    /// The database that the connection, or the script, has selected.
    pub(crate) db: usize,
    /// The name of the command as errors spell it.
    pub(crate) name: &'static str,
    /// The command's own name and what follows.
    pub(crate) args: &'a [&'a [u8]],
    /// Whether a script called it.
    pub(crate) in_script: bool,
    /// Replies that come before the answer.
    pub(crate) before: Vec<Reply>,
}

/// A kind of value that a command asks for.
pub(crate) trait Kind: Sized {
    fn of(value: &mut Value) -> Option<&mut Self>;
    fn fresh() -> Value;
}

macro_rules! kind {
    ($type:ty, $variant:ident) => {
        impl Kind for $type {
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

impl<'a> Call<'a> {
    pub(crate) fn space(&mut self) -> &mut Keyspace {
        &mut self.state.databases[self.db]
    }

    /// The time of this command, in milliseconds of the server's clock.
    pub(crate) fn now_ms(&self) -> i64 {
        self.state.now_us.div_euclid(1000)
    }

    /// The entry under a key, if it is there and not over.
    pub(crate) fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.now_ms();
        let used = self.state.commands_run;
        let over = self.space().get(key)?.is_over(now);
        if over {
            self.state.expired(self.db, key);
            return None;
        }
        let entry = self.space().get_mut(key)?;
        entry.used = used;
        Some(entry)
    }

    /// The value under a key, if there is one and it is of this kind.
    pub(crate) fn find<K: Kind>(&mut self, key: &[u8]) -> Result<Option<&mut K>, Refusal> {
        match self.entry(key) {
            None => Ok(None),
            Some(entry) => K::of(&mut entry.value).map(Some).ok_or(WRONG_TYPE.into()),
        }
    }

    /// The value under a key, made if there is none.
    pub(crate) fn make<K: Kind>(&mut self, key: &[u8]) -> Result<&mut K, Refusal> {
        if self.entry(key).is_none() {
            self.space().insert(key, Entry::new(K::fresh()));
        }
        let entry = self.space().get_mut(key);
        entry.and_then(|entry| K::of(&mut entry.value)).ok_or(WRONG_TYPE.into())
    }

    /// Puts a value under a key; what was there is gone, and so is its end.
    pub(crate) fn put(&mut self, key: &[u8], entry: Entry) {
        self.space().insert(key, entry);
        self.changed(key);
    }

    /// Removes a key and tells whether it was there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        if self.entry(key).is_none() {
            return false;
        }
        self.space().remove(key);
        self.changed(key);
        true
    }

    /// Says that a key was changed, and drops what became empty.
    pub(crate) fn changed(&mut self, key: &[u8]) {
        let db = self.db;
        let space = self.space();
        if space.get(key).is_some_and(|entry| entry.value.elements() == 0) {
            space.remove(key);
        }
        self.state.touched(db, key);
    }

    pub(crate) fn session(&mut self) -> Option<&mut Connection> {
        self.state.connections.get_mut(&self.connection)
    }

    /// Reads an argument as a whole number.
    pub(crate) fn integer(&self, at: usize) -> Result<i64, Refusal> {
        integer(self.args[at])
    }
}

/// Reads a whole number, or says that it is none.
pub(crate) fn integer(text: &[u8]) -> Result<i64, Refusal> {
    number::strict(text).ok_or(NOT_INTEGER.into())
}

/// Whether an argument is this word, in whatever case.
pub(crate) fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
