//! Several names at once: all or none.

use std::sync::Arc;

use holdline_core::{ErrorKind, LockError, LostReason, Mode};

use crate::acquire::{self, Wait};
use crate::core::Core;
use crate::guard::Guard;
use crate::options::LockOptions;
use crate::plan::Plan;
use crate::release::ReleaseOutcome;

/// The guards of several names that were acquired together, in the order of the names.
#[derive(Debug)]
#[must_use = "guards that are not kept release their names at once"]
pub struct Guards(Vec<Guard>);

impl Guards {
    /// Returns the guards, in the order of the names.
    pub fn guards(&self) -> &[Guard] {
        &self.0
    }

    /// Returns the guards by value, in the order of the names.
    pub fn into_guards(self) -> Vec<Guard> {
        self.0
    }

    /// Returns whether all leases are valid.
    pub fn is_valid(&self) -> bool {
        self.0.iter().all(Guard::is_valid)
    }

    /// Resolves when the first of the leases is no longer valid.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> LostReason {
        let lost = self.0.iter().map(|guard| Box::pin(guard.lost()));
        futures_util::future::select_all(lost).await.0
    }

    /// Releases all names concurrently, and returns the outcomes in the order of the names. It
    /// takes as long as the slowest release: see [`Guard::release`].
    ///
    /// # Cancel safety
    /// Dropping the future loses the answers only.
    pub async fn release(self) -> Vec<ReleaseOutcome> {
        futures_util::future::join_all(self.0.into_iter().map(Guard::release)).await
    }
}

/// Acquires all names or none, in their byte order, within one wait limit.
pub(crate) async fn lock_all<N: AsRef<str>>(
    core: &Arc<Core>,
    names: impl IntoIterator<Item = N>,
    options: &LockOptions,
) -> Result<Guards, LockError> {
    let engine = core.shared.engine.capabilities().engine;
    let mut plans = Vec::new();
    for name in names {
        plans.push(Arc::new(Plan::new(core, name, Mode::Exclusive, options)?));
    }
    plans.sort_by(|one, other| one.name.cmp(&other.name));
    let twice = plans.windows(2).find(|pair| pair[0].name == pair[1].name);
    if let Some(pair) = twice {
        let message = "the name is listed twice: it would wait for itself";
        return Err(LockError::invalid(engine, "names", message).with_name(&pair[0].name));
    }
    let (Some(first), true) = (plans.first(), options.lease_id.is_none() || plans.len() == 1)
    else {
        let message = "need at least one name, and no lease id of the caller for several";
        return Err(LockError::invalid(engine, "names", message));
    };
    let wait = Wait::of(core, first);
    let mut guards = Guards(Vec::with_capacity(plans.len()));
    for plan in &plans {
        match acquire::acquire(core, plan, wait).await {
            Ok(guard) => guards.0.push(guard),
            Err(error) => {
                // None: all acquired names are released before the error is returned.
                guards.release().await;
                return Err(error);
            }
        }
    }
    // The first may have been lost during the wait for the last.
    let lost = guards.0.iter().find(|guard| !guard.is_valid());
    if let Some((name, reason)) = lost.map(|guard| (guard.name().clone(), guard.held())) {
        let reason = reason.grant.why_lost();
        guards.release().await;
        let kind = ErrorKind::Lost { reason };
        let error = core.shared.error(kind, holdline_core::Certainty::NotApplied);
        return Err(error.with_name(&name));
    }
    Ok(guards)
}
