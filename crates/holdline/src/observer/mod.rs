//! Observers, which receive the events of a client's locks.
//!
//! Implement [`Observer`] for metrics, logs or progress lines of your own, and pass it to
//! [`ClientOptions::with_observer`](crate::ClientOptions::with_observer). A [`Subject`] says which
//! lock an event is about; its [`Class`] stands for many names in metrics.

pub(crate) mod class;

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{
    ErrorKind, FencingToken, HolderSummary, LockError, LockName, LostReason, Mode, QuorumHealth,
    ShortLeaseId,
};
use holdline_fence::Refusal;

use crate::release_outcome::ReleaseOutcome;
pub use class::{Class, MAX_CLASSES};

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
    /// The engine's short name, such as `redis`.
    pub engine: &'static str,
    /// The class of the lock, which metrics are labelled with.
    pub class: &'a Class,
}

/// How a hold ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldEnd {
    /// It was released, or a release was asked for.
    Released,
    /// Its guard was dropped, and it is released in the background.
    Dropped,
    /// Its lease was given out of this process.
    Detached,
    /// It was lost.
    Lost(LostReason),
}

impl HoldEnd {
    /// Returns the word for it, as metrics and spans have it.
    pub fn word(&self) -> &'static str {
        match self {
            HoldEnd::Released => "released",
            HoldEnd::Dropped => "dropped",
            HoldEnd::Detached => "detached",
            HoldEnd::Lost(_) => "lost",
        }
    }
}

/// Returns the word for the outcome of an attempt that failed, in metrics and spans.
pub(crate) fn failure_outcome(error: &LockError) -> &'static str {
    match error.kind() {
        ErrorKind::Busy { .. } => "busy",
        ErrorKind::TimedOut { .. } => "timeout",
        _ => "error",
    }
}

/// Receives the events of a client's locks: for metrics, logs, progress lines. The metrics of this
/// library come from it; its spans begin and end at the same moments.
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
/// use holdline::observer::Subject;
/// use holdline::{Client, ClientOptions, FencingToken, Observer};
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
/// client.mutex("a")?.lock().await?.release().await.into_result()?;
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

    /// The store serves nobody at the moment, and the attempt waits until it does: it does not
    /// answer, or too few of its nodes vote. Called again after each repeated request.
    fn without_store(&self, subject: Subject<'_>, error: &holdline_core::LockError) {}

    /// The attempt lost its queue entry and queues again.
    fn requeued(&self, subject: Subject<'_>) {}

    /// The attempt ended without the name.
    fn failed(&self, subject: Subject<'_>, error: &holdline_core::LockError) {}

    /// The lease was renewed; `slack` is how long it would still have been valid. A small slack is
    /// a near miss.
    fn renewed(&self, subject: Subject<'_>, slack: Duration) {}

    /// The lease is at risk, as for [`Guard::at_risk`](crate::Guard::at_risk): no renewal has
    /// succeeded for too long, or an operator has revoked it.
    fn at_risk(&self, subject: Subject<'_>, remaining: Duration) {}

    /// The lease is no longer valid.
    fn lost(&self, subject: Subject<'_>, reason: &LostReason) {}

    /// The lease was released on purpose.
    fn released(&self, subject: Subject<'_>, outcome: &ReleaseOutcome) {}

    /// A guard was dropped, or an attempt was given up: the janitor has ended what it had.
    /// `confirmed` says whether the store has confirmed.
    fn dropped(&self, subject: Subject<'_>, confirmed: bool) {}

    /// The attempt begins to wait for the name: reported once, before the first `queued`.
    fn wait_started(&self, subject: Subject<'_>) {}

    /// The attempt waits no longer, however it ended: reported once for each `wait_started`.
    fn wait_finished(&self, subject: Subject<'_>) {}

    /// The attempt was cancelled after this time: its future was dropped before it had ended.
    fn cancelled(&self, subject: Subject<'_>, waited: Duration) {}

    /// A detached lease was attached ([`Leases::attach`](crate::lease::Leases::attach)).
    fn attached(&self, subject: Subject<'_>, token: FencingToken) {}

    /// The hold is over for this process: reported once for each `acquired` and `attached`,
    /// however it ended. A release reports it when it returns.
    fn ended(&self, subject: Subject<'_>, end: &HoldEnd, held_for: Duration) {}

    /// The client of a quorum has asked its nodes for their state, as it does every 5 s, and more
    /// often while one of them is not well: whether they answer and vote, and how their clocks
    /// differ. Only `redlock:` reports this, and not with `fencing=off`.
    fn quorum_health(&self, health: &QuorumHealth) {}

    /// A resource with this observer refused a holder, such as one that had been paused past its
    /// lease. Unlike all others, this event comes from the resource, which needs no client:
    /// [`Rules::with_observer`](crate::fence::Rules::with_observer). The resource may still be
    /// locked: do not use it from here.
    fn fence_refused(&self, refusal: &Refusal<'_>) {}
}

/// Two observers, which are both notified.
pub(crate) struct Both(pub(crate) Arc<dyn Observer>, pub(crate) Arc<dyn Observer>);

impl Observer for Both {
    fn acquired(&self, subject: Subject<'_>, token: FencingToken, waited: Duration) {
        self.0.acquired(subject, token, waited);
        self.1.acquired(subject, token, waited);
    }

    fn queued(
        &self,
        subject: Subject<'_>,
        position: Option<usize>,
        holder: Option<&HolderSummary>,
    ) {
        self.0.queued(subject, position, holder);
        self.1.queued(subject, position, holder);
    }

    fn without_store(&self, subject: Subject<'_>, error: &LockError) {
        self.0.without_store(subject, error);
        self.1.without_store(subject, error);
    }

    fn requeued(&self, subject: Subject<'_>) {
        self.0.requeued(subject);
        self.1.requeued(subject);
    }

    fn failed(&self, subject: Subject<'_>, error: &LockError) {
        self.0.failed(subject, error);
        self.1.failed(subject, error);
    }

    fn renewed(&self, subject: Subject<'_>, slack: Duration) {
        self.0.renewed(subject, slack);
        self.1.renewed(subject, slack);
    }

    fn at_risk(&self, subject: Subject<'_>, remaining: Duration) {
        self.0.at_risk(subject, remaining);
        self.1.at_risk(subject, remaining);
    }

    fn lost(&self, subject: Subject<'_>, reason: &LostReason) {
        self.0.lost(subject, reason);
        self.1.lost(subject, reason);
    }

    fn released(&self, subject: Subject<'_>, outcome: &ReleaseOutcome) {
        self.0.released(subject, outcome);
        self.1.released(subject, outcome);
    }

    fn dropped(&self, subject: Subject<'_>, confirmed: bool) {
        self.0.dropped(subject, confirmed);
        self.1.dropped(subject, confirmed);
    }

    fn wait_started(&self, subject: Subject<'_>) {
        self.0.wait_started(subject);
        self.1.wait_started(subject);
    }

    fn wait_finished(&self, subject: Subject<'_>) {
        self.0.wait_finished(subject);
        self.1.wait_finished(subject);
    }

    fn cancelled(&self, subject: Subject<'_>, waited: Duration) {
        self.0.cancelled(subject, waited);
        self.1.cancelled(subject, waited);
    }

    fn attached(&self, subject: Subject<'_>, token: FencingToken) {
        self.0.attached(subject, token);
        self.1.attached(subject, token);
    }

    fn ended(&self, subject: Subject<'_>, end: &HoldEnd, held_for: Duration) {
        self.0.ended(subject, end, held_for);
        self.1.ended(subject, end, held_for);
    }

    fn quorum_health(&self, health: &QuorumHealth) {
        self.0.quorum_health(health);
        self.1.quorum_health(health);
    }

    fn fence_refused(&self, refusal: &Refusal<'_>) {
        self.0.fence_refused(refusal);
        self.1.fence_refused(refusal);
    }
}
