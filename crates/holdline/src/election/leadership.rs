//! A leadership in the caller's hand.

use std::future::Future;
use std::time::Duration;

use holdline_core::{FencingToken, LockError, LockName, LostReason};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::Election;
use super::value::Stored;
use crate::guard::Guard;
use crate::guard::held::Held;
use crate::release_outcome::ReleaseOutcome;

/// How long a proclamation waits for a lock that a dead leader has left: the longest first lease,
/// and some more for the store to end it.
const VALUE_WAIT: Duration = Duration::from_secs(40);

/// A term as leader: it lasts from when this exists until it is resigned, dropped or lost.
///
/// Resign with [`Leadership::resign`] to learn how it ended. A leadership that is dropped is
/// resigned in the background.
#[must_use = "a leadership that is not kept is resigned at once"]
pub struct Leadership {
    guard: Guard,
    election: Election,
    /// The value that was proclaimed after the campaign.
    stored: Mutex<Option<Stored>>,
}

impl Leadership {
    pub(super) fn new(election: &Election, guard: Guard) -> Leadership {
        Leadership { guard, election: election.clone(), stored: Mutex::new(None) }
    }

    /// Returns the lock name of the election.
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// Returns the term: the fencing token to give to the resource, which rejects smaller ones.
    pub fn term(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// Returns whether this process may consider itself the leader.
    ///
    /// # Guarantees
    /// It returns false before another candidate can lead. The answer is old as soon as it is
    /// given: see [`Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// Resolves when this process must no longer consider itself the leader.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// # Guarantees
    /// It resolves before another candidate can lead, unless this process is paused: then it
    /// resolves when the process resumes.
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// Returns a token that is cancelled when the leadership is revoked, lost, resigned or dropped.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.guard.cancellation_token()
    }

    /// Returns the grant that the leadership rests on: for its lease, its risks, its renewals.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Returns a handle for the code that runs while this process leads.
    pub fn held(&self) -> Held {
        self.guard.held()
    }

    /// Replaces the value that observers see.
    ///
    /// After it has returned, [`Election::leader`] and streams that begin to observe return the new
    /// value. A stream that has returned this term already does not return it again.
    ///
    /// The value is in the metadata of a second lock, named after the election with
    /// `:proclaimed-0` or `:proclaimed-1`. If that lock is lost alone, observers see the value of
    /// the campaign again.
    ///
    /// # Errors
    /// - `Lost`: this process no longer leads. No observer sees the value.
    /// - `Invalid`: the value is too long. Nothing was asked of the store.
    /// - `TimedOut`: somebody else holds the second lock. The value is what it was.
    /// - others, as [`crate::Mutex::lock`]: the value is what it was.
    ///
    /// # Cancel safety
    /// If the future is dropped, observers see the new value or the one before.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:proclaim").await?;
    /// let election = client.election("scheduler")?;
    /// let leadership = election.campaign("starting").await?;
    /// leadership.proclaim("http://10.0.0.7:8080").await?;
    /// let leader = election.leader().await?.expect("somebody leads");
    /// assert_eq!(leader.value(), "http://10.0.0.7:8080");
    /// leadership.resign().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn proclaim(&self, value: impl Into<String>) -> Result<(), LockError> {
        let Election { client, options, proclaimed, .. } = &self.election;
        let options = options.clone().with_wait(VALUE_WAIT).with_value(value);
        // One proclamation at a time, in the order of the calls.
        let mut stored = self.stored.lock().await;
        if !self.is_valid() {
            return Err(self.no_longer());
        }
        let next = proclaimed.store(client, &options, self.term(), stored.as_ref()).await?;
        if let Some(before) = stored.replace(next) {
            let _ = before.release().await;
        }
        if self.is_valid() { Ok(()) } else { Err(self.no_longer()) }
    }

    fn no_longer(&self) -> LockError {
        let reason = self.guard.grant.why_lost();
        self.guard.core.state.lost(reason).with_name(self.name())
    }

    /// Runs a future while this process leads, and drops it when the leadership is lost. With
    /// [`crate::OnLost::Notify`] it runs to its own end, and only
    /// [`Leadership::cancellation_token`] notifies it.
    ///
    /// # Errors
    /// `Lost`: the leadership was lost before the future ended, which was dropped; what it had done
    /// until then is done.
    ///
    /// # Cancel safety
    /// Dropping the future drops the inner one. The leadership stays.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:leadership_run").await?;
    /// let leadership = client.election("scheduler")?.campaign("node 1").await?;
    /// let started = leadership.run(async { "all jobs are started" }).await?;
    /// println!("{started}");
    /// leadership.resign().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, body: F) -> Result<F::Output, LockError> {
        self.guard.run(body).await
    }

    /// Ends the leadership, and returns how it ended. The next candidate in the queue leads at
    /// once: the release hands the name to it, and notifies it.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only: the release continues in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:resign").await?;
    /// let election = client.election("scheduler")?;
    /// election.campaign("node 1").await?.resign().await.into_result()?;
    /// assert!(election.leader().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn resign(self) -> ReleaseOutcome {
        let outcome = self.guard.release().await;
        // After the name: nobody waits for this one.
        if let Some(stored) = self.stored.into_inner() {
            let _ = stored.release().await;
        }
        outcome
    }
}

crate::debug::debug_of!(Leadership, |it| name: it.name(), term: it.term(), valid: it.is_valid());
