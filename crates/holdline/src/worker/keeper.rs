//! Renews the leases of one client in batches, and notifies their holders.
//!
//! Invariant K1: a lease is removed from the schedule before its release is sent, so a later reply
//! finds nothing.
//! Invariant K2: a renewal never revives a lease that is over ([`Grant`]).
//! Invariant K3: a renewal that fails is repeated until the lease is no longer valid.
//! Invariant K4: every hint is followed by a renewal that is sent after it, and a watch starts with
//! one. So events before it, or while an answer was in transit, are noticed too.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, join_all, select};
use holdline_core::{
    ErrorKind, Expiry, GrantState, Hint, HolderView, LockError, LostReason, Moment, Purpose,
    RenewReply, RenewRequest, renewal,
};

use super::janitor;
use crate::core::ClientState;
use crate::core::final_errors::lost_by;
use crate::core::registry::{Entry, KeptLease, Key, Registry, Stage};
use crate::grant::Grant;
use crate::observer::HoldEnd;

/// Leases that are due within this time share a batch.
const BUNDLE: Duration = Duration::from_millis(50);

/// Starts to keep a grant. Also returns the time of the first check; nothing is due earlier.
///
/// Most leases are released before that, so the rest is planned at the first check only.
pub(crate) fn begin(grant: Arc<Grant>) -> (KeptLease, Moment) {
    let since = grant.since;
    // Renewal and warning are never before a quarter of the remaining time.
    let quarter = since.until(grant.valid_until()) / 4;
    let look = if grant.is_partial() { renewal::EXTEND_AFTER } else { grant.plan.first_look };
    let due = since.after(look.min(quarter));
    let keeping = KeptLease {
        renew_at: Moment::NEVER,
        risk_at: Moment::NEVER,
        watch_at: since.after(renewal::WATCH_AFTER),
        planned_for: None,
        hinted: false,
        failures: 0,
        grant,
    };
    (keeping, due)
}

/// Returns the entry of a lease that is held, planned, and whether a request is in flight.
fn held(registry: &mut Registry, key: Key) -> Option<(&mut KeptLease, &mut bool)> {
    match registry.get(key)? {
        Entry { stage: Stage::Held(keeping), in_flight, .. } => {
            plan_first(keeping);
            Some((keeping, in_flight))
        }
        _ => None,
    }
}

/// Plans the first renewal and warning of a grant.
fn plan_first(keeping: &mut KeptLease) {
    if keeping.planned_for.is_some() {
        return;
    }
    let since = keeping.grant.since;
    plan_next(keeping, since);
    if keeping.grant.is_partial() {
        let quarter = since.until(keeping.grant.valid_until()) / 4;
        keeping.renew_at = since.after(renewal::EXTEND_AFTER.min(quarter));
    }
}

/// Plans the next renewal and warning after the store confirmed a request sent at `sent`.
fn plan_next(keeping: &mut KeptLease, sent: Moment) {
    let grant = &keeping.grant;
    let plan = &grant.plan;
    let until = grant.valid_until();
    let terms = &plan.terms;
    // A renewal that added no time, near `max_hold`, does not move the warning either.
    if Some(until) != keeping.planned_for {
        keeping.planned_for = Some(until);
        keeping.risk_at = grant.risk_at();
    }
    keeping.renew_at = if !plan.renews() {
        Moment::NEVER
    } else {
        // The time until `max_hold` is no measure of the store's lease: a third of it would give
        // ever shorter intervals.
        let is_whole = until != Moment::NEVER && !grant.ends_by_max_hold();
        let left = is_whole.then_some(sent.until(until));
        let at = renewal::renew_at(sent, left, terms, grant.lease_id.as_bytes()[15]);
        on_tick(sent, at)
    };
}

/// Moves a renewal to the tick before it, so that all renewals of one tick are sent together.
/// Otherwise many leases would wake the keeper for a few at a time.
fn on_tick(sent: Moment, at: Moment) -> Moment {
    let tick = BUNDLE.min(sent.until(at) / 16).as_nanos();
    let beyond = u64::try_from(u128::from(at.as_nanos()) % tick.max(1)).unwrap_or(0);
    at.before(Duration::from_nanos(beyond))
}

/// Returns when the keeper must check a lease next.
pub(crate) fn next(keeping: &KeptLease, in_flight: bool) -> Moment {
    let soonest = keeping.grant.valid_until().min(keeping.risk_at).min(keeping.watch_at);
    if in_flight { soonest } else { soonest.min(keeping.renew_at) }
}

/// What to do about a lease, outside the client's mutex.
pub(crate) enum Task {
    Lose(Arc<Grant>),
    Warn(Arc<Grant>),
    Watch(Key, Arc<Grant>),
    Renew(Key, Arc<Grant>, RenewRequest),
}

/// Checks one lease that is due. Returns the time of the next check.
pub(crate) fn check_lease(
    state: &ClientState,
    key: Key,
    keeping: &mut KeptLease,
    in_flight: &mut bool,
    now: Moment,
    tasks: &mut Vec<Task>,
) -> Moment {
    if keeping.grant.is_over() {
        return Moment::NEVER;
    }
    plan_first(keeping);
    let grant = &keeping.grant;
    if !grant.is_valid(now) {
        tasks.push(Task::Lose(grant.clone()));
        return Moment::NEVER;
    }
    if now >= keeping.risk_at {
        keeping.risk_at = Moment::NEVER;
        tasks.push(Task::Warn(grant.clone()));
    }
    if now >= keeping.watch_at {
        keeping.watch_at = Moment::NEVER;
        tasks.push(Task::Watch(key, grant.clone()));
    }
    let bundle = BUNDLE.min(grant.plan.terms.renew_interval() / 16);
    if !*in_flight && now.after(bundle) >= keeping.renew_at {
        *in_flight = true;
        let mut request = grant.renewal(state.client);
        if !grant.wants_renewal() {
            // It must not be extended; the answer still says whether it exists.
            request.purpose = Purpose::Wait;
        }
        tasks.push(Task::Renew(key, grant.clone(), request));
    }
    next(keeping, *in_flight)
}

/// Notifies a holder that its lease is no longer valid.
pub(crate) fn report_lost(state: &ClientState, grant: &Grant, reason: LostReason) {
    if let Some(reason) = grant.mark_lost(reason, state.clock.now()) {
        tracing::warn!(
            parent: grant.span_id(), name = %grant.plan.name, lease_id = %grant.lease_id, %reason,
            "a lease is lost"
        );
        state.observe(|observer| observer.lost(grant.subject(), &reason));
        state.observe_end(grant, || HoldEnd::Lost(reason.clone()));
        free_in_session(state, grant, &reason);
    }
}

/// Releases a lost lease whose session goes on, for as long as the client holds anything else. A
/// store with leases ends it by itself.
fn free_in_session(state: &ClientState, grant: &Grant, reason: &LostReason) {
    let in_session = state.engine.capabilities().expiry == Expiry::Session;
    if in_session && janitor::may_linger(reason) && !grant.plan.keeps_id {
        let ending = grant.ending(grant.unsettled);
        let mut pending = janitor::pending_release(state, &grant.plan, grant.lease_id, ending);
        pending.was_held = true;
        janitor::hand_over(state, None, pending);
    }
}

/// Notifies a holder that its lease is at risk.
pub(crate) fn report_at_risk(state: &ClientState, grant: &Grant) {
    grant.mark_at_risk();
    let remaining = state.clock.now().until(grant.valid_until());
    tracing::debug!(
        parent: grant.span_id(), name = %grant.plan.name, ?remaining, "a lease is at risk"
    );
    state.observe(|observer| observer.at_risk(grant.subject(), remaining));
}

/// One lease of a batch.
pub(crate) type BatchEntry = (Key, Arc<Grant>);

/// Groups leases whose remaining times differ by at most a factor of two. A batch waits for its
/// answer no longer than its most urgent lease can, and then all of it has failed: a lease near its
/// end must not fail the renewal of others.
pub(crate) fn by_urgency<T>(
    mut renewals: Vec<(BatchEntry, T)>,
    now: Moment,
) -> Vec<Vec<(BatchEntry, T)>> {
    let remaining = |((_, grant), _): &(BatchEntry, T)| now.until(grant.valid_until());
    renewals.sort_by_key(remaining);
    let mut groups = Vec::new();
    while let Some(first) = renewals.first() {
        let longest = remaining(first).saturating_mul(2);
        let rest = renewals.partition_point(|entry| remaining(entry) <= longest);
        let later = renewals.split_off(rest);
        groups.push(std::mem::replace(&mut renewals, later));
    }
    groups
}

/// Renews one batch and records each answer.
pub(crate) async fn renew(
    state: Arc<ClientState>,
    entries: Vec<BatchEntry>,
    batch: Vec<RenewRequest>,
) {
    let sent = state.clock.now();
    // Half of the remaining time of the most urgent lease, so that several attempts fit before its
    // end.
    let soonest = entries.iter().map(|(_, grant)| grant.valid_until()).min();
    let timeout = sent.until(soonest.unwrap_or(Moment::NEVER)) / 2;
    let limit = sent.after(timeout.clamp(renewal::MIN_RETRY, state.answer_within));
    let replies = state.await_answer(state.engine.renew(&batch), limit).await;
    let mut replies = replies.unwrap_or_default().into_iter();
    let mut asked_further = Vec::new();
    for (key, grant) in entries {
        match apply_reply(&state, &grant, sent, replies.next()) {
            ReplyEffect::There => asked_further.push((key, grant)),
            effect => record(&state, key, sent, effect, RequestedBy::Worker),
        }
    }
    // Only now, so that a slow store does not delay the answers that have already arrived.
    let asked_further = asked_further.into_iter().map(|(key, grant)| {
        let state = &state;
        async move {
            check_revoked(state, &grant).await;
            record(state, key, sent, ReplyEffect::There, RequestedBy::Worker);
        }
    });
    join_all(asked_further).await;
}

/// Checks whether an operator has revoked a lease that is not renewed, since no renewal reports
/// that.
async fn check_revoked(state: &ClientState, grant: &Grant) {
    let sent = state.clock.now();
    let Ok(snapshot) = state.answer(state.engine.inspect(&grant.plan.name)).await else {
        return;
    };
    let ours = snapshot.holders.into_iter().find(|holder| {
        let summary = &holder.summary;
        summary.lease_id == grant.lease_id.short() && summary.token == Some(grant.token)
    });
    if let Some(HolderView { state: GrantState::Revoked(reason), summary, .. }) = ours {
        revoke(state, grant, sent, reason, summary.left);
    }
}

/// Notifies a holder that an operator has revoked its lease.
fn revoke(
    state: &ClientState,
    grant: &Grant,
    sent: Moment,
    reason: String,
    left: Option<Duration>,
) {
    tracing::warn!(parent: grant.span_id(), name = %grant.plan.name, %reason, "a lease is revoked");
    grant.revoke(sent, reason, left);
    let remaining = state.clock.now().until(grant.valid_until());
    state.observe(|observer| observer.at_risk(grant.subject(), remaining));
}

/// The effect of a reply on the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyEffect {
    /// The store has renewed the lease.
    Kept,
    /// The lease exists; no renewal was requested.
    There,
    /// It is revoked or over: no more renewals.
    NoMore,
    /// Repeat soon.
    Failed,
}

/// Applies one answer to the grant.
pub(crate) fn apply_reply(
    state: &ClientState,
    grant: &Grant,
    sent: Moment,
    reply: Option<Result<RenewReply, LockError>>,
) -> ReplyEffect {
    match reply {
        Some(Ok(RenewReply::Renewed { left })) => {
            let sent = state.validity_start(sent);
            // What was left of a part of the lease says nothing about the pace of renewals.
            let was_partial = grant.is_partial();
            let slack = grant.confirm(state.clock.now(), sent, left);
            if let Some(slack) = slack.filter(|_| !was_partial) {
                state.observe(|observer| observer.renewed(grant.subject(), slack));
            }
            ReplyEffect::Kept
        }
        Some(Ok(RenewReply::Held { .. })) if !grant.wants_renewal() => ReplyEffect::There,
        Some(Ok(RenewReply::Revoked { reason, left })) => {
            if left == Some(Duration::ZERO) {
                report_lost(state, grant, LostReason::Revoked(reason));
            } else {
                revoke(state, grant, sent, reason, left);
            }
            ReplyEffect::NoMore
        }
        Some(Ok(RenewReply::Unknown)) => {
            report_lost(state, grant, LostReason::Missing);
            ReplyEffect::NoMore
        }
        Some(Ok(RenewReply::Held { .. } | RenewReply::Queued { .. })) => {
            grant.record_failure(&unexpected_reply(state));
            ReplyEffect::Failed
        }
        Some(Err(error)) => match lost_by(&error) {
            Some(reason) => {
                report_lost(state, grant, reason);
                ReplyEffect::NoMore
            }
            None => {
                tracing::debug!(parent: grant.span_id(), %error, "a renewal failed");
                grant.record_failure(&error);
                ReplyEffect::Failed
            }
        },
        None => {
            grant.record_failure(&state.no_answer_within(sent.until(state.clock.now())));
            ReplyEffect::Failed
        }
    }
}

/// Makes the error for a reply that a held lease cannot get.
pub(crate) fn unexpected_reply(state: &ClientState) -> LockError {
    let message = "a held lease was answered as a queued one".to_owned();
    state.error(ErrorKind::Protocol { message }, holdline_core::Certainty::Unknown)
}

/// Who requested a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedBy {
    /// The worker, which has at most one in flight for each lease.
    Worker,
    /// A caller, beside the worker.
    Caller,
}

/// Applies the effect of one answer to the schedule.
pub(crate) fn record(
    state: &ClientState,
    key: Key,
    sent: Moment,
    effect: ReplyEffect,
    by: RequestedBy,
) {
    let now = state.clock.now();
    let mut registry = state.registry.lock();
    let Some((keeping, in_flight)) = held(&mut registry, key) else { return };
    if by == RequestedBy::Worker {
        *in_flight = false;
    }
    let in_flight = *in_flight;
    match effect {
        ReplyEffect::Kept => {
            keeping.failures = 0;
            plan_next(keeping, sent);
            // If the store shortened the lease again, it would be renewed without a pause.
            let soonest = now.after(renewal::MIN_RETRY);
            keeping.renew_at = keeping.renew_at.max(soonest);
        }
        // A failed detach may have returned it meanwhile.
        ReplyEffect::There if keeping.grant.wants_renewal() => keeping.renew_at = now,
        ReplyEffect::There => keeping.renew_at = Moment::NEVER,
        ReplyEffect::NoMore => {
            keeping.renew_at = Moment::NEVER;
            keeping.risk_at = Moment::NEVER;
        }
        ReplyEffect::Failed => {
            let pause = renewal::retry_after(keeping.failures, &keeping.grant.plan.terms);
            keeping.failures = keeping.failures.saturating_add(1);
            keeping.renew_at = now.after(pause);
        }
    }
    if !in_flight && std::mem::take(&mut keeping.hinted) {
        keeping.renew_at = keeping.renew_at.min(now.after(renewal::MIN_RETRY));
    }
    let grant = keeping.grant.clone();
    let due = if grant.is_over() { Moment::NEVER } else { next(keeping, in_flight) };
    let wake = registry.schedule(key, due);
    drop(registry);
    state.wake(wake);
    grant.notify_answered();
}

/// Resolves when the worker has no renewal of this lease in flight.
pub(crate) async fn await_idle(state: &ClientState, key: Key, grant: &Grant) {
    let under_way = || state.registry.lock().get(key).is_some_and(|entry| entry.in_flight);
    grant.until(|grant| (grant.is_over() || !under_way()).then_some(())).await;
}

/// Renews a lease as soon as possible. Returns whether it is still kept.
pub(crate) fn renew_soon(state: &ClientState, key: Key) -> bool {
    let now = state.clock.now();
    let mut registry = state.registry.lock();
    let Some((keeping, in_flight)) = held(&mut registry, key) else { return false };
    // A renewal in flight may have been answered before the hint.
    keeping.hinted = *in_flight;
    keeping.renew_at = now;
    let due = next(keeping, *in_flight);
    let wake = registry.schedule(key, due);
    drop(registry);
    state.wake(wake);
    true
}

/// Watches one lease until it is over: a hint triggers a renewal.
pub(crate) async fn watch(state: Arc<ClientState>, key: Key, grant: Arc<Grant>) {
    let mut hints = state.engine.watch(&grant.plan.name, grant.lease_id);
    if !renew_soon(&state, key) {
        return;
    }
    loop {
        let over = std::pin::pin!(grant.over());
        let hint = match select(over, hints.next()).await {
            Either::Left(_) => return,
            Either::Right((hint, _)) => hint,
        };
        match hint {
            // It is held already.
            Some(Hint::Granted { .. }) => {}
            Some(_) if renew_soon(&state, key) => {}
            Some(_) => return,
            None => return watch_later(&state, key),
        }
    }
}

/// Reopens a watch that has ended, one interval later.
fn watch_later(state: &ClientState, key: Key) {
    let now = state.clock.now();
    let mut registry = state.registry.lock();
    let Some((keeping, in_flight)) = held(&mut registry, key) else { return };
    keeping.watch_at = now.after(keeping.grant.plan.terms.renew_interval());
    let due = next(keeping, *in_flight);
    let wake = registry.schedule(key, due);
    drop(registry);
    state.wake(wake);
}

#[cfg(test)]
mod tests {
    use holdline_core::{FencingToken, LeaseId, Mode};

    use super::*;
    use crate::clock::ManualClock;
    use crate::grant::Granted;
    use crate::memory::MemoryEngine;
    use crate::plan::Plan;
    use crate::{ClientOptions, Keep, LockOptions};

    #[test]
    fn nothing_is_due_before_the_first_check() {
        let ms = Duration::from_millis;
        let engine = MemoryEngine::new("look", Arc::new(ManualClock::new()), &<_>::default());
        let core = ClientOptions::default().build(Arc::new(engine)).expect("made");
        let leases = [ms(50), ms(400), ms(3_000), ms(30_000), ms(3_600_000)];
        let max_holds = [None, Some(ms(7)), Some(ms(900)), Some(ms(20_000))];
        for (lease, max_hold) in leases.iter().flat_map(|l| max_holds.iter().map(move |m| (l, m))) {
            let mut options = LockOptions::default().with_lease_duration(*lease);
            if let Some(max_hold) = max_hold {
                options = options.with_max_hold(*max_hold);
            }
            for options in [
                options.clone(),
                options.clone().with_renew_interval(ms(5)),
                options.clone().with_renew_interval(ms(20)),
                options.with_keep(Keep::Fixed),
            ] {
                let plan = core.plan("a", Mode::Exclusive, &options).expect("good");
                let plan = Arc::new(plan);
                for (jitter, part) in [(0, 1), (255, 1), (255, 7), (0, 1_000)] {
                    looked_at_in_time(&plan, part, jitter);
                }
            }
        }
    }

    fn looked_at_in_time(plan: &Arc<Plan>, part: u32, jitter: u8) {
        let left = plan.hold.first().duration().map(|first| first / part);
        let granted = Granted {
            lease_id: LeaseId::from_bytes([jitter; 16]),
            token: FencingToken::MIN,
            sent: Moment::from_nanos(1_000_000_007),
            since: Moment::from_nanos(1_000_000_007),
            left,
            handed: part > 1,
            anchor: None,
            unsettled: false,
        };
        let (mut keeping, first_look) = begin(Arc::new(Grant::new(plan, granted)));
        plan_first(&mut keeping);
        let due = next(&keeping, false);
        assert!(first_look <= due, "{first_look:?} {due:?} {left:?} {:?}", plan.terms);
    }
}
