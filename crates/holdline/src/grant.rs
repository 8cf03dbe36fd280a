//! A live grant, as everything that concerns it shares it.
//!
//! Invariant V2: `valid_until` only grows while the grant is believed, and is the origin once it
//! is over; so a check is one load and one look at the clock.
//! Invariant V3: a grant that was lost or ended stays so: no late reply brings it back.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdline_core::{
    Anchor, FencingToken, LeaseId, LockError, LostReason, Moment, RenewRequest, validity,
};
use holdline_core::{ClientId, Purpose};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{Id, Span};

use crate::observer::Subject;
use crate::plan::Plan;

const AT_RISK: u8 = 1;
const REVOKED: u8 = 2;
const LOST: u8 = 4;
const ENDED: u8 = 8;
const PAUSED: u8 = 16;
/// Somebody listens or has listened: without it nobody needs to be told.
const LISTENED: u8 = 32;
/// What the store has granted is a part of the whole lease only: one renewal reaches that.
const FIRST: u8 = 64;
/// An observer knows that it is held, and not yet that it has ended.
const OBSERVED: u8 = 128;

/// Why a lease is at risk.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RiskReason {
    /// The last renewals have failed; this is the last failure, if one was answered.
    NotRenewed(Option<LockError>),
    /// By its own terms it is not renewed, or not beyond its longest hold, and runs out.
    RunsOut,
    /// An operator revoked it with these words; it is still valid for the time that is left.
    Revoked(String),
    /// It is lost already.
    Lost(LostReason),
    /// The guard was released or dropped.
    Ended,
}

/// One grant. The guard, its handles and the keeper share it.
pub(crate) struct Grant {
    pub(crate) plan: Arc<Plan>,
    pub(crate) lease_id: LeaseId,
    pub(crate) token: FencingToken,
    pub(crate) since: Moment,
    /// It is not believed from here on, and so not renewed.
    max_hold_at: Moment,
    /// A request under the id went unanswered: its end leaves a tombstone.
    pub(crate) unsettled: bool,
    pub(crate) anchor: Option<Anchor>,
    valid_until: AtomicU64,
    state: AtomicU8,
    rare: OnceLock<Box<Rare>>,
}

/// What a grant needs only when something happens to it, or when somebody listens or traces.
struct Rare {
    span: Span,
    bell: Notify,
    cancel: OnceLock<CancellationToken>,
    words: Mutex<Words>,
}

impl Rare {
    fn new(span: Span) -> Box<Rare> {
        let (bell, cancel, words) = (Notify::new(), OnceLock::new(), Mutex::default());
        Box::new(Rare { span, bell, cancel, words })
    }
}

#[derive(Default)]
struct Words {
    lost: Option<LostReason>,
    revoked: Option<String>,
    failure: Option<LockError>,
}

/// What a new grant is made of.
pub(crate) struct Granted {
    pub(crate) lease_id: LeaseId,
    pub(crate) token: FencingToken,
    pub(crate) sent: Moment,
    pub(crate) left: Option<Duration>,
    pub(crate) anchor: Option<Anchor>,
    pub(crate) unsettled: bool,
}

/// Returns until when a lease may be believed of which the store says that so much is left. That is
/// never longer than was asked for: a store whose clock was set back has more to give, until
/// somebody sets it right.
fn believed_until(plan: &Plan, sent: Moment, left: Option<Duration>) -> Moment {
    if let (Some(left), Some((first, believed))) = (left, plan.first_lease)
        && left == first
    {
        return sent.after(believed);
    }
    let asked = plan.hold.duration().unwrap_or(Duration::MAX);
    validity::valid_until(sent, left.map(|left| left.min(asked)), plan.terms.drift_ppm())
}

impl Grant {
    pub(crate) fn new(plan: &Arc<Plan>, granted: Granted) -> Grant {
        let Granted { lease_id, token, sent, left, anchor, unsettled } = granted;
        let max_hold_at = plan.max_hold.map_or(Moment::NEVER, |limit| sent.after(limit));
        let until = believed_until(plan, sent, left).min(max_hold_at);
        let span = tracing::debug_span!(
            "lock.hold", name = %plan.name, mode = %plan.mode, lease_id = %lease_id,
            fencing_token = token.get(),
        );
        Grant {
            plan: plan.clone(),
            lease_id,
            token,
            since: sent,
            max_hold_at,
            unsettled,
            anchor,
            valid_until: AtomicU64::new(until.as_nanos()),
            state: AtomicU8::new(if plan.hold == plan.hold.first() { 0 } else { FIRST }),
            rare: match span.is_disabled() {
                true => OnceLock::new(),
                false => OnceLock::from(Rare::new(span)),
            },
        }
    }

    fn rare(&self) -> &Rare {
        self.rare.get_or_init(|| Rare::new(Span::none()))
    }

    fn words(&self) -> MutexGuard<'_, Words> {
        self.rare().words.lock()
    }

    /// Returns the span of the hold, if somebody traces it.
    pub(crate) fn span_id(&self) -> Option<Id> {
        self.rare.get().and_then(|rare| rare.span.id())
    }

    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject::of(&self.plan, self.lease_id)
    }

    /// An observer is told that it is held.
    pub(crate) fn observe_begin(&self) {
        self.state.fetch_or(OBSERVED, Ordering::Relaxed);
    }

    /// Tells whether an observer is to be told now that it has ended: once, if it was told that it
    /// is held.
    pub(crate) fn observe_end(&self) -> bool {
        self.state.fetch_and(!OBSERVED, Ordering::Relaxed) & OBSERVED != 0
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    /// Tells whether it ends by its longest hold, and not when the store's lease does.
    pub(crate) fn is_cut(&self) -> bool {
        self.valid_until() == self.max_hold_at
    }

    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        now < self.valid_until()
    }

    fn has(&self, flag: u8) -> bool {
        self.state.load(Ordering::Acquire) & flag != 0
    }

    /// Tells whether the keeper renews it: a lease without renewal until it is whole.
    fn is_renewed(&self) -> bool {
        self.plan.renews() || self.has(FIRST)
    }

    /// Tells whether renewals are wanted and would be granted.
    pub(crate) fn wants_renewal(&self) -> bool {
        self.is_renewed() && !self.has(REVOKED | PAUSED)
    }

    /// No renewal leaves until it is resumed: the lease is being given out of this process.
    pub(crate) fn pause_renewals(&self) {
        self.state.fetch_or(PAUSED, Ordering::AcqRel);
    }

    pub(crate) fn resume_renewals(&self) {
        self.state.fetch_and(!PAUSED, Ordering::AcqRel);
    }

    /// Tells whether nothing more can happen to it.
    pub(crate) fn is_over(&self) -> bool {
        self.has(LOST | ENDED)
    }

    /// The line of a renewal batch that keeps this grant.
    pub(crate) fn renewal(&self, client: ClientId) -> RenewRequest {
        RenewRequest {
            name: self.plan.name.clone(),
            lease_id: self.lease_id,
            client,
            purpose: Purpose::Keep(self.plan.hold),
        }
    }

    /// Takes note that the store keeps the lease: `sent` was read before the request left.
    /// Returns the slack, or `None` when the lease may no longer be believed.
    pub(crate) fn confirm(
        &self,
        now: Moment,
        sent: Moment,
        left: Option<Duration>,
    ) -> Option<Duration> {
        let until = believed_until(&self.plan, sent, left).min(self.max_hold_at).as_nanos();
        let extended = self.valid_until.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            (now.as_nanos() < old).then_some(old.max(until))
        });
        let old = extended.ok()?;
        self.state.fetch_and(!FIRST, Ordering::AcqRel);
        // What is near its longest hold stays at risk.
        if until > old || old == Moment::NEVER.as_nanos() {
            self.state.fetch_and(!AT_RISK, Ordering::AcqRel);
        }
        let old = Moment::from_nanos(old);
        if self.rare.get().is_some() {
            self.words().failure = None;
        }
        Some(now.until(old))
    }

    /// Takes note that an operator revoked the grant. It stays valid for what is left at most.
    pub(crate) fn revoke(&self, sent: Moment, reason: String, left: Option<Duration>) {
        let until = validity::valid_until(sent, left, self.plan.terms.drift_ppm());
        self.words().revoked = Some(reason);
        self.valid_until.fetch_min(until.as_nanos(), Ordering::AcqRel);
        self.state.fetch_or(REVOKED | AT_RISK, Ordering::AcqRel);
        self.ring(true);
    }

    /// Tells that one renewal interval is left at most.
    pub(crate) fn risk(&self) {
        self.state.fetch_or(AT_RISK, Ordering::AcqRel);
        self.ring(false);
    }

    pub(crate) fn note_failure(&self, error: &LockError) {
        self.words().failure = Some(error.clone());
    }

    /// Tells that the lease may no longer be believed. Returns the reason when this call was the
    /// first to tell.
    pub(crate) fn lose(&self, reason: LostReason) -> Option<LostReason> {
        let reason = {
            let mut words = self.words();
            if self.is_over() {
                return None;
            }
            let reason = match (reason, words.revoked.take()) {
                (LostReason::Expired | LostReason::Missing, Some(told)) => {
                    LostReason::Revoked(told)
                }
                (LostReason::Expired, None) => self.ran_out(),
                (reason, _) => reason,
            };
            self.valid_until.store(0, Ordering::Release);
            words.lost = Some(reason.clone());
            self.state.fetch_or(LOST, Ordering::AcqRel);
            reason
        };
        self.ring(true);
        Some(reason)
    }

    /// Ends the grant on purpose: whoever still has a handle finds it invalid. Returns why it was
    /// lost, if it was.
    pub(crate) fn end(&self) -> Option<LostReason> {
        self.valid_until.store(0, Ordering::Release);
        let before = self.state.fetch_or(ENDED, Ordering::AcqRel);
        if before & ENDED == 0 {
            self.ring(true);
        }
        if before & LOST == 0 { None } else { self.words().lost.clone() }
    }

    /// An answer about the grant has come.
    pub(crate) fn landed(&self) {
        self.ring(false);
    }

    /// Tells whoever listens; the caller has just changed the state.
    fn ring(&self, cancel: bool) {
        if !self.has(LISTENED) {
            return;
        }
        let rare = self.rare();
        if cancel && let Some(token) = rare.cancel.get() {
            token.cancel();
        }
        rare.bell.notify_waiters();
    }

    /// Says why it may no longer be believed, whether or not somebody has told so.
    pub(crate) fn why_lost(&self) -> LostReason {
        // Nobody is halfway through telling while the lock is ours.
        let words = self.words();
        match &words.lost {
            Some(reason) => reason.clone(),
            None if self.has(ENDED) => LostReason::Released,
            None => self.ran_out(),
        }
    }

    /// Which of its times is over, when one is.
    fn ran_out(&self) -> LostReason {
        if self.is_cut() {
            LostReason::MaxHold
        } else if self.is_renewed() {
            LostReason::Expired
        } else {
            LostReason::RanOut
        }
    }

    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        if self.has(LOST) {
            return self.words().lost.clone();
        }
        self.has(ENDED).then_some(LostReason::Released)
    }

    /// Says why the lease is at risk, if it is.
    pub(crate) fn risk_reason(&self) -> Option<RiskReason> {
        if !self.has(AT_RISK | REVOKED | LOST | ENDED) {
            return None;
        }
        if self.has(LOST) {
            let lost = self.words().lost.clone();
            return Some(RiskReason::Lost(lost.unwrap_or(LostReason::Expired)));
        }
        if self.has(ENDED) {
            return Some(RiskReason::Ended);
        }
        let words = self.words();
        Some(match &words.revoked {
            Some(told) => RiskReason::Revoked(told.clone()),
            None if self.is_renewed() && self.valid_until() < self.max_hold_at => {
                RiskReason::NotRenewed(words.failure.clone())
            }
            None => RiskReason::RunsOut,
        })
    }

    /// Resolves when the lease may no longer be believed, or was ended.
    pub(crate) async fn lost(&self) -> LostReason {
        self.until(Grant::lost_reason).await
    }

    /// Resolves when at most one renewal interval is left, or the lease was lost or ended.
    pub(crate) async fn at_risk(&self) -> RiskReason {
        self.until(Grant::risk_reason).await
    }

    /// Resolves when the grant is over in any way.
    pub(crate) async fn over(&self) {
        self.until(|grant| grant.is_over().then_some(())).await;
    }

    /// Resolves once `told` says something; it is asked anew whenever the grant rings.
    pub(crate) async fn until<T>(&self, told: impl Fn(&Grant) -> Option<T>) -> T {
        loop {
            let mut rung = std::pin::pin!(self.rare().bell.notified());
            rung.as_mut().enable();
            // A read-modify-write: either it sees what is about to ring, or the ring sees us.
            self.state.fetch_or(LISTENED, Ordering::AcqRel);
            if let Some(told) = told(self) {
                return told;
            }
            rung.await;
        }
    }

    /// Returns a token that is cancelled when the grant is revoked, lost or ended.
    pub(crate) fn cancellation_token(&self) -> CancellationToken {
        let token = self.rare().cancel.get_or_init(CancellationToken::new);
        // A read-modify-write: either it sees the end, or whoever ends the grant sees the token.
        let state = self.state.fetch_or(LISTENED, Ordering::AcqRel);
        if state & (REVOKED | LOST | ENDED) != 0 {
            token.cancel();
        }
        token.clone()
    }
}
