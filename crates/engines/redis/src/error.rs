//! What can go wrong with a Redis server, and what the library is told about it.

use holdline_core::{Certainty, ErrorKind, LockError};

/// The engine's short name.
pub(crate) const ENGINE: &str = "redis";

/// No answer; `certainty` tells whether the request may have been carried out.
pub(crate) fn unavailable(message: impl Into<String>, certainty: Certainty) -> LockError {
    LockError::new(ENGINE, ErrorKind::Unavailable { message: message.into() }, certainty)
}

#[allow(dead_code, reason = "the engine is written on it next")]
/// The server answered what it must not. What the request did is unknown.
pub(crate) fn protocol(message: impl Into<String>) -> LockError {
    LockError::new(ENGINE, ErrorKind::Protocol { message: message.into() }, Certainty::Unknown)
}
