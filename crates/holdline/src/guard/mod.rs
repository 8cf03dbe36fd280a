//! The guard of a grant.
//!
//! Read next: `ticket`, which is responsible for a lease id before there is a guard; `release`, its
//! end; `held`, the handle for the code that runs under a guard; `nested`, the share of an owner.

pub(crate) mod held;
pub(crate) mod nested;
pub(crate) mod release;
pub(crate) mod ticket;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use holdline_core::{
    Anchor, Certainty, ErrorKind, FencingToken, Hold, LeaseId, LockError, LockName, LostReason,
    Mode, Moment, Purpose, RenewRequest,
};
use tokio_util::sync::CancellationToken;

use crate::core::local_queues::Turn;
use crate::core::registry::Key;
use crate::core::{ClientState, Core};
use crate::grant::{Grant, Granted, RiskReason};
use crate::observer::HoldEnd;
use crate::plan::Plan;
use crate::plan::options::{Keep, OnLost};
use crate::release_outcome::ReleaseOutcome;
use crate::worker::janitor;
use crate::worker::keeper::{self, ReplyEffect, RequestedBy};
use held::Held;
use nested::Nested;
use ticket::Ticket;

/// The guard of a grant: the name is held until the guard is released, dropped or lost.
///
/// It guards a name, not a value in memory: it borrows nothing, and can be sent to other tasks and
/// threads. Release it with [`Guard::release`] to learn the outcome; a dropped guard is released in
/// the background, without blocking.
///
/// A long pause of this process can outlast the lease. If two writers at once would do harm, pass
/// [`Guard::fencing_token`] to the resource, which refuses older tokens.
///
/// A guard that is leaked with [`std::mem::forget`] is renewed until its `max_hold`, or until the
/// process ends.
#[must_use = "a guard that is not kept releases the name at once"]
pub struct Guard {
    pub(crate) core: Arc<Core>,
    pub(crate) grant: Arc<Grant>,
    /// The grant's key in the registry; [`Key::NONE`] if nothing is left to release.
    key: Key,
    /// The name from the request, reused by the release to avoid a copy.
    spare_name: Option<LockName>,
    nested: Option<Box<Nested>>,
    /// The turn in the local queue, which passes to the next attempt when this guard is dropped.
    _turn: Option<Box<Turn>>,
}

impl Guard {
    pub(crate) fn new(core: Arc<Core>, grant: Arc<Grant>, key: Key) -> Guard {
        Guard { core, grant, key, spare_name: None, nested: None, _turn: None }
    }

    /// Makes the guard of a lease id that was granted, which the ticket was responsible for.
    pub(crate) fn granted(
        core: &Arc<Core>,
        ticket: Ticket<'_>,
        plan: &Arc<Plan>,
        granted: Granted,
    ) -> Guard {
        let (grant, key) = ticket.granted(plan, granted);
        Guard::new(core.clone(), grant, key)
    }

    pub(crate) fn with_name(mut self, name: LockName) -> Guard {
        self.spare_name = Some(name);
        self
    }

    pub(crate) fn with_turn(mut self, turn: Turn) -> Guard {
        self._turn = Some(Box::new(turn));
        self
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// Makes this guard one of an owner's guards, of which the last one releases the grant.
    pub(crate) fn with_nested(mut self, nested: Nested) -> Guard {
        self.nested = Some(Box::new(nested));
        self
    }

    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        &self.grant.plan.name
    }

    /// Returns the mode in which the name is held.
    pub fn mode(&self) -> Mode {
        self.grant.plan.mode
    }

    /// Returns the number to pass to the resource, which refuses smaller ones.
    ///
    /// It is constant for the life of the grant. It orders exclusive grants only. If the engine
    /// gives no tokens (`Capabilities::fencing` is false) it is 1 for every grant, and a resource
    /// that has ever seen a token refuses it. [`fence`](crate::fence) has such resources.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:fencing_token").await?;
    /// let mutex = client.mutex("orders/17")?;
    /// let first = mutex.lock().await?;
    /// let token = first.fencing_token();
    /// first.release().await.into_result()?;
    /// assert!(mutex.lock().await?.fencing_token() > token);
    /// # Ok(())
    /// # }
    /// ```
    pub fn fencing_token(&self) -> FencingToken {
        self.grant.token
    }

    /// Returns the proof of the grant: anybody who knows it can renew and release. Keep it out of
    /// logs.
    pub fn lease_id(&self) -> LeaseId {
        self.grant.lease_id
    }

    /// Returns until when the lease is valid, on the client's clock; [`Moment::ORIGIN`] once it is
    /// lost, [`Moment::NEVER`] for a live grant.
    pub fn valid_until(&self) -> Moment {
        self.core.state.valid_until(&self.grant)
    }

    /// Returns for how long the lease is still valid; zero once it is lost. A lease above
    /// [`MAX_FIRST_LEASE`](holdline_core::lease::MAX_FIRST_LEASE) starts with that, and one that
    /// was waited for with at most
    /// [`MAX_HAND_OFF_LEASE`](holdline_core::contract::MAX_HAND_OFF_LEASE). The keeper extends both
    /// after
    /// [`EXTEND_AFTER`](holdline_core::renewal::EXTEND_AFTER).
    pub fn remaining(&self) -> Duration {
        self.core.state.clock.now().until(self.valid_until())
    }

    /// Returns whether the lease is valid. It reads only the clock and the process id: no I/O, no
    /// mutex.
    ///
    /// # Guarantees
    /// It becomes false before the store's timer can free the name, and is false in a forked
    /// process. The answer may be outdated as soon as it is returned: a process that pauses after
    /// it can still write late, and only the fencing token prevents that.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:is_valid").await?;
    /// let guard = client.mutex("orders/17")?.lock().await?;
    /// for step in ["read", "compute", "write"] {
    ///     if !guard.is_valid() {
    ///         break;
    ///     }
    ///     println!("{step}");
    /// }
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        self.core.state.believes(&self.grant)
    }

    /// Resolves when the lease is at risk, an operator has revoked it, or it is over. It is at risk
    /// when one renewal interval is left, or half of the time from its last confirmation to its
    /// end, if that is less.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn at_risk(&self) -> RiskReason {
        self.held().at_risk().await
    }

    /// Resolves when the lease is no longer valid, as [`Held::lost`].
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:lost").await?;
    /// use std::time::Duration;
    ///
    /// let guard = client.mutex("orders/17")?.lock().await?;
    /// let work = async { tokio::time::sleep(Duration::from_millis(1)).await };
    /// tokio::select! {
    ///     () = work => println!("done"),
    ///     reason = guard.lost() => println!("stopped: {reason}"),
    /// }
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> LostReason {
        self.held().lost().await
    }

    /// Returns a token that is cancelled when an operator revokes the lease, when it is lost, and
    /// when this guard is released or dropped. It is already cancelled in a forked process.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:cancellation_token").await?;
    /// let guard = client.mutex("orders/17")?.lock().await?;
    /// let token = guard.cancellation_token();
    /// let endless = std::future::pending::<()>();
    /// let job = tokio::spawn(async move { token.run_until_cancelled(endless).await });
    /// guard.release().await.into_result()?;
    /// assert!(job.await.expect("no panic").is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancellation_token(&self) -> CancellationToken {
        self.held().cancellation_token()
    }

    /// Returns the anchor that keeps a live grant, for a child process to inherit; `None` for a
    /// leased grant.
    pub fn anchor(&self) -> Option<&Anchor> {
        self.grant.anchor.as_ref()
    }

    /// Returns a handle for the code that runs under this guard.
    pub fn held(&self) -> Held {
        Held { state: self.core.state.clone(), grant: self.grant.clone() }
    }

    /// Returns whether the store has granted only a part of the lease so far: the first 30 s of a
    /// longer one, or the short lease with which a hand-off begins. The keeper extends it soon, and
    /// [`Guard::renew`] at once.
    pub fn is_partial(&self) -> bool {
        self.grant.is_partial()
    }

    /// Renews the lease now for its whole duration, and returns for how long it is valid. Leases
    /// are renewed in the background anyway; call this for those that are not, or before a long
    /// step.
    ///
    /// # Errors
    /// - `Lost`: the lease is over, or an operator has revoked it and it expires without renewals.
    ///   [`Guard::remaining`] distinguishes the two.
    /// - `Unavailable` and others: the store did not confirm. The lease is unchanged.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:renew").await?;
    /// use std::time::Duration;
    /// use holdline::{Keep, LockOptions};
    ///
    /// let lease = Duration::from_secs(20);
    /// let options = LockOptions::default().with_keep(Keep::Fixed).with_lease_duration(lease);
    /// let guard = client.mutex_with("orders/17", &options)?.lock().await?;
    /// // … half of the work …
    /// let left = guard.renew().await?;
    /// assert!(left > lease / 2);
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn renew(&self) -> Result<Duration, LockError> {
        self.renew_as(self.grant.hold()).await
    }

    /// Renews the lease now for this duration, and returns for how long it is valid. The lease is
    /// never shortened. If the duration is longer than that of the lock, all later renewals have it
    /// too, those in the background at the same intervals as before.
    ///
    /// # Errors
    /// - `Invalid`: the duration is not from 50 ms to 24 h, or the grant is a live one.
    ///   `Unsupported`: the engine has no such lease. Nothing was sent.
    /// - As [`Guard::renew`]. If the certainty is `Unknown`, the store may keep the name for this
    ///   duration, and the guard does not rely on it.
    ///
    /// # Cancel safety
    /// As [`Guard::renew`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:renew_for").await?;
    /// use std::time::Duration;
    ///
    /// let guard = client.mutex("orders/17")?.lock().await?;
    /// // A step that must not end if this process stops for minutes.
    /// let left = guard.renew_for(Duration::from_secs(600)).await?;
    /// assert!(left > Duration::from_secs(500));
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn renew_for(&self, lease_duration: Duration) -> Result<Duration, LockError> {
        let hold = self.grant.plan.lasting(self.core.state.engine.capabilities(), lease_duration);
        let hold = hold.map_err(|error| error.with_name(self.name()))?;
        self.grant.lengthen(lease_duration);
        self.renew_as(hold).await
    }

    async fn renew_as(&self, hold: Hold) -> Result<Duration, LockError> {
        let state = &self.core.state;
        let grant = &self.grant;
        let lost = |reason| state.lost(reason).with_name(self.name());
        if !state.is_own_process() {
            return Err(state.no_answer().with_name(self.name()));
        }
        if !self.is_valid() {
            return Err(lost(grant.why_lost()));
        }
        let sent = state.clock.now();
        let purpose = Purpose::Keep(hold);
        let reply = state.renew(RenewRequest { purpose, ..grant.renewal(state.client) }).await;
        let failure = match &reply {
            Some(Err(error)) => Some(error.clone()),
            Some(Ok(_)) => None,
            None => Some(state.no_answer()),
        };
        let outcome = keeper::apply_reply(state, grant, sent, reply);
        keeper::record(state, self.key, sent, outcome, RequestedBy::Caller);
        let now = state.clock.now();
        if let Some(reason) = grant.lost_reason(now) {
            return Err(lost(reason));
        }
        match (outcome, failure) {
            (ReplyEffect::Kept, _) => Ok(self.remaining()),
            (_, Some(error)) => Err(error.with_name(self.name())),
            (_, None) => Err(match grant.risk_reason(now) {
                Some(RiskReason::Revoked(reason)) => lost(LostReason::Revoked(reason)),
                _ => keeper::unexpected_reply(state).with_name(self.name()),
            }),
        }
    }

    /// Releases the name and returns the outcome.
    ///
    /// From the call on, the lease is not renewed, and every handle to the grant is invalid. The
    /// call returns within 5 s, or within 1 s after the store was found unable to answer. Until the
    /// store confirms or the lease ends, the release is repeated in the background.
    ///
    /// # Cancel safety
    /// Dropping the future loses the answer only: the janitor continues the release.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:release").await?;
    /// use holdline::ReleaseOutcome;
    ///
    /// let mutex = client.mutex("orders/17")?;
    /// // A lease that was lost before the release is an error here.
    /// mutex.lock().await?.release().await.into_result()?;
    ///
    /// // Or look at each outcome.
    /// match mutex.lock().await?.release().await {
    ///     ReleaseOutcome::Released { confirmed: true, .. } => println!("free"),
    ///     ReleaseOutcome::Lost { reason } => println!("others may have had it: {reason}"),
    ///     outcome => println!("{outcome:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) -> ReleaseOutcome {
        let key = std::mem::replace(&mut self.key, Key::NONE);
        let state = &*self.core.state;
        if !state.is_own_process() {
            // A forked process has no right to the lease, and a thread of the parent may hold any
            // mutex.
            let held_for = self.grant.since.until(state.clock.now());
            return ReleaseOutcome::unconfirmed(held_for, &state.no_answer());
        }
        let grant = &*self.grant;
        let lost = grant.lost_reason(state.clock.now());
        if let Some(nested) = self.nested.take() {
            let depth = nested.leave();
            if depth > 0 {
                // The last guard removes what is left of a lost lease.
                return match lost {
                    Some(reason) => ReleaseOutcome::Lost { reason },
                    None => ReleaseOutcome::Nested { depth },
                };
            }
        }
        // Renewals end before the release is sent.
        state.registry.lock().discard(key);
        // If this future is dropped, a release was asked for all the same.
        let mut ending = Ending { state, grant, lost: None };
        grant.end();
        let outcome = match lost {
            Some(reason) => {
                if janitor::may_linger(&reason) {
                    // The store may keep it for a moment longer.
                    let pending = janitor::pending_release(
                        state,
                        &grant.plan,
                        grant.lease_id,
                        grant.ending(true),
                    );
                    janitor::hand_over(state, None, pending);
                }
                ReleaseOutcome::Lost { reason }
            }
            None => {
                let name = self.spare_name.take();
                let mut request = grant.plan.ending(name, grant.lease_id, grant.unsettled);
                request.ending = grant.ending(grant.unsettled);
                release::release(state, &grant.plan, &request, grant.since).await
            }
        };
        if let ReleaseOutcome::Lost { reason } = &outcome {
            ending.lost = Some(reason.clone());
        }
        drop(ending);
        state.observe(|observer| observer.released(grant.subject(), &outcome));
        outcome
    }

    /// Runs a body under this guard. If the lease is lost, [`OnLost::Drop`] drops the body; with
    /// [`OnLost::Notify`] it runs to its own end, notified by [`Guard::cancellation_token`].
    ///
    /// # Errors
    /// `Lost`: the lease was lost before the body ended, and the body was dropped, or its output if
    /// it ended just then. Its effects remain.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body. The guard stays.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:run").await?;
    /// let guard = client.mutex("orders/17")?.lock().await?;
    /// let total = guard.run(async { 17 + 25 }).await?;
    /// assert_eq!(total, 42);
    /// guard.release().await.into_result()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, body: F) -> Result<F::Output, LockError> {
        run(&self.held(), body).await
    }

    /// Drops the guard without a release: the lease now belongs to somebody else, and the handles
    /// of this process become invalid.
    pub(crate) fn disarm(mut self) {
        let key = std::mem::replace(&mut self.key, Key::NONE);
        self.grant.end();
        self.core.state.registry.lock().discard(key);
        self.core.state.observe_end(&self.grant, || HoldEnd::Detached);
    }

    pub(crate) fn keep(&self) -> Keep {
        self.grant.plan.keep
    }

    pub(crate) fn is_nested(&self) -> bool {
        self.nested.is_some()
    }
}

/// The end of a hold by a release, for observers.
struct Ending<'a> {
    state: &'a ClientState,
    grant: &'a Grant,
    lost: Option<LostReason>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let lost = self.lost.take();
        self.state.observe_end(self.grant, || lost.map_or(HoldEnd::Released, HoldEnd::Lost));
    }
}

/// Runs a body until it ends or the lease is lost.
pub(crate) async fn run<F: Future>(held: &Held, body: F) -> Result<F::Output, LockError> {
    let lost = |reason| {
        let kind = ErrorKind::Lost { reason };
        held.state.error(kind, Certainty::Unknown).with_name(held.name())
    };
    if !held.state.is_own_process() {
        return Err(held.state.no_answer().with_name(held.name()));
    }
    let lost_reason = || held.grant.lost_reason(held.state.clock.now());
    if let Some(reason) = lost_reason() {
        return Err(lost(reason));
    }
    if held.grant.plan.on_lost == OnLost::Notify {
        return Ok(body.await);
    }
    let mut body = pin!(body);
    let mut gone = pin!(held.lost());
    poll_fn(|context| {
        if let Poll::Ready(reason) = gone.as_mut().poll(context) {
            return Poll::Ready(Err(lost(reason)));
        }
        // After a pause of the process, the body may be polled before the timer has fired.
        if let Some(reason) = lost_reason() {
            return Poll::Ready(Err(lost(reason)));
        }
        let polled = body.as_mut().poll(context);
        // The lease may have run out during this poll: then nobody knows how much of the body it
        // covered.
        match (polled, lost_reason()) {
            (_, Some(reason)) => Poll::Ready(Err(lost(reason))),
            (Poll::Ready(output), None) => Poll::Ready(Ok(output)),
            (Poll::Pending, None) => Poll::Pending,
        }
    })
    .await
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.key == Key::NONE || !self.core.state.is_own_process() {
            return;
        }
        if let Some(nested) = self.nested.take()
            && nested.leave() > 0
        {
            return;
        }
        let state = &*self.core.state;
        let grant = &*self.grant;
        let lost = grant.lost_reason(state.clock.now());
        grant.end();
        state.observe_end(grant, || lost.clone().map_or(HoldEnd::Dropped, HoldEnd::Lost));
        if grant.plan.keeps_id {
            state.registry.lock().discard(self.key);
            return;
        }
        state.counters.dropped.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(
            parent: grant.span_id(), name = %grant.plan.name, lease_id = %grant.lease_id,
            "a guard was dropped: its release goes to the janitor"
        );
        if lost.is_some_and(|reason| !janitor::may_linger(&reason)) {
            state.registry.lock().discard(self.key);
            return;
        }
        let ending = grant.ending(grant.unsettled);
        let mut pending = janitor::pending_release(state, &grant.plan, grant.lease_id, ending);
        pending.was_held = true;
        janitor::hand_over(state, Some(self.key), pending);
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.held().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use crate::parker::block_on;
    use crate::{Client, ErrorKind};

    #[test]
    fn in_a_forked_child_guards_and_clients_do_nothing() {
        block_on(async {
            let client = Client::connect("memory:fork").await.expect("made");
            let mutex = client.mutex("a").expect("good");
            let guard = mutex.lock().await.expect("free");
            let state = guard.core.state.clone();
            let held = || state.registry.lock().count_held();
            assert_eq!(held(), 1);
            // The child has a copy of everything and no right to any lease.
            state.pretend_fork(true);
            drop(guard);
            drop(mutex);
            assert_eq!(held(), 1, "nothing is released, nothing is given up");
            drop(client);
            assert!(!state.registry.lock().abandoned, "the parent's worker goes on");
            let error = state.no_answer();
            assert!(matches!(error.kind(), ErrorKind::Invalid { field: "client", .. }), "{error}");
            state.pretend_fork(false);
        });
    }

    #[test]
    fn in_a_forked_process_no_lease_is_valid_and_no_mutex_is_taken() {
        block_on(async {
            let client = Client::connect("memory:copies").await.expect("made");
            let mutex = client.mutex("a").expect("good");
            let guard = mutex.lock().await.expect("free");
            let held = guard.held();
            let state = guard.core.state.clone();
            state.pretend_fork(true);
            assert!(!guard.is_valid() && !held.is_valid());
            assert!(guard.remaining().is_zero() && held.remaining().is_zero());
            assert!(guard.renew().await.is_err() && guard.run(async {}).await.is_err());
            // A thread of the parent held it at the fork: it stays locked.
            let locked = state.registry.lock();
            assert!(guard.lost().now_or_never().is_some(), "nothing would wake it");
            assert!(
                guard.at_risk().now_or_never().is_some() && held.lost().now_or_never().is_some()
            );
            assert!(guard.cancellation_token().is_cancelled());
            let report = client.shutdown(std::time::Duration::MAX).now_or_never();
            assert!(report.is_some_and(|report| report.is_clean()), "it waits for nothing");
            let outcome = guard.release().now_or_never().expect("it asks nobody");
            assert!(!outcome.is_released(), "{outcome:?}");
            drop(locked);
            state.pretend_fork(false);
            assert!(mutex.try_lock().await.is_err(), "the parent holds it still");
        });
    }

    #[test]
    fn a_manual_renewal_does_not_affect_one_in_flight() {
        block_on(async {
            let client = Client::connect("memory:by-hand").await.expect("made");
            let guard = client.mutex("a").expect("good").lock().await.expect("free");
            let state = guard.core.state.clone();
            let in_flight = || state.registry.lock().get(guard.key()).expect("held").in_flight;
            state.registry.lock().get(guard.key()).expect("held").in_flight = true;
            guard.renew().await.expect("kept");
            assert!(in_flight(), "a renewal of the worker may land after this one");
        });
    }
}
