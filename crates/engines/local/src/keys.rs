//! The files of the directory and the keys of the database's rows.
//!
//! | file | what it is |
//! |---|---|
//! | `locks.db`, `-wal`, `-shm` | the database: every name's state |
//! | `live/grant-TOKEN` | locked by every process that has the descriptor of that live grant |
//! | `live/client-ID` | locked by the process of that client |
//! | `wake/ID` | the socket on which that client's process receives hand-offs |
//!
//! All rows are in one table of keys and values, so that the rows of one name are adjacent, and a
//! command on a small database changes one page:
//!
//! | key | value |
//! |---|---|
//! | empty | the counter of tokens, and the boot of the database |
//! | 1, name | the count of a latch |
//! | 2, number | a record of the audit trail: its time in Unix milliseconds, and its text |
//! | name | the name's head |
//! | name, 0, place | an entry of its queue, in the order of places |
//! | name, 1, number | the lease ids of 64 places of the queue |
//!
//! A lock name has no control characters, so no key of one name can be mistaken for another's.

use std::path::{Path, PathBuf};

use holdline_core::{ClientId, FencingToken, LockName};

/// Identifies our databases: `Hldn`.
pub(crate) const APPLICATION_ID: i32 = 0x486c_646e;
/// The version of this layout; a database of a larger one is refused.
pub(crate) const LAYOUT: i32 = 1;

pub(crate) const SCHEMA: &str =
    "CREATE TABLE slot (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL) STRICT, WITHOUT ROWID";

/// The key of the counter.
pub(crate) const COUNTER: &[u8] = b"";
/// All keys of names come after this: names have no control characters.
pub(crate) const FIRST_NAME: &[u8] = b" ";

/// What the key of a latch begins with.
const LATCH: u8 = 1;
/// What the key of an audit record begins with.
const AUDIT: u8 = 2;
const ENTRY: u8 = 0;
const INDEX: u8 = 1;
const END: u8 = 2;

/// The files of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) root: PathBuf,
    pub(crate) database: PathBuf,
    pub(crate) live: PathBuf,
    pub(crate) wake: PathBuf,
}

/// The name of the database's file.
pub(crate) const DATABASE_FILE: &str = "locks.db";

impl Files {
    pub(crate) fn below(root: &Path) -> Files {
        Files {
            root: root.to_owned(),
            database: root.join(DATABASE_FILE),
            live: root.join("live"),
            wake: root.join("wake"),
        }
    }

    pub(crate) fn grant(&self, token: FencingToken) -> PathBuf {
        self.live.join(format!("grant-{token}"))
    }

    pub(crate) fn client(&self, client: ClientId) -> PathBuf {
        self.live.join(format!("client-{}", client_name(client)))
    }

    pub(crate) fn socket(&self, client: ClientId) -> PathBuf {
        self.wake.join(client_name(client))
    }

    /// The path of the database while it is created. Each user has one, because nobody else can
    /// remove it after a crash in a sticky directory.
    pub(crate) fn unfinished(&self) -> PathBuf {
        self.root.join(format!("locks.db.new-{}", rustix::process::geteuid().as_raw()))
    }
}

/// The file name of a client.
pub(crate) fn client_name(client: ClientId) -> String {
    format!("{:016x}", client.as_u64())
}

/// The key of a latch: no name's key, which has no control characters, begins so.
pub(crate) fn latch(name: &LockName) -> Vec<u8> {
    [&[LATCH], head(name)].concat()
}

/// The key of a record of the audit trail.
pub(crate) fn audit(number: u64) -> [u8; 9] {
    let mut key = [AUDIT; 9];
    key[1..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The number of the record with this key.
pub(crate) fn audit_number(key: &[u8]) -> Option<u64> {
    key.strip_prefix(&[AUDIT])?.try_into().ok().map(u64::from_be_bytes)
}

/// The key of a name's head.
pub(crate) fn head(name: &LockName) -> &[u8] {
    name.as_str().as_bytes()
}

fn below(name: &LockName, kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.as_str().len() + 1 + rest.len());
    key.extend_from_slice(head(name));
    key.push(kind);
    key.extend_from_slice(rest);
    key
}

/// The key of the queue's entry at a place.
pub(crate) fn entry(name: &LockName, place: u64) -> Vec<u8> {
    below(name, ENTRY, &place.to_be_bytes())
}

/// The key of an index row of the queue.
pub(crate) fn index(name: &LockName, number: u64) -> Vec<u8> {
    below(name, INDEX, &number.to_be_bytes())
}

/// The range of the index rows of a name's queue.
pub(crate) fn indexes(name: &LockName) -> (Vec<u8>, Vec<u8>) {
    (below(name, INDEX, &[]), behind(name))
}

/// The range of the entries of a name's queue.
pub(crate) fn entries(name: &LockName) -> (Vec<u8>, Vec<u8>) {
    (below(name, ENTRY, &[]), below(name, INDEX, &[]))
}

/// The key after all rows of a name, and before every other name.
pub(crate) fn behind(name: &LockName) -> Vec<u8> {
    below(name, END, &[])
}

/// The name whose head has this key.
pub(crate) fn name_of(key: &[u8]) -> Option<LockName> {
    LockName::new(std::str::from_utf8(key).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("good name")
    }

    #[test]
    fn the_rows_of_a_name_are_adjacent_and_in_order() {
        let a = name("a");
        let longer = name("a b");
        let (first, last) = entries(&a);
        let keys = [
            COUNTER.to_vec(),
            head(&a).to_vec(),
            first,
            entry(&a, 0),
            entry(&a, 255),
            entry(&a, 256),
            last,
            index(&a, 0),
            index(&a, u64::MAX),
            behind(&a),
            head(&longer).to_vec(),
            head(&name("b")).to_vec(),
        ];
        assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(name_of(head(&longer)), Some(longer));
        assert_eq!(name_of(&entry(&a, 1)), None);
        assert_eq!(name_of(&[0xff]), None);
    }
}
