//! Exclusive locks.

use std::sync::Arc;

use holdline_core::{LockError, LockName};

use crate::acquire::{self, Wait};
use crate::core::Core;
use crate::guard::{self, Guard};
use crate::held::Held;
use crate::owner::{self, Owner};
use crate::plan::Plan;
use crate::release::ReleaseOutcome;

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
    /// A long pause of this process can outlive the lease. If two writers at once would do harm,
    /// hand [`Guard::fencing_token`] to the resource and let it refuse older ones.
    ///
    /// # Errors
    /// - `TimedOut`: somebody else held it throughout. Nothing of ours stays behind.
    /// - `TooManyWaiters`: the queue is full. Nothing of ours stays behind.
    /// - `Unavailable`, `NoQuorum`: no certain answer; the latter only when the limit has passed.
    ///   What the store may have kept is given up in the background, and lives for at most 30 s.
    /// - `Quarantined`: the limit has passed while nodes that lost their memory waited. Nothing is
    ///   held.
    /// - `Refused`, `Foreign`, `NotInitialised`, `Protocol`, `Invalid`: nothing is held; the
    ///   certainty says whether a grant may linger.
    /// - `Cancelled`: the client is shut down, or the lease id given by the options is spent.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue; what the store may have granted is
    /// given up in the background.
    ///
    /// # Fairness
    /// Where the engine is fair: in the order in which contenders queued.
    pub async fn lock(&self) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.plan, Wait::of(&self.core, &self.plan)).await
    }

    /// Takes the lock if it is free, and never waits for a holder.
    ///
    /// # Errors
    /// `Busy` with the holder, where the engine can tell, when it is not free; otherwise as
    /// [`Mutex::lock`], but nothing is waited out: without an answer, or without enough votes of
    /// several nodes, it is asked once more at most.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`].
    pub async fn try_lock(&self) -> Result<Guard, LockError> {
        acquire::acquire(&self.core, &self.plan, Wait::Try).await
    }

    /// As [`Mutex::lock`], with a future that borrows nothing.
    ///
    /// # Errors
    /// As [`Mutex::lock`].
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`].
    pub async fn lock_owned(self) -> Result<Guard, LockError> {
        self.lock().await
    }

    /// Takes the lock for an owner, who may take it again while it holds it: the guards share one
    /// grant and one fencing token, and the last to end releases it. Only guards of the same
    /// client nest.
    ///
    /// # Errors
    /// As [`Mutex::lock`]; and `Lost` when the owner's grant is lost: end its guards first.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`].
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

    /// Takes the lock, runs `body` under it, and releases it.
    ///
    /// When the lease is lost the body is dropped, or told, by the lock's
    /// [`crate::OnLost`].
    ///
    /// # Errors
    /// As [`Mutex::lock`]; and `Lost` when the body was dropped because the lease was lost.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body and releases the lock in the background.
    pub async fn run<T>(&self, body: impl AsyncFnOnce(Held) -> T) -> Result<Ran<T>, LockError> {
        let guard = self.lock().await?;
        let held = guard.held();
        let output = guard::run(&held, body(held.clone())).await?;
        Ok(Ran { output, outcome: guard.release().await })
    }
}

/// What a body returned, and how the lock ended that it ran under. One never hides the other.
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

    /// Returns how the lock ended. `Lost` means that the body may have ended without it.
    pub fn outcome(&self) -> &ReleaseOutcome {
        &self.outcome
    }
}

impl std::fmt::Debug for Mutex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mutex").field("name", self.name()).finish_non_exhaustive()
    }
}
