//! Waiting for a condition whose changes a [`Notify`] announces.

use std::pin::pin;

use tokio::sync::Notify;

/// Waits until `condition` returns a value. It is evaluated at once, and again after each
/// `notify_waiters` of `changed`.
///
/// # Cancel safety
/// Dropping the future loses nothing.
pub async fn wait_for<T>(changed: &Notify, mut condition: impl FnMut() -> Option<T>) -> T {
    loop {
        let mut notified = pin!(changed.notified());
        // Registered before the look, so that a change in between is not missed.
        notified.as_mut().enable();
        if let Some(value) = condition() {
            return value;
        }
        notified.await;
    }
}
