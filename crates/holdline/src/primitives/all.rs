//! Several names at once, of one client or of several: all or none.

use std::sync::Arc;

use holdline_core::{LockError, LockName, LostReason, Mode};

use crate::acquire::{self, Wait};
use crate::client::Client;
use crate::core::Core;
use crate::guard::Guard;
use crate::plan::Plan;
use crate::plan::options::LockOptions;
use crate::release_outcome::ReleaseOutcome;

/// The guards of several names that were acquired together, in the order of the names; those of
/// several clients in the order of [`lock_all`].
#[derive(Debug)]
#[must_use = "guards that are not kept release their names at once"]
pub struct Guards(Vec<Guard>);

impl Guards {
    /// Makes it of guards.
    pub(crate) fn new(guards: Vec<Guard>) -> Guards {
        Guards(guards)
    }

    /// Returns the guards, in the order of the names.
    pub fn guards(&self) -> &[Guard] {
        &self.0
    }

    /// Returns the guards by value, in the order of the names.
    pub fn into_guards(self) -> Vec<Guard> {
        self.0
    }

    /// Returns whether all leases are valid.
    pub fn is_valid(&self) -> bool {
        self.0.iter().all(Guard::is_valid)
    }

    /// Resolves when the first of the leases is no longer valid.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> LostReason {
        let lost = self.0.iter().map(|guard| Box::pin(guard.lost()));
        futures_util::future::select_all(lost).await.0
    }

    /// Releases all names concurrently, and returns the outcomes in the order of the names. It
    /// takes as long as the slowest release: see [`Guard::release`].
    ///
    /// # Cancel safety
    /// Dropping the future loses the answers only.
    #[must_use = "a lease may have been lost before the release"]
    pub async fn release(self) -> Vec<ReleaseOutcome> {
        futures_util::future::join_all(self.0.into_iter().map(Guard::release)).await
    }
}

impl Client {
    /// Acquires several names exclusively: all or none. They are acquired in byte order, so that
    /// overlapping sets never cause a deadlock.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock), for the first name that could not be acquired;
    /// `Invalid` for a name listed twice. None of the names is held then.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock); the acquired names are released in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:client_lock_all").await?;
    /// let both = client.lock_all(["accounts/7", "accounts/3"]).await?;
    /// assert!(both.is_valid());
    /// for outcome in both.release().await {
    ///     outcome.into_result()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lock_all<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Guards, LockError> {
        self.lock_all_with(names, &LockOptions::default()).await
    }

    /// As [`Client::lock_all`], with options; there is one wait limit for all names.
    ///
    /// # Errors
    /// As [`Client::lock_all`] and [`Client::mutex_with`].
    ///
    /// # Cancel safety
    /// As [`Client::lock_all`].
    pub async fn lock_all_with<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
        options: &LockOptions,
    ) -> Result<Guards, LockError> {
        all_or_none(names.into_iter().map(|name| (self.core(), name)), options).await
    }
}

/// Acquires several names of several clients exclusively: all or none, within one wait limit.
///
/// The order is that of [`Capabilities::identity`](crate::engine::Capabilities), then that of the
/// names in bytes. So overlapping sets never cause a deadlock, provided that all processes name a
/// store by the same address: the identity of a server is made from it.
///
/// The stores know nothing of each other. During the wait for the last name, the first ones are
/// held. If one lease is lost, the other guards stay valid until they are released.
/// [`Guards::lost`] resolves with the first loss.
///
/// # Errors
/// As [`Client::lock_all`].
///
/// # Cancel safety
/// As [`Client::lock_all`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// use holdline::Client;
///
/// let old = Client::connect("memory:old").await?;
/// let new = Client::connect("memory:new").await?;
/// let both = holdline::lock_all([(&old, "orders"), (&new, "orders")]).await?;
/// assert!(both.is_valid());
/// for outcome in both.release().await {
///     outcome.into_result()?;
/// }
/// # Ok(())
/// # }
/// ```
pub async fn lock_all<N: AsRef<str>>(
    names: impl IntoIterator<Item = (&Client, N)>,
) -> Result<Guards, LockError> {
    lock_all_with(names, &LockOptions::default()).await
}

/// As [`lock_all`], with options, which must fit every client.
///
/// # Errors
/// As [`Client::lock_all_with`].
///
/// # Cancel safety
/// As [`lock_all`].
pub async fn lock_all_with<N: AsRef<str>>(
    names: impl IntoIterator<Item = (&Client, N)>,
    options: &LockOptions,
) -> Result<Guards, LockError> {
    let names = names.into_iter().map(|(client, name)| (client.core(), name));
    all_or_none(names, options).await
}

/// Acquires all names or none, in their order, within one wait limit.
pub(crate) async fn all_or_none<'a, N: AsRef<str>>(
    names: impl IntoIterator<Item = (&'a Arc<Core>, N)>,
    options: &LockOptions,
) -> Result<Guards, LockError> {
    let mut plans = Vec::new();
    for (core, name) in names {
        let plan = Arc::new(core.plan(name, Mode::Exclusive, options)?);
        plans.push(PlannedLock { core, plan });
    }
    check(&mut plans, options)?;
    // The limits of all begin now, each by the clock of its client.
    let waits: Vec<Wait> = plans.iter().map(|lock| Wait::of(lock.core, &lock.plan)).collect();
    let mut guards = Guards(Vec::with_capacity(plans.len()));
    for (lock, wait) in plans.iter().zip(waits) {
        match acquire::acquire(lock.core, &lock.plan, wait).await {
            Ok(guard) => guards.0.push(guard),
            Err(error) => {
                // None: all acquired names are released before the error is returned.
                let _ = guards.release().await;
                return Err(error);
            }
        }
    }
    whole(guards).await
}

/// One of several locks.
struct PlannedLock<'a> {
    core: &'a Arc<Core>,
    plan: Arc<Plan>,
}

impl PlannedLock<'_> {
    /// Returns what the order of the locks goes by: the store, then the name.
    fn place(&self) -> (&str, &LockName) {
        (&self.core.state.engine.capabilities().identity, &self.plan.name)
    }
}

/// Puts the names in their order, and refuses those that cannot be acquired together.
fn check(plans: &mut [PlannedLock<'_>], options: &LockOptions) -> Result<(), LockError> {
    plans.sort_by(|one, other| one.place().cmp(&other.place()));
    let first = plans.first();
    let engine = first.map_or("holdline", |one| one.core.state.engine.capabilities().engine);
    let twice = plans.windows(2).find(|pair| pair[0].place() == pair[1].place());
    if let Some(pair) = twice {
        let message = "the name is listed twice: it would wait for itself";
        return Err(LockError::invalid(engine, "names", message).with_name(&pair[0].plan.name));
    }
    if plans.is_empty() || (options.lease_id.is_some() && plans.len() > 1) {
        let message = "need at least one name, and no lease id of the caller for several";
        return Err(LockError::invalid(engine, "names", message));
    }
    Ok(())
}

/// Returns the guards if all are valid, and releases them otherwise: the first may have been lost
/// during the wait for the last.
pub(crate) async fn whole(guards: Guards) -> Result<Guards, LockError> {
    let lost = guards.0.iter().find(|guard| !guard.is_valid());
    let Some(held) = lost.map(Guard::held) else { return Ok(guards) };
    let reason = held.grant.why_lost();
    let _ = guards.release().await;
    Err(held.state.lost(reason).with_name(held.name()))
}
