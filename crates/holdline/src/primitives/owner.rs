//! Re-entry by an explicit owner.
//!
//! Thread and task ids do not serve: two branches of one `join!` share them, and a guard that moves
//! to another task loses them.
//! Invariant O1: at most one grant exists for an (owner, name) of a client; the guard that ends
//! last ends it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::{Either, select};
use holdline_core::{Certainty, ErrorKind, LockError, LockName};
use tokio::sync::MutexGuard;

use crate::acquire::{self, Wait};
use crate::core::{ClientState, Core};
use crate::guard::Guard;
use crate::guard::nested::Nested;
use crate::plan::Plan;

/// An owner that can acquire a lock again while it holds it. Clones are the same owner.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), holdline::LockError> {
/// use holdline::{Client, Owner};
///
/// let client = Client::connect("memory:owner").await?;
/// let mutex = client.mutex("tree")?;
/// let owner = Owner::new();
/// let outer = mutex.lock_as(&owner).await?;
/// let inner = mutex.lock_as(&owner).await?;
/// assert_eq!(outer.fencing_token(), inner.fencing_token());
/// inner.release().await.into_result()?;
/// assert!(outer.is_valid());
/// # outer.release().await.into_result()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(u64);

impl Owner {
    /// Makes an owner that is equal to no other of this process.
    pub fn new() -> Owner {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Owner(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Default for Owner {
    fn default() -> Owner {
        Owner::new()
    }
}

/// Acquires the name for an owner: a new grant, or a share of the owner's grant.
pub(crate) async fn acquire_as(
    core: &Arc<Core>,
    plan: &Arc<Plan>,
    owner: &Owner,
    wait: Wait,
) -> Result<Guard, LockError> {
    let mut nested = Nested::new(core, (plan.name.clone(), owner.0));
    let way_in = Nested::new(core, (plan.name.clone(), owner.0));
    let _alone = enter(&core.state, &way_in, &plan.name, wait).await?;
    match nested.join() {
        Ok(Some((grant, key))) => Ok(Guard::new(core.clone(), grant, key).with_nested(nested)),
        Ok(None) => {
            let guard = acquire::acquire(core, plan, wait).await?;
            nested.found(guard.grant.clone(), guard.key());
            Ok(guard.with_nested(nested))
        }
        Err(reason) => Err(core.state.lost(reason).with_name(&plan.name)),
    }
}

/// Waits until no other attempt of the same owner is in progress.
async fn enter<'a>(
    state: &ClientState,
    nested: &'a Nested,
    name: &LockName,
    wait: Wait,
) -> Result<MutexGuard<'a, ()>, LockError> {
    let attempt_lock = nested.attempt_lock();
    let refused = |kind| Err(state.error(kind, Certainty::NotApplied).with_name(name));
    let (since, until) = match wait {
        Wait::Try => {
            let busy = |_| refused(ErrorKind::Busy { holder: None });
            return attempt_lock.try_lock().or_else(busy);
        }
        Wait::Forever => return Ok(attempt_lock.lock().await),
        Wait::Limited { since, until } => (since, until),
    };
    let entered = pin!(attempt_lock.lock());
    match select(entered, state.clock.sleep_until(until)).await {
        Either::Left((entered, _)) => Ok(entered),
        Either::Right(_) => {
            let waited = since.until(state.clock.now());
            refused(ErrorKind::TimedOut { waited, holder: None })
        }
    }
}
