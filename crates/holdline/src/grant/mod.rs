//! A grant, as the guard, its handles and the keeper share it.
//!
//! Invariant V2: `valid_until` only grows while the grant is valid, and is the origin once it is
//! over. So a check is one load and one reading of the clock.
//! Invariant V3: a grant that was lost or ended stays so: no late reply revives it.
//! Invariant V4: a task that waits for the end of the validity is woken by the clock, not by the
//! worker. So a worker that is blocked or has ended delays no report of a loss.

mod flags;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures_core::future::BoxFuture;
use holdline_core::{
    Anchor, ClientId, Clock, Ending, FencingToken, Hold, LeaseId, LockError, LostReason, Moment,
    Purpose, RenewRequest, renewal, validity,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{Id, Span};

use self::flags::{Flag, Flags};
use crate::observer::Subject;
use crate::plan::Plan;
use crate::spans;

/// Why a lease is at risk.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RiskReason {
    /// The last renewals have failed. This is the last failure, if one was answered.
    NotRenewed(Option<LockError>),
    /// Its options do not renew it, or not beyond `max_hold`, so it expires.
    RunsOut,
    /// An operator revoked it for this reason; it stays valid for the remaining time.
    Revoked(String),
    /// It is lost already.
    Lost(LostReason),
    /// The guard was released or dropped.
    Ended,
}

impl fmt::Display for RiskReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RiskReason::NotRenewed(Some(error)) => write!(f, "not renewed: {error}"),
            RiskReason::NotRenewed(None) => f.write_str("not renewed: no answer"),
            RiskReason::RunsOut => f.write_str("nothing renews the lease, and it ends soon"),
            RiskReason::Revoked(reason) => LostReason::Revoked(reason.clone()).fmt(f),
            RiskReason::Lost(reason) => write!(f, "lost: {reason}"),
            RiskReason::Ended => f.write_str("the guard has ended"),
        }
    }
}

/// One grant. The guard, its handles and the keeper share it.
pub(crate) struct Grant {
    pub(crate) plan: Arc<Plan>,
    pub(crate) lease_id: LeaseId,
    pub(crate) token: FencingToken,
    pub(crate) since: Moment,
    /// It is invalid from this moment on, and not renewed.
    max_hold_at: Moment,
    /// A request under the id went unanswered, so the release leaves a tombstone.
    pub(crate) unsettled: bool,
    pub(crate) anchor: Option<Anchor>,
    valid_until: AtomicU64,
    /// When the request was sent that the store confirmed last.
    confirmed_at: AtomicU64,
    flags: Flags,
    cold: OnceLock<Box<ColdState>>,
}

/// The parts of a grant that are needed only for events, listeners and traces.
struct ColdState {
    /// The span of the hold, while that lasts and if it is traced.
    span: Mutex<Option<Span>>,
    changed: Notify,
    cancel: OnceLock<CancellationToken>,
    reasons: Mutex<Reasons>,
    /// The longest lease that the holder asked for later, in nanoseconds; 0 if it did not.
    lease: AtomicU64,
    alarm: OnceLock<Arc<Alarm>>,
    /// The sleep of the alarm.
    sleep: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl ColdState {
    fn new() -> Box<ColdState> {
        Box::new(ColdState {
            span: Mutex::default(),
            changed: Notify::new(),
            cancel: OnceLock::new(),
            reasons: Mutex::default(),
            lease: AtomicU64::new(0),
            alarm: OnceLock::new(),
            sleep: Mutex::default(),
        })
    }
}

/// Notifies the listeners of a grant when the lease is at risk and when its validity ends. It is
/// the waker of a sleep, so it runs on the thread of the clock.
struct Alarm {
    grant: Weak<Grant>,
    clock: Arc<dyn Clock>,
}

impl Alarm {
    /// Notifies the listeners if it is time, and sleeps until the next time.
    fn check(self: &Arc<Alarm>, grant: &Grant) {
        let now = self.clock.now();
        let is_valid = grant.is_valid(now);
        if now >= grant.risk_at() {
            grant.notify(!is_valid);
        }
        if !is_valid {
            return;
        }
        let waker = Waker::from(self.clone());
        let mut sleep = grant.cold().sleep.lock();
        // Read under the mutex: of two checks at once, the last one has the current times.
        let risk_at = grant.risk_at();
        let until = grant.valid_until();
        let next = if now < risk_at { risk_at } else { until };
        let mut fresh = self.clock.sleep_until(next);
        let polled = fresh.as_mut().poll(&mut Context::from_waker(&waker));
        *sleep = Some(fresh);
        drop(sleep);
        if polled.is_ready() {
            waker.wake();
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        if let Some(grant) = self.grant.upgrade() {
            self.check(&grant);
        }
    }
}

#[derive(Default)]
struct Reasons {
    lost: Option<LostReason>,
    revoked: Option<String>,
    failure: Option<LockError>,
}

/// The parts of a new grant.
pub(crate) struct Granted {
    pub(crate) lease_id: LeaseId,
    pub(crate) token: FencingToken,
    /// From when on `left` counts: when a request was sent that the store answered before it
    /// granted the name, or by granting it.
    pub(crate) sent: Moment,
    /// When the hold begins.
    pub(crate) since: Moment,
    pub(crate) left: Option<Duration>,
    /// The lease is a hand-off's, shorter than the whole: a renewal extends it.
    pub(crate) handed: bool,
    pub(crate) anchor: Option<Anchor>,
    pub(crate) unsettled: bool,
}

/// Returns until when a new lease is valid if the store reports `left`.
pub(crate) fn validity_of(plan: &Plan, sent: Moment, left: Option<Duration>) -> Moment {
    if let (Some(left), Some((first, believed))) = (left, plan.first_lease)
        && left == first
    {
        return sent.after(believed);
    }
    validity_within(plan, plan.hold, sent, left)
}

/// Returns until when a lease is valid if the store reports `left`. That is never more than was
/// requested: a store whose clock was set back reports too much.
fn validity_within(plan: &Plan, asked: Hold, sent: Moment, left: Option<Duration>) -> Moment {
    let asked = asked.duration().unwrap_or(Duration::MAX);
    validity::valid_until(sent, left.map(|left| left.min(asked)), plan.terms.drift_ppm())
}

impl Grant {
    pub(crate) fn new(plan: &Arc<Plan>, granted: Granted) -> Grant {
        let Granted { lease_id, token, sent, since, left, handed, anchor, unsettled } = granted;
        let max_hold_at = plan.max_hold.map_or(Moment::NEVER, |limit| since.after(limit));
        let until = validity_of(plan, sent, left).min(max_hold_at);
        let flags = Flags::default();
        if handed || plan.hold != plan.hold.first() {
            flags.set(Flag::First);
        }
        Grant {
            plan: plan.clone(),
            lease_id,
            token,
            since,
            max_hold_at,
            unsettled,
            anchor,
            valid_until: AtomicU64::new(until.as_nanos()),
            confirmed_at: AtomicU64::new(since.as_nanos()),
            flags,
            cold: OnceLock::new(),
        }
    }

    fn cold(&self) -> &ColdState {
        self.cold.get_or_init(ColdState::new)
    }

    fn reasons(&self) -> MutexGuard<'_, Reasons> {
        self.cold().reasons.lock()
    }

    /// Starts the span of the hold, if it is traced.
    pub(crate) fn start_span(&self) {
        let span = spans::hold(&self.plan, self.lease_id, self.token);
        if !span.is_disabled() {
            *self.cold().span.lock() = Some(span);
        }
    }

    /// Takes the span of the hold, to end it; `None` if it is not traced or has ended.
    pub(crate) fn take_span(&self) -> Option<Span> {
        self.cold.get().and_then(|cold| cold.span.lock().take())
    }

    /// Returns the span of the hold, if it is traced and has not ended.
    pub(crate) fn span_id(&self) -> Option<Id> {
        self.cold.get().and_then(|cold| cold.span.lock().as_ref().and_then(Span::id))
    }

    pub(crate) fn subject(&self) -> Subject<'_> {
        self.plan.subject(self.lease_id)
    }

    /// Records that observers know that it is held.
    pub(crate) fn observe_begin(&self) {
        self.flags.set(Flag::Observed);
    }

    /// Returns whether to notify the observer now that the lease has ended: true once, and only if
    /// the observer was notified that it is held.
    pub(crate) fn observe_end(&self) -> bool {
        self.flags.clear(Flag::Observed)
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    /// Returns whether it ends by `max_hold`, before the store's lease does.
    pub(crate) fn ends_by_max_hold(&self) -> bool {
        self.valid_until() == self.max_hold_at
    }

    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        now < self.valid_until()
    }

    /// Returns when to warn the holder that its lease is at risk.
    pub(crate) fn risk_at(&self) -> Moment {
        let confirmed_at = Moment::from_nanos(self.confirmed_at.load(Ordering::Acquire));
        renewal::at_risk_at(confirmed_at, self.valid_until(), &self.plan.terms)
    }

    /// Returns whether the store has granted only a part of the whole lease so far.
    pub(crate) fn is_partial(&self) -> bool {
        self.flags.is_set(Flag::First)
    }

    /// Returns whether the keeper renews it; a lease without renewals only until it is whole.
    fn is_renewed(&self) -> bool {
        self.plan.renews() || self.flags.is_set(Flag::First)
    }

    /// Returns whether it should be renewed and the renewal would be granted.
    pub(crate) fn wants_renewal(&self) -> bool {
        self.is_renewed() && !self.flags.is_set(Flag::Revoked) && !self.flags.is_set(Flag::Paused)
    }

    /// Stops renewals until they are resumed, because the lease is being detached.
    pub(crate) fn pause_renewals(&self) {
        self.flags.set(Flag::Paused);
    }

    pub(crate) fn resume_renewals(&self) {
        self.flags.clear(Flag::Paused);
    }

    /// Returns whether it was lost or ended.
    pub(crate) fn is_over(&self) -> bool {
        self.flags.is_set(Flag::Lost) || self.flags.is_set(Flag::Ended)
    }

    /// Returns the renewal request for this grant.
    pub(crate) fn renewal(&self, client: ClientId) -> RenewRequest {
        RenewRequest {
            name: self.plan.name.clone(),
            lease_id: self.lease_id,
            client,
            purpose: Purpose::Keep(self.hold()),
        }
    }

    /// Returns the hold that its renewals request: that of the plan, or a longer one if the holder
    /// asked for that. The store keeps the lease for no longer after any request.
    pub(crate) fn hold(&self) -> Hold {
        let hold = self.plan.hold;
        let Some(cold) = self.cold.get() else { return hold };
        let later = Duration::from_nanos(cold.lease.load(Ordering::Acquire));
        match hold.duration() {
            Some(lease) if later > lease => hold.lasting(later),
            _ => hold,
        }
    }

    /// Returns how its release ends it.
    pub(crate) fn ending(&self, for_good: bool) -> Ending {
        Ending { for_good, hold: self.hold() }
    }

    /// Makes renewals request this lease, unless they request a longer one. The caller has checked
    /// it, and sends such a request now.
    pub(crate) fn lengthen(&self, lease: Duration) {
        let nanos = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        self.cold().lease.fetch_max(nanos, Ordering::AcqRel);
    }

    /// Records that the store has renewed the lease; `sent` was read before the request was sent.
    /// Returns the slack, or `None` if the lease is no longer valid.
    pub(crate) fn confirm(
        &self,
        now: Moment,
        sent: Moment,
        left: Option<Duration>,
    ) -> Option<Duration> {
        let until = validity_within(&self.plan, self.hold(), sent, left);
        let until = until.min(self.max_hold_at).as_nanos();
        let extended = self.valid_until.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            (now.as_nanos() < old).then_some(old.max(until))
        });
        let old = extended.ok()?;
        self.flags.clear(Flag::First);
        // Near `max_hold` a renewal adds no time: the lease stays at risk.
        if until > old || old == Moment::NEVER.as_nanos() {
            self.confirmed_at.fetch_max(sent.as_nanos(), Ordering::AcqRel);
            self.flags.clear(Flag::AtRisk);
        }
        let old = Moment::from_nanos(old);
        if self.cold.get().is_some() {
            self.reasons().failure = None;
        }
        Some(now.until(old))
    }

    /// Records that an operator revoked the grant. It stays valid for at most the remaining time.
    pub(crate) fn revoke(&self, sent: Moment, reason: String, left: Option<Duration>) {
        let until = validity::valid_until(sent, left, self.plan.terms.drift_ppm());
        self.reasons().revoked = Some(reason);
        self.valid_until.fetch_min(until.as_nanos(), Ordering::AcqRel);
        self.flags.set(Flag::Revoked);
        self.flags.set(Flag::AtRisk);
        self.notify(true);
        if let Some(alarm) = self.cold().alarm.get() {
            // The end may be earlier now.
            alarm.check(self);
        }
    }

    /// Records that the lease is at risk.
    pub(crate) fn mark_at_risk(&self) {
        self.flags.set(Flag::AtRisk);
        self.notify(false);
    }

    pub(crate) fn record_failure(&self, error: &LockError) {
        self.reasons().failure = Some(error.clone());
    }

    /// Records that the lease is no longer valid. Returns the reason if this call was the first.
    /// A time limit that was over before is the reason, whatever the store says later.
    pub(crate) fn mark_lost(&self, reason: LostReason, now: Moment) -> Option<LostReason> {
        let reason = {
            let reasons = &mut *self.reasons();
            if self.is_over() {
                return None;
            }
            let reason = match (reason, &reasons.revoked) {
                _ if !self.is_valid(now) => self.ran_out(reasons),
                (LostReason::Missing, Some(reason)) => LostReason::Revoked(reason.clone()),
                (reason, _) => reason,
            };
            self.valid_until.store(0, Ordering::Release);
            reasons.lost = Some(reason.clone());
            self.flags.set(Flag::Lost);
            reason
        };
        self.notify(true);
        Some(reason)
    }

    /// Ends the grant on purpose: all handles become invalid.
    pub(crate) fn end(&self) {
        // The flag first: a grant that is invalid without it has run out.
        let had_ended = self.flags.set(Flag::Ended);
        self.valid_until.store(0, Ordering::Release);
        if !had_ended {
            self.notify(true);
        }
    }

    /// Notifies the listeners that an answer about the grant has arrived.
    pub(crate) fn notify_answered(&self) {
        self.notify(false);
    }

    /// Notifies the listeners; the caller has just changed the state.
    fn notify(&self, cancel: bool) {
        if !self.flags.is_set(Flag::HasListeners) {
            return;
        }
        let cold = self.cold();
        if cancel && let Some(token) = cold.cancel.get() {
            token.cancel();
        }
        cold.changed.notify_waiters();
    }

    /// Returns why it is no longer valid, even if the loss was not recorded yet.
    pub(crate) fn why_lost(&self) -> LostReason {
        // While we hold the mutex, no other thread is in the middle of recording a loss.
        let reasons = self.reasons();
        match &reasons.lost {
            Some(reason) => reason.clone(),
            None if self.flags.is_set(Flag::Ended) => LostReason::Released,
            None => self.ran_out(&reasons),
        }
    }

    /// Returns why its time is over.
    fn ran_out(&self, reasons: &Reasons) -> LostReason {
        if let Some(reason) = &reasons.revoked {
            LostReason::Revoked(reason.clone())
        } else if self.ends_by_max_hold() {
            LostReason::MaxHold
        } else if self.is_renewed() {
            LostReason::Expired
        } else {
            LostReason::RanOut
        }
    }

    /// Returns why the lease is no longer valid; `None` if it is.
    pub(crate) fn lost_reason(&self, now: Moment) -> Option<LostReason> {
        (!self.is_valid(now)).then(|| self.why_lost())
    }

    /// Returns why the lease is at risk, if it is.
    pub(crate) fn risk_reason(&self, now: Moment) -> Option<RiskReason> {
        if let Some(reason) = self.lost_reason(now) {
            let is_lost = reason != LostReason::Released || self.flags.is_set(Flag::Lost);
            return Some(if is_lost { RiskReason::Lost(reason) } else { RiskReason::Ended });
        }
        let is_marked = self.flags.is_set(Flag::AtRisk) || self.flags.is_set(Flag::Revoked);
        if !is_marked && now < self.risk_at() {
            return None;
        }
        let reasons = self.reasons();
        Some(match &reasons.revoked {
            Some(reason) => RiskReason::Revoked(reason.clone()),
            None if self.is_renewed() && self.valid_until() < self.max_hold_at => {
                RiskReason::NotRenewed(reasons.failure.clone())
            }
            None => RiskReason::RunsOut,
        })
    }

    /// Resolves when the lease is no longer valid, or was ended.
    pub(crate) async fn lost(self: &Arc<Grant>, clock: &Arc<dyn Clock>) -> LostReason {
        self.set_alarm(clock);
        self.until(|grant| grant.lost_reason(clock.now())).await
    }

    /// Resolves when the lease is at risk, was lost, or has ended.
    pub(crate) async fn at_risk(self: &Arc<Grant>, clock: &Arc<dyn Clock>) -> RiskReason {
        self.set_alarm(clock);
        self.until(|grant| grant.risk_reason(clock.now())).await
    }

    /// Sets the alarm, which stays set for the life of the grant.
    fn set_alarm(self: &Arc<Grant>, clock: &Arc<dyn Clock>) {
        let mut is_new = false;
        let alarm = self.cold().alarm.get_or_init(|| {
            is_new = true;
            Arc::new(Alarm { grant: Arc::downgrade(self), clock: clock.clone() })
        });
        if is_new {
            alarm.check(self);
        }
    }

    /// Resolves when the grant is over in any way.
    pub(crate) async fn over(&self) {
        self.until(|grant| grant.is_over().then_some(())).await;
    }

    /// Resolves when `condition` returns a value; it is evaluated again at each notification.
    pub(crate) async fn until<T>(&self, condition: impl Fn(&Grant) -> Option<T>) -> T {
        loop {
            let mut notified = std::pin::pin!(self.cold().changed.notified());
            notified.as_mut().enable();
            // A read-modify-write: either it sees the new state, or the notification sees our flag.
            self.flags.set(Flag::HasListeners);
            if let Some(value) = condition(self) {
                return value;
            }
            notified.await;
        }
    }

    /// Returns a token that is cancelled when the grant is revoked, lost or ended.
    pub(crate) fn cancellation_token(
        self: &Arc<Grant>,
        clock: &Arc<dyn Clock>,
    ) -> CancellationToken {
        let token = self.cold().cancel.get_or_init(CancellationToken::new);
        // A read-modify-write: either it sees the end, or the caller that ends the grant sees the
        // token.
        self.flags.set(Flag::HasListeners);
        let is_revoked = self.flags.is_set(Flag::Revoked);
        if is_revoked || self.is_over() || !self.is_valid(clock.now()) {
            token.cancel();
        }
        self.set_alarm(clock);
        token.clone()
    }
}
