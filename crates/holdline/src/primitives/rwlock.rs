//! Locks that many may read or one may write.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{LockError, LockName, Mode};

use crate::acquire::{self, Wait};
use crate::client::Client;
use crate::core::Core;
use crate::guard::Guard;
use crate::plan::Plan;
use crate::plan::options::LockOptions;

impl Client {
    /// Describes a lock that many may read or one may write.
    ///
    /// # Errors
    /// As [`Client::rwlock_with`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:client_rwlock").await?;
    /// let catalogue = client.rwlock("catalogue")?;
    /// let reader = catalogue.read().await?;
    /// reader.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock, LockError> {
        self.rwlock_with(name, &LockOptions::default())
    }

    /// Describes a lock that many may read or one may write, with options.
    ///
    /// # Errors
    /// As [`Client::mutex_with`]; `Unsupported` when the engine has no shared mode.
    pub fn rwlock_with(
        &self,
        name: impl AsRef<str>,
        options: &LockOptions,
    ) -> Result<RwLock, LockError> {
        let shared = self.core().plan(name.as_ref(), Mode::Shared, options)?.of_read_write();
        let exclusive = self.core().plan(name.as_ref(), Mode::Exclusive, options)?.of_read_write();
        Ok(RwLock::new(self.core(), shared, exclusive))
    }
}

/// A lock that many may hold shared, or one exclusively. A description only; cheap to clone.
///
/// There is no upgrade: two readers that both upgrade would deadlock. Release the shared guard and
/// acquire an exclusive one; somebody may write in between. A mutex of the same name is the same
/// lock in exclusive mode.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// let client = holdline::Client::connect("memory:rwlock").await?;
/// let catalogue = client.rwlock("catalogue")?;
/// let (one, two) = (catalogue.read().await?, catalogue.read().await?);
/// assert!(catalogue.try_write().await.is_err_and(|error| error.is_contended()));
/// # drop((one, two));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RwLock {
    core: Arc<Core>,
    shared: Arc<Plan>,
    exclusive: Arc<Plan>,
}

impl RwLock {
    pub(crate) fn new(core: &Arc<Core>, shared: Plan, exclusive: Plan) -> RwLock {
        let shared = Arc::new(shared);
        let exclusive = Arc::new(exclusive);
        RwLock { core: core.clone(), shared, exclusive }
    }

    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        &self.exclusive.name
    }

    /// Waits until this process holds the lock shared, or the wait limit has passed.
    ///
    /// The guard's fencing token does not order writes: only exclusive guards may seal.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`].
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    ///
    /// # Fairness
    /// If the engine is fair, a waiting writer blocks later readers, so no writer starves.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:read").await?;
    /// let catalogue = client.rwlock("catalogue")?;
    /// let one = catalogue.read().await?;
    /// let other = catalogue.read().await?;
    /// assert!(one.is_valid() && other.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read(&self) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.shared, Wait::of(&self.core, &self.shared)).await
    }

    /// As [`RwLock::read`], with the wait limit of this call in place of that of the options.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock_within`].
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    ///
    /// # Fairness
    /// As [`RwLock::read`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:read_within").await?;
    /// use std::time::Duration;
    ///
    /// let catalogue = client.rwlock("catalogue")?;
    /// let writer = catalogue.write().await?;
    /// let late = catalogue.read_within(Duration::from_millis(50)).await;
    /// assert!(late.is_err_and(|error| error.is_contended()));
    /// writer.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read_within(&self, limit: Duration) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.shared, Wait::within(&self.core, limit)).await
    }

    /// Acquires the lock shared if that is possible at once.
    ///
    /// # Errors
    /// As [`crate::Mutex::try_lock`]; `Busy` also if a writer waits.
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    pub async fn try_read(&self) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.shared, Wait::Try).await
    }

    /// Waits until this process holds the lock exclusively, or the wait limit has passed.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`].
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:write").await?;
    /// let catalogue = client.rwlock("catalogue")?;
    /// let writer = catalogue.write().await?;
    /// assert!(catalogue.try_read().await.is_err_and(|error| error.is_contended()));
    /// writer.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn write(&self) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.exclusive, Wait::of(&self.core, &self.exclusive)).await
    }

    /// As [`RwLock::write`], with the wait limit of this call in place of that of the options.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock_within`].
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:write_within").await?;
    /// use std::time::Duration;
    ///
    /// let catalogue = client.rwlock("catalogue")?;
    /// let writer = catalogue.write_within(Duration::from_secs(5)).await?;
    /// writer.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn write_within(&self, limit: Duration) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.exclusive, Wait::within(&self.core, limit)).await
    }

    /// Acquires the lock exclusively if it is free.
    ///
    /// # Errors
    /// As [`crate::Mutex::try_lock`].
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    pub async fn try_write(&self) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.exclusive, Wait::Try).await
    }
}

crate::debug::debug_of!(RwLock, |it| name: it.name());
