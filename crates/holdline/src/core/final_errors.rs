//! Errors of a store that a later request would get again.

use holdline_core::{ErrorKind, LockError, LostReason};

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

/// Returns why the lease is lost, if an error of the store says that nothing is left of it.
pub(crate) fn lost_by(error: &LockError) -> Option<LostReason> {
    match error.kind() {
        ErrorKind::Lost { reason } => Some(reason.clone()),
        ErrorKind::Foreign { .. } => Some(LostReason::Missing),
        _ => None,
    }
}
