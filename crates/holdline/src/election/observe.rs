//! The stream of leaders.
//!
//! Invariant O1: the terms of one stream grow strictly, whatever the store answers: a reply that
//! was overtaken on its way is ignored.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::{ErrorKind, FencingToken, LockError, Moment};

use super::{Election, Leader};

/// How often an observer looks: twice a heartbeat, so that a term of one heartbeat is seen also if
/// a look takes a while.
const INTERVAL: Duration = Duration::from_millis(QUEUE_HEARTBEAT.as_millis() as u64 / 2);

/// The leaders of an election, one after the other; see [`Election::observe`].
///
/// # Cancel safety
/// Dropping the future of [`Leaders::next`] loses no leader that still leads.
#[must_use = "a stream looks at the store only when it is polled"]
pub struct Leaders(Pin<Box<dyn Stream<Item = Result<Leader, LockError>> + Send>>);

/// What a stream knows between two items.
struct Watching {
    election: Election,
    /// The term that was returned last.
    last: Option<FencingToken>,
    look_at: Moment,
    failed: bool,
}

impl Leaders {
    pub(super) fn of(election: &Election) -> Leaders {
        let election = election.clone();
        let watching = Watching { election, last: None, look_at: Moment::ORIGIN, failed: false };
        Leaders(Box::pin(unfold(watching, |mut watching| async move {
            if watching.failed {
                return None;
            }
            let item = watching.next().await;
            watching.failed = item.is_err();
            Some((item, watching))
        })))
    }

    /// Returns the next leader; `None` after an error. With `futures::StreamExt` in scope it is the
    /// same as that trait's `next`.
    ///
    /// # Cancel safety
    /// Dropping the future loses no leader that still leads.
    pub async fn next(&mut self) -> Option<Result<Leader, LockError>> {
        StreamExt::next(&mut self.0).await
    }
}

impl Watching {
    async fn next(&mut self) -> Result<Leader, LockError> {
        let clock = self.election.client.clock().clone();
        loop {
            clock.sleep_until(self.look_at).await;
            self.look_at = clock.now().after(INTERVAL);
            match self.look().await {
                Ok(Some(leader)) => {
                    self.last = Some(leader.term());
                    return Ok(leader);
                }
                Ok(None) => {}
                Err(error) if passes(&error) => {
                    tracing::debug!(name = %self.election.name, %error, "the leader is unknown");
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the leader if it leads in a later term than the last one.
    async fn look(&self) -> Result<Option<Leader>, LockError> {
        let leader = self.election.look().await?;
        match leader.filter(|leader| self.last.is_none_or(|last| leader.term() > last)) {
            Some(leader) => self.election.with_proclaimed(leader).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Returns whether this error may pass by itself: the store may answer soon.
fn passes(error: &LockError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unavailable { .. } | ErrorKind::NoQuorum { .. } | ErrorKind::Quarantined { .. }
    )
}

impl Stream for Leaders {
    type Item = Result<Leader, LockError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

impl std::fmt::Debug for Leaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaders").finish_non_exhaustive()
    }
}
