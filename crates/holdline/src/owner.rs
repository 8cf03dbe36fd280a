//! Re-entry by an explicit owner.
//!
//! Thread and task ids do not serve: two branches of one `join!` share them, and a guard that moves
//! to another task loses them.
//! Invariant O1: at most one grant exists for an (owner, name) of a client; the guard that ends
//! last ends it.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::{Either, select};
use holdline_core::{Certainty, ErrorKind, LockError, LockName, LostReason};
use parking_lot::Mutex;
use tokio::sync::MutexGuard;

use crate::acquire::{self, Wait};
use crate::core::Core;
use crate::grant::Grant;
use crate::guard::Guard;
use crate::plan::Plan;
use crate::registry::Key;

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

type NestKey = (LockName, u64);

/// The grants of one client that are held by an owner.
#[derive(Default)]
pub(crate) struct Nests(Mutex<HashMap<NestKey, SharedNest>>);

/// A nest, as long as a guard or an attempt uses it.
#[derive(Default)]
struct SharedNest {
    nest: Arc<Nest>,
    /// The number of its [`Nested`] handles.
    users: usize,
}

#[derive(Default)]
struct Nest {
    /// Allows one attempt of an owner at a time; the others share its grant.
    attempt_lock: tokio::sync::Mutex<()>,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    depth: usize,
    grant: Option<(Arc<Grant>, Key)>,
}

/// A handle of a nest: of a guard inside, or of an attempt to enter.
pub(crate) struct Nested {
    core: Arc<Core>,
    key: NestKey,
    nest: Arc<Nest>,
    inside: bool,
}

impl Nested {
    fn new(core: &Arc<Core>, key: NestKey) -> Nested {
        let mut nests = core.nests.0.lock();
        let shared = nests.entry(key.clone()).or_default();
        shared.users += 1;
        let nest = shared.nest.clone();
        drop(nests);
        Nested { core: core.clone(), key, nest, inside: false }
    }

    /// Leaves the nest. Returns how many guards remain.
    pub(crate) fn leave(mut self) -> usize {
        self.step_out()
    }

    fn step_out(&mut self) -> usize {
        let mut inside = self.nest.inside.lock();
        if std::mem::take(&mut self.inside) {
            inside.depth = inside.depth.saturating_sub(1);
        }
        if inside.depth == 0 {
            inside.grant = None;
        }
        inside.depth
    }

    /// Waits until no other attempt of the same owner is in progress.
    async fn enter(&self, wait: Wait) -> Result<MutexGuard<'_, ()>, LockError> {
        let (shared, attempt_lock) = (&self.core.shared, &self.nest.attempt_lock);
        let refused = |kind| Err(shared.error(kind, Certainty::NotApplied).with_name(&self.key.0));
        let (since, until) = match wait {
            Wait::Try => {
                let busy = |_| refused(ErrorKind::Busy { holder: None });
                return attempt_lock.try_lock().or_else(busy);
            }
            Wait::Forever => return Ok(attempt_lock.lock().await),
            Wait::Limited { since, until } => (since, until),
        };
        let entered = pin!(attempt_lock.lock());
        match select(entered, shared.clock.sleep_until(until)).await {
            Either::Left((entered, _)) => Ok(entered),
            Either::Right(_) => {
                let waited = since.until(shared.clock.now());
                refused(ErrorKind::TimedOut { waited, holder: None })
            }
        }
    }

    /// Shares the owner's grant, if there is one.
    fn join(&mut self) -> Result<Option<(Arc<Grant>, Key)>, LostReason> {
        let mut inside = self.nest.inside.lock();
        let Some((grant, key)) = inside.grant.clone() else { return Ok(None) };
        if let Some(reason) = grant.lost_reason(self.core.shared.clock.now()) {
            return Err(reason);
        }
        inside.depth += 1;
        self.inside = true;
        Ok(Some((grant, key)))
    }

    fn found(&mut self, guard: &Guard) {
        let grant = Some((guard.grant.clone(), guard.key()));
        *self.nest.inside.lock() = Inside { depth: 1, grant };
        self.inside = true;
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        if !self.core.shared.is_own_process() {
            return;
        }
        if self.inside {
            self.step_out();
        }
        let mut nests = self.core.nests.0.lock();
        let Some(shared) = nests.get_mut(&self.key) else { return };
        shared.users -= 1;
        if shared.users == 0 {
            nests.remove(&self.key);
        }
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
    let _alone = way_in.enter(wait).await?;
    match nested.join() {
        Ok(Some((grant, key))) => Ok(Guard::new(core.clone(), grant, key).with_nested(nested)),
        Ok(None) => {
            let guard = acquire::acquire(core, plan, wait).await?;
            nested.found(&guard);
            Ok(guard.with_nested(nested))
        }
        Err(reason) => {
            let error = core.shared.error(ErrorKind::Lost { reason }, Certainty::NotApplied);
            Err(error.with_name(&plan.name))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::Client;
    use crate::parker::block_on;

    #[test]
    fn handles_that_end_concurrently_leave_nothing() {
        let client = block_on(Client::connect("memory:nests")).expect("made");
        let guard = block_on(client.mutex("other").expect("good").lock()).expect("free");
        let core = &guard.core;
        let key: NestKey = (LockName::new("a").expect("good"), 7);
        let rounds = 20_000;
        let mut stayed = 0;
        let (begin, end, next) = (Barrier::new(2), Barrier::new(2), Barrier::new(2));
        let users = || Nested::new(core, key.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let part = users();
                    begin.wait();
                    drop(part);
                    end.wait();
                    next.wait();
                }
            });
            for _ in 0..rounds {
                let part = users();
                begin.wait();
                drop(part);
                end.wait();
                let left = core.nests.0.lock().len();
                next.wait();
                stayed += left;
            }
        });
        assert_eq!(stayed, 0, "an unused entry stays");
    }
}
