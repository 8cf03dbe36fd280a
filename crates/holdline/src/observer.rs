//! Observers, which receive the events of a client's locks.

use std::time::Duration;

use holdline_core::{FencingToken, HolderSummary, LockName, LostReason, Mode, ShortLeaseId};

use crate::fence::Refusal;
use crate::release::ReleaseOutcome;

/// Which attempt or grant an event is about.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Subject<'a> {
    /// The lock name.
    pub name: &'a LockName,
    /// The first digits of the lease id.
    pub lease_id: ShortLeaseId,
    /// The mode in which the name is or would be held.
    pub mode: Mode,
}

/// Receives the events of a client's locks: for metrics, logs, progress lines.
///
/// Every method does nothing unless implemented. Methods are called from tasks that acquire locks,
/// and from the task that renews leases: return quickly, and move long work to another task. They
/// are called outside the client's own mutexes, so they may use the client. A panic is caught and
/// logged, and only the event is lost.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use std::time::Duration;
/// use holdline::{Client, ClientOptions, FencingToken, Observer, Subject};
///
/// #[derive(Default)]
/// struct Count(AtomicUsize);
///
/// impl Observer for Count {
///     fn acquired(&self, _: Subject<'_>, _: FencingToken, _waited: Duration) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let count = Arc::new(Count::default());
/// let options = ClientOptions::default().with_observer(count.clone());
/// let client = Client::connect_with("memory:observer", options).await?;
/// client.mutex("a")?.lock().await?.release().await;
/// assert_eq!(count.0.load(Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
#[allow(unused_variables)]
pub trait Observer: Send + Sync + 'static {
    /// The name is held, after this wait.
    fn acquired(&self, subject: Subject<'_>, token: FencingToken, waited: Duration) {}

    /// The attempt is queued at this position, if the engine reports it; called again when that
    /// changes. Also called once when an attempt starts to wait on an engine without a queue.
    fn queued(
        &self,
        subject: Subject<'_>,
        position: Option<usize>,
        holder: Option<&HolderSummary>,
    ) {
    }

    /// Too few nodes of the store vote at the moment, and the attempt waits until enough do. Called
    /// again after each repeated request.
    fn without_quorum(&self, subject: Subject<'_>, error: &holdline_core::LockError) {}

    /// The name was handed to the attempt, which claims it now.
    fn handed(&self, subject: Subject<'_>) {}

    /// The attempt lost its queue entry and queues again.
    fn requeued(&self, subject: Subject<'_>) {}

    /// The attempt ended without the name.
    fn failed(&self, subject: Subject<'_>, error: &holdline_core::LockError) {}

    /// The lease was renewed; `slack` is how long it would still have been valid. A small slack is
    /// a near miss.
    fn renewed(&self, subject: Subject<'_>, slack: Duration) {}

    /// At most one renewal interval is left and no renewal has succeeded, or an operator has
    /// revoked the lease.
    fn at_risk(&self, subject: Subject<'_>, remaining: Duration) {}

    /// The lease is no longer valid.
    fn lost(&self, subject: Subject<'_>, reason: &LostReason) {}

    /// The lease was released on purpose.
    fn released(&self, subject: Subject<'_>, outcome: &ReleaseOutcome) {}

    /// A guard was dropped, or an attempt was given up: the janitor has ended what it had.
    /// `confirmed` says whether the store has confirmed.
    fn dropped(&self, subject: Subject<'_>, confirmed: bool) {}

    /// A resource with this observer refused a holder, such as one that had been paused past its
    /// lease. Unlike all others, this event comes from the resource, which needs no client:
    /// [`Rules::with_observer`](crate::fence::Rules::with_observer). The resource may still be
    /// locked: do not use it from here.
    fn fence_refused(&self, refusal: &Refusal<'_>) {}
}
