//! Acquiring in a mode that is known only when the program runs.

use holdline_core::{LockError, Mode};

use crate::client::Client;
use crate::guard::Guard;
use crate::plan::options::LockOptions;

impl Client {
    /// Acquires a name in a mode that is known only when the program runs, and waits as the options
    /// say. A name in a fixed mode reads better by [`Client::mutex`], [`Client::rwlock`] and
    /// [`Client::semaphore`].
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
    /// use holdline::{LockOptions, Mode};
    ///
    /// # let client = holdline::Client::connect("memory:client_lock_in").await?;
    /// let mode = Mode::Permits { count: 1, of: 3 };
    /// let guard = client.lock_in("licences", mode, &LockOptions::default()).await?;
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock_in(
        &self,
        name: impl AsRef<str>,
        mode: Mode,
        options: &LockOptions,
    ) -> Result<Guard, LockError> {
        match mode {
            Mode::Exclusive => self.mutex_with(name, options)?.lock().await,
            Mode::Shared => self.rwlock_with(name, options)?.read().await,
            Mode::Permits { count, of } => {
                self.semaphore_with(name, of, options)?.acquire_many(count).await
            }
        }
    }

    /// As [`Client::lock_in`], without waiting.
    ///
    /// # Errors
    /// As those of the primitive; `Busy` if another client holds the name.
    ///
    /// # Cancel safety
    /// As those of the primitive: dropping the future gives up the attempt.
    pub async fn try_lock_in(
        &self,
        name: impl AsRef<str>,
        mode: Mode,
        options: &LockOptions,
    ) -> Result<Guard, LockError> {
        match mode {
            Mode::Exclusive => self.mutex_with(name, options)?.try_lock().await,
            Mode::Shared => self.rwlock_with(name, options)?.try_read().await,
            Mode::Permits { count, of } => {
                self.semaphore_with(name, of, options)?.try_acquire_many(count).await
            }
        }
    }
}
