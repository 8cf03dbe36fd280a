//! Acquiring in a mode that is known only when the program runs, as command lines and servers do.
//!
//! A name in a fixed mode reads better by [`Client::mutex`], [`Client::rwlock`] and
//! [`Client::semaphore`].

use holdline_core::{LockError, Mode};

use crate::client::Client;
use crate::guard::Guard;
use crate::plan::options::LockOptions;

/// Acquires a name in a mode, and waits as the options say.
///
/// # Errors
/// As those of the primitive.
///
/// # Cancel safety
/// As those of the primitive: dropping the future gives up the attempt.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// use holdline::{LockOptions, Mode, by_mode};
///
/// # let client = holdline::Client::connect("memory:by_mode_lock").await?;
/// let mode = Mode::Permits { count: 1, of: 3 };
/// let guard = by_mode::lock(&client, "licences", mode, &LockOptions::default()).await?;
/// guard.release().await.into_result()?;
/// # Ok(())
/// # }
/// ```
pub async fn lock(
    client: &Client,
    name: impl AsRef<str>,
    mode: Mode,
    options: &LockOptions,
) -> Result<Guard, LockError> {
    match mode {
        Mode::Exclusive => client.mutex_with(name, options)?.lock().await,
        Mode::Shared => client.rwlock_with(name, options)?.read().await,
        Mode::Permits { count, of } => {
            client.semaphore_with(name, of, options)?.acquire_many(count).await
        }
    }
}

/// As [`lock`], without waiting.
///
/// # Errors
/// As those of the primitive; `Busy` if another client holds the name.
///
/// # Cancel safety
/// As those of the primitive: dropping the future gives up the attempt.
pub async fn try_lock(
    client: &Client,
    name: impl AsRef<str>,
    mode: Mode,
    options: &LockOptions,
) -> Result<Guard, LockError> {
    match mode {
        Mode::Exclusive => client.mutex_with(name, options)?.try_lock().await,
        Mode::Shared => client.rwlock_with(name, options)?.try_read().await,
        Mode::Permits { count, of } => {
            client.semaphore_with(name, of, options)?.try_acquire_many(count).await
        }
    }
}
