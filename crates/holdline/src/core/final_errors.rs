//! Errors of a store that a later request would get again.

use holdline_core::{ErrorKind, LockError};

/// Returns whether every later request would get the same answer; then the janitor stops.
pub(crate) fn is_permanent(error: &LockError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Invalid { .. } | ErrorKind::Unsupported { .. } | ErrorKind::Foreign { .. }
    )
}

/// Returns whether the answer stays the same until an operator changes something; then waiting is
/// useless.
pub(crate) fn is_final(error: &LockError) -> bool {
    let needs_an_operator = matches!(
        error.kind(),
        ErrorKind::Refused { .. } | ErrorKind::Protocol { .. } | ErrorKind::NotInitialised
    );
    needs_an_operator || is_permanent(error)
}
