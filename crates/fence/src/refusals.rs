//! Every refusal is counted and logged, and an observer is notified if there is one.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdline_core::Escaped;

use super::FenceError;

static STALE: AtomicU64 = AtomicU64::new(0);
static TOO_FAR: AtomicU64 = AtomicU64::new(0);
static OTHER_NAME: AtomicU64 = AtomicU64::new(0);

/// How many holders the resources of this process have refused since it started, by reason.
///
/// A growing number shows that the fence works, and that leases are too short for the pauses that
/// occur.
///
/// # Examples
/// ```
/// use holdline_fence::{Fenced, FencedCell, Proof, Refusals};
/// use holdline_fence::FencingToken;
///
/// let before = Refusals::of_this_process();
/// let stock = FencedCell::new(10);
/// stock.seal(&Proof::exclusive(FencingToken::new(34)?))?;
/// assert!(stock.seal(&Proof::exclusive(FencingToken::new(33)?)).is_err());
/// assert!(Refusals::of_this_process().stale > before.stale);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusals {
    /// A newer holder had been there.
    pub stale: u64,
    /// The token was too far above the mark.
    pub too_far: u64,
    /// The token was of another lock name.
    pub other_name: u64,
}

impl Refusals {
    /// Reads the counts.
    pub fn of_this_process() -> Refusals {
        let [stale, too_far, other_name] =
            [&STALE, &TOO_FAR, &OTHER_NAME].map(|count| count.load(Ordering::Relaxed));
        Refusals { stale, too_far, other_name }
    }

    /// Returns the sum of all reasons.
    pub fn total(&self) -> u64 {
        self.stale.saturating_add(self.too_far).saturating_add(self.other_name)
    }
}

/// A holder that a resource has refused, as [`RefusalObserver::notify`] receives it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refusal<'a> {
    /// The resource: a path, or the name of its fence.
    pub resource: &'a str,
    /// Why: `Stale`, `TooFar` or `OtherName`.
    pub error: &'a FenceError,
}

/// Is notified of each holder that a resource refuses ([`crate::Rules::with_observer`]).
///
/// Any closure `Fn(&Refusal)` is one. The library `holdline` makes its `Observer` one. `Kind` keeps
/// the implementations of two crates apart and is inferred: a crate that implements this for an
/// observer of its own names a type of its own there.
pub trait RefusalObserver<Kind>: Send + Sync + 'static {
    /// Receives one refusal. Return quickly. The resource may still be locked: do not use it here.
    ///
    /// A panic is caught and logged, and only the notification is lost.
    fn notify(&self, refusal: &Refusal<'_>);
}

/// The [`RefusalObserver`] kind of closures.
#[derive(Clone, Copy, Debug)]
pub enum Closure {}

impl<F: Fn(&Refusal<'_>) + Send + Sync + 'static> RefusalObserver<Closure> for F {
    fn notify(&self, refusal: &Refusal<'_>) {
        self(refusal);
    }
}

type Notify = dyn Fn(&Refusal<'_>) + Send + Sync;

/// What the rules notify, if anything.
#[derive(Clone, Default)]
pub(super) struct OnRefusal(Option<Arc<Notify>>);

impl fmt::Debug for OnRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "an observer" } else { "nobody" })
    }
}

impl OnRefusal {
    pub(super) fn new<Kind>(observer: impl RefusalObserver<Kind>) -> OnRefusal {
        OnRefusal(Some(Arc::new(move |refusal: &Refusal<'_>| observer.notify(refusal))))
    }

    /// Counts and logs a refusal, and notifies the observer.
    pub(super) fn report(&self, resource: &dyn fmt::Display, error: &FenceError) {
        let count = match error {
            FenceError::Stale(_) => &STALE,
            FenceError::TooFar { .. } => &TOO_FAR,
            FenceError::OtherName { .. } => &OTHER_NAME,
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let resource = resource.to_string();
        tracing::warn!(resource = %Escaped(&resource), %error, "a holder was refused");
        self.notify(&Refusal { resource: &resource, error });
    }

    fn notify(&self, refusal: &Refusal<'_>) {
        // A panic of the observer must not change the refusal.
        if let Some(notify) = &self.0
            && catch_unwind(AssertUnwindSafe(|| notify(refusal))).is_err()
        {
            tracing::error!("an observer panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::proof;
    use crate::{Fenced, FencedCell, Proof, Rules};
    use holdline_core::LockName;
    use parking_lot::Mutex;
    use std::num::NonZeroU64;

    #[test]
    fn only_refusals_are_reported_and_counted_by_reason() {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let written = notes.clone();
        let name = LockName::new("stock").expect("a name");
        let rules = Rules::default()
            .guarded_by(name.clone())
            .max_jump(NonZeroU64::new(10).expect("not zero"))
            .with_observer(move |refusal: &Refusal<'_>| {
                written.lock().push(format!("{}: {}", refusal.resource, refusal.error));
            });
        let cell = FencedCell::new(0).with_rules(rules.clone());
        let named = |number: u64| proof(number).with_name(name.clone());
        let before = Refusals::of_this_process();

        cell.seal(&named(34)).expect("the first");
        assert!(cell.seal(&named(33)).is_err());
        assert!(cell.check_and_write(&named(100), |_| Ok(())).is_err());
        assert!(cell.check(&Proof::shared(proof(35).token())).is_err());
        let busy = Err(FenceError::Busy { what: "busy".to_owned() });
        rules.report(&"elsewhere", busy).map(|(): ()| ()).expect_err("passed on");

        let notes_taken = notes.lock().clone();
        assert_eq!(notes_taken.len(), 3, "{notes_taken:?}");
        assert!(
            notes_taken[0].contains("token 33 is stale: the resource has accepted 34"),
            "{notes_taken:?}"
        );
        assert!(notes_taken[1].contains("token 100 is 66 above the mark 34"), "{notes_taken:?}");
        assert!(notes_taken[2].contains("guarded by the lock stock"), "{notes_taken:?}");
        // Other tests of this process count too.
        let after = Refusals::of_this_process();
        assert!(after.stale > before.stale && after.too_far > before.too_far);
        assert!(after.other_name > before.other_name && after.total() >= before.total() + 3);
    }

    #[test]
    fn an_observer_that_panics_changes_no_refusal() {
        let rules = Rules::default().with_observer(|_: &Refusal<'_>| panic!("of its own"));
        let cell = FencedCell::new(0).with_rules(rules);
        cell.seal(&proof(34)).expect("the first");
        assert!(matches!(cell.seal(&proof(33)), Err(FenceError::Stale(_))));
    }
}
