//! A slot that was taken: kept until its end, or given back.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use holdline_core::operation::MAX_FREEZE;
use holdline_core::{
    Backoff, ErrorKind, GrantState, LockError, LockName, LostReason, Moment, Operation,
};
use tokio::sync::oneshot;

use super::look;
use super::slot::Span;
use super::{Once, PAUSE};
use crate::core::ClientState;
use crate::guard::Guard;
use crate::lease;
use crate::release_outcome::ReleaseOutcome;

/// How often a store that does not answer is asked at most to keep a slot.
const TRIES: u32 = 3;
/// The pauses between the attempts to lift a freeze.
const THAW_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long the worker tries to lift a freeze after the client was dropped.
const THAW_WITHOUT_CLIENT: Duration = Duration::from_secs(60);

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
    /// The freeze that keeps the slot of a job that runs at most once, while the job may be undone.
    freeze: Option<SlotFreeze>,
    /// The caller has it, so the job may have started.
    is_begun: bool,
}

impl OnceRun {
    pub(super) fn new(once: Once, guard: Guard, span: Span) -> OnceRun {
        OnceRun { once, span, guard: Some(guard), freeze: None, is_begun: false }
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
        if self.once.options.at_most_once && self.is_detached(self.guard()) {
            // The detached lease keeps the slot, whatever the store answers here.
            return self.check_kept().await;
        }
        let Some(guard) = self.guard.take() else { return Ok(()) };
        if self.once.options.at_most_once {
            // The freeze that follows the lease keeps the slot.
            return lost_before(guard.release().await, self.once.state());
        }
        self.keep(guard).await
    }

    /// Checks that the detached lease of a job that runs at most once was not lost.
    async fn check_kept(&self) -> Result<(), LockError> {
        let state = self.once.state();
        let guard = self.guard();
        let lost = |reason| lost_before(ReleaseOutcome::Lost { reason }, state);
        match guard.grant.lost_reason(state.clock.now()) {
            None => {}
            // The lease ends with the slot.
            Some(LostReason::RanOut) => return Ok(()),
            Some(reason) => return lost(reason),
        }
        let snapshot = self.once.client.admin().inspect(&self.once.name).await?;
        let id = guard.lease_id().short();
        let held = snapshot.holders.iter().find(|holder| holder.summary.lease_id == id);
        match held.map(|holder| &holder.state) {
            Some(GrantState::Revoked(reason)) => lost(LostReason::Revoked(reason.clone())),
            Some(_) => Ok(()),
            None => lost(LostReason::Missing),
        }
    }

    /// Frees the slot: the job has failed, and another machine may run it. Where the job runs at
    /// most once, or failures keep the slot, call [`OnceRun::fail`].
    ///
    /// # Cancel safety
    /// As [`Guard::release`].
    pub async fn give_back(mut self) -> Option<ReleaseOutcome> {
        let guard = self.guard.take()?;
        if let Some(freeze) = self.freeze.take() {
            let state = self.once.state();
            let limit = state.clock.sleep_until(state.limit());
            select(pin!(freeze.lift(state)), limit).await;
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

    /// Hands the slot to the caller. If the job runs at most once, the slot is kept before, so that
    /// the death of this process does not free it.
    pub(super) async fn begin(mut self) -> Result<OnceRun, LockError> {
        if self.once.options.at_most_once
            && let Err(error) = self.keep_from_the_start().await
        {
            // Nothing was run.
            self.give_back().await;
            return Err(error);
        }
        self.is_begun = true;
        Ok(self)
    }

    async fn keep_from_the_start(&mut self) -> Result<(), LockError> {
        if self.is_detached(self.guard()) {
            // A grant starts with `MAX_FIRST_LEASE` at most: the slot needs the whole lease.
            return self.guard().renew().await.map(drop);
        }
        let (freeze, operation) = self.freeze();
        // If this future is dropped from here on, the freeze is lifted.
        let freeze = self.freeze.insert(freeze);
        self.once.client.admin().operate(&operation).await?;
        freeze.is_confirmed = true;
        Ok(())
    }

    /// Keeps a slot whose job is done, by a detached lease or a freeze.
    async fn keep(&self, mut guard: Guard) -> Result<(), LockError> {
        let state = self.once.state();
        if self.left().is_zero() {
            return lost_before(guard.release().await, state);
        }
        let mut tries = 1;
        loop {
            let kept = if self.once.is_frozen_for(self.span) {
                let (_, operation) = self.freeze();
                match self.once.client.admin().operate(&operation).await {
                    // The freeze takes the name as the lease goes.
                    Ok(_) => return lost_before(guard.release().await, state),
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
            state.clock.sleep_until(state.clock.now().after(pause)).await;
        }
    }

    /// Returns the freeze that keeps the slot until its end, and the operation that makes it.
    fn freeze(&self) -> (SlotFreeze, Operation) {
        let name = self.once.name.clone();
        let duration = self.left().min(MAX_FREEZE);
        let reason = look::reason(self.span, self.once.now(), &self.once.core().holder);
        let state = self.once.state();
        let freeze = SlotFreeze {
            name: name.clone(),
            reason: reason.clone(),
            may_arrive_until: state.limit(),
            ends_at: state.clock.now().after(duration),
            is_confirmed: false,
        };
        (freeze, Operation::Freeze { name, duration, reason })
    }

    fn is_detached(&self, guard: &Guard) -> bool {
        guard.keep() == crate::plan::options::Keep::Detached
    }

    fn left(&self) -> Duration {
        Duration::from_millis(self.span.end.saturating_sub(self.once.now()))
    }
}

impl Drop for OnceRun {
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else { return };
        if !self.is_begun {
            // Nothing was run: the guard's drop frees the name, and nothing may keep the slot.
            if let Some(freeze) = self.freeze.take() {
                drop(freeze.lift(self.once.state()));
            }
        } else if self.once.options.at_most_once && self.is_detached(&guard) {
            // The job may have started: the slot stays taken until its end.
            guard.disarm();
        }
    }
}

/// The freeze that keeps a slot.
#[derive(Clone, Debug)]
struct SlotFreeze {
    name: LockName,
    /// Operators' freezes and those of other slots have another one.
    reason: String,
    /// If it was not confirmed, the store may still receive it until then.
    may_arrive_until: Moment,
    ends_at: Moment,
    is_confirmed: bool,
}

impl SlotFreeze {
    /// Lifts the freeze in the background, as often as it takes. The returned future resolves after
    /// the first attempt; dropping it changes nothing.
    fn lift(self, state: &Arc<ClientState>) -> oneshot::Receiver<()> {
        let (attempted, first) = oneshot::channel();
        let worker_shared = state.clone();
        state.run_in_background(async move {
            let state = worker_shared;
            let clock = &state.clock;
            let mut attempted = Some(attempted);
            let mut pauses = Backoff::new(THAW_PAUSE.0, THAW_PAUSE.1);
            let mut end = self.ends_at;
            loop {
                let lifted = self.try_lift(&state).await;
                if let Err(error) = &lifted {
                    tracing::warn!(name = %self.name, %error, "a slot is still frozen");
                }
                drop(attempted.take());
                let may_arrive = !self.is_confirmed && clock.now() < self.may_arrive_until;
                if state.registry.lock().abandoned {
                    end = end.min(clock.now().after(THAW_WITHOUT_CLIENT));
                }
                if matches!(lifted, Ok(true))
                    || (lifted.is_ok() && !may_arrive)
                    || clock.now() >= end
                {
                    return;
                }
                let pause = pauses.next_pause(state.entropy.number());
                clock.sleep_until(clock.now().after(pause)).await;
            }
        });
        first
    }

    /// Lifts the freeze if the store has it. Returns whether it had.
    async fn try_lift(&self, state: &ClientState) -> Result<bool, LockError> {
        let snapshot = state.answer(state.engine.inspect(&self.name)).await?;
        if snapshot.freeze.is_none_or(|freeze| freeze.reason != self.reason) {
            return Ok(false);
        }
        let operation = Operation::Unfreeze { name: self.name.clone() };
        state.answer(state.engine.operate(&operation)).await.map(|_| true)
    }
}

fn lost_before(outcome: ReleaseOutcome, state: &ClientState) -> Result<(), LockError> {
    match outcome {
        ReleaseOutcome::Lost { reason } => {
            let kind = ErrorKind::Lost { reason };
            Err(state.error(kind, holdline_core::Certainty::Applied))
        }
        _ => Ok(()),
    }
}
