//! The options of a lock.

use std::collections::BTreeMap;
use std::time::Duration;

use holdline_core::{HolderFields, LeaseId};

/// The longest value of a leader, in bytes.
pub const MAX_VALUE_BYTES: usize = 1024;

/// How a lease is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// The keeper renews it until the guard ends.
    #[default]
    Renewed,
    /// It is never renewed in the background and expires after its duration. It still ends with
    /// this process if the engine detects the death of processes. [`crate::Guard::renew`] extends
    /// it. A lease above [`MAX_FIRST_LEASE`](holdline_core::lease::MAX_FIRST_LEASE) starts with
    /// that, and one that was waited for with at most
    /// [`MAX_HAND_OFF_LEASE`](holdline_core::contract::MAX_HAND_OFF_LEASE). The keeper renews both
    /// to the whole duration once.
    Fixed,
    /// Like `Fixed`, but it belongs to no process: anybody who knows the lease id can renew or
    /// release it.
    Detached,
    /// It has no deadline: it is held as long as some process keeps its anchor open. Only some
    /// engines support this.
    Live,
}

/// What happens to the body of `run` when the lease is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnLost {
    /// The body's future is dropped.
    #[default]
    Drop,
    /// The body is notified by its cancellation token, and runs to its own end.
    Notify,
}

/// The options of a lock. They are checked when the lock is built.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// use std::time::Duration;
/// use holdline::{Client, LockOptions};
///
/// let client = Client::connect("memory:options").await?;
/// let options = LockOptions::default()
///     .with_lease_duration(Duration::from_secs(10))
///     .with_wait(Duration::from_secs(5))
///     .with_reason("month-end report")
///     .with_label("team", "billing");
/// let guard = client.mutex_with("report", &options)?.lock().await?;
/// # guard.release().await.into_result()?;
/// // Contradicting options are refused here, before any request.
/// let hasty = LockOptions::default().with_renew_interval(Duration::from_secs(29));
/// assert!(client.mutex_with("report", &hasty).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct LockOptions {
    pub(crate) lease_duration: Option<Duration>,
    pub(crate) renew_interval: Option<Duration>,
    pub(crate) waiting: Waiting,
    pub(crate) keep: Keep,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) on_lost: OnLost,
    pub(crate) about: About,
    pub(crate) lease_id: Option<ChosenId>,
}

/// How a contender waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// For how long; `None` for ever.
    pub(crate) limit: Option<Duration>,
    /// In the order of queueing, also where the engine does so only on request.
    pub(crate) fair: bool,
    pub(crate) fails_in_outage: bool,
}

/// A lease id that the caller has chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChosenId {
    pub(crate) id: LeaseId,
    /// Only the caller gives it up.
    pub(crate) kept: bool,
}

/// What a holder of this lock reports in addition to its client's fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    /// Replaces what the client reports.
    pub(crate) holder: Option<HolderFields>,
    pub(crate) reason: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) traceparent: String,
    pub(crate) value: String,
    pub(crate) class: Option<String>,
}

impl LockOptions {
    /// Sets how long the store keeps a grant without a renewal, from 50 ms to 24 h and within the
    /// engine's range; the client's default unless set.
    #[must_use]
    pub fn with_lease_duration(mut self, lease_duration: Duration) -> LockOptions {
        self.lease_duration = Some(lease_duration);
        self
    }

    /// Sets how often the keeper renews; a third of the lease unless set.
    #[must_use]
    pub fn with_renew_interval(mut self, renew_interval: Duration) -> LockOptions {
        self.renew_interval = Some(renew_interval);
        self
    }

    /// Sets how long to wait for the name; for ever unless set.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> LockOptions {
        self.waiting.limit = Some(wait);
        self
    }

    /// Sets whether contenders that wait are granted in the order in which they queued.
    ///
    /// Without it, that is as the engine does it. An engine that is always fair accepts it, and it
    /// changes nothing; one that cannot order its grants refuses it when the lock is built
    /// ([`Capabilities::fair`](crate::engine::Capabilities),
    /// [`Capabilities::fair_on_request`](crate::engine::Capabilities)). In Redis with
    /// `dialect=redisson` a mutex with it is an `RFairLock`, and one without it never passes the
    /// queue.
    #[must_use]
    pub fn with_fair(mut self, fair: bool) -> LockOptions {
        self.waiting.fair = fair;
        self
    }

    /// Ends an attempt with `Unavailable` when no server of the store answers: a request without an
    /// answer is repeated a few times, for some seconds. Otherwise the attempt waits through the
    /// outage, until its own limit. It waits for a quorum and for a quarantine in any case.
    /// `try_lock` never waits.
    #[must_use]
    pub fn with_fail_in_outage(mut self, fails: bool) -> LockOptions {
        self.waiting.fails_in_outage = fails;
        self
    }

    /// Sets how the lease is kept; renewed in the background unless set.
    #[must_use]
    pub fn with_keep(mut self, keep: Keep) -> LockOptions {
        self.keep = keep;
        self
    }

    /// Sets the longest hold. After it the grant is lost: it is no longer renewed, and the holder
    /// is notified ([`LostReason::MaxHold`](crate::LostReason::MaxHold)). The store frees the name
    /// at the end of the present lease.
    ///
    /// Only this limit ends the renewals of a guard that was leaked with [`std::mem::forget`].
    #[must_use]
    pub fn with_max_hold(mut self, max_hold: Duration) -> LockOptions {
        self.max_hold = Some(max_hold);
        self
    }

    /// Sets what happens to the body of `run` when the lease is lost; it is dropped unless set.
    #[must_use]
    pub fn with_on_lost(mut self, on_lost: OnLost) -> LockOptions {
        self.on_lost = on_lost;
        self
    }

    /// Sets why the lock is held, for other people.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> LockOptions {
        self.about.reason = reason.into();
        self
    }

    /// Adds a label, for people and tools.
    #[must_use]
    pub fn with_label(mut self, key: impl Into<String>, value: impl Into<String>) -> LockOptions {
        self.about.labels.insert(key.into(), value.into());
        self
    }

    /// Sets the W3C trace context, so that a waiter's span can link to the holder's span.
    ///
    /// It is the same for all attempts that are made with these options. Without it, and with the
    /// feature `opentelemetry`, each attempt states the span in which it is made.
    #[must_use]
    pub fn with_traceparent(mut self, traceparent: impl Into<String>) -> LockOptions {
        self.about.traceparent = traceparent.into();
        self
    }

    /// Sets the value that observers of an [`Election`](crate::Election) see while this lock is
    /// held, at most [`MAX_VALUE_BYTES`] bytes. `campaign` sets it by itself.
    #[must_use]
    pub fn with_value(mut self, value: impl Into<String>) -> LockOptions {
        self.about.value = value.into();
        self
    }

    /// Sets the class that metrics are labelled with, such as `invoice:{id}` for the lock
    /// `invoice:4711`. Without it the client's rule
    /// ([`ClientOptions::with_class_rule`](crate::ClientOptions::with_class_rule)) gives one, or it
    /// is `default`. A lease that is attached has the rule's. A client distinguishes
    /// [`MAX_CLASSES`](crate::observer::MAX_CLASSES) classes; all later ones are `other`.
    #[must_use]
    pub fn with_class(mut self, class: impl Into<String>) -> LockOptions {
        self.about.class = Some(class.into());
        self
    }

    /// Sets the lease id of the one attempt that is made with these options, so that a caller that
    /// lost the answer can repeat it. Draw it at random, and use it for one attempt only: anybody
    /// who knows it can release the grant. An engine that accepts no id twice
    /// ([`Capabilities::repeat`](crate::engine::Capabilities)) makes one attempt under it, which
    /// does not wait: for a held name it returns `Busy`.
    #[must_use]
    pub fn with_lease_id(mut self, lease_id: LeaseId) -> LockOptions {
        self.lease_id = Some(ChosenId { id: lease_id, kept: false });
        self
    }

    /// As [`LockOptions::with_lease_id`], and only the caller gives the id up: for a program that
    /// asks for somebody else, who may ask again elsewhere under the same id.
    ///
    /// An attempt that ends without a grant, a future that is dropped, and a guard that is dropped
    /// release nothing. A place in the queue lapses within seconds, a grant with its lease.
    /// [`Guard::release`](crate::Guard::release) and
    /// [`Leases::release_by_id`](crate::lease::Leases::release_by_id) end both at once.
    #[must_use]
    pub fn with_kept_lease_id(mut self, lease_id: LeaseId) -> LockOptions {
        self.lease_id = Some(ChosenId { id: lease_id, kept: true });
        self
    }

    /// Sets what the holder reports about itself, in place of what its client reports.
    #[must_use]
    pub fn with_holder(mut self, holder: HolderFields) -> LockOptions {
        self.about.holder = Some(holder);
        self
    }
}
