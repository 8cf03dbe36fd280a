//! Errors: in memory only the lock table's own refusals are possible.

use std::convert::Infallible;

/// Unwraps a result that cannot be an error.
pub(crate) fn never_fails<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
