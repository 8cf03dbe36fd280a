//! Counting semaphores: permits without leases and without owners.
//!
//! No lock, so nothing here has a lease or a token, and no keeper. The rules are those of
//! `holdline_core::counting`. A waiter is notified by the store, and asks again at least once a
//! second, so that a lost notification cannot block it.

use std::time::Duration;

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{
    Backoff, Certainty, CountingCommand, CountingReply, LockError, LockName, Moment,
};

use crate::client::Client;

/// The pauses of a waiter while the store does not answer.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

impl Client {
    /// Describes a counting semaphore. Nothing is asked of the store yet.
    ///
    /// # Errors
    /// `Invalid` when the name is no lock name, `Unsupported` where the engine has no counting
    /// semaphores: only Redis with `dialect=redisson` has them. [`Client::semaphore`] is for all
    /// others.
    pub fn counting_semaphore(
        &self,
        name: impl AsRef<str>,
    ) -> Result<CountingSemaphore, LockError> {
        let capabilities = self.capabilities();
        if !capabilities.counting {
            return Err(capabilities.lacks_counting());
        }
        let name = LockName::new(name)
            .map_err(|error| LockError::invalid(capabilities.engine, "name", error))?;
        Ok(CountingSemaphore { client: self.clone(), name })
    }
}

/// A number of permits in the store, which anybody takes and gives back: Redisson's `RSemaphore`. A
/// description only; cheap to clone.
///
/// Permits have no lease and no owner. What follows from that:
/// - The permits of a process that dies are lost until somebody releases them in its place.
/// - Anybody can release permits that nobody took, so the total can grow.
/// - An acquire or a release whose answer was lost may have been carried out, and nothing finds out
///   whether it was. The error says so by its [certainty](LockError::certainty), `Unknown`.
///   Repeating it may take or return the permits twice.
///
/// [`Semaphore`](crate::Semaphore) has none of these, and is the better choice unless programs with
/// Redisson share the permits as an `RSemaphore`.
///
/// The permits must be set once, by anybody, before they can be taken.
///
/// ```
/// use std::time::Duration;
/// use holdline::{Client, LockError};
///
/// async fn import(client: &Client) -> Result<(), LockError> {
///     let slots = client.counting_semaphore("import slots")?;
///     slots.try_set_permits(4).await?;
///     if slots.acquire_for(1, Duration::from_secs(30)).await? {
///         // … the work …
///         slots.release(1).await?;
///     }
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// #     let client = Client::connect("memory:counting").await.expect("a client");
/// #     let refused = import(&client).await.expect_err("only Redis has it");
/// #     assert!(refused.to_string().contains("dialect=redisson"));
/// # }
/// ```
#[derive(Clone)]
pub struct CountingSemaphore {
    client: Client,
    name: LockName,
}

impl CountingSemaphore {
    /// How many permits there are at most.
    pub const MAX_PERMITS: u64 = holdline_core::counting::MAX_PERMITS;

    /// Returns the name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Makes as many permits available, unless the semaphore was set or released to before. Returns
    /// whether it was set.
    ///
    /// # Errors
    /// `Invalid` for zero or more than [`CountingSemaphore::MAX_PERMITS`]; otherwise the store's
    /// error. With an unknown certainty the permits may have been set; repeating it does no harm.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer: the permits may have been set.
    pub async fn try_set_permits(&self, permits: u64) -> Result<bool, LockError> {
        Ok(self.ask(CountingCommand::Set(permits)).await?.is_changed())
    }

    /// Takes `permits` permits if they are available, all or none, and never waits. Returns whether
    /// they were taken.
    ///
    /// # Errors
    /// `Invalid` for zero or more than [`CountingSemaphore::MAX_PERMITS`]; otherwise the store's
    /// error. With an unknown certainty the permits may have been taken, and nobody gives them
    /// back.
    ///
    /// # Cancel safety
    /// Dropping the future takes nothing: permits that the request takes after that are given back
    /// in the background. They are lost if this process ends first, or if the answer is lost.
    pub async fn try_acquire(&self, permits: u64) -> Result<bool, LockError> {
        Ok(self.ask(CountingCommand::Acquire(permits)).await?.is_changed())
    }

    /// Waits until `permits` permits are available, and takes them, all or none.
    ///
    /// A store that cannot be reached is asked again.
    ///
    /// # Errors
    /// As [`CountingSemaphore::try_acquire`], except that the store cannot be reached. An error
    /// with an unknown certainty ends the wait, since another request could take the permits twice.
    ///
    /// # Cancel safety
    /// As [`CountingSemaphore::try_acquire`].
    ///
    /// # Fairness
    /// None: the first to ask after a release takes the permits, and a large request can starve
    /// behind small ones.
    pub async fn acquire(&self, permits: u64) -> Result<(), LockError> {
        self.acquire_until(permits, Moment::NEVER).await.map(drop)
    }

    /// As [`CountingSemaphore::acquire`], until `limit` has passed. Returns whether the permits
    /// were taken.
    ///
    /// # Errors
    /// As [`CountingSemaphore::acquire`]; and `Unavailable` or `NoQuorum` when the store cannot be
    /// reached at the limit.
    ///
    /// # Cancel safety
    /// As [`CountingSemaphore::try_acquire`].
    ///
    /// # Fairness
    /// As [`CountingSemaphore::acquire`].
    pub async fn acquire_for(&self, permits: u64, limit: Duration) -> Result<bool, LockError> {
        let now = self.client.clock().now();
        self.acquire_until(permits, now.after(limit)).await
    }

    /// Gives back `permits` permits, and returns how many are available. Nothing checks that this
    /// process took them.
    ///
    /// # Errors
    /// `Invalid` for zero, and if more than [`CountingSemaphore::MAX_PERMITS`] would be available;
    /// otherwise the store's error. With an unknown certainty the permits may have been given back.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer: the permits may have been given back.
    pub async fn release(&self, permits: u64) -> Result<i64, LockError> {
        Ok(self.ask(CountingCommand::Release(permits)).await?.after)
    }

    /// Returns how many permits are available; zero before they are set. Below zero if another
    /// program has reduced them below what was taken.
    ///
    /// # Errors
    /// The store's error. Nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer.
    pub async fn available(&self) -> Result<i64, LockError> {
        Ok(self.ask(CountingCommand::Available).await?.after)
    }

    /// Takes all permits that are available, and returns how many.
    ///
    /// # Errors
    /// The store's error. With an unknown certainty the permits may have been taken.
    ///
    /// # Cancel safety
    /// As [`CountingSemaphore::try_acquire`].
    pub async fn drain(&self) -> Result<u64, LockError> {
        let reply = self.ask(CountingCommand::Drain).await?;
        Ok(reply.before.abs_diff(reply.after))
    }

    async fn acquire_until(&self, permits: u64, limit: Moment) -> Result<bool, LockError> {
        let state = &self.client.core().state;
        let mut pause = Backoff::new(PAUSE.0, PAUSE.1);
        loop {
            let failure = match self.ask(CountingCommand::Acquire(permits)).await {
                Ok(reply) if reply.is_changed() => return Ok(true),
                Ok(_) => None,
                Err(error) => Some(error),
            };
            let now = state.clock.now();
            let is_over = now >= limit;
            let failure = match failure {
                // The permits may be taken, or the store will not answer otherwise.
                Some(error)
                    if is_over
                        || error.certainty() != Certainty::NotApplied
                        || !error.is_transient() =>
                {
                    return Err(error);
                }
                None if is_over => return Ok(false),
                Some(_) => true,
                None => {
                    let at_most = QUEUE_HEARTBEAT.min(state.answer_within / 2);
                    let at_most = at_most.min(now.until(limit));
                    match self.ask(CountingCommand::Await { permits, at_most }).await {
                        Ok(_) => false,
                        Err(error) if error.is_transient() => true,
                        Err(error) => return Err(error),
                    }
                }
            };
            if failure {
                let pause = pause.next_pause(state.entropy.number()).max(PAUSE.0);
                let now = state.clock.now();
                state.clock.sleep_until(now.after(pause).min(limit)).await;
            } else {
                pause.reset();
            }
        }
    }

    async fn ask(&self, command: CountingCommand) -> Result<CountingReply, LockError> {
        let state = &self.client.core().state;
        let reply = state.answer(state.engine.counting(&self.name, command)).await;
        reply.map_err(|error| error.with_name(&self.name))
    }
}

crate::debug::debug_of!(CountingSemaphore, |it| name: it.name);
