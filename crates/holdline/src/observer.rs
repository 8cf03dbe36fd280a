//! Being told what happens to a client's locks.

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
    /// How the name is or would be held.
    pub mode: Mode,
}

/// Is told what happens to a client's locks: for metrics, logs, progress lines.
///
/// Every method does nothing unless implemented. They are called from tasks that want their
/// locks, and from the one that renews leases: return quickly, and hand long work to somebody
/// else. They are called outside the client's own mutexes, so they may use the client. A panic
/// is caught and logged, and costs the event only.
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

    /// The attempt stands in the queue, with so many before it where the engine can tell; told
    /// again when that changes. Also once of an attempt that begins to wait where nobody queues.
    fn queued(
        &self,
        subject: Subject<'_>,
        position: Option<usize>,
        holder: Option<&HolderSummary>,
    ) {
    }

    /// Too few nodes of the store vote at the moment, and the attempt waits that out; told again
    /// whenever it has asked again.
    fn without_quorum(&self, subject: Subject<'_>, error: &holdline_core::LockError) {}

    /// The name was handed to the attempt, which claims it now.
    fn handed(&self, subject: Subject<'_>) {}

    /// The attempt lost its place in the queue and queues anew.
    fn requeued(&self, subject: Subject<'_>) {}

    /// The attempt ended without the name.
    fn failed(&self, subject: Subject<'_>, error: &holdline_core::LockError) {}

    /// The lease was renewed; `slack` is how long it could still have been believed. A small
    /// slack is a near miss.
    fn renewed(&self, subject: Subject<'_>, slack: Duration) {}

    /// At most one renewal interval is left and no renewal has come through, or an operator has
    /// revoked the lease.
    fn at_risk(&self, subject: Subject<'_>, remaining: Duration) {}

    /// The lease may no longer be believed.
    fn lost(&self, subject: Subject<'_>, reason: &LostReason) {}

    /// The lease was released on purpose.
    fn released(&self, subject: Subject<'_>, outcome: &ReleaseOutcome) {}

    /// A guard was dropped, or an attempt was given up: the janitor has ended what it had. `told`
    /// says whether the store has confirmed.
    fn dropped(&self, subject: Subject<'_>, told: bool) {}

    /// A resource that this observer was given to refused a holder, such as one that had been
    /// paused past its lease. Unlike all others this comes from the resource's side, which needs
    /// no client: [`Rules::with_observer`](crate::fence::Rules::with_observer). The resource may
    /// still be locked: do not use it from here.
    fn fence_refused(&self, refusal: &Refusal<'_>) {}
}
