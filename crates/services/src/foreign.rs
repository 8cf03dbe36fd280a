//! What another program stores under a key of a Redis server, which a lock engine must leave alone.

use crate::{RedisServer, Reply};

const VALUE: &str = "somebody else's lock";
/// The field of a hash of Redisson.
const FIELD: &str = "uuid:thread";

/// A value of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// A string, as a lock by `SET NX PX`.
    Text,
    /// A hash, as a lock of Redisson.
    Hash,
}

impl Foreign {
    /// Stores the value under a key that does not exist.
    ///
    /// # Errors
    /// The server's reply, if it is another.
    pub fn plant(self, server: &RedisServer, key: &str) -> Result<(), String> {
        let reply = match self {
            Foreign::Text => server.raw().send(&["SET", key, VALUE, "NX", "PX", "600000"]),
            Foreign::Hash => server.raw().send(&["HSET", key, FIELD, VALUE]),
        };
        match (self, reply) {
            (Foreign::Text, Ok(Reply::Simple(_))) | (Foreign::Hash, Ok(Reply::Integer(1))) => {
                Ok(())
            }
            (_, other) => Err(format!("{other:?}")),
        }
    }

    /// Checks that the key still has the value.
    ///
    /// # Errors
    /// The server's reply, if it is another.
    pub fn check(self, server: &RedisServer, key: &str) -> Result<(), String> {
        let reply = match self {
            Foreign::Text => server.raw().send(&["GET", key]),
            Foreign::Hash => server.raw().send(&["HGET", key, FIELD]),
        };
        match reply {
            Ok(reply) if reply.text().as_deref() == Some(VALUE) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }
}
