//! A slot that was taken: kept until its end, or given back.

use std::time::Duration;

use holdline_core::contract::MAX_FREEZE;
use holdline_core::{ErrorKind, LockError, Operation};

use super::look;
use super::slot::Span;
use super::{Once, PAUSE};
use crate::guard::Guard;
use crate::lease;
use crate::release::ReleaseOutcome;

/// How often a store that does not answer is asked at most to keep a slot.
const TRIES: u32 = 3;

/// A slot that is ours: do the job, then call [`OnceRun::finish`] or [`OnceRun::give_back`].
///
/// Dropping it frees the slot in the background; where the job runs at most once, the slot stays
/// taken.
#[derive(Debug)]
#[must_use = "a slot that is dropped is free again"]
pub struct OnceRun {
    once: Once,
    span: Span,
    /// There until the slot is kept or given back.
    guard: Option<Guard>,
}

impl OnceRun {
    pub(super) fn new(once: Once, guard: Guard, span: Span) -> OnceRun {
        OnceRun { once, span, guard: Some(guard) }
    }

    /// Returns the lock, which is held while the job runs.
    pub fn guard(&self) -> &Guard {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("what takes the guard consumes this"),
        }
    }

    /// Returns when the slot began.
    pub fn slot_start(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + Duration::from_millis(self.span.start)
    }

    /// Keeps the slot until its end: the job is done, and nobody runs it again. If the store grants
    /// nothing for a while, as after a failover, this waits for as long, under the lease.
    ///
    /// # Errors
    /// `Lost`: the lease was lost before, and another machine may have run the job. Others: the
    /// store did not confirm, and another machine may run it again.
    ///
    /// # Cancel safety
    /// Dropping the future frees the slot in the background, unless the store has kept it.
    pub async fn finish(mut self) -> Result<(), LockError> {
        let Some(guard) = self.guard.take() else { return Ok(()) };
        if self.once.options.at_most_once {
            // It is kept already: by its detached lease, or by the freeze that follows the lease.
            if self.is_detached(&guard) {
                guard.disarm();
            } else {
                let _ = guard.release().await;
            }
            return Ok(());
        }
        self.keep(guard).await
    }

    /// Frees the slot: the job has failed, and another machine may run it. Where the job runs at
    /// most once, or failures keep the slot, call [`OnceRun::fail`].
    ///
    /// # Cancel safety
    /// As [`Guard::release`].
    pub async fn give_back(mut self) -> Option<ReleaseOutcome> {
        let guard = self.guard.take()?;
        if self.once.options.at_most_once && !self.is_detached(&guard) {
            self.thaw().await;
        }
        Some(guard.release().await)
    }

    /// Ends a job that has failed. If the job runs at most once, or if failures keep the slot, the
    /// slot is kept; otherwise it is freed. Returns whether the slot is kept.
    ///
    /// # Cancel safety
    /// As [`OnceRun::finish`] and [`OnceRun::give_back`].
    pub async fn fail(self) -> bool {
        let options = &self.once.options;
        if options.at_most_once || options.keep_on_failure {
            return self.finish().await.is_ok();
        }
        self.give_back().await;
        false
    }

    /// Keeps the slot before the job starts, so that the death of this process does not free it.
    pub(super) async fn keep_from_the_start(self) -> Result<OnceRun, LockError> {
        let kept = if self.is_detached(self.guard()) {
            // A grant starts with `MAX_FIRST_LEASE` at most: the slot needs the whole lease.
            self.guard().renew().await.map(drop)
        } else {
            self.freeze().await
        };
        match kept {
            Ok(()) => Ok(self),
            Err(error) => {
                // Nothing was run.
                self.give_back().await;
                Err(error)
            }
        }
    }

    /// Keeps a slot whose job is done, by a detached lease or a freeze.
    async fn keep(&self, mut guard: Guard) -> Result<(), LockError> {
        let shared = self.once.shared();
        if self.left().is_zero() {
            let _ = guard.release().await;
            return Ok(());
        }
        let mut tries = 1;
        loop {
            let kept = if self.once.is_frozen_for(self.span) {
                match self.freeze().await {
                    // The freeze takes the name as the lease goes.
                    Ok(()) => return lost_before(guard.release().await, shared),
                    Err(error) => Err((guard, error)),
                }
            } else {
                let detached = lease::detach_for(guard, self.once.left(self.span)).await;
                detached.map_err(lease::DetachError::into_parts)
            };
            let (back, error) = match kept {
                Ok(_) => return Ok(()),
                Err(back) => back,
            };
            let pause = match error.kind() {
                _ if !back.is_valid() => None,
                // It ends by itself, and until then the lease keeps the slot.
                ErrorKind::Quarantined { left } => Some((*left).max(PAUSE.0)),
                ErrorKind::Unavailable { .. } | ErrorKind::NoQuorum { .. } if tries < TRIES => {
                    tries += 1;
                    Some(PAUSE.1)
                }
                _ => None,
            };
            let Some(pause) = pause else {
                let _ = back.release().await;
                return Err(error.with_name(&self.once.name));
            };
            guard = back;
            shared.clock.sleep_until(shared.clock.now().after(pause)).await;
        }
    }

    async fn freeze(&self) -> Result<(), LockError> {
        let by = self.guard_fields();
        let operation = Operation::Freeze {
            name: self.once.name.clone(),
            duration: self.left().min(MAX_FREEZE),
            reason: look::reason(self.span, self.once.now(), &by),
        };
        self.once.client.operate(&operation).await.map(drop)
    }

    async fn thaw(&self) {
        let operation = Operation::Unfreeze { name: self.once.name.clone() };
        if let Err(error) = self.once.client.operate(&operation).await {
            tracing::warn!(name = %self.once.name, %error, "the slot stays taken");
        }
    }

    fn guard_fields(&self) -> holdline_core::HolderFields {
        self.once.core().holder.clone()
    }

    fn is_detached(&self, guard: &Guard) -> bool {
        guard.keep() == crate::options::Keep::Detached
    }

    fn left(&self) -> Duration {
        Duration::from_millis(self.span.end.saturating_sub(self.once.now()))
    }
}

impl Drop for OnceRun {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take()
            && self.once.options.at_most_once
            && self.is_detached(&guard)
        {
            // The job may have started: the slot stays taken until its end.
            guard.disarm();
        }
    }
}

fn lost_before(outcome: ReleaseOutcome, shared: &crate::core::Shared) -> Result<(), LockError> {
    match outcome {
        ReleaseOutcome::Lost { reason } => {
            let kind = ErrorKind::Lost { reason };
            Err(shared.error(kind, holdline_core::Certainty::Applied))
        }
        _ => Ok(()),
    }
}
