//! Count-down latches: wait until others have counted to zero.
//!
//! A latch is no lock, so nothing here has a lease or a token. The rules are those of
//! `holdline_core::latch`; waiting is asking again.

use std::time::Duration;

use holdline_core::{Backoff, LatchCommand, LatchReply, LockError, LockName, Moment};

use crate::client::Client;

/// The pauses between two requests of a waiter.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

impl Client {
    /// Describes a count-down latch. Nothing is asked of the store yet.
    ///
    /// # Errors
    /// `Invalid` when the name is no lock name, `Unsupported` where the engine has no latches.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:client_latch").await?;
    /// let ready = client.latch("services ready")?;
    /// assert_eq!(ready.count().await?, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn latch(&self, name: impl AsRef<str>) -> Result<Latch, LockError> {
        let capabilities = self.capabilities();
        if !capabilities.latch {
            return Err(capabilities.lacks("latches"));
        }
        let name = LockName::new(name)
            .map_err(|error| LockError::invalid(capabilities.engine, "name", error))?;
        Ok(Latch { client: self.clone(), name })
    }
}

/// A count-down latch: a number in the store that others count down, and waiters wait for zero. A
/// description only; cheap to clone.
///
/// A latch that was never set is open, as one that was counted down: set it before anybody waits.
/// It has no lease, and stays in the store until it is counted down. It does not promise that each
/// participant counts once: a process that dies does not count, and one whose answer was lost may
/// count twice if it asks again.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// let client = holdline::Client::connect("memory:latch").await?;
/// let ready = client.latch("services ready")?;
/// assert!(ready.try_set(2).await?);
/// let waiting = tokio::spawn({
///     let ready = ready.clone();
///     async move { ready.wait().await }
/// });
/// assert_eq!(ready.count_down(1).await?, 1);
/// assert_eq!(ready.count_down(1).await?, 0);
/// waiting.await.expect("no panic")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Latch {
    client: Client,
    name: LockName,
}

impl Latch {
    /// The largest count.
    pub const MAX_COUNT: u64 = holdline_core::latch::MAX_COUNT;

    /// Returns the name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Sets the count, unless it is above zero. Returns whether it was set.
    ///
    /// # Errors
    /// `Invalid` for a count of zero or above a thousand million; otherwise what the store says.
    /// With an unknown certainty the latch may have been set.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer: the latch may have been set.
    pub async fn try_set(&self, count: u64) -> Result<bool, LockError> {
        Ok(self.ask(LatchCommand::Set(count)).await?.changed)
    }

    /// Lowers the count by `by`, at most to zero, and returns what is left.
    ///
    /// # Errors
    /// `Invalid` for zero or more than a thousand million; otherwise what the store says. With an
    /// unknown certainty it may have counted: do not ask again blindly.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer: it may have counted.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:count_down").await?;
    /// let ready = client.latch("services ready")?;
    /// ready.try_set(2).await?;
    /// assert_eq!(ready.count_down(1).await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn count_down(&self, by: u64) -> Result<u64, LockError> {
        Ok(self.ask(LatchCommand::CountDown(by)).await?.count)
    }

    /// Returns the count; zero for a latch that was never set.
    ///
    /// # Errors
    /// What the store says. Nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer.
    pub async fn count(&self) -> Result<u64, LockError> {
        Ok(self.ask(LatchCommand::Count).await?.count)
    }

    /// Waits until the count is zero. It asks the store at least twice a second, so it returns
    /// within half a second; a latch that is set again in between may be missed. A store that does
    /// not answer is asked again.
    ///
    /// # Errors
    /// What the store says, except that it does not answer. Nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:latch_wait").await?;
    /// let ready = client.latch("services ready")?;
    /// ready.try_set(1).await?;
    /// let others = ready.clone();
    /// tokio::spawn(async move { others.count_down(1).await });
    /// ready.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait(&self) -> Result<(), LockError> {
        self.wait_until(Moment::NEVER).await.map(drop)
    }

    /// Waits until the count is zero or `limit` has passed. Returns whether the count is zero.
    ///
    /// # Errors
    /// As [`Latch::wait`]; and `Unavailable` or `NoQuorum` when the store does not answer at the
    /// limit.
    ///
    /// # Cancel safety
    /// As [`Latch::wait`].
    pub async fn wait_for(&self, limit: Duration) -> Result<bool, LockError> {
        let now = self.client.clock().now();
        self.wait_until(now.after(limit)).await
    }

    async fn wait_until(&self, limit: Moment) -> Result<bool, LockError> {
        let state = &self.client.core().state;
        let mut pause = Backoff::new(PAUSE.0, PAUSE.1);
        loop {
            let count = self.count().await;
            let now = state.clock.now();
            match count {
                Ok(0) => return Ok(true),
                Ok(_) if now >= limit => return Ok(false),
                Err(error) if now >= limit || !error.is_transient() => return Err(error),
                Ok(_) | Err(_) => {}
            }
            let pause = pause.next_pause(state.entropy.number()).max(PAUSE.0);
            state.clock.sleep_until(now.after(pause).min(limit)).await;
        }
    }

    async fn ask(&self, command: LatchCommand) -> Result<LatchReply, LockError> {
        let state = &self.client.core().state;
        let reply = state.answer(state.engine.latch(&self.name, command)).await;
        reply.map_err(|error| error.with_name(&self.name))
    }
}

crate::debug::debug_of!(Latch, |it| name: it.name);
