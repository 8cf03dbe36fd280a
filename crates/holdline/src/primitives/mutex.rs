//! Exclusive locks.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{LockError, LockName, Mode};

use super::owner::{self, Owner};
use crate::acquire::{self, Wait};
use crate::client::Client;
use crate::core::Core;
use crate::guard::held::Held;
use crate::guard::{self, Guard};
use crate::plan::Plan;
use crate::plan::options::LockOptions;
use crate::release_outcome::ReleaseOutcome;

impl Client {
    /// Describes an exclusive lock. No request is sent yet.
    ///
    /// # Errors
    /// `Invalid` when the name is no lock name.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:client_mutex").await?;
    /// let mutex = client.mutex("orders/17")?;
    /// let guard = mutex.lock().await?;
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex, LockError> {
        self.mutex_with(name, &LockOptions::default())
    }

    /// Describes an exclusive lock with options.
    ///
    /// # Errors
    /// `Invalid` if the name is not a lock name or the options contradict each other, `Unsupported`
    /// if the engine does not support them.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:client_mutex_with").await?;
    /// use std::time::Duration;
    /// use holdline::LockOptions;
    ///
    /// let options = LockOptions::default()
    ///     .with_lease_duration(Duration::from_secs(10))
    ///     .with_wait(Duration::from_secs(5))
    ///     .with_reason("nightly backup");
    /// let guard = client.mutex_with("orders/17", &options)?.lock().await?;
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn mutex_with(
        &self,
        name: impl AsRef<str>,
        options: &LockOptions,
    ) -> Result<Mutex, LockError> {
        Ok(Mutex::new(self.core(), self.core().plan(name, Mode::Exclusive, options)?))
    }
}

/// An exclusive lock: at most one holder at a time. A description only; cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// use holdline::{Client, ReleaseOutcome};
///
/// let client = Client::connect("memory:mutex").await?;
/// let mutex = client.mutex("orders/17")?;
///
/// let guard = mutex.lock().await?;
/// assert!(mutex.try_lock().await.is_err_and(|error| error.is_contended()));
/// println!("held with fencing token {}", guard.fencing_token());
/// assert!(matches!(guard.release().await, ReleaseOutcome::Released { confirmed: true, .. }));
///
/// // The guard for you: the body is dropped if the lease is lost.
/// let ran = mutex.run(async |held| held.fencing_token().get() * 2).await?;
/// assert!(ran.outcome().is_released());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mutex {
    core: Arc<Core>,
    plan: Arc<Plan>,
}

impl Mutex {
    pub(crate) fn new(core: &Arc<Core>, plan: Plan) -> Mutex {
        Mutex { core: core.clone(), plan: Arc::new(plan) }
    }

    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        &self.plan.name
    }

    /// Waits until this process holds the lock or the wait limit has passed.
    ///
    /// A long pause of this process can outlast the lease. If two writers at once would do harm,
    /// pass [`Guard::fencing_token`] to the resource, which refuses older tokens.
    ///
    /// # Errors
    /// - `TimedOut`: somebody else held it the whole time. Nothing is left in the store.
    /// - `TooManyWaiters`: the queue is full. Nothing is left in the store.
    /// - `Unavailable`, `NoQuorum`: the store did not answer until the limit; without a limit the
    ///   call waits until it does. With `LockOptions::with_fail_in_outage` the first comes within
    ///   seconds. A grant that the store may have made is released in the background, and lasts for
    ///   at most 30 s.
    /// - `Quarantined`: the limit has passed while nodes that lost their memory waited. Nothing is
    ///   held.
    /// - `Refused`, `Foreign`, `NotInitialised`, `Protocol`, `Invalid`: nothing is held; the
    ///   certainty says whether a grant may linger.
    /// - `Cancelled`: the client is shut down, or the lease id given by the options is spent.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the queue entry; a grant that the store may have made is
    /// released in the background.
    ///
    /// # Fairness
    /// If the engine is fair: in the order in which contenders queued.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:lock").await?;
    /// let mutex = client.mutex("orders/17")?;
    /// let guard = mutex.lock().await?;
    /// println!("held with fencing token {}", guard.fencing_token());
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock(&self) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.plan, Wait::of(&self.core, &self.plan)).await
    }

    /// Waits until this process holds the lock or `limit` has passed: as [`Mutex::lock`], with the
    /// wait limit of this call in place of that of the options.
    ///
    /// A request that is in flight at the limit may take one more second.
    ///
    /// # Errors
    /// - `TimedOut`, with the certainty `NotApplied`: somebody else held it until the limit.
    ///   Nothing is left in the store.
    /// - all others as [`Mutex::lock`]: [`LockError::certainty`] says whether a grant may linger.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`].
    ///
    /// # Fairness
    /// As [`Mutex::lock`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:lock_within").await?;
    /// use std::time::Duration;
    ///
    /// let mutex = client.mutex("orders/17")?;
    /// let guard = mutex.lock_within(Duration::from_secs(5)).await?;
    ///
    /// let late = mutex.lock_within(Duration::from_millis(50)).await;
    /// assert!(late.is_err_and(|error| error.is_contended()));
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock_within(&self, limit: Duration) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.plan, Wait::within(&self.core, limit)).await
    }

    /// Acquires the lock if it is free, and never waits for a holder.
    ///
    /// # Errors
    /// `Busy` if it is not free, with the holder if the engine reports it; otherwise as
    /// [`Mutex::lock`], but without waiting: without an answer, or without enough votes, the
    /// request is repeated at most once.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:try_lock").await?;
    /// let mutex = client.mutex("orders/17")?;
    /// match mutex.try_lock().await {
    ///     Ok(guard) => guard.release().await.into_result()?,
    ///     Err(error) if error.is_contended() => println!("somebody else has it: {error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_lock(&self) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.plan, Wait::Try).await
    }

    /// Acquires the lock for an owner, who can acquire it again while holding it. The guards share
    /// one grant and one fencing token, and the last one releases it. Only guards of the same
    /// client nest.
    ///
    /// # Errors
    /// As [`Mutex::lock`]; and `Lost` if the owner's grant is lost: end its guards first.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:lock_as").await?;
    /// use holdline::{Owner, ReleaseOutcome};
    ///
    /// let mutex = client.mutex("orders/17")?;
    /// let owner = Owner::new();
    /// let outer = mutex.lock_as(&owner).await?;
    /// // A function that is called meanwhile, and locks the same name for the same owner.
    /// let inner = mutex.lock_as(&owner).await?;
    /// assert_eq!(inner.fencing_token(), outer.fencing_token());
    /// assert!(matches!(inner.release().await, ReleaseOutcome::Nested { depth: 1 }));
    /// outer.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock_as(&self, owner: &Owner) -> Result<Guard, LockError> {
        let wait = Wait::of(&self.core, &self.plan);
        owner::acquire_as(&self.core, &self.plan, owner, wait).await
    }

    /// As [`Mutex::lock_as`], and never waits for a holder.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`] and [`Mutex::lock_as`].
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`].
    pub async fn try_lock_as(&self, owner: &Owner) -> Result<Guard, LockError> {
        owner::acquire_as(&self.core, &self.plan, owner, Wait::Try).await
    }

    /// Acquires the lock, runs `body` under it, and releases it.
    ///
    /// If the lease is lost, the body is dropped or notified, as the lock's [`crate::OnLost`] says.
    ///
    /// # Errors
    /// As [`Mutex::lock`]; and `Lost` when the body was dropped because the lease was lost.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body and releases the lock in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:mutex_run").await?;
    /// let mutex = client.mutex("orders/17")?;
    /// let ran = mutex.run(async |held| format!("written with {}", held.fencing_token())).await?;
    /// assert!(ran.outcome().is_released());
    /// println!("{}", ran.into_output());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T>(&self, body: impl AsyncFnOnce(Held) -> T) -> Result<Ran<T>, LockError> {
        let guard = self.lock().await?;
        let held = guard.held();
        let output = guard::run(&held, body(held.clone())).await?;
        Ok(Ran { output, outcome: guard.release().await })
    }
}

/// The result of a body, and the outcome of its lock. Neither hides the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran<T> {
    output: T,
    outcome: ReleaseOutcome,
}

impl<T> Ran<T> {
    pub(crate) fn new(output: T, outcome: ReleaseOutcome) -> Ran<T> {
        Ran { output, outcome }
    }

    /// Returns what the body returned.
    pub fn into_output(self) -> T {
        self.output
    }

    /// Returns the outcome of the lock. `Lost` means that the body may have run without it.
    pub fn outcome(&self) -> &ReleaseOutcome {
        &self.outcome
    }
}

crate::debug::debug_of!(Mutex, |it| name: it.name());
