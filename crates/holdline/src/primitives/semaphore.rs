//! Permits: at most n at a time.

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
    /// Describes a semaphore of `permits` permits.
    ///
    /// # Errors
    /// As [`Client::semaphore_with`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:client_semaphore").await?;
    /// let licences = client.semaphore("licences", 3)?;
    /// let permit = licences.acquire().await?;
    /// permit.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Semaphore, LockError> {
        self.semaphore_with(name, permits, &LockOptions::default())
    }

    /// Describes a semaphore of `permits` permits, with options.
    ///
    /// # Errors
    /// As [`Client::mutex_with`]; `Invalid` for a number of permits out of range, `Unsupported`
    /// when the engine has no permits.
    pub fn semaphore_with(
        &self,
        name: impl AsRef<str>,
        permits: u32,
        options: &LockOptions,
    ) -> Result<Semaphore, LockError> {
        Semaphore::new(self.core(), name, permits, options.clone())
    }
}

/// A semaphore: at most `n` permits of the name are held at a time. A description only; cheap to
/// clone.
///
/// The total belongs to the name while it is held or queued for: a request with another total gets
/// `Invalid` meanwhile. A large request at the head of the queue blocks smaller ones behind it, so
/// that it does not starve.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// let client = holdline::Client::connect("memory:semaphore").await?;
/// let licences = client.semaphore("licences", 3)?;
/// let two = licences.acquire_many(2).await?;
/// let one = licences.acquire().await?;
/// assert!(licences.try_acquire().await.is_err_and(|error| error.is_contended()));
/// assert!(licences.acquire_many(4).await.is_err());
/// # drop((one, two));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    core: Arc<Core>,
    single: Arc<Plan>,
    options: LockOptions,
    permits: u32,
}

impl Semaphore {
    pub(crate) fn new(
        core: &Arc<Core>,
        name: impl AsRef<str>,
        permits: u32,
        options: LockOptions,
    ) -> Result<Semaphore, LockError> {
        let mode = mode(core, 1, permits)?;
        let single = Arc::new(core.plan(name, mode, &options)?);
        Ok(Semaphore { core: core.clone(), single, options, permits })
    }

    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        &self.single.name
    }

    /// Returns how many permits there are.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Waits for one permit or until the wait limit has passed.
    ///
    /// The guard's fencing token does not order writes: permits cannot be fenced by name.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`]; `Invalid` while the name is in use with another total.
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:acquire").await?;
    /// let licences = client.semaphore("licences", 3)?;
    /// let permit = licences.acquire().await?;
    /// // … at most three of these run at a time, in all processes …
    /// permit.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.single, Wait::of(&self.core, &self.single)).await
    }

    /// As [`Semaphore::acquire`], with the wait limit of this call in place of that of the options.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock_within`] and [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:acquire_within").await?;
    /// use std::time::Duration;
    ///
    /// let licences = client.semaphore("licences", 1)?;
    /// let permit = licences.acquire_within(Duration::from_secs(5)).await?;
    /// let late = licences.acquire_within(Duration::from_millis(50)).await;
    /// assert!(late.is_err_and(|error| error.is_contended()));
    /// permit.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_within(&self, limit: Duration) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.single, Wait::within(&self.core, limit)).await
    }

    /// Waits for `count` permits at once or until the wait limit has passed.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`]; `Invalid` when `count` is 0 or more than there are.
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:acquire_many").await?;
    /// let memory = client.semaphore("gigabytes", 16)?;
    /// let large_job = memory.acquire_many(12).await?;
    /// assert!(memory.try_acquire_many(5).await.is_err_and(|error| error.is_contended()));
    /// large_job.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_many(&self, count: u32) -> Result<Guard, LockError> {
        let plan = self.plan(count)?;
        acquire::acquire(&self.core, &plan, Wait::of(&self.core, &plan)).await
    }

    /// As [`Semaphore::acquire_many`], with the wait limit of this call in place of that of the
    /// options.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock_within`] and [`Semaphore::acquire_many`].
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    pub async fn acquire_many_within(
        &self,
        count: u32,
        limit: Duration,
    ) -> Result<Guard, LockError> {
        let plan = self.plan(count)?;
        acquire::acquire(&self.core, &plan, Wait::within(&self.core, limit)).await
    }

    /// Acquires one permit if one is free and nobody waits.
    ///
    /// # Errors
    /// As [`crate::Mutex::try_lock`] and [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    pub async fn try_acquire(&self) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.single, Wait::Try).await
    }

    /// Acquires `count` permits if they are free and nobody waits.
    ///
    /// # Errors
    /// As [`crate::Mutex::try_lock`] and [`Semaphore::acquire_many`].
    ///
    /// # Cancel safety
    /// As [`crate::Mutex::lock`].
    pub async fn try_acquire_many(&self, count: u32) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.plan(count)?, Wait::Try).await
    }

    fn plan(&self, count: u32) -> Result<Arc<Plan>, LockError> {
        if count == 1 {
            return Ok(self.single.clone());
        }
        let mode = mode(&self.core, count, self.permits)?;
        self.core.plan(self.name(), mode, &self.options).map(Arc::new)
    }
}

fn mode(core: &Core, count: u32, of: u32) -> Result<Mode, LockError> {
    let engine = core.state.engine.capabilities().engine;
    Mode::permits(count, of).map_err(|error| LockError::invalid(engine, "permits", error))
}

crate::debug::debug_of!(Semaphore, |it| name: it.name(), permits: it.permits);
