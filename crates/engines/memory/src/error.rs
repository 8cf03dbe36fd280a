//! What can fail in memory: nothing but a rule's own refusal.

use std::convert::Infallible;

/// Unwraps what cannot fail.
pub(crate) fn never_fails<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
