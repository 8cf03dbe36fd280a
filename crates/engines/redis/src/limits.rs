//! What one call does at most, and how exact the times of a server are.

use std::time::Duration;

/// How many holders and waiters of a name are shown.
pub(crate) const MAX_SHOWN: usize = holdline_core::snapshot::MAX_VIEWS;
/// How many grants one call renews.
pub(crate) const MAX_BATCH: usize = 128;
/// How much later than its lease a dead holder's name may become free: the server counts whole
/// milliseconds, and a key exists until the end of its last one.
pub(crate) const LAG: Duration = Duration::from_millis(5);
